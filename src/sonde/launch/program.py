"""A started program: its run folder, its process, and the records that the launcher makes beside it."""

from __future__ import annotations

import os
import shutil
import signal as signals
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from sonde import config, environment, system
from sonde.errors import CommandRefused, SondeError
from sonde.events import core
from sonde.events.recorder import Recorder
from sonde.guard import guard
from sonde.launch import blindspots, git
from sonde.launch.command import MISSING, REFUSED, Options, name_of
from sonde.launch.customrules import RulesProcess
from sonde.launch.rendezvous import meeting
from sonde.store.claim import agree
from sonde.store.folder import create_run, discard_run, join_run
from sonde.store.probe import EXIT, PROCESS, START
from sonde.store.record import ESSENTIAL
from sonde.store.redact import redact
from sonde.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sonde.launch.sampler import Sampler

BOOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "boot")
SIGNAL_BASE = 128  # a shell tells of a death by signal n as 128 + n
POLL_SECONDS = 0.02
# What Python ignores at its start, and a program expects to be as usual.
_RESTORED = tuple(getattr(signals, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signals, name))


class ProgramEnding(NamedTuple):
    """How the program ended; one of the two is None."""

    code: int | None
    signal: int | None

    @property
    def exit_code(self) -> int:
        """What a shell tells of it."""
        return SIGNAL_BASE + self.signal if self.signal is not None else self.code or 0


class Launched:
    """A program that runs, or ran. `run` is its run folder, None if nothing is recorded; `pid` its process.

    `poll` and `wait` give its exit code as a shell tells it, or None while it runs. Any thread may call them.
    """

    def __init__(self, pid: int, command: Sequence[str], desk: _Desk, group: bool) -> None:
        """Use `start` instead."""
        self.pid = pid
        self.command = tuple(command)
        self.ending: ProgramEnding | None = None
        self._desk = desk
        self._group = group
        self._lock = threading.Lock()

    @property
    def run(self) -> str | None:
        """The run folder."""
        return self._desk.run

    @property
    def notices(self) -> list[str]:
        """What the user should know about this recording, one sentence or two each; more may come until the end."""
        return self._desk.notices

    def poll(self) -> int | None:
        """The exit code, or None while the program runs."""
        with self._lock:
            if self.ending is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid == self.pid:
                    self.ending = _ending(status)
                    self._desk.close(self.pid, self.ending)
            return None if self.ending is None else self.ending.exit_code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the program and return its exit code; None if it still runs after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None and (until is None or time.monotonic() < until):
            time.sleep(POLL_SECONDS)
        return code

    def detach(self) -> None:
        """End the records of the launcher, and let the program go on. Its own records go on too; its end is not noted."""
        with self._lock:
            if self.ending is None:
                self._desk.close(self.pid, None)

    def signal(self, number: int) -> None:
        """Send a signal to the program: with an `output` of its own, to its whole process group. Never to a dead one."""
        with self._lock:
            if self.ending is None:
                if self._group:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)


def start(
    command: Sequence[str],
    options: Options | None = None,
    *,
    output: int | None = None,
    mask: Iterable[int] | None = None,
) -> Launched:
    """Start a command (see `command_of`) and record it. Raises CommandRefused if it cannot be started.

    `output` is a descriptor for its standard output and error; it then gets no input, and a process group of its own.
    `mask`: the signals that it has blocked; without it, those that are blocked here.
    """
    desk = _Desk(options or Options(), command)
    try:
        pid = _spawn(command, desk.environment(), output, mask)
    except OSError as error:
        desk.discard()
        missing = isinstance(error, FileNotFoundError)
        raise CommandRefused(f"Cannot start {command[0]}: {error.strerror}.", MISSING if missing else REFUSED) from None
    desk.open(pid, command)
    return Launched(pid, command, desk, group=output is not None)


def replace(command: Sequence[str]) -> NoReturn:
    """Become the program, without recording it: no process beside it, no folder, no cost."""
    try:
        os.execvpe(command[0], list(command), environment.unrecorded())  # noqa: S606  it is what was asked for
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise CommandRefused(f"Cannot start {command[0]}: {error.strerror}.", MISSING if missing else REFUSED) from None


def wanted(options: Options) -> bool:
    """Is anything to be recorded? SONDE=0 says no. Raises SettingError on a wrong option."""
    settings, _ = config.load_leniently(**_arguments(options))
    return settings.enabled is not False


