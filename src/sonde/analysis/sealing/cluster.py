"""Seals the parts of a run on the workers of a Dask cluster. The files are those that a loop in this process would write.

A worker that is killed costs only the part that it worked on: another one does it again. A worker that does not see the run
folder, or has another version of Sonde, gets no further part. A part counts when its files are seen from here.
"""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import units
from sonde.analysis.parts.manifest import PARTS, whole_part
from sonde.analysis.records.locate import id_of, is_plain
from sonde.analysis.sealing.part import seal_part
from sonde.analysis.sealing.scheduler import client_of
from sonde.errors import ClusterError, SondeError
from sonde.store.folder import RUN_FILE, host
from sonde.store.process import read_object
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sonde.analysis.parts.partition import Part
    from sonde.analysis.sealing.engines import Engine

WORKERLESS_S = 300.0  # a batch system may take its time to start the first worker
GONE_S = 60.0  # a worker that was killed is started again, or is not
SEEN_S = 30.0  # until a network file system shows a new file to other hosts
LOOK_S = 1.0


class PartOutcome(NamedTuple):
    """What a worker did. `fault`: why it cannot work on this run; None: it has sealed the part."""

    worker: str
    files: list[str]
    fault: str | None = None


def on_dask(where: Any, memory: int | None = None) -> Engine:
    """An engine that seals on a cluster: a `Client`, the address of a scheduler, or `local[:N]` for N processes on this host.

    `memory`: bytes that each worker may use. It is connected to when there is a part to seal.
    """

    def engine(source: str, parts: Sequence[Part]) -> Iterator[Part]:
        if parts:
            with client_of(where, memory, len(parts)) as client:
                yield from _Work(client, str(Path(source).resolve()), memory).run(parts)

    return engine


def seal_there(source: str, part: Part, memory: int | None, version: str) -> PartOutcome:
    """Seal a part; on a worker."""
    from distributed import get_worker

    worker = f"{get_worker().address} on {host()}"
    fault = _fault(Path(source), part, version)
    return PartOutcome(worker, [], fault) if fault else PartOutcome(worker, seal_part(source, part, memory))


def _fault(source: Path, part: Part, version: str) -> str | None:
    """Why this worker cannot seal the part."""
    if version != __version__:
        return f"has Sonde {__version__} instead of {version}"
    if not is_plain(source / RUN_FILE):
        return f"cannot see {source}"
    if (id_of(read_object(source / RUN_FILE, [])) or "") != part.run:
        return f"has another run at {source}"
    missing = [name for name in part.processes if not (source / name).is_dir()]
    return f"cannot see {source / missing[0]}" if missing else None


class _Work:
    """The parts of one run on their way through a cluster."""

    def __init__(self, client: Any, source: str, memory: int | None) -> None:
        self._client = client
        self._source = source
        self._memory = None if memory is None else memory // 2  # the other half is for records
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[Any, Part] = {}
        self._unfit: dict[str, str] = {}  # worker: why

    def run(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Yield each part as soon as it is sealed."""
        self._await_worker()
        try:
            for part in parts:
                self._submit(part)
            while self._tasks:
                done = self._next()
                if done is not None:
                    yield done
        finally:
            for task in self._tasks:
                task.cancel()

    def _await_worker(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WORKERLESS_S)
        except TimeoutError:
            raise ClusterError(
                f"The Dask scheduler {self._scheduler} has had no workers for {WORKERLESS_S:.0f} s. Start workers, then "
                "run the command again."
            ) from None

    def _submit(self, part: Part) -> None:
        allowed = None
        if self._unfit:
            allowed = [one for one in self._workers() if one not in self._unfit]
            if not allowed:
                worker, fault = next(iter(self._unfit.items()))
                others = len(self._unfit) - 1
                more = f" The same is true of {units.plural(others, 'other worker')}." if others else ""
                raise ClusterError(
                    f"Dask worker {worker} {fault}.{more} Workers need the same Sonde, and the run folder at the same path."
                )
        task = self._client.submit(
            seal_there, self._source, part, self._memory, __version__,
            key=f"sonde-{part.name}-{time.monotonic_ns()}", pure=False, retries=1, workers=allowed,
        )  # fmt: skip
        self._tasks[task] = part
        task.add_done_callback(self._done.put)

    def _next(self) -> Part | None:
        """The next part that is sealed; None: a worker could not work on it, and it was given to another one."""
        task = self._finished()
        part = self._tasks.pop(task)
        found = self._result(task, part)
        if found.fault is not None:
            self._unfit[found.worker.partition(" ")[0]] = f"on {found.worker.partition(' on ')[2]} {found.fault}"
            self._submit(part)
            return None
        if found.files:
            self._see(part, found.worker)
        return part

    def _finished(self) -> Any:
        """A task that has ended, one way or another."""
        last_seen = time.monotonic()
        while True:
            try:
                return self._done.get(timeout=LOOK_S)
            except queue.Empty:
                pass
            if self._workers():
                last_seen = time.monotonic()
            if time.monotonic() - last_seen > GONE_S:
                raise ClusterError(f"All workers of the Dask scheduler {self._scheduler} have ended. {_KEPT}")

    def _result(self, task: Any, part: Part) -> PartOutcome:
        from concurrent.futures import CancelledError

        from distributed.scheduler import KilledWorker

        try:
            found: PartOutcome = task.result()
        except SondeError:
            raise
        except KilledWorker:
            raise ClusterError(
                f"Dask workers that sealed part {part.name} were killed repeatedly, perhaps for lack of memory. {_KEPT} "
                "Give workers more with --workers-memory."
            ) from None
        except (CancelledError, OSError, TimeoutError):
            raise ClusterError(f"The connection to the Dask scheduler {self._scheduler} was lost. {_KEPT}") from None
        except ImportError as error:
            raise ClusterError(
                f"A Dask worker lacks the module {error.name}. Install sonde-ml[cluster]=={__version__} for all workers."
            ) from None
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = str(error).partition("\n")[0]
            raise ClusterError(
                f"A Dask worker failed to seal part {part.name}: {type(error).__name__}: {reason}. {_KEPT}"
            ) from error
        return found

    def _see(self, part: Part, worker: str) -> None:
        """Wait until a part that was sealed elsewhere is seen here."""
        place = Path(self._source) / PARTS / part.name
        until = time.monotonic() + SEEN_S
        while whole_part(place, part.run, part.processes) is None:
            if time.monotonic() > until:
                raise ClusterError(
                    f"Dask worker {worker} sealed part {part.name}, but it cannot be read here: {self._source} must be "
                    "on a disk that all hosts share. No raw records were removed."
                )
            time.sleep(LOOK_S)

    def _workers(self) -> list[str]:
        try:
            return list(self._client.nthreads())
        except (OSError, TimeoutError):  # the connection is lost, as the tasks will say
            return []

    @property
    def _scheduler(self) -> str:
        return str(getattr(self._client.scheduler, "address", "") or "")


_KEPT = "Finished parts are kept; run the command again to continue."
