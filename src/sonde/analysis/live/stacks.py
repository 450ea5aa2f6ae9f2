"""Asks the processes of a running program where their threads are."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sonde import units
from sonde.errors import SondeError
from sonde.store.alive import LAUNCHER, RUNNING, UNKNOWN, state_of
from sonde.store.folder import PROCESS_FILE, host
from sonde.store.probe import stacks_signal
from sonde.store.process import Info, read_info

WAIT_SECONDS = 3.0
LOOK_SECONDS = 0.05
MOST_BYTES = 1 << 20  # of what one process writes; more is in the file


class StacksAnswer(NamedTuple):
    """What one process answered: the file and the place in it where the answer begins, or why there is none."""

    file: Path | None = None
    begin: int = 0
    problem: str | None = None

    def text(self) -> str:
        """The stacks, as faulthandler writes them: the innermost call first."""
        if self.file is None:
            return ""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            return file.read(MOST_BYTES).decode(errors="replace").rstrip()


def ask(path: Path, machine: str, pid: int | None, seconds: float = WAIT_SECONDS) -> StacksAnswer:
    """Ask one process of this run for the stacks of its threads, and wait for them."""
    number = stacks_signal()
    if machine != host() or pid is None:
        return StacksAnswer(problem="it runs on another machine; run this command there")
    if number is None or not _catches(pid, number):
        return StacksAnswer(problem="it cannot write stacks yet; that works once it has imported torch")
    before = _sizes(path, pid)
    try:
        os.kill(pid, number)
    except OSError as error:
        return StacksAnswer(problem=f"cannot signal it: {error.strerror}")
    return _wait(path, pid, before, seconds)


def _wait(path: Path, pid: int, before: dict[Path, int], seconds: float) -> StacksAnswer:
    """The answer, when it grows no more."""
    until, last = time.monotonic() + seconds, before
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        sizes = _sizes(path, pid)
        grown = [file for file, size in sizes.items() if size > before.get(file, 0)]
        if grown and sizes == last:
            return StacksAnswer(grown[0], before.get(grown[0], 0))
        last = sizes
    return StacksAnswer(problem=f"no response within {units.duration(int(seconds * 1e9))}")


def running(path: Path) -> list[Info]:
    """The processes that may still be there; the same one once. Raises SondeError if the run is over."""
    found: dict[tuple[str, int | None], Info] = {}
    starting = True  # but for its launcher, nobody has recorded anything yet
    for file in sorted(path.glob(f"*/{PROCESS_FILE}")):
        with suppress(SondeError, OSError):
            info = read_info(file.parent, [])
            here = state_of(info) in (RUNNING, UNKNOWN)
            starting &= info.role == LAUNCHER and here
            if info.role != LAUNCHER and here:
                found[info.host, info.pid] = info
    if not found and starting:
        raise SondeError(f"{path.name} is starting: none of its processes records yet. Try again in a moment.")
    if not found:
        raise SondeError(f"{path.name} has ended. {_written(path)}")
    return sorted(found.values(), key=lambda info: (info.rank or 0, info.pid or 0))


def _written(path: Path) -> str:
    files = sorted(file.name for file in path.glob("stacks-*.txt"))
    if not files:
        return "To see the spans that were open at its end, run: sonde show"
    return f"Stacks it wrote earlier, in {path}: {', '.join(files)}."


def named(info: Info) -> str:
    """`pid 4711, rank 1, worker`."""
    where = "" if info.host == host() else f" on {info.host}"
    rank = "" if info.rank is None else f", rank {info.rank}"
    role = f", {info.role}" if info.role not in (None, "main") else ""
    return f"pid {info.pid}{where}{rank}{role}"


def _catches(pid: int, number: int) -> bool:
    """Does the process wait for this signal? One that does not would be killed by it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)", text, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _sizes(path: Path, pid: int) -> dict[Path, int]:
    sizes = {}
    for file in path.glob(f"stacks-{host()}-{pid}*.txt"):
        with suppress(OSError):
            sizes[file] = file.lstat().st_size
    return sizes
