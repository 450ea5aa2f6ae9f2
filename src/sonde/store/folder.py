"""Makes run folders and process folders: exclusively, private to the user, and never through a symbolic link."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sonde.errors import FolderRefused
from sonde.store.commit import commit_of
from sonde.store.record import ARGS_MAGIC, FORMAT_VERSION
from sonde.store.redact import redact

RUN_FILE = "run.json"
PROCESS_FILE = "process.json"
USAGE_FILE = "usage"
RINGS_FILE = "rings"
SEGMENT_FILE = "events.seg"
PACKED_FILE = "events.packed"  # the beginning of it, packed
NAMES_FILE = "names.jsonl"
ARGS_FILE = "args.bin"
LEDGER_FILE = "ledger.bin"
PROFILES = "profiles"  # a folder with traces of torch.profiler, each named after its process
PROFILE_SYNC = "sonde.sync "  # an event in such a trace, and the monotonic time that it was at
PULLED_FILE = "pulled.json"  # in a run that was fetched from a URL

USAGE_BYTES = 16
FOLDER_MODE = 0o700
FILE_MODE = 0o600
MAX_SLUG = 40
MAX_HOST = 64
MAX_TRIES = 1000  # of numbers for a folder's name

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Clock(NamedTuple):
    """The two clocks at one moment."""

    mono_ns: int
    wall_ns: int


class ProcessFolder(NamedTuple):
    """A process folder that was just made, and its number among those of the same host and pid."""

    path: str
    n: int


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_run(
    parent: str,
    name: str,
    settings: Mapping[str, object],
    version: str,
    command: Sequence[str] | None = None,
    job: str | None = None,
) -> str:
    """Make a new run folder in `parent` (which is made too, if need be) and return its path.

    `command` is what is recorded, if it is not this process; `job` what people call the job, on all its hosts.
    """
    ensure_folder(parent)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = _create_first(os.path.join(parent, f"{stamp}-{slug(name)}-{os.urandom(2).hex()}") for _ in range(MAX_TRIES))
    try:
        with opened(path) as folder:
            create_file(folder, USAGE_FILE, bytes(USAGE_BYTES))
            write_json(folder, RUN_FILE, _describe_run(os.path.basename(path), name, settings, version, command, job))
    except BaseException:
        with suppress(OSError):
            discard_run(path)
        raise
    return path


def join_run(path: str) -> str:
    """Check that a run folder of ours stands at `path`, and return the path. Raises FolderRefused if it is none."""
    with opened(path) as folder:
        try:
            found = os.stat(RUN_FILE, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise FolderRefused(
                f"{path} is not a run folder: it has no {RUN_FILE}. Unset SONDE_RUN, or set it to a run folder."
            ) from None
        if not stat.S_ISREG(found.st_mode):
            raise FolderRefused(f"{path}/{RUN_FILE} is not a regular file. Delete it, or record to another folder.")
    return path


def is_other_run(path: str) -> bool:
    """Does a run.json stand at `path` that is not that of a recording? Results of a pipeline have one too."""
    files = [os.path.lexists(os.path.join(path, name)) for name in (RUN_FILE, USAGE_FILE)]
    return files == [True, False]


def discard_run(path: str) -> None:
    """Remove a run folder in which nothing was recorded."""
    with opened(path) as folder:
        for name in (RUN_FILE, USAGE_FILE):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    os.rmdir(path)


def _describe_run(
    id: str, name: str, settings: Mapping[str, object], version: str, command: Sequence[str] | None, job: str | None
) -> dict[str, object]:
    cwd = _working_folder()
    commit = commit_of(cwd) if cwd else None
    system = os.uname()
    return {
        "schema": FORMAT_VERSION,
        "id": id,
        "name": name,
        "job": job,
        "command": redact(command or getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])),
        "cwd": cwd,
        "python": python_version(),
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "sonde": version,
        "host": host(),
        "git": {"commit": commit} if commit else None,
        "start": clock()._asdict(),
        "settings": dict(settings),
    }


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_process(run: str) -> ProcessFolder:
    """Make the folder of this process in a run folder: the first number that is free (exec keeps the pid)."""
    join_run(run)
    stem = os.path.join(run, f"{host()}-{os.getpid()}")
    path = _create_first(f"{stem}-{n}" for n in range(MAX_TRIES))
    return ProcessFolder(path, int(path.rpartition("-")[2]))


def create_event_files(folder: int) -> dict[str, int]:
    """Create the files that the core writes into, except the rings; descriptors by file name."""
    made: dict[str, int] = {}
    try:
        for name in (SEGMENT_FILE, ARGS_FILE, NAMES_FILE):
            made[name] = open_new(folder, name)
        write_all(made[ARGS_FILE], ARGS_MAGIC)
    except BaseException:
        close_all(made.values())
        raise
    return made


def open_usage(run: int) -> int:
    """The descriptor of what the processes of an opened run folder count together."""
    fd = os.open(USAGE_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=run)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return fd
    os.close(fd)
    raise FolderRefused(f"{USAGE_FILE} is not a regular file. Delete the run and start a new one.")


def discard_process(path: str) -> None:
    """Remove a process folder in which nothing was recorded."""
    with opened(path) as folder:
        for name in (PROCESS_FILE, RINGS_FILE, SEGMENT_FILE, NAMES_FILE, ARGS_FILE, LEDGER_FILE):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    os.rmdir(path)


def private_folder(parent: str) -> str:
    """The user's own folder in a folder for temporary files; made if need be, refused if it is not private."""
    path = os.path.join(parent, f"sonde-{os.geteuid()}")
    with suppress(FileExistsError):
        _create_folder(path)
    with opened(path) as folder:
        if stat.S_IMODE(os.fstat(folder).st_mode) & 0o077:
            raise FolderRefused(f"{path} is open to other users. Delete it, or set `scratch` to another folder.")
    return path


