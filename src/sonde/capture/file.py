"""A trace on disk: one file for a whole result, and a folder to which several processes add calls as they finish.

A trace file (*.sonde) is a zip archive with trace.json and one .npy for each array. Nothing in it is compressed, so that
it cannot unpack to more than its own size; nothing in it is pickled, so that reading it runs no code.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import zipfile
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import xxhash

from sonde.capture.encode import WRONG, pack_call, unpack_call
from sonde.errors import RunNotFound, RunUnreadable
from sonde.values import npy
from sonde.values.note import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.capture.call import TraceCall

FORMAT = "sonde trace"
VERSION = 1
TRACE = "trace.json"
MODE = 0o600
MAX_JSON = 1 << 28  # bytes of trace.json, and of the calls that one look at a folder reads from one file
MAX_ENTRIES = 200_000
INLINE = 512  # bytes up to which an array stands in the line of its call
INLINE_PREFIX = "data:"

_VALUE_NAME = re.compile(r"[0-9a-f-]{1,64}\.npy")
_CALLS_NAME = re.compile(r"calls-[0-9]{1,10}\.jsonl")

# What zipfile and NumPy raise on files that are not what they say.
_UNREADABLE = (
    *WRONG,
    OSError,
    EOFError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    MemoryError,
)


class Saved(NamedTuple):
    """What a trace file holds."""

    calls: list[TraceCall]
    stages: list[str]
    items: int | None
    notes: list[str]


# ── one file ──


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a trace file, whole or not at all."""
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        put = _Putter(archive)
        calls = [pack_call(call, put) for call in saved.calls]
        content = {
            "format": FORMAT,
            "version": VERSION,
            "items": saved.items,
            "stages": saved.stages,
            "notes": saved.notes,
            "calls": calls,
        }
        archive.writestr(TRACE, json.dumps(content, allow_nan=False))


class _Putter:
    """Puts arrays into an archive, each content once: the same batch goes from stage to stage."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.names: dict[bytes, str] = {}

    def __call__(self, array: Any) -> str:
        content = npy.to_bytes(array)
        key = xxhash.xxh3_128_digest(content)
        if key not in self.names:
            self.names[key] = f"{len(self.names):x}.npy"
            self.archive.writestr(self.names[key], content)
        return self.names[key]


class _Getter:
    """Gets arrays out of an archive, each one once: they may take no more memory than the file."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.arrays: dict[str, object] = {}

    def __call__(self, name: str) -> object:
        if name not in self.arrays:
            self.arrays[name] = npy.from_bytes(self.archive.read(name))
        return self.arrays[name]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new private file beside `path`, which takes its place when all went well."""
    part = f"{os.fspath(path)}.{os.getpid()}-{os.urandom(4).hex()}.part"
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    try:
        with open(descriptor, "wb") as stream:
            yield stream
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def read(path: str | os.PathLike[str]) -> Saved:
    """What stands in the trace file at `path`, whoever wrote it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("it is not a regular file")
        with open(path, "rb") as stream:
            return _read(stream)
    except FileNotFoundError:
        raise RunNotFound(f"No such trace file: {os.fspath(path)!r}.") from None
    except _UNREADABLE as error:
        why = str(error) or type(error).__name__
        raise RunUnreadable(
            f"{os.fspath(path)!r} is not a readable trace file ({why:.200}). Write trace files with trace.save(path)."
        ) from error


def _read(stream: IO[bytes]) -> Saved:
    with zipfile.ZipFile(stream) as archive:
        sizes = _sizes(archive, os.fstat(stream.fileno()).st_size)
        if sizes.get(TRACE, MAX_JSON + 1) > MAX_JSON:
            raise ValueError(f"no {TRACE} of at most {MAX_JSON} bytes in it")
        content = json.loads(archive.read(TRACE))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"format {content['format']!r:.30}, version {content['version']!r:.10}")
        get = _Getter(archive)
        calls = [unpack_call(call, get) for call in content["calls"]]
        items = content["items"]
        return Saved(calls, _texts(content["stages"]), None if items is None else int(items), _texts(content["notes"]))


def _sizes(archive: zipfile.ZipFile, available: int) -> dict[str, int]:
    """The sizes of the entries by name, if they can all be true."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"{len(entries)} entries")
    sizes = {entry.filename: entry.file_size for entry in entries}
    if len(sizes) != len(entries) or sum(sizes.values()) > available:
        raise ValueError("entries that overlap")
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
        raise ValueError("compressed entries")
    return sizes


def _texts(words: list[Any]) -> list[str]:
    return [str(word) for word in words]


# ── a folder ──


def write_call(folder: str | os.PathLike[str], call: TraceCall) -> None:
    """Add a call to a folder: its arrays first, then one line. Raises OSError if that is not possible."""
    packed = pack_call(call, lambda array: _put(folder, array))
    # The new line in front ends what a write that failed half-way may have left.
    line = b"\n" + json.dumps(packed, allow_nan=False).encode("ascii") + b"\n"
    _append(os.path.join(folder, f"calls-{os.getpid()}.jsonl"), line, os.O_APPEND)


def _put(folder: str | os.PathLike[str], array: Any) -> str:
    content = npy.to_bytes(array)
    if len(content) <= INLINE:
        return INLINE_PREFIX + base64.b64encode(content).decode("ascii")
    name = f"{os.getpid():x}-{os.urandom(8).hex()}.npy"
    _append(os.path.join(folder, name), content, os.O_EXCL)
    return name


def _append(path: str, content: bytes, how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, MODE)
    with open(descriptor, "wb", buffering=0) as stream:
        left = memoryview(content)
        while left:
            left = left[stream.write(left) :]


def read_calls(folder: str | os.PathLike[str], seen: dict[str, int] | None = None) -> list[TraceCall]:
    """The calls in a folder, in the order of `seq`. Lines that are not whole, or wrong, are passed over.

    With `seen` (kept by the caller, empty at first) only calls that have arrived since the last look are read.
    """
    offsets = {} if seen is None else seen
    calls: list[TraceCall] = []
    for name in sorted(os.listdir(folder)):
        if _CALLS_NAME.fullmatch(name):
            content = _read_on(os.path.join(folder, name), offsets.get(name, 0))
            whole = content[: content.rfind(b"\n") + 1]
            offsets[name] = offsets.get(name, 0) + len(whole)
            calls += [call for line in whole.split(b"\n") if (call := _call(folder, line)) is not None]
    return sorted(calls, key=lambda call: call.about.seq)


def _read_on(path: str, offset: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        stream.seek(offset)
        return stream.read(MAX_JSON)


def _call(folder: str | os.PathLike[str], line: bytes) -> TraceCall | None:
    if not line:
        return None
    try:
        return unpack_call(json.loads(line), _getter(folder))
    except WRONG:
        return None


def _getter(folder: str | os.PathLike[str]) -> Callable[[str], object]:
    def get(name: str) -> object:
        if name.startswith(INLINE_PREFIX):
            return npy.from_bytes(base64.b64decode(name[len(INLINE_PREFIX) :], validate=True))
        if not _VALUE_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.50} is not the name of a value")
        try:
            with open(os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
                return npy.from_bytes(stream.read())
        except (OSError, ValueError, EOFError, SyntaxError):
            return MISSING  # the call is worth more than one of its values

    return get
