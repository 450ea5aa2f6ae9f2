"""`sonde watch` as a person uses it: in a terminal of its own (a pty), in a pipe, with Ctrl-C, detached and attached."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.launching import TRAINING, script

from sonde.analysis.run import open_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.conftest import Programs

SECONDS = 240  # for anything to happen, on a busy machine

# Trains without torch: it says itself what it does, and goes on until the file `stop` is there.
STEPPING = """
    import os, sys, time
    import sonde
    print("ready", os.getpid(), flush=True)
    step = 0
    while not os.path.exists("stop"):
        sonde.ai.update(step=step)
        with sonde.ai.compute.forward:
            time.sleep(0.002)
        with sonde.ai.compute.backward:
            time.sleep(0.004)
        step += 1
        sys.stdout.write(f"\\rstep {step}")
        sys.stdout.flush()
    print("\\nstopped at", step)
"""


class Terminal:
    """A terminal with a program in it; `text` is all that was ever drawn, without its codes."""

    def __init__(
        self, command: list[str], folder: Path, env: dict[str, str], size: tuple[int, int] = (120, 40)
    ) -> None:
        self._end, other = os.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, cwd=folder, env=env, start_new_session=True
        )
        os.close(other)
        self._drawn = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while content := os.read(self._end, 65536):
                self._drawn += content

    @property
    def raw(self) -> bytes:
        return bytes(self._drawn)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])", "", self.raw.decode(errors="replace"))

    def press(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def wait(self) -> int:
        return self.process.wait(timeout=SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._end)


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"it did not happen: {what}"
        time.sleep(0.02)


@pytest.fixture
def terminals(programs: Programs) -> Iterator[Callable[..., Terminal]]:
    """Opens terminals with `sonde WORDS` in them; whatever runs is ended afterwards."""
    opened: list[Terminal] = []

    def open_terminal(*words: str, size: tuple[int, int] = (120, 40), env: dict[str, str] | None = None) -> Terminal:
        environment = programs.environment({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})})
        for name in ("COLUMNS", "LINES", *(() if env else ("NO_COLOR",))):  # the terminal itself says how large it is
            environment.pop(name, None)
        opened.append(Terminal([sys.executable, "-m", "sonde", *words], programs.folder, environment, size))
        return opened[-1]

    yield open_terminal
    (programs.folder / "stop").touch()
    for terminal in opened:
        terminal.close()


def the_run(programs: Programs) -> Path:
    (found,) = [path for path in programs.dir.iterdir() if path.is_dir()]
    return found


def test_a_training_is_on_the_screen(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """A script with torch and without any edit: its steps, phases, items, memory and output."""
    program = TRAINING + "\n    for _ in range(8):\n        train(method='fork')\n    print('trained', flush=True)\n"
    terminal = terminals("watch", str(script(programs.folder, program)), size=(120, 48))
    until(lambda: "■ finished" in terminal.text, f"the end of the training {terminal.text[-2000:]}")
    for part in ("samples/s", "p50", "input wait", "slowest items", "memory", "trained"):
        until(lambda part=part: part in terminal.text, part)  # type: ignore[misc]  # the screen is drawn piece by piece
    terminal.press(b"q")
    assert terminal.wait() == 0
    assert "the program ended with exit code 0" in terminal.text


def test_q_detaches_and_the_program_goes_on(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """Its first numbers are there while it runs. It can be watched again from another terminal, and ends as if nobody had
    ever looked.
    """
    terminal = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in terminal.text and "backward" in terminal.text, "the first screen")
    assert "● running" in terminal.text
    terminal.press(b"q")
    assert terminal.wait() == 0
    assert "the program continues (pid " in terminal.text
    again = terminals("watch")
    until(lambda: "● running" in again.text and "ready" in again.text, "the second screen with the output")
    (programs.folder / "stop").touch()
    until(lambda: "■ finished" in again.text, "the end on the second screen")
    again.press(b"q")
    assert again.wait() == 0
    assert b"stopped at" in (the_run(programs) / "output.log").read_bytes()


def test_a_killed_screen_does_not_end_the_program(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """Nor does closing the window."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in terminal.text, "the first screen")
    terminal.process.kill()
    terminal.wait()
    output = the_run(programs) / "output.log"
    size = output.stat().st_size
    until(lambda: output.stat().st_size > size, "more output")
    (programs.folder / "stop").touch()
    until(lambda: b"stopped at" in output.read_bytes(), "the end")


def supervisor_of(programs: Programs) -> tuple[int, int]:
    """The process of the supervisor, and that of its program."""
    program = int(re.findall(rb"ready (\d+)", (the_run(programs) / "output.log").read_bytes())[0])
    return int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1]), program


