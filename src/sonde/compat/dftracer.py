"""DFTracer's names on top of Sonde: `from sonde.compat.dftracer import dftracer, ai, dft_fn, DFTracerAI`.

Events go into a run folder while the program runs, so a crash loses none of them; `finalize()`, or the end of the program,
writes the `.pfw` file from there. `docs/howto/dftracer.md` says what is the same and what differs.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from pathlib import Path

import sonde
from sonde import config, environment, session
from sonde.ai.node import OPTIONAL, Node, arguments
from sonde.ai.tree import ai
from sonde.compat.function import dft_fn
from sonde.events import core
from sonde.exchange import pfw
from sonde.guard import guard
from sonde.store.folder import create_run
from sonde.version import __version__

__all__ = [
    "DFTracerAI",
    "ai",
    "checkpoint",
    "comm",
    "compute",
    "data",
    "dataloader",
    "device",
    "dft_fn",
    "dftracer",
    "pipeline",
]

checkpoint, comm, compute, data = ai.checkpoint, ai.comm, ai.compute, ai.data
dataloader, device, pipeline = ai.dataloader, ai.device, ai.pipeline

METADATA = "dftracer"  # the category of metadata events
LOG = "trace.pfw"  # the file, if none is named
RUNS = "sonde-runs"  # beside the file: the folder of the run folders


class _Kind(type(Node)):  # type: ignore[misc]
    """The type of DFTracerAI, of which every profiler is one, as in DFTracer: also `ai.compute`, and what it derives."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Node) if cls is DFTracerAI else super().__instancecheck__(instance)


class DFTracerAI(Node, metaclass=_Kind):
    """A profiler with its own category; the given values go to all its events. Its default name is the category."""

    def __init__(
        self,
        *,
        cat: str,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        super().__init__(str(name or cat), str(cat))
        if not enable:
            self.disable()
        self.update(args=arguments(None, dict(zip(OPTIONAL, (epoch, step, image_idx, image_size), strict=True))))


class dftracer:  # noqa: N801  their name
    """The logger: starts the recording and writes the `.pfw` file at the end. One per process."""

    _instance: dftracer | None = None

    def __init__(self) -> None:
        self._log: Path | None = None  # None: not recording
        self._session: session.Session | None = None
        self._own = False  # is it our session, to be ended by us?
        self._pid = 0

    @classmethod
    def get_instance(cls) -> dftracer:
        """The logger of this process."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @classmethod
    def initialize_log(
        cls, logfile: str | os.PathLike[str] | None = None, data_dir: str | None = None, process_id: int = -1
    ) -> dftracer:
        """Start recording if DFTRACER_ENABLE is 1; the `.pfw` file will be `logfile`.

        `data_dir` and `process_id` have no effect: Sonde does not intercept file access, and it knows the process. A
        child process joins its parent's recording; the parent's file has the child's events.
        """
        del data_dir, process_id
        logger = cls.get_instance()
        if environment.dftracer_enabled():
            with guard("starting the log of DFTracer's names"):
                logger._start(Path(LOG if logfile is None else logfile).absolute())
        return logger

    def _start(self, log: Path) -> None:
        if self._log is not None or session.joined():
            return
        running = session.current()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._own = running is None
        self._session = running or _begin(log)
        if self._session.path is not None:
            self._log, self._pid = log, os.getpid()
            atexit.register(self.finalize)

    def finalize(self) -> None:
        """Stop recording and write the `.pfw` file. Does nothing in a child process, or if nothing is being recorded."""
        log, running = self._log, self._session
        if log is None or running is None or self._pid != os.getpid():
            return
        self._log = None
        with guard("writing the .pfw file"):
            atexit.unregister(self.finalize)
            if self._own:
                running.finish()
            else:
                core.flush()
            if running.path is not None:
                with sonde.open_run(running.path) as run:
                    pfw.export(run, log, gzip=log.suffix == ".gz")

    def get_time(self) -> int:
        """Now, in microseconds since 1970."""
        return time.time_ns() // 1000

    def enter_event(self) -> None:
        """Does nothing: each record knows its parent."""

    def exit_event(self) -> None:
        """Does nothing, see `enter_event`."""

    def log_event(
        self,
        name: str,
        cat: str,
        start_time: int,
        duration: int,
        int_args: Mapping[str, int] | None = None,
        float_args: Mapping[str, float] | None = None,
        string_args: Mapping[str, str] | None = None,
    ) -> None:
        """Record a mark with these arguments, including times measured elsewhere (in microseconds)."""
        args: dict[str, object] = {"start_time": start_time, "duration": duration}
        for given in (int_args, float_args, string_args):
            args.update(given or {})
        core.mark(name, cat, args=args)

    def log_metadata_event(self, key: str, value: object) -> None:
        """A fact about the run, written immediately."""
        core.mark(key, METADATA, args={"value": value}, metadata=True)


def _begin(log: Path) -> session.Session:
    """Start a run for this log alone: ranks write a log each, and each of them has the events of its own rank."""
    settings = config.load(name=log.name.partition(".pfw")[0] or "dftracer", dir=log.parent / RUNS)
    if settings.enabled is False:
        return session.init(mode="manual")
    return session.init(mode="manual", run=create_run(settings.dir, settings.name, settings._asdict(), __version__))
