"""The data files that this process has open."""

from __future__ import annotations

import os

from sonde.probes.files.paths import data_path, size_of

try:
    import fcntl
except ImportError:  # there is no /proc there, either
    fcntl = None  # type: ignore[assignment]

FOLDER = "/proc/self/fd"
MOST = 512  # descriptors that are looked at


def path_of(descriptor: int | str) -> str | None:
    """The data file behind a descriptor; None: it is something else."""
    try:
        path = os.readlink(f"{FOLDER}/{descriptor}")
    except OSError:
        return None
    return data_path(path) if path.startswith("/") else None


def open_files() -> dict[str, int]:
    """The data files that are open for reading only, each with a descriptor."""
    try:
        listed = os.listdir(FOLDER)[:MOST]
    except OSError:
        return {}
    found = {path: int(one) for one in listed if (path := path_of(one)) is not None}
    return {path: one for path, one in found.items() if _readable(one) and size_of(one) is not None}


def _readable(descriptor: int) -> bool:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:  # closed meanwhile
        return False
