"""What `sonde run` and `sonde watch` cost beside the program: processes, memory, CPU, and the time to the first screen."""

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
from typing import Any

from benchmarks.subjects import scratch
from sonde.cli.judge import SHARE

PATIENCE = 120.0
SETTLE = 1.0  # seconds from the first screen to the measurement
WINDOW = 8.0  # seconds in which CPU is measured
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
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


def _until(condition: Callable[[], object], what: str) -> None:
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
        _until((folder / "first").exists, "the first step")
        pid, when = (folder / "first").read_text().split()
        yield int(pid), float(when)
    finally:
        (folder / "stop").touch()
        with suppress(OSError):
            os.write(screen.end, b"q")
        _until(lambda: not _beside(folder, 0), "the end of all processes")
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


def _rss(pids: list[int]) -> float:
    return sum(int(fields[21]) * PAGE for fields in map(_fields, pids) if fields) / MB


def _private(pids: list[int]) -> float:
    """Without the pages of files, mostly of libraries, which the system may take back at any time."""
    found = 0.0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/status").read_text()
            found += sum(map(int, re.findall(r"^RssAnon:\s+(\d+)", text, re.MULTILINE))) * 1024 / MB
    return found


def _cpu(pid: int) -> float:
    """Seconds, without those of children."""
    return sum(map(int, _fields(pid)[11:13])) / TICKS


def _measured(folder: Path, program: int) -> dict[str, float]:
    """Beside the program: processes and memory, usually and at most; CPU in percent of a core of those that stay."""
    time.sleep(SETTLE)
    begun, cpu = time.monotonic(), {pid: _cpu(pid) for pid in _beside(folder, program)}
    counts, sizes, own = [], [], []
    while time.monotonic() < begun + WINDOW:
        here = _beside(folder, program)
        counts.append(len(here))
        sizes.append(_rss(here))
        own.append(_private(here))
        time.sleep(0.25)
    stayed = sum(_cpu(pid) - before for pid, before in cpu.items() if pid in here)
    share = 100 * stayed / (time.monotonic() - begun)
    return {
        "processes": median(counts), "rss_mb": median(sizes), "most_rss_mb": max(sizes), "most_private_mb": max(own),
        "cpu_percent": share,
    }  # fmt: skip


def _run() -> dict[str, float]:
    with scratch() as name, _started(Path(name), Screen(), "run", "--quiet") as (program, _):
        return _measured(Path(name), program)


def _watch() -> dict[str, float]:
    screen = Screen()
    with scratch() as name, _started(Path(name), screen, "watch") as (program, first):
        _until(lambda: screen.shows("forward", "backward"), "the first screen")
        seconds = time.monotonic() - first
        found = _measured(Path(name), program)
        found["cpu_percent"] += (
            100 * SHARE
        )  # the process that makes verdicts comes and goes, and takes no more than that
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
