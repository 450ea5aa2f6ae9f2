"""Why the black box is written: the reason behind an exception, and the item that caused it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import chain
from pathlib import Path
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.blackbox import dump, workers
from sonde.blackbox.batches import MOST_IDS
from sonde.events.recorder import parent_pid, serving
from sonde.guard import guard
from sonde.probes.loader.listeners import Failed, FailureListener
from sonde.store import folder
from sonde.store.file import read_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.hooks.torch.loader import Batch

FAILED = ".failed-"  # how the files begin in which workers report failures
MOST_FAILED = 8  # failures that a worker remembers
MOST_BYTES = 1 << 16  # of its file
MOST_CAUSES = 20  # exceptions behind an exception
DYING_NS = 1_000_000_000  # the longest wait for a killed worker to be gone
POLL_SECONDS = 0.005  # while waiting for that

_ALLOCATORS = ("can't allocate memory", "not enough memory", "out of memory")
_BROKEN = (ConnectionError, EOFError, FileNotFoundError)  # what reading from a killed process ends with


class FailedWait(NamedTuple):
    """A wait for a batch that ended with an exception, known by its address: holding it would hold all its frames."""

    error: int
    batch: Batch | None
    key: int | None


class LoaderFailures(FailureListener):
    """Batches that were never delivered, in this process and in its workers."""

    def __init__(self) -> None:
        self.in_worker = False
        self.clear()

    def clear(self) -> None:
        """None is known."""
        self.here: list[Failed] = []
        self.of_workers: dict[int, list[Failed]] = {}  # by process
        self.waits: list[FailedWait] = []

    def unmade(self, failed: Failed) -> None:
        """A batch could not be made, here or, if this is a worker, for the process that started it."""
        self.here = [*self.here[-MOST_FAILED + 1 :], failed]
        if self.in_worker:
            _write_failed(self.here)

    def unseen(self, batch: Batch | None, key: int | None, error: BaseException) -> None:
        """The wait for a batch ended with this exception."""
        self.waits = [*self.waits[-MOST_FAILED + 1 :], FailedWait(id(error), batch, key)]

    def read_workers(self, run: str) -> dict[int, list[Failed]]:
        """What the workers of this process have reported, by process; reading a report removes its file."""
        for path in sorted(Path(run, dump.FOLDER).glob(f"{FAILED}{folder.host()}-*")):
            with guard("reading a loader worker's report of a failure"):
                report = json.loads(read_small(path, MOST_BYTES))
                if report["parent"] == os.getpid():
                    pid = int(path.name.rpartition("-")[2])
                    self.of_workers[pid] = [Failed(*row) for row in report["failed"]]
                    path.unlink()
        return self.of_workers


failures = LoaderFailures()


def reason_of(error: BaseException) -> str:
    """The reason for which the black box is written when this exception ends the program."""
    causes = list(causes_of(error))
    if any(map(_lacks_memory, causes)):
        return "memory"
    wait = _wait_of(causes)
    if (wait is not None and wait.batch is not None and wait.batch.worker is not None) or any(map(_of_worker, causes)):
        return "worker"
    # Then the wait may end with anything, such as a connection that is closed.
    if wait is not None and _has_dead(causes, wait):
        return "worker"
    return "nonfinite" if type(error).__name__ == "NonFinite" else "exception"


def _has_dead(causes: list[BaseException], wait: FailedWait) -> bool:
    """Has a worker been killed? It loses its connections before it is gone: one that broke is worth a second look."""
    until = monotonic_ns() + (DYING_NS if any(isinstance(cause, _BROKEN) for cause in causes) else 0)
    recorder = serving()
    while not (dead := recorder is not None and bool(_gone(recorder.run, wait))) and monotonic_ns() < until:
        sleep(POLL_SECONDS)
    return dead


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those behind it."""
    for _ in range(MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _ALLOCATORS)


def _of_worker(error: BaseException) -> bool:
    """Does torch say that a worker has died? It says so at any place of the program, not only where a batch is waited for."""
    return isinstance(error, RuntimeError) and "DataLoader worker (pid" in str(error)


def _wait_of(causes: list[BaseException]) -> FailedWait | None:
    addresses = {id(cause) for cause in causes}
    return next((wait for wait in reversed(failures.waits) if wait.error in addresses), None)


def blamed(run: str, error: BaseException | None) -> tuple[dict[str, Any] | None, str | None]:
    """The item whose making raised this, or ended the worker that made it, else all items of the batch that never came; and how
    that worker ended.
    """
    causes = list(causes_of(error))
    wait = _wait_of(causes)
    known = [*failures.here, *chain(*failures.read_workers(run).values())] if causes else []
    key = None if wait is None else wait.key
    failed = [one for one in known if key is not None and one.key == key and one.position is not None]
    gone = _last_gone(run, wait) if wait is not None or any(map(_of_worker, causes)) else []
    ended = next((str(one) for one in gone if not failed or one.making == failed[-1]), None)
    failed = failed or [one.making for one in gone if one.making is not None]
    if not failed:
        return _batch_of(wait), ended
    one = failed[-1]
    index = one.index if isinstance(one.index, int) else None
    return {"index": index, "position": one.position, "id": None, "worker": one.worker, "batch": one.key}, ended


def _batch_of(wait: FailedWait | None) -> dict[str, Any] | None:
    """As an item: what collates them has failed, or what makes them all at once."""
    batch = None if wait is None else wait.batch
    if wait is None or batch is None or not batch.indices:
        return None
    numbers = [one if isinstance(one, int) else None for one in batch.indices[:MOST_IDS]]
    return {"index": None, "position": None, "id": None, "worker": batch.worker, "batch": wait.key, "items": numbers}


def _gone(run: str, wait: FailedWait | None) -> list[workers.Gone]:
    """The workers that are gone. What was reported of a batch that the program has waited for in vain before is an old story."""
    old = {one.key for one in failures.waits if one is not wait}
    rows = failures.read_workers(run).items()
    return workers.gone(run, {pid: failed[-1] for pid, failed in rows if failed and failed[-1].key not in old})


def _last_gone(run: str, wait: FailedWait | None) -> list[workers.Gone]:
    """The newest of them, if there is one; it may still be about to end."""
    until = monotonic_ns() + DYING_NS
    while (found := _gone(run, wait)[-1:]) and found[0].code is None and monotonic_ns() < until:
        sleep(POLL_SECONDS)
    return found


def _write_failed(failed: list[Failed]) -> None:
    """In a worker: say what failed, for the process that started it."""
    recorder = serving()
    if recorder is None:
        return
    box = os.path.join(recorder.run, dump.FOLDER)
    with suppress(FileExistsError):
        os.mkdir(box, folder.FOLDER_MODE)
    rows = [[one.key, one.position, one.index if isinstance(one.index, int) else None, one.worker] for one in failed]
    with folder.opened(box) as here:
        folder.write_json(here, f"{FAILED}{folder.host()}-{os.getpid()}", {"parent": parent_pid(), "failed": rows})