def test_a_killed_supervisor_does_not_stop_the_program(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """The screen says so and reads the output, which it goes on doing after it was left."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in terminal.text, "the first screen")
    supervisor, program = supervisor_of(programs)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: "supervisor process was killed" in terminal.text, "the notice")
    output = the_run(programs) / "output.log"
    size = output.stat().st_size
    until(lambda: output.stat().st_size > size + 10_000, "more output than a terminal holds")
    terminal.press(b"q")
    until(lambda: f"Your program continues (pid {program})" in terminal.text, "the words on leaving")
    size = output.stat().st_size
    until(lambda: output.stat().st_size > size + 10_000, "more output after the screen was left")
    (programs.folder / "stop").touch()
    assert terminal.wait() == 1
    assert "the program's exit code is unknown" in terminal.text
    assert b"stopped at" in output.read_bytes()


def test_without_its_supervisor_a_program_can_be_interrupted_and_no_exit_code_is_made_up(
    programs: Programs, terminals: Callable[..., Terminal]
) -> None:
    """Ctrl-C reaches it without the supervisor, too."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in terminal.text, "the first screen")
    os.kill(supervisor_of(programs)[0], signal.SIGKILL)
    until(lambda: "supervisor process was killed" in terminal.text, "the notice")
    terminal.press(b"\x03")
    until(lambda: "(KeyboardInterrupt)" in terminal.text, "the end")
    terminal.press(b"q")
    assert terminal.wait() == 1
    assert "the program's exit code is unknown, because Sonde's supervisor process was killed" in terminal.text
    assert "exit code -9" not in terminal.text
    assert b"KeyboardInterrupt" in (the_run(programs) / "output.log").read_bytes()


def test_a_run_folder_that_is_removed_is_told(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """On every screen; the one that the program was started on knows how it ended all the same."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING + "\n    sys.exit(5)\n")))
    until(lambda: "forward" in terminal.text, "the first screen")
    other = terminals("watch")
    until(lambda: "forward" in other.text, "the second screen")
    shutil.rmtree(the_run(programs))
    for screen in (terminal, other):
        until(lambda screen=screen: "the run folder was deleted" in screen.text, "the notice")  # type: ignore[misc]
        until(lambda screen=screen: "✖ gone" in screen.text, "the state")  # type: ignore[misc]
    (programs.folder / "stop").touch()
    until(lambda: "✖ crashed (exit code 5)" in terminal.text, "the end")
    for screen in (terminal, other):
        screen.press(b"q")
    assert (terminal.wait(), other.wait()) == (5, 0)
    assert "the program ended with exit code 5. Its run folder was deleted." in terminal.text
    assert "died" not in other.text


def test_ctrl_c_interrupts_the_program(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """As without a screen: KeyboardInterrupt, its traceback, its exit code."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in terminal.text, "the first screen")
    terminal.press(b"\x03")
    until(lambda: "■ interrupted" in terminal.text, "the end")
    terminal.press(b"q")
    assert terminal.wait() == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in terminal.text.rpartition("the program ended")[0]


def test_the_closing_line_tells_how_it_stands_when_the_screen_is_left(
    programs: Programs, terminals: Callable[..., Terminal]
) -> None:
    """The program has ended since the screen last looked."""
    path = script(programs.folder, STEPPING + "\n    sys.exit(5)\n")
    terminal = terminals("watch", "--refresh", "3600", str(path))
    until(lambda: "forward" in terminal.text, "the first screen")
    (programs.folder / "stop").touch()
    until(lambda: open_run(the_run(programs)).state == "ended", "the end of the run")
    terminal.press(b"q")
    assert terminal.wait() == 5
    closing = terminal.text.rpartition("the program ended with exit code 5")[0].rpartition("sonde: ")[0]
    assert "| crashed (exit code 5) |" in closing.rpartition("sonde: ")[2]


def test_ctrl_c_where_the_program_is_not_ours_only_leaves(
    programs: Programs, terminals: Callable[..., Terminal]
) -> None:
    """Whoever attached may not stop it by accident."""
    first = terminals("watch", str(script(programs.folder, STEPPING)))
    until(lambda: "forward" in first.text, "the first screen")
    second = terminals("watch")
    until(lambda: "forward" in second.text, "the second screen")
    second.press(b"\x03")
    assert second.wait() == 0
    assert first.process.poll() is None
    assert "■ finished" not in first.text


def test_output_is_kept_byte_for_byte_and_the_program_has_a_terminal(
    programs: Programs, terminals: Callable[..., Terminal]
) -> None:
    """Line ends, colours and bytes that are no text; standard error too. The run has its exit code, as under `sonde run`."""
    program = """
        import os, sys
        os.write(1, b"tty %d%d\\n" % (os.isatty(1), os.isatty(2)))
        os.write(1, b"a\\r\\nb\\rc\\tq\\x1b[31mred\\x1b[0m\\x00\\xff\\n")
        os.write(2, b"error\\n")
        os.write(1, b"x" * 300_000 + b"\\nend\\n")
        sys.exit(3)
    """
    terminal = terminals("watch", str(script(programs.folder, program)))
    until(lambda: "✖ crashed" in terminal.text, "the end")
    terminal.press(b"q")
    assert terminal.wait() == 3
    content = (the_run(programs) / "output.log").read_bytes()
    expected = b"tty 11\na\r\nb\rc\tq\x1b[31mred\x1b[0m\x00\xff\nerror\n" + b"x" * 300_000 + b"\nend\n"
    assert content == expected
    assert (the_run(programs) / "output.log").stat().st_mode & 0o777 == 0o600
    assert "exit code 3" in terminal.text
    with open_run(the_run(programs)) as run:
        codes = "SELECT cast(args->>'code' AS INT) FROM events WHERE cat = 'process' AND name = 'exit'"
        assert run.sql(codes).fetchall() == [(3,)]


def test_a_narrow_terminal_without_colours(programs: Programs, terminals: Callable[..., Terminal]) -> None:
    """60 columns, NO_COLOR: letters make the bar, and no colour code is written."""
    terminal = terminals("watch", str(script(programs.folder, STEPPING)), size=(60, 20), env={"NO_COLOR": "1"})
    until(lambda: "FFFF" in terminal.text and "BBBB" in terminal.text, "the bar")
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-8]|4[0-8])[;m]", terminal.raw)