# ── folders and files ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor of a folder that is ours and no symbolic link. Raises FolderRefused otherwise."""
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        what = "a symbolic link" if os.path.islink(path) else "not a folder"
        raise FolderRefused(f"{path} is {what}. Delete it, or record to another folder.") from None
    try:
        owner = os.fstat(folder).st_uid
        if owner != os.geteuid():
            raise FolderRefused(
                f"{path} belongs to user {owner}, but this process runs as user {os.geteuid()}. Record to a folder "
                "of your own."
            )
        yield folder
    finally:
        os.close(folder)


def open_new(folder: int, name: str, flags: int = os.O_RDWR) -> int:
    """Create a file in an opened folder, mode 0600 whatever the umask, and return its descriptor."""
    try:
        fd = os.open(name, flags | _NEW, FILE_MODE, dir_fd=folder)
    except FileExistsError:
        raise FolderRefused(f"Cannot create {name}: something else has that name. Delete it.") from None
    try:
        os.fchmod(fd, FILE_MODE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_file(folder: int, name: str, content: bytes) -> None:
    """Create a file with this content in an opened folder."""
    fd = open_new(folder, name)
    try:
        write_all(fd, content)
    finally:
        os.close(fd)


def write_json(folder: int, name: str, content: Mapping[str, object]) -> None:
    """Write or replace a JSON file in an opened folder, so that a reader sees the old or the new content, whole."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise FolderRefused(f"{name} is not a regular file in its folder. Delete it.")
    temporary = f".{name}-{os.getpid()}-{os.urandom(4).hex()}"
    text = json.dumps(content, indent=1) + "\n"  # ASCII, so that odd bytes in an argument stay readable
    try:
        create_file(folder, temporary, text.encode())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def write_all(fd: int, content: bytes) -> None:
    """Write all of the content, in as many pieces as the kernel wants."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors, whatever becomes of each."""
    for fd in descriptors:
        with suppress(OSError):
            os.close(fd)


def ensure_folder(path: str) -> None:
    """Make a folder, and those above it, unless it is there."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if not os.path.isdir(path):
        with suppress(FileExistsError):  # another process was faster
            _create_folder(path)


def _create_first(paths: Iterator[str]) -> str:
    """Make a folder at the first of the paths where nothing stands yet."""
    path = ""
    for path in paths:
        with suppress(FileExistsError):
            _create_folder(path)
            return path
    raise FolderRefused(f"No free folder name like {path}. Delete old ones.")


def _create_folder(path: str) -> None:
    os.mkdir(path, FOLDER_MODE)
    if stat.S_IMODE(os.lstat(path).st_mode) != FOLDER_MODE:  # an odd umask took away the owner's own rights
        os.chmod(path, FOLDER_MODE)


# ── names and facts ──────────────────────────────────────────────────────────────────────────────────────────────────


def slug(name: str, longest: int = MAX_SLUG) -> str:
    """The name as part of a file name: ASCII letters, digits, dots, dashes and underscores; never empty."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name[: 16 * longest])
    return plain[:longest].strip("-.") or "run"


def host() -> str:
    """The name of this machine, fit for a folder's name."""
    return slug(os.uname().nodename, MAX_HOST)


def clock() -> Clock:
    """Both clocks, read as close together as can be."""
    best = Clock(0, 0)
    narrowest = sys.maxsize
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < narrowest:
            narrowest = after - before
            best = Clock((before + after) // 2, wall)
    return best


def boot_id() -> str | None:
    """What distinguishes this boot of the machine from others; None where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return None


def python_version() -> str:
    """The version of the interpreter, such as 3.11.7."""
    return sys.version.partition(" ")[0]
