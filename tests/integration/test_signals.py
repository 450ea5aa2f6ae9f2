"""Signals and ends under `sonde run`: the program gets each signal once, and its end is told unchanged."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.integration.launching import HERE, exits, run, script, start

import sonde

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Programs

SECONDS = 120  # for anything to happen, on a busy machine

# Counts the signals that it gets, and ends a while after the first: a second one would still be counted.
COUNTING = """
    import os, signal, sys, time
    got = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: got.append(int(number)))
    print("ready", os.getpid(), flush=True)
    end = time.monotonic() + 100
    while not got and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.6)
    print("got", got, flush=True)
    sys.exit(21)
"""


def wait_for(condition: object, seconds: float = SECONDS) -> None:
    """Wait until the condition holds."""
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_to_the_launcher_reaches_the_program_once(programs: Programs, number: signal.Signals) -> None:
    """The program's own handler decides what becomes of it, and the exit code is the program's."""
    program = start(programs, "-q", str(script(programs.folder, COUNTING)))
    assert program.stdout is not None
    assert program.stdout.readline().startswith("ready")
    program.send_signal(number)
    out, err = program.communicate(timeout=SECONDS)
    assert out == f"got [{int(number)}]\n"
    assert program.returncode == 21, err


def test_a_program_without_a_handler_dies_of_it(programs: Programs) -> None:
    """Death by signal 15 is exit code 143, and stands in the run."""
    program = start(programs, "-q", "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(30)")
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    program.terminate()
    program.communicate(timeout=SECONDS)
    assert program.returncode == 143
    assert exits(programs) == {pid: (None, 15)}


@pytest.mark.parametrize(
    ("code", "expected", "noted"),
    [
        ("raise SystemExit(3)", 3, (3, None)),
        ("raise SystemExit('text')", 1, (1, None)),
        ("1 / 0", 1, (1, None)),
        ("import os; os._exit(255)", 255, (255, None)),
        ("import os; os.kill(os.getpid(), 9)", 137, (None, 9)),
        ("import os; os.abort()", 134, (None, 6)),
    ],
)
def test_the_end_of_the_program_is_told_unchanged(
    programs: Programs, code: str, expected: int, noted: tuple[int | None, int | None]
) -> None:
    """The exit code passes through, and is in the run."""
    run(programs, "-q", "-c", code, code=expected)
    assert list(exits(programs).values()) == [noted]


def test_who_ignores_the_ends_of_children_learns_of_it_all_the_same(programs: Programs) -> None:
    """Some services start programs with SIGCHLD ignored: the kernel then throws exit codes away."""
    start = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "sonde", "run", "-q", "-c", "raise SystemExit(3)"]
    env = programs.environment(None)
    done = subprocess.run([sys.executable, "-c", start, *command], env=env, check=False, timeout=SECONDS)
    assert done.returncode == 3


def read_until(descriptor: int, text: bytes) -> bytes:
    """What comes out of a terminal, up to this text."""
    seen = b""
    until = time.monotonic() + SECONDS
    while text not in seen and time.monotonic() < until:
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                seen += os.read(descriptor, 4096)
            except OSError:  # the other side has closed it
                break
    return seen


def in_terminal(programs: Programs, *words: str | Path) -> tuple[int, int]:
    """Start a Python with these words as the foreground of a terminal of its own; its process, and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(programs.folder)
        os.execve(sys.executable, [sys.executable, *map(str, words)], programs.environment(None))
    return pid, terminal


@pytest.mark.parametrize(("key", "number"), [(b"\x03", 2), (b"\x1c", 3)], ids=["ctrl-c", "ctrl-backslash"])
def test_a_key_in_the_terminal_reaches_the_program_once(programs: Programs, key: bytes, number: int) -> None:
    """The terminal sends it to launcher and program alike; the launcher adds none, and waits for the program's end."""
    pid, terminal = in_terminal(programs, "-m", "sonde", "run", script(programs.folder, COUNTING))
    try:
        read_until(terminal, b"ready")
        os.write(terminal, key)
        assert b"got [%d]" % number in read_until(terminal, b"recorded.")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 21
    finally:
        os.close(terminal)


# What a shell does with a job: a group of its own in the foreground, and again after it was stopped.
SHELL = """
    import os, signal, sys
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-m", "sonde", "run", sys.argv[1]])
    assert os.WIFSTOPPED(os.waitpid(job, os.WUNTRACED)[1])
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
    print("on again", flush=True)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
"""


def test_a_stopped_program_goes_on_with_its_launcher(programs: Programs) -> None:
    """Ctrl-Z stops both, and both go on."""
    shell = script(programs.folder, SHELL, "shell.py")
    path = script(programs.folder, COUNTING)
    pid, terminal = in_terminal(programs, shell, path)
    try:
        read_until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        assert b"stopped" in read_until(terminal, b"stopped")
        os.write(terminal, b"\n")
        assert b"on again" in read_until(terminal, b"on again")
        os.write(terminal, b"\x03")
        assert b"got [2]" in read_until(terminal, b"recorded.")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 21
    finally:
        os.close(terminal)


def test_a_launcher_that_was_stopped_sends_nothing_that_nobody_sent(programs: Programs) -> None:
    """However long and however often; and what is sent to it while it is stopped reaches the program, once."""
    program = start(programs, "-q", str(script(programs.folder, COUNTING)))
    assert program.stdout is not None
    assert program.stdout.readline().startswith("ready")
    for length in (1.5, 1.1, 1.5):
        time.sleep(0.1)
        program.send_signal(signal.SIGSTOP)
        time.sleep(length)
        program.send_signal(signal.SIGCONT)
    time.sleep(0.3)  # it would be there by now
    program.send_signal(signal.SIGSTOP)
    program.send_signal(signal.SIGUSR2)
    time.sleep(1.1)
    program.send_signal(signal.SIGCONT)
    out, err = program.communicate(timeout=SECONDS)
    assert out == f"got [{int(signal.SIGUSR2)}]\n"
    assert program.returncode == 21, err


def test_a_killed_launcher_leaves_a_program_that_goes_on_and_can_be_found(programs: Programs) -> None:
    """The run is readable and counts as recording, also while the program has recorded nothing; it names its process.

    Of the launcher itself the table says that it died, then and afterwards.
    """
    code = "import os, time\nprint(os.getpid(), flush=True)\ninput()\n" + HERE
    program = start(programs, "-q", str(script(programs.folder, code)), stdin=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    pid = int(program.stdout.readline())
    program.kill()
    program.wait(timeout=SECONDS)
    assert alive(pid)
    commands = programs.rows("select key, args->>'command' from events where cat = 'process' and name = 'start'")
    assert [key for key, _ in commands] == [pid]
    with sonde.open_run(programs.only) as opened:
        assert opened.state == "recording"
    assert programs.rows("select state from processes where role = 'launcher'") == [("died",)]
    program.stdin.write("\n")
    program.stdin.close()
    wait_for(lambda: not alive(pid))
    assert programs.rows("select count(*) from events where name = 'here'") == [(1,)]
    launcher = next(facts for facts in programs.processes if facts["role"] == "launcher")
    assert launcher["end"] is None
    assert programs.rows("select role, state from processes order by 1") == [("launcher", "died"), ("main", "ended")]
    program.stdout.close()
    program.stderr.close()
