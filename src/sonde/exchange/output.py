"""The file that an export is written to: through a temporary file and a rename, compressed if wanted."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

# Gets how many of how many events are written: every few thousand events, and at the end.
Progress = Callable[[int, int], None]


def ignore(done: int, total: int) -> None:
    """A `Progress` for callers that do not want any."""


@contextmanager
def output_file(path: Path | BinaryIO, compressed: bool, *, shared: bool = False) -> Iterator[IO[str]]:
    """A text file for the export. A path appears only when everything was written; a failed export leaves nothing.

    Only its owner can read it: it may hold names, paths and values of the recorded program. `shared`: as the umask says.
    """
    with binary_file(path, compressed, shared=shared) as raw:
        file = io.TextIOWrapper(raw, "ascii", newline="\n", write_through=False)
        try:
            yield file
            file.flush()
        finally:
            file.detach()


@contextmanager
def binary_file(path: Path | BinaryIO, compressed: bool, *, shared: bool = False) -> Iterator[IO[bytes]]:
    """The same for bytes."""
    if not isinstance(path, Path):
        with _packed(path, compressed) as file:
            yield file
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "xb", opener=_shared if shared else _private) as raw:
            with _packed(raw, compressed) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _shared(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def _packed(raw: BinaryIO, compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        yield raw
        return
    # mtime 0 and no name: the same run gives the same bytes.
    with gzip.GzipFile("", "wb", 6, raw, 0) as packed:
        yield cast("IO[bytes]", packed)
