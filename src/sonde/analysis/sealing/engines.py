"""Where parts are sealed: one after the other in this process, or in parallel in others. The files are the same."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from sonde.analysis.sealing.part import seal_part
from sonde.errors import RunBusy

if TYPE_CHECKING:
    from sonde.analysis.parts.partition import Part

Engine = Callable[[str, "Sequence[Part]"], Iterator["Part"]]
TRIES = 2  # a worker that was killed may have been unlucky


def in_loop(source: str, parts: Sequence[Part], memory: int | None = None) -> Iterator[Part]:
    """Seal the parts of a run folder in this process; each as soon as it is done. `memory`: bytes that the database may use."""
    for part in parts:
        seal_part(source, part, memory)
        yield part


def in_pool(workers: int | None = None, memory: int | None = None) -> Engine:
    """Seal them in so many processes (default: one for each core). `memory`: bytes that each may use."""
    limit = None if memory is None else memory // 2  # the other half is for records

    def engine(source: str, parts: Sequence[Part]) -> Iterator[Part]:
        count = min(workers or cores(), len(parts))
        return in_loop(source, parts, limit) if count < 2 else _in_processes(source, parts, count, limit)

    return engine


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(source: str, parts: Sequence[Part], workers: int, memory: int | None) -> Iterator[Part]:
    left = list(parts)
    for _ in range(TRIES):
        # Not forked: threads of this process, as those of DuckDB, would be missing in a copy of it.
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            tasks = {pool.submit(seal_part, source, part, memory): part for part in left}
            try:
                for task in as_completed(tasks):
                    task.result()
                    left.remove(tasks[task])
                    yield tasks[task]
            except BrokenProcessPool:
                continue
            finally:
                pool.shutdown(cancel_futures=True)
        return
    raise RunBusy(
        f"A process that was sealing part {left[0].name} of {source} was killed {TRIES} times, perhaps for lack of memory. "
        "Parts that were finished are kept. Seal again with --workers 1."
    )
