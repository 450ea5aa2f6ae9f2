"""The Python side of an event core: the files of this process, arguments as JSON, names of threads.

One `Recorder` serves a process and all that it forks: the core asks for files at the first record of each process, and
gets those of a new process folder.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from sonde import config, environment, ranks, system
from sonde.events import args as arguments, core
from sonde.events.failure import describe
from sonde.guard import guard, warn
from sonde.store import filesystem, folder
from sonde.store.probe import EXCEPTION, PROCESS
from sonde.store.record import ESSENTIAL, FORMAT_VERSION, MAX_NAME_CHARS

MAX_THREAD_NAME = 128
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate-launch",
    "accelerate.commands.launch",
)


class Role(NamedTuple):
    """What a process is in its job."""

    name: str  # main, trainer, worker, child or launcher
    worker: int | None  # the number of a loader worker


class _Now:
    """The recorder that watches for the end of this process, and who wants to know of a failure."""

    recorder: Recorder | None = None
    callbacks: tuple[Callable[[BaseException], None], ...] = ()
    ends: tuple[Callable[[], None], ...] = ()


_reporting = guard("recording an exception that ends the program")


def serving() -> Recorder | None:
    """The recorder of this process, from `watch` to `unwatch`."""
    return _Now.recorder


def at_failure(callback: Callable[[BaseException], None]) -> Callable[[], None]:
    """Call with an exception that nobody has caught, before the program learns of it; returns what ends that.

    It may be called with the same one again. Not for `KeyboardInterrupt` and `SystemExit`: who asks for the end of a program needs no account of it.
    """
    _Now.callbacks = (*_Now.callbacks, callback)

    def leave() -> None:
        _Now.callbacks = tuple(one for one in _Now.callbacks if one is not callback)

    return leave


def process_folder() -> str | None:
    """The folder of this process in the run; None before its first record."""
    here = _Now.recorder
    return here.folder if here is not None and here.pid == os.getpid() else None


def at_end(call: Callable[[], None]) -> Callable[[], None]:
    """Call this when the process ends; it must not raise. Returns what ends that."""
    _Now.ends = (*_Now.ends, call)

    def leave() -> None:
        _Now.ends = tuple(one for one in _Now.ends if one is not call)

    return leave


def report_failure(error: BaseException | None) -> None:
    """Nobody has caught this: notify who wants to know."""
    if isinstance(error, Exception):
        for callback in _Now.callbacks:
            with _reporting:
                callback(error)


class Recorder:
    """The host of an event core; see `Host` in `native/core.pyi`. No method raises."""

    def __init__(self, run: str, settings: config.Settings, role: str | None = None) -> None:
        """Record into the run folder `run`; `role` where it cannot be determined from the process itself."""
        self.run = run
        self.role = role
        self.more: dict[str, Any] = {}  # what else stands in process.json
        self.settings = settings
        self.longest = settings.args_limit
        self.born = os.getpid()
        self.rank = ranks.current().rank  # of the process that started to record: its children inherit the variable
        self.worker: tuple[int, int] | None = None  # a process that is a loader worker, and which one
        self.joined = 0  # a process that has learned its rank itself
        self.pid = 0  # whose folder this is; another one in a forked child that has recorded nothing yet
        self.folder = ""
        self.facts: dict[str, Any] = {}  # what stands in process.json
        self.failure: dict[str, str | None] = {}  # the exception that ends this process
        self.watching = False
        self.afterwards: list[Callable[[], None]] = []  # what follows the end of the recording
        self.theirs: Any = None
        self.theirs_of_threads: Any = None

    # ── what a core asks for ─────────────────────────────────────────────────────────────────────────────────────────

    @guard("opening the files of this process", default=None)
    def open(self) -> core.Files | None:
        """Make the folder and the files of this process."""
        made = folder.create_process(self.run)
        try:
            return self._open(made)
        except BaseException:
            with suppress(OSError):
                folder.discard_process(made.path)
            raise

    @guard("opening the counts of the run", default=-1)
    def usage(self) -> int:
        """What the processes of the run count together; -1 on a network disk, where they cannot."""
        if not filesystem.may_map(self.run):
            return -1
        with folder.opened(self.run) as run:
            return folder.open_usage(run)

    @guard("reporting truncated buffers")
    def torn(self) -> None:
        """Say why recording has ended."""
        warn(
            "Another program truncated the file `rings` in %s. Recording of this process has stopped; the records in "
            "that file are lost.",
            self.folder,
        )

    @guard("encoding the arguments of an event", default=(b"{}", True))
    def encode(self, args: Mapping[str, object]) -> tuple[bytes, bool]:
        """The arguments as one JSON object, and whether something was cut."""
        return arguments.encode(args, self.settings.args_limit)

    def merge(self, outer: bytes, inner: bytes) -> bytes:
        """One JSON object of two; the inner one wins."""
        with guard("merging the arguments of an event"):
            return arguments.merge(outer, inner)
        return inner

    @guard("writing a name", default=b"")
    def name_line(self, id: int, cat: str, name: str) -> bytes:
        """The line of names.jsonl for a name."""
        return _line({"id": id, "cat": cat[:MAX_NAME_CHARS], "name": name[:MAX_NAME_CHARS]})

    @guard("writing the name of a thread", default=b"")
    def thread_line(self, ordinal: int, tid: int) -> bytes:
        """The line of names.jsonl for a thread."""
        return _line({"thread": ordinal, "tid": tid, "name": thread_name(tid)[:MAX_THREAD_NAME]})

    # ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, made: folder.ProcessFolder) -> core.Files:
        held: list[int] = []
        elsewhere: str | None = None
        try:
            with folder.opened(made.path) as here:
                rings, writes, elsewhere = self._open_rings(here, made)
                held.append(rings)
                files = folder.create_event_files(here)
                held += files.values()
                facts = self._describe(made.n, writes, elsewhere)
                folder.write_json(here, folder.PROCESS_FILE, facts)
        except BaseException:
            folder.close_all(fd for fd in held if fd >= 0)
            if elsewhere:
                with suppress(OSError):
                    os.unlink(elsewhere)
            raise
        self.pid, self.folder, self.facts, self.failure = os.getpid(), made.path, facts, {}
        self._watch_child()
        return core.Files(rings, files[folder.SEGMENT_FILE], files[folder.ARGS_FILE], files[folder.NAMES_FILE])

    def _open_rings(self, here: int, made: folder.ProcessFolder) -> tuple[int, str, str | None]:
        """The descriptor of the rings, how records are written, and where the rings are if not in the folder."""
        wish = self.settings.writes
        if wish == "mapped" or (wish == "auto" and filesystem.may_map(made.path)):
            return folder.open_new(here, folder.RINGS_FILE), "mapped", None
        if wish == "auto" and filesystem.may_map(self.settings.scratch):
            with guard("opening the buffers on the local disk"):
                return self._open_scratch(made)
        return -1, "block", None

    def _open_scratch(self, made: folder.ProcessFolder) -> tuple[int, str, str | None]:
        private = folder.private_folder(self.settings.scratch)
        name = f"{os.path.basename(self.run)}-{os.path.basename(made.path)}.rings"
        with folder.opened(private) as there:
            return folder.open_new(there, name), "mapped", os.path.join(private, name)

    def _describe(self, n: int, writes: str, elsewhere: str | None) -> dict[str, Any]:
        role = self._role()
        return {
            "schema": FORMAT_VERSION,
            "host": folder.host(),
            "pid": os.getpid(),
            "n": n,
            "parent_pid": parent_pid(),
            "boot_id": folder.boot_id(),
            "start_ticks": system.start_ticks(os.getpid()),
            **ranks.current()._asdict(),
            "attempt": ranks.attempt(),
            "role": role.name,
            "worker": role.worker,
            "core": core.KIND,
            "writes": writes,
            "rings": elsewhere,
            "python": folder.python_version(),
            "start": folder.clock()._asdict(),
            "end": None,
            "exit_code": None,
            "signal": None,
            **self.more,
        }

    def _role(self) -> Role:
        if self.role is not None:
            return Role(self.role, None)
        worker = loader_worker()
        if worker is None and self.worker is not None and self.worker[0] == os.getpid():
            worker = self.worker[1]
        if worker is not None:
            return Role("worker", worker)
        if is_launcher():
            return Role("launcher", None)
        if self.joined == os.getpid():
            return Role("trainer", None)
        child = is_multiprocessing_child() or os.getpid() != self.born
        rank = ranks.current().rank
        # A child inherits the variable; one that has another rank than its parent is a rank itself.
        if rank is not None and not (child and rank == self.rank):
            return Role("trainer", None)
        return Role("child" if child else "main", None)

    @guard("writing process.json")
    def add(self, **facts: object) -> None:
        """Say more of this process, and of those that it forks, in process.json."""
        self.more |= facts
        self._correct(facts)

    @guard("writing process.json")
    def become_worker(self, number: int) -> None:
        """This process is a loader worker. Torch says so only when its loop runs, and something may be recorded before."""
        self.worker = os.getpid(), number
        self._correct({"role": "worker", "worker": number})

    @guard("writing process.json")
    def become_rank(self) -> None:
        """This process has learned its rank. It may have recorded before."""
        here = ranks.current()
        self.joined, self.rank = os.getpid(), here.rank
        self._correct({**here._asdict(), "role": self._role().name})

    def _correct(self, facts: dict[str, Any]) -> None:
        if self.pid == os.getpid() and not facts.items() <= self.facts.items():
            self.facts |= facts
            with folder.opened(self.folder) as here:
                folder.write_json(here, folder.PROCESS_FILE, self.facts)

    # ── the end of a process ─────────────────────────────────────────────────────────────────────────────────────────

    def watch(self) -> None:
        """Note the end of this process when it comes."""
        self.watching = True
        _Now.recorder = self
        atexit.register(self.at_exit)
        self.theirs, self.theirs_of_threads = sys.excepthook, threading.excepthook
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception

    def unwatch(self) -> None:
        """Watch for the end no longer."""
        self.watching = False
        if _Now.recorder is self:
            _Now.recorder = None
        atexit.unregister(self.at_exit)
        if sys.excepthook == self._on_exception:  # else somebody chained theirs behind ours, which now only passes on
            sys.excepthook = self.theirs
        if threading.excepthook == self._on_thread_exception:
            threading.excepthook = self.theirs_of_threads

    def at_exit(self) -> None:
        """Note that the process ends. Recording goes on: handlers that come later may still have something to tell."""
        if self.watching:
            self._note_exit()
            self.run_afterwards()

    def _note_exit(self) -> None:
        with guard("writing the last records of the process"):
            if core.info()["waiting"]:
                core.flush()
        if self.pid != os.getpid():
            return
        if is_multiprocessing_child():
            self.report_child(sys.exc_info()[1])
        self._report_unheard()
        with guard("writing the last records of the process"):
            for end in _Now.ends:
                end()
        self.note_end("exit")

    def run_afterwards(self) -> None:
        """Do what was asked for after the end; once."""
        if self.born == os.getpid():
            while self.afterwards:
                with guard("running what follows the recording"):
                    self.afterwards.pop()()

    @guard("writing the end of process.json")
    def note_end(self, reason: str, error: BaseException | None = None) -> None:
        """Write the end of this process, if it has recorded anything; a forked child leaves its parent's alone."""
        if self.pid != os.getpid():
            return
        if error is not None:
            self._note(error)
        callbacks = self.failure or {"exception": None}
        self.facts["end"] = {**folder.clock()._asdict(), "reason": "exception" if self.failure else reason, **callbacks}
        with folder.opened(self.folder) as here:
            folder.write_json(here, folder.PROCESS_FILE, self.facts)

    @guard("noting an exception that ends the process")
    def note_exception(self, error: BaseException, kind: type[BaseException] | None = None) -> None:
        """Note an exception that ends the recording."""
        if self.pid != os.getpid():  # nothing was recorded yet: without a record nothing would show this process
            core.mark(EXCEPTION, PROCESS, None, {"type": (kind or type(error)).__name__}, ESSENTIAL)
        self._note(error, kind)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.note_exception(error, kind)
        try:
            if self.watching:
                report_failure(error)
        finally:  # whatever comes between, such as Ctrl-C: the exception is shown
            self.theirs(kind, error, trace)

    def _note(self, error: BaseException, kind: type[BaseException] | None = None) -> None:
        self.failure = {"exception": (kind or type(error)).__name__}
        with guard("describing an exception that ends the process"):  # str() of it is the program's own code
            self.failure = describe(error, message=self.settings.values == "full")

    def _on_thread_exception(self, args: Any) -> None:
        """An exception ends a thread, and not the process."""
        try:
            if self.watching:
                report_failure(args.exc_value)
        finally:
            self.theirs_of_threads(args)

    def report_child(self, error: BaseException | None) -> None:
        """A child of multiprocessing shows its exception itself: `sys.excepthook` is never called.

        Up to Python 3.12 the child runs its exit handlers before it has caught the exception, later after that.
        """
        if isinstance(error, SystemExit) and error.code not in (None, 0):  # torch.multiprocessing has caught the cause
            error = error.__context__
        if isinstance(error, Exception):
            if not self.failure:
                self._note(error)
            report_failure(error)

    def _report_unheard(self) -> None:
        """Of an exception that ended the program although `_on_exception` was not run: Python has noted it.

        A signal handler that raises can come before the first line of it, and another hook need not pass it on.
        """
        error: BaseException | None = getattr(sys, "last_value", None)
        trace = error.__traceback__ if isinstance(error, Exception) else None
        if isinstance(error, Exception) and trace and trace.tb_frame.f_back is None:  # nothing was left to catch it
            if not self.failure:
                self._note(error)
            report_failure(error)

    def _watch_child(self) -> None:
        """A child of multiprocessing runs no atexit handlers, only what is registered with multiprocessing itself."""
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
        if finalize is not None and is_multiprocessing_child():
            with guard("watching for the end of a child process"):
                finalize(None, self.at_exit, exitpriority=-100)