class _Desk:
    """What the launcher does beside the program: the run folder, its own records, and what there is to tell."""

    def __init__(self, options: Options, command: Sequence[str]) -> None:
        self.notices: list[str] = []
        self._command = command
        self._given = _arguments(options)
        settings, complaints = config.load_leniently(**self._given)
        if options.name is None and settings.name == environment.script_name():  # of the launcher, which nobody meant
            settings = settings._replace(name=name_of(command))
        self.notices += [f"{complaint} It is ignored." for complaint in complaints]
        self._settings = settings
        self._shared = False  # with launchers on other hosts, or of other tasks
        self.run = self._made(command) if settings.enabled is not False else None
        self._recorder: Recorder | None = None
        self._sampler: Sampler | None = None
        self._rules: RulesProcess | None = None
        self._closed = False

    def _made(self, command: Sequence[str]) -> str | None:
        """The run folder: a new one, that of the job, or the one that SONDE_RUN names; None, and a notice, if there can be none."""
        settings = self._settings
        try:
            if settings.run is not None:
                return join_run(settings.run)
            met = meeting(command)

            def create() -> str:
                job = met.job.id if met else None
                return create_run(settings.dir, settings.name, settings._asdict(), __version__, command, job)

            self._shared = met is not None
            return agree(settings.dir, met.job.key, met.member, create) if met else create()
        except (SondeError, OSError) as error:
            remedy = "Choose a writable folder with --dir."
            if settings.run is not None:
                remedy = "SONDE_RUN names that folder; unset it to start a new run."
            self.notices.append(
                f"Not recording: cannot use {settings.run or settings.dir} ({_reason(error)}). The program runs "
                f"anyway. {remedy}"
            )
            return None

    def environment(self) -> dict[str, str]:
        """The environment of the program."""
        if self.run is None:
            return environment.unrecorded()
        given = {name: value for name, value in self._given.items() if name not in ("name", "dir")}
        return environment.of_program(self.run, BOOT, config.as_variables(given))

    def open(self, pid: int, command: Sequence[str]) -> None:
        """Begin to record beside the program."""
        if self.run is None:
            return
        reason = blindspots.ignored(command)
        if reason is not None:
            self.notices.append(f"Cannot record {' '.join(redact(command[:3]))}: {reason}.")
        with guard("starting to sample the host"):
            self._recorder = Recorder(self.run, self._settings, role="launcher")
            self._recorder.more = {"program": pid, "program_ticks": system.start_ticks(pid)}
            core.begin(self._recorder, self._settings.cap)
            core.mark(START, PROCESS, pid, {"command": redact(command)}, ESSENTIAL)
            git.note_changes()
            # Loaded here: the screen of `sonde watch` does without it, and without psutil.
            from sonde.launch import sampler

            self._sampler = sampler.Sampler(pid, self.run, self._settings.cap, reported=reason is not None)
            self._sampler.start()
        if self._settings.rules:
            self._rules = RulesProcess(self.run, self._settings.rules)

    def close(self, pid: int, ending: ProgramEnding | None) -> None:
        """End the recording of the launcher, and note how the program ended, if it has."""
        if self.run is None or self._closed:
            return
        self._closed = True
        if self._rules is not None:
            self._rules.end()
        if self._sampler is not None:
            with guard("ending the samples"):
                self._sampler.stop()
                if ending is not None:
                    self._sampler.look_after()
                self.notices += self._sampler.notices
        with guard("ending the recording of the host"):
            if ending is not None:
                core.mark(EXIT, PROCESS, pid, ending._asdict(), ESSENTIAL)
            core.end()
        if self._recorder is not None:
            if ending is not None:
                self._recorder.facts["program_exit"] = ending.exit_code
            self._recorder.note_end("finish")
        with guard("reading the recording"):
            reported = blindspots.ignored(self._command) is not None or bool(self._sampler and self._sampler.unseen)
            lost = blindspots.without_folder(self.run)
            self.notices += lost or blindspots.nothing(self.run, self._pythons(), reported=reported)

    def _pythons(self) -> set[str]:
        """The interpreters that the program is known to have run with."""
        first = shutil.which(self._command[0]) if blindspots.is_python(self._command[0]) else None
        return {first or "", *(self._sampler.pythons if self._sampler else ())} - {""}

    def discard(self) -> None:
        """Take back the run folder of a program that could not be started."""
        if self.run is not None and self._settings.run is None and not self._shared:
            with guard("deleting the run of a program that could not be started"):
                discard_run(self.run)


def _arguments(options: Options) -> dict[str, object]:
    return {name: value for name, value in options._asdict().items() if value is not None}


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error).rstrip(".")


def _ending(status: int) -> ProgramEnding:
    code = os.waitstatus_to_exitcode(status)
    return ProgramEnding(code, None) if code >= 0 else ProgramEnding(None, -code)


def _spawn(command: Sequence[str], environment: dict[str, str], output: int | None, mask: Iterable[int] | None) -> int:
    kept = signals.pthread_sigmask(signals.SIG_BLOCK, ()) if mask is None else mask
    if output is None:
        return os.posix_spawnp(command[0], list(command), environment, setsigmask=kept, setsigdef=_RESTORED)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    return os.posix_spawnp(
        command[0], list(command), environment, file_actions=actions, setpgroup=0, setsigmask=kept, setsigdef=_RESTORED
    )
