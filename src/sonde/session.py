"""`init()` and `finish()`: start and end the recording of this process, and take its children along."""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from sonde import config, environment, hooks, ranks
from sonde.errors import SondeError
from sonde.events import MAIN, core
from sonde.events.recorder import Recorder, report_failure
from sonde.guard import guard
from sonde.store import scratch
from sonde.store.claim import Member, agree
from sonde.store.folder import create_run, is_other_run, join_run
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

_INFO = 20
_WARNING = 30


class _State:
    """What this process records at the moment."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.renew_lock()

    def renew_lock(self) -> None:
        self.lock = threading.RLock()


_state = _State()
if hasattr(os, "register_at_fork"):  # another thread may hold the lock when this one forks
    os.register_at_fork(after_in_child=_state.renew_lock)


class Session:
    """A recording, from `init()` to `finish()` or the end of the process. `with sonde.init():` does both.

    `path` is the run folder, `name` the name of the run. If recording is off or could not start, `path` is None and all
    calls still work.
    """

    def __init__(self, name: str, recorder: Recorder | None, arguments: dict[str, object]) -> None:
        """Use `init()` instead."""
        self.name = name
        self._recorder = recorder
        self._arguments = arguments
        self._outer = config.peek("run")  # what SONDE_RUN was before
        self._joined = recorder is not None and recorder.run == self._outer
        self._before: dict[str, str | None] = {}  # what other variables were before
        self._depth = 0

    @property
    def path(self) -> Path | None:
        """The run folder; None if nothing is recorded."""
        from pathlib import Path  # the recording half does without it otherwise

        return Path(self._recorder.run) if self._recorder else None

    @property
    def active(self) -> bool:
        """Whether this session is recording."""
        return _state.session is self

    def finish(self) -> None:
        """Stop recording this process. Does nothing if recording has ended or never started."""
        _end(self, "finish", None)

    def __enter__(self) -> Self:
        with _state.lock:
            self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with _state.lock:
            self._depth -= 1  # of blocks inside each other, the outermost ends the recording
            if self._depth > 0:
                return
            failure = None if kind is SystemExit else error
            if self.active and self._recorder is not None and failure is not None:
                self._recorder.note_exception(failure)
            _end(self, "finish", failure)

    def __repr__(self) -> str:
        state = "recording" if self.active else "finished" if self._recorder else "off"
        where = f" in {self._recorder.run}" if self._recorder else ""
        return f"<sonde.Session {self.name!r}: {state}{where}>"


def init(name: str | None = None, dir: str | os.PathLike[str] | None = None, **settings: object) -> Session:
    """Start recording this process and its child processes; docs/reference/settings.md lists all settings.

    A second call returns the active session. An invalid setting raises SettingError. Any other problem, such as a full
    disk or missing permission, is logged and your program continues without recording.
    """
    arguments = {key: value for key, value in {"name": name, "dir": dir, **settings}.items() if value is not None}
    settled, complaints = config.load_leniently(**arguments)
    with _state.lock:
        running = _state.session
        if running is not None:
            _compare(running, arguments)
            return running
        for complaint in complaints:
            _log(_WARNING, "%s It is ignored.", complaint)
        with guard("starting to record"):
            return _begin(settled, arguments)
        return Session(settled.name, None, arguments)


def finish() -> None:
    """Stop recording this process. Does nothing if nothing is being recorded."""
    session = _state.session
    if session is not None:
        session.finish()


def current() -> Session | None:
    """The session that is recording now."""
    return _state.session


def joined() -> bool:
    """Does this process record into the run of another one, which SONDE_RUN named?"""
    return _state.session is not None and _state.session._joined


def at_end(do: Callable[[], None]) -> None:
    """Do this in this process when its recording has ended, by `finish()` or with the process."""
    if _state.session is not None and _state.session._recorder is not None:
        _state.session._recorder.afterwards.append(do)


def join(run: str) -> None:
    """Record this process into that run: for children whose environment names none, or that of an earlier recording."""
    running = _state.session
    if running is None or running._recorder is None or os.path.abspath(running._recorder.run) != run:
        finish()
        environment.publish_run(run)
        init()


def start_from_environment() -> None:
    """Start recording if the environment requests it: SONDE=1, or SONDE_RUN set by a parent process. Never raises."""
    if environment.wanted_at_import() and not _is_command():
        with guard("starting to record when sonde was imported"):
            init()


def _begin(settings: config.Settings, arguments: dict[str, object]) -> Session:
    wanted = settings.enabled is not False
    if wanted and not MAIN:
        _log(_WARNING, "Sonde records only the main interpreter: this subinterpreter is not recorded.")
    recorder = _recorder(settings) if wanted and MAIN else None
    session = Session(settings.name, recorder, arguments)
    if recorder is None:
        return session
    core.begin(recorder, settings.cap)
    _state.session = session
    with guard("preparing children, exit and patches for the recording"):
        environment.publish_run(recorder.run)
        session._before = config.publish_probes(settings, arguments)
        recorder.watch()
        hooks.install()
        install_probes(settings)
    with guard("deleting files of killed processes"):
        scratch.remove_dead()
    _log(_INFO, "Sonde records this process to %s", recorder.run)
    return session


def install_probes(settings: config.Settings) -> None:
    """Put the probes in place that these settings choose."""
    from sonde import probes  # only a program that is recorded needs them

    workers = probes.Probe("workers", _join_in_workers, "patch_dataloader")
    watch = probes.Probe("nonfinite", _install_watch, probes.ALWAYS)
    blackbox = probes.Probe("blackbox", _install_blackbox, probes.ALWAYS)
    deepen = probes.Probe("deepen", _install_deepen, probes.ALWAYS)
    probes.install(settings, (workers, *probes.PROBES, watch, blackbox, deepen))


def _join_in_workers(_settings: config.Settings) -> Callable[[], None]:
    from sonde.hooks.torch.loader import start_in_workers

    run = config.peek("run")
    return start_in_workers(join, run) if run else _nothing


def _install_watch(settings: config.Settings) -> Callable[[], None]:
    if settings.watch_nonfinite == "off":
        return _nothing
    from sonde.nonfinite.watch import watch_nonfinite

    return watch_nonfinite(action=settings.watch_nonfinite).close


def _install_blackbox(settings: config.Settings) -> Callable[[], None]:
    if settings.blackbox:
        from sonde.blackbox import box

        box.start(settings.blackbox)
    return _nothing


def _install_deepen(settings: config.Settings) -> Callable[[], None]:
    from sonde.probes import ondemand

    def deepen() -> None:
        from sonde.depth.ondemand import answer

        answer(settings)

    ends = ondemand.watch(deepen)
    if not settings.adaptive:
        return ends
    from sonde.depth.adaptive import watch

    watching = watch(settings)

    def leave() -> None:
        watching()
        ends()

    return leave


def _nothing() -> None:
    pass


def _recorder(settings: config.Settings) -> Recorder | None:
    """The recorder on the run folder; None, and a warning, if there can be no folder."""
    try:
        return Recorder(_run_folder(settings), settings)
    except (SondeError, OSError) as error:
        where = settings.run or settings.dir
        _log(
            _WARNING,
            "Sonde cannot record to %s: %s. Your program continues without recording. Set init(dir=...) or SONDE_DIR "
            "to a writable folder%s.",
            where,
            error,
            ", or unset SONDE_RUN" if settings.run else "",
        )
        return None


def _run_folder(settings: config.Settings) -> str:
    if settings.run is not None and is_other_run(settings.run):
        _log(
            _WARNING,
            "SONDE_RUN=%s is not a recording but the results of a pipeline. Recording to a new run; unset SONDE_RUN.",
            settings.run,
        )
    elif settings.run is not None:
        return join_run(settings.run)

    job, here = ranks.job(), ranks.current()

    def create() -> str:
        return create_run(settings.dir, settings.name, settings._asdict(), __version__, job=job.id if job else None)

    if job is None or here.rank is None or here.world_size == 1:
        return create()
    return agree(settings.dir, job.key, Member(f"rank-{here.rank}", ranks.attempt()), create, job.series)


def _end(session: Session, reason: str, error: BaseException | None) -> None:
    with _state.lock:
        recorder = session._recorder
        if not session.active or recorder is None:
            return
        report_failure(
            sys.exc_info()[1]
        )  # on its way through `with`, or `finally: sonde.finish()`: it is known only now
        _state.session = None
        with guard("ending the recording"):
            from sonde import probes

            probes.uninstall()
            hooks.uninstall()
        with guard("ending the recording"):
            core.end()
        with guard("ending the recording"):
            recorder.unwatch()
            recorder.note_end(reason, error)
            environment.publish_run(session._outer)
            environment.restore(session._before)
        recorder.run_afterwards()


def _compare(running: Session, arguments: dict[str, object]) -> None:
    """Say so if a second call asks for something else than what runs. A process that joined has no say in it."""
    if arguments and arguments != running._arguments and not running._joined:
        _log(_INFO, "Sonde is already recording (%r); these init() arguments are ignored.", running)


def _is_command() -> bool:
    """Is this the command `sonde` itself? It reads runs, and is not to be recorded."""
    command = getattr(sys, "orig_argv", [])
    return environment.script_name() == "sonde" or ("-m", "sonde") in pairwise(command)


@guard("writing a message to the log")  # the import alone can fail: no descriptors left, rights given up
def _log(level: int, message: str, *values: object) -> None:
    # Nobody can have asked for messages below a warning without logging: then its import can be saved.
    if level < _WARNING and "logging" not in sys.modules:
        return
    import logging

    logging.getLogger("sonde").log(level, message, *values)