def test_without_a_terminal_lines_come_on_the_error_channel(programs: Programs) -> None:
    """The program's own output stays what it was, and so does its exit code."""
    path = script(programs.folder, STEPPING + "\n    sys.exit(5)\n")
    command = [sys.executable, "-m", "sonde", "watch", "--refresh", "0.5", str(path)]
    watch = subprocess.Popen(
        command, cwd=programs.folder, env=programs.environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert watch.stderr is not None
    bounded = threading.Timer(SECONDS, watch.kill)
    bounded.start()
    assert any(b"| running |" in line for line in iter(watch.stderr.readline, b""))
    bounded.cancel()
    (programs.folder / "stop").touch()
    out, rest = watch.communicate(timeout=SECONDS)
    assert watch.returncode == 5
    assert out.startswith(b"ready ")
    steps = int(out.rpartition(b"\nstopped at ")[2])
    assert f"crashed (exit code 5) | step {steps - 1}" in rest.decode().splitlines()[-1]
    assert b"\x1b" not in rest


@pytest.fixture
def no_textual(programs: Programs) -> dict[str, str]:
    """An environment in which Textual cannot be imported."""
    broken = programs.folder / "broken" / "textual"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'textual'\")")
    return {"PYTHONPATH": f"{broken.parent}:{programs.environment(None)['PYTHONPATH']}"}


def test_lines_need_no_textual(programs: Programs, no_textual: dict[str, str]) -> None:
    """Lines work where the screen cannot be loaded."""
    path = script(programs.folder, "import sys, sonde\nsonde.init()\nsonde.mark('here')\nsys.exit(3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "sonde", "watch", "--plain", "--refresh", "0.2", str(path)],
        cwd=programs.folder,
        env=programs.environment(no_textual),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "exit code 3" in done.stderr


def test_a_screen_that_fails_leaves_the_program_its_exit_code(
    programs: Programs, terminals: Callable[..., Terminal], no_textual: dict[str, str]
) -> None:
    """The command waits for the program instead."""
    path = script(programs.folder, STEPPING + "\n    sys.exit(5)\n")
    terminal = terminals("watch", str(path), env=no_textual)
    until(lambda: "the program continues without a screen" in terminal.text, "the notice")
    (programs.folder / "stop").touch()
    assert terminal.wait() == 5
    with open_run(the_run(programs)) as run:
        assert run.state == "ended"


@pytest.mark.parametrize("streams", ["<&-", "2>/dev/full", "2>&-", ">&-"])
def test_streams_that_are_closed_or_full_cost_the_program_nothing(programs: Programs, streams: str) -> None:
    """It is started, and its exit code is passed on."""
    path = script(programs.folder, "import sys, sonde\nsonde.init()\nsonde.mark('here')\nsys.exit(3)\n")
    line = f"exec {sys.executable} -m sonde watch --refresh 0.2 {path} {streams}"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=programs.folder,
        env=programs.environment(None),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert programs.rows("select name from events where name = 'here'") == [("here",)]


def test_a_finished_run_in_a_pipe_is_one_line(programs: Programs) -> None:
    """`sonde watch RUN | cat` says how it ended, and ends."""
    programs.run("import sonde\nsonde.init()\nwith sonde.span('x'): pass\n")
    command = [sys.executable, "-m", "sonde", "watch"]
    found = subprocess.run(
        command, cwd=programs.folder, env=programs.environment(None), capture_output=True, timeout=SECONDS, check=False
    )
    (line,) = found.stdout.decode().splitlines()
    assert (found.returncode, found.stderr) == (0, b"")
    assert "| finished | step n/a" in line


def test_a_missing_script_is_told_before_there_is_a_screen(
    programs: Programs, terminals: Callable[..., Terminal]
) -> None:
    """With the exit code of Python, and no run."""
    terminal = terminals("watch", "trian.py")
    assert terminal.wait() == 2
    assert "No such script: trian.py" in terminal.text
    assert "\x1b[?1049h" not in terminal.raw.decode(errors="replace")
    assert not programs.dir.exists()
