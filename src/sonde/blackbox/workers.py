"""Loader workers of this process that ended: how, and which item they were loading.

One that was killed, or has left by `os._exit`, has an open span in its records. One that was left by `sys.exit` has closed them, and
said what it could not make (`.failed-*`, see `trigger.py`). How it ended the object of its process knows.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

from sonde.guard import guard
from sonde.probes.loader.listeners import Failed
from sonde.store import folder
from sonde.store.alive import DIED, ENDED, state_of
from sonde.store.probe import FETCH, ITEM, PROBE
from sonde.store.process import read_info
from sonde.store.reading.running import running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sonde.store.process import Info


class Gone(NamedTuple):
    """A worker that has ended though it had a batch to make, or not as it should."""

    worker: int | None
    pid: int
    code: int | None  # the exit code; less than 0: the signal; None: not known
    making: Failed | None
    ago_ns: int

    def __str__(self) -> str:
        item = None if self.making is None else self.making.index
        return f"worker {self.worker} (process {self.pid}) {self._how()}{_doing(item)}"

    def _how(self) -> str:
        if self.code is None or self.code >= 0:
            return "ended" if self.code is None else f"ended with exit code {self.code}"
        names = {int(one): one.name for one in signal.Signals}
        return f"was killed by {names.get(-self.code, f'signal {-self.code}')}"


def _doing(item: object) -> str:
    return f" while loading item {item}" if isinstance(item, int) else ""


def gone(run: str, reported: Mapping[int, Failed]) -> list[Gone]:
    """Those that are gone, the newest last. `told`: by process, what it could not make and did not report."""
    found: list[Gone] = []
    for path in Path(run).glob(f"{folder.host()}-*/{folder.PROCESS_FILE}"):
        with guard("reading what a loader worker did before it died"):
            info = read_info(path.parent, [])
            if info.role == "worker" and info.parent_pid == os.getpid() and info.pid is not None:
                found += _ended(path.parent, info, info.pid, reported.get(info.pid))
    return sorted(found, key=lambda one: (one.making is not None, -one.ago_ns))


def _ended(where: Path, info: Info, pid: int, reported: Failed | None) -> list[Gone]:
    state, code = state_of(info), _code(pid)
    if state == DIED:
        spans = {span.name: span for span in running(where) if span.cat == PROBE}
        item, fetch = spans.get(ITEM), spans.get(FETCH)
        if item is not None:
            making = Failed(fetch and fetch.key, None, item.key, info.worker)
            return [Gone(info.worker, pid, code, making, item.for_ns)]
    if state not in (DIED, ENDED) or not (code or reported):
        return []
    ago = 0 if info.end is None else monotonic_ns() - info.end.mono_ns
    return [Gone(info.worker, pid, code, reported, ago)]


def _code(pid: int) -> int | None:
    """How a child has ended, as the object of its process knows; asking it is what torch does all the time."""
    processes = list(getattr(sys.modules.get("multiprocessing.process"), "_dangling", ()))
    return next((one.exitcode for one in processes if getattr(one, "_closed", False) is False and one.pid == pid), None)
