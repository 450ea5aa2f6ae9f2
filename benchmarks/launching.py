"""What `sonde run` and `sonde watch` cost beside the program: processes, memory, CPU, and the time to the first screen.

Memory is told three times. The budgets are about RSS: it is what `top` shows and what the peers were measured by, and it is never
too small, although it counts a library again for each process that has it open. PSS divides its pages among these: nearer
to the truth on a machine that does nothing else, but another program that has DuckDB open makes it 20 MB less. `own` is
anonymous memory: what remains when the system takes back the pages of files, which it may at any time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.subjects import scratch
from sonde.cli.live.liveverdict import SHARE

PATIENCE = 120.0
SETTLE = 1.0  # seconds from the first screen to the measurement
WINDOW = 8.0  # seconds in which CPU is measured
EVERY = 0.1  # seconds between two looks at memory; a verdict takes about a second
SIZES = ("Rss", "Pss", "Anonymous")
TICKS = os.sysconf("SC_CLK_TCK")
MB = 1e6

# Trains until the file `stop` is there; `first` holds its number, and its clock after the first step.
PROGRAM = """
import os, time, torch
torch.set_num_threads(1)
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
step = 0
while not os.path.exists("stop"):
    optimizer.zero_grad()
    net(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    if step == 0:
        with open("draft", "w") as file:
            file.write(f"{os.getpid()} {time.monotonic()}")
        os.rename("draft", "first")
    step += 1
"""


class Screen:
    """The other end of a terminal: what was drawn, without its codes."""

    def __init__(self) -> None:
        self.end, self.other = os.openpty()
        fcntl.ioctl(self.other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._drawn = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while content := os.read(self.end, 65536):
                self._drawn += content

    def shows(self, *words: str) -> bool:
        """Was all of this ever drawn?"""
        text = re.sub(rb"\x1b(\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])", b"", bytes(self._drawn)).decode(errors="replace")
        return all(word in text for word in words)


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"it did not happen within {PATIENCE:g} s: {what}")
        time.sleep(0.01)


@contextmanager
def _started(folder: Path, screen: Screen, *words: str) -> Iterator[tuple[int, float]]:
    """`sonde WORDS train.py` in this folder, from the first step on: the program's number, and when that step was over."""
    (folder / "train.py").write_text(PROGRAM)
    env = {**os.environ, "SONDE_DIR": str(folder / "runs"), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "sonde", *words, "train.py"]
    other = screen.other
    launcher = subprocess.Popen(
        command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other, start_new_session=True
    )
    try:
        wait_until((folder / "first").exists, "the first step")
        pid, when = (folder / "first").read_text().split()
        yield int(pid), float(when)
    finally:
        (folder / "stop").touch()
        with suppress(OSError):
            os.write(screen.end, b"q")
        wait_until(lambda: not _beside(folder, 0), "the end of all processes")
        launcher.wait()


def _beside(folder: Path, program: int) -> list[int]:
    """The processes that work in this folder, without the program."""
    found = []
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            if entry.isdigit() and int(entry) != program and os.readlink(f"/proc/{entry}/cwd") == str(folder.resolve()):
                found.append(int(entry))
    return found


def _fields(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _sizes(pids: list[int]) -> tuple[float, float, float]:
    """RSS, PSS and anonymous memory of processes, in MB; of those that are still there."""
    total = [0, 0, 0]
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            found = dict(re.findall(r"^(Rss|Pss|Anonymous):\s+(\d+)", text, re.MULTILINE))
            if len(found) == 3:  # one that is ending has no memory any more
                total = [before + int(found[name]) for before, name in zip(total, SIZES, strict=True)]
    rss, pss, own = (size * 1024 / MB for size in total)
    return rss, pss, own


def _cpu(pid: int) -> float:
    """Seconds, without those of children."""
    return sum(map(int, _fields(pid)[11:13])) / TICKS


class Look(NamedTuple):
    """What there is beside the program at a moment."""

    processes: int
    judging: bool  # one of them makes a verdict
    rss_mb: float
    pss_mb: float
    own_mb: float


def _looks(folder: Path, program: int, enough: Callable[[list[Look]], bool]) -> list[Look]:
    """Look again and again, so often that no verdict is missed, until that is enough."""
    looks: list[Look] = []

    def look() -> bool:
        here = _beside(folder, program)
        looks.append(Look(len(here), any(map(_judges, here)), *_sizes(here)))
        time.sleep(EVERY)
        return enough(looks)

    wait_until(look, "what was to be measured")
    return looks


def _for(seconds: float) -> Callable[[list[Look]], bool]:
    end = time.monotonic() + seconds
    return lambda _: time.monotonic() >= end


def _judges(pid: int) -> bool:
    with suppress(OSError):
        return b"sonde.diagnosis" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _judged(looks: list[Look]) -> bool:
    """Whether a verdict was made, from beginning to end."""
    return any(look.judging for look in looks) and not looks[-1].judging


def _measured(folder: Path, program: int, *, judged: bool) -> dict[str, float]:
    """Beside the program: processes and memory, usually and at most; CPU in percent of a core of those that stay.

    `judged`: a verdict is made meanwhile, and is waited for.
    """
    looks = _looks(folder, program, _for(SETTLE))
    begun, cpu = time.monotonic(), {pid: _cpu(pid) for pid in _beside(folder, program)}
    looks += _looks(folder, program, _for(WINDOW))
    here = _beside(folder, program)
    stayed = sum(_cpu(pid) - before for pid, before in cpu.items() if pid in here)
    share = 100 * stayed / (time.monotonic() - begun)
    if judged and not _judged(looks):
        looks += _looks(folder, program, lambda more: _judged([*looks, *more]))
    return {
        **{name: median(getattr(look, name) for look in looks) for name in ("processes", "rss_mb", "pss_mb")},
        **{f"most_{name}": max(getattr(look, name) for look in looks) for name in ("rss_mb", "pss_mb", "own_mb")},
        "cpu_percent": share,
    }


def _run() -> dict[str, float]:
    with scratch() as name, _started(Path(name), Screen(), "run", "--quiet") as (program, _):
        return _measured(Path(name), program, judged=False)


def _watch() -> dict[str, float]:
    screen = Screen()
    with scratch() as name, _started(Path(name), screen, "watch") as (program, first):
        wait_until(lambda: screen.shows("forward", "backward"), "the first screen")
        seconds = time.monotonic() - first
        found = _measured(Path(name), program, judged=True)
        found["cpu_percent"] += 100 * SHARE  # what makes verdicts comes and goes, and takes no more than that
        return {"first_screen_s": seconds, **found}


def measure(rounds: int = 3) -> dict[str, Any]:
    """Both commands, each several times; the medians."""
    found: dict[str, Any] = {}
    for name, once in (("run", _run), ("watch", _watch)):
        rows = [once() for _ in range(rounds)]
        found[name] = {key: median(row[key] for row in rows) for key in rows[0]}
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