# ── what is known without importing anything ──────────────────────────────────────────────────────────────────────


def loader_worker() -> int | None:
    """The number of this process among torch's loader workers; None if it is none of them."""
    worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    number = None if worker_info is None else getattr(worker_info(), "id", None)
    return number if isinstance(number, int) else None


def is_launcher() -> bool:
    """Is this one of the programs that start the ranks of a job, and do not train themselves?"""
    module = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
    return (module or environment.script_name()) in LAUNCHERS


def is_multiprocessing_child() -> bool:
    """Was this process started by multiprocessing?"""
    return getattr(sys.modules.get("multiprocessing.process"), "_parent_process", None) is not None


def parent_pid() -> int:
    """The process that started this one; if that was a fork server, the one that asked it to."""
    parent = os.getppid()
    asking = getattr(getattr(sys.modules.get("multiprocessing.process"), "_parent_process", None), "pid", None)
    return asking if isinstance(asking, int) and asking != parent and _is_fork_server(parent) else parent


def _is_fork_server(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.forkserver" in file.read(4096)
    except OSError:
        return False


def thread_name(tid: int) -> str:
    """The name of a thread by its native id. `threading.current_thread()` would invent one for a foreign thread."""
    active: dict[int, Any] = getattr(sys.modules.get("threading"), "_active", {})
    if tid == _thread.get_native_id():  # by its ident: after a fork, `native_id` is still the parent's
        found = active.get(_thread.get_ident())
    else:
        found = next((one for one in active.copy().values() if getattr(one, "native_id", None) == tid), None)
    if found is not None:
        return str(found.name)
    return _kernel_name(tid) or f"thread {tid}"


def _kernel_name(tid: int) -> str:
    """What the kernel calls a thread, such as pt_autograd_0."""
    try:
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _line(content: dict[str, object]) -> bytes:
    plain = {name: arguments.clean(value) if isinstance(value, str) else value for name, value in content.items()}
    return json.dumps(plain, ensure_ascii=False).encode() + b"\n"
