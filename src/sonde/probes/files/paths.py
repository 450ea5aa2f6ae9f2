"""Which files count as data, and what they are called."""

from __future__ import annotations

import os
import stat
from typing import Any

CODE = (".py", ".pyc", ".pyi", ".so", ".pth")
LIBRARY = os.path.dirname(os.__file__) + os.sep
PACKAGES = ("/site-packages/", "/dist-packages/", ".dist-info/")
KERNEL = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/share/zoneinfo/")
SHARED = "/dev/shm/"  # noqa: S108  people keep data there
OF_TORCH = ("/dev/shm/torch_", "/dev/shm/sem.", "/dev/shm/psm_", "/dev/shm/pym-")  # noqa: S108


class _Own:
    run = "\0"  # the run folder, which no file of the program is in


def begin(run: str | None) -> None:
    """Know the run folder: what Sonde writes is no data."""
    _Own.run = "\0" if run is None else os.path.abspath(run) + os.sep


def data_path(given: Any) -> str | None:
    """The absolute path of a file that may be data; None: code, a device, what the kernel makes, or a file of Sonde's."""
    if isinstance(given, bytes):
        given = os.fsdecode(given)
    elif not isinstance(given, str):
        if not isinstance(given, os.PathLike):
            return None
        given = os.fsdecode(os.fspath(given))
    if given.endswith(CODE):
        return None
    path: str = given if given.startswith("/") else os.path.abspath(given)
    if path.startswith(KERNEL) and (not path.startswith(SHARED) or path.startswith(OF_TORCH)):
        return None
    if path.startswith((LIBRARY, _Own.run)) or any(part in path for part in PACKAGES):
        return None
    return path


def size_of(file: int | str) -> int | None:
    """The size of a regular file, by its descriptor or path; None: it is none, or gone."""
    try:
        about = os.stat(file)
    except (OSError, ValueError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None
