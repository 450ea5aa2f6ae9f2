"""Supervises a watched program: a separate process that starts it, reads its output, and outlives the screen."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
import termios
import threading
import tty
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sonde import launch, system
from sonde.errors import CommandRefused, FolderRefused, SettingError
from sonde.guard import guard
from sonde.store.folder import open_new, opened, write_all

OUTPUT = "output"
SUFFIX = ".log"
CHUNK = 1 << 16
DRAIN_SECONDS = 0.2  # for output that is still on its way when the program has ended
FAILED = 1
DEAD = (b"Z", b"X")  # for the kernel: those that ended, and that nobody has waited for


class WatchedProgram:
    """A program and its supervisor. `run` is None if nothing is recorded; the output then goes to the terminal as it is.

    `lost`: the supervisor was killed. The program's exit code will be unknown. Its output is read here from then on, because a
    program whose output is not read would block.
    """

    def __init__(self, supervisor: int, program: int, terminal: int, run: str | None, output: str | None) -> None:
        """Use `keep` instead."""
        self.supervisor = supervisor
        self.program = program
        self.run = run
        self.output = output
        self.notices: list[str] = []
        self.lost = False
        self._terminal = terminal
        self._began = system.start_ticks(program)
        self._code: int | None = None
        self._over = threading.Event()
        threading.Thread(target=self._attend, name="sonde supervisor", daemon=True).start()

    def resize(self, columns: int, rows: int) -> None:
        """Tell the program how large its terminal is."""
        with suppress(OSError):
            set_size(self._terminal, columns, rows)

    def signal(self, number: int) -> None:
        """Send a signal to the program, by way of its supervisor."""
        with suppress(ProcessLookupError):
            if self.lost and self.runs():
                os.killpg(self.program, number)
            elif not self._over.is_set():
                os.kill(self.supervisor, number)

    def runs(self) -> bool:
        """Whether the program runs, as far as the kernel shows."""
        if self._began is None or system.start_ticks(self.program) != self._began:
            return False
        with suppress(OSError), open(f"/proc/{self.program}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in DEAD
        return False

    def poll(self) -> int | None:
        """The exit code of the program; None while it runs, or if nobody knows."""
        return self._code

    def wait(self) -> int | None:
        """Wait for the end of the program; its exit code, or None if the supervisor was killed."""
        self._over.wait()
        return self._code

    def _attend(self) -> None:
        """Wait for the end of the supervisor, which ends with the program and has its exit code."""
        _, status = os.waitpid(self.supervisor, 0)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            self._code = code
        else:
            self.lost = True
            with guard("forwarding the program's output"):
                _pump(self._terminal, _appended(self.run, self.output), threading.Event())
        self._over.set()


def keep(line: Sequence[str], options: launch.Options, columns: int, rows: int) -> WatchedProgram:
    """Start a program on a terminal of its own. Raises CommandRefused or SettingError if it cannot be started."""
    terminal, program_end = os.openpty()
    tty.setraw(program_end)  # what it writes arrives as it was written
    set_size(terminal, columns, rows)
    ear, mouth = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(ear)
        _become_supervisor(line, options, terminal, program_end, mouth)
    os.close(program_end)
    os.close(mouth)
    answer = _hear(ear)
    if "refused" in answer or not answer:
        os.close(terminal)
        os.waitpid(supervisor, 0)
        _raise(answer)
    watched = WatchedProgram(supervisor, answer["program"], terminal, answer["run"], answer["output"])
    watched.notices += answer["notices"]
    return watched


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", max(rows, 1), max(columns, 1), 0, 0))


def _hear(ear: int) -> dict[str, Any]:
    """What the supervisor tells when the program was started, or could not be."""
    with os.fdopen(ear, "rb") as file:
        answer: dict[str, Any] = json.loads(file.read() or b"{}")
    return answer


def _raise(answer: dict[str, Any]) -> None:
    if answer.get("setting"):
        raise SettingError(answer["refused"])
    raise CommandRefused(answer.get("refused", "Could not start the program."), answer.get("code", FAILED))


# ── the supervisor ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _become_supervisor(
    line: Sequence[str], options: launch.Options, terminal: int, program_end: int, mouth: int
) -> None:
    """Never returns: the process ends with the exit code of the program."""
    code = FAILED
    try:
        os.setsid()  # neither Ctrl-C nor the end of the user's terminal is meant for it
        screen = os.dup(1)
        _leave_terminal()
        with launch.blocked() as before:
            launched = _started(line, options, program_end, mouth, before)
            if launched is not None:
                os.close(program_end)
                code = _stay(launched, terminal, screen, mouth)
    finally:
        os._exit(code)


def _leave_terminal() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _started(
    line: Sequence[str], options: launch.Options, program_end: int, mouth: int, mask: set[int]
) -> launch.Launched | None:
    try:
        return launch.start(line, options, output=program_end, mask=mask)
    except CommandRefused as error:
        _send(mouth, {"refused": str(error), "code": error.exit_code})
    except SettingError as error:
        _send(mouth, {"refused": str(error), "setting": True})
    return None


def _stay(launched: launch.Launched, terminal: int, screen: int, mouth: int) -> int:
    """Take the output until the end of the program; its exit code."""
    name, sink = _sink(launched.run, screen)
    _send(
        mouth,
        {"program": launched.pid, "run": launched.run, "output": name, "notices": list(launched.notices)},
    )
    over = threading.Event()
    pump = threading.Thread(target=_pump, args=(terminal, sink, over), daemon=True)
    pump.start()
    code = launch.attend(launched)
    over.set()
    pump.join()
    return code


def _sink(run: str | None, screen: int) -> tuple[str | None, int]:
    """Where the output goes: a new file in the run folder; without a run, the terminal."""
    if run is None:
        return None, screen
    with opened(run) as folder:
        for name in (OUTPUT + SUFFIX, f"{OUTPUT}-{os.getpid()}{SUFFIX}"):
            with suppress(FolderRefused):  # another program of the same run has one
                return name, open_new(folder, name, os.O_WRONLY)
    return None, os.open(os.devnull, os.O_WRONLY)


def _appended(run: str | None, output: str | None) -> int:
    """Where the output goes on: the end of its file; without a run, the terminal."""
    if run is None:
        return 1
    with suppress(OSError):
        if output is not None:
            return os.open(os.path.join(run, output), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    return os.open(os.devnull, os.O_WRONLY)  # there is none, or it is gone


def _pump(terminal: int, sink: int, over: threading.Event) -> None:
    """Copy what the program writes, byte by byte the same. A full disk costs the copy, never the program."""
    while True:
        ready, _, _ = select.select([terminal], [], [], DRAIN_SECONDS)
        if not ready:
            if over.is_set():
                return
            continue
        try:
            content = os.read(terminal, CHUNK)
        except OSError:  # nobody has the other end any more
            return
        with suppress(OSError):
            write_all(sink, content)


def _send(mouth: int, what: dict[str, Any]) -> None:
    with suppress(OSError):
        write_all(mouth, json.dumps(what).encode())
    os.close(mouth)
