"""Python's audit events: what else is opened or mapped. A hook cannot be removed; while nothing is recorded, it returns at once."""

from __future__ import annotations

import os
import sys
from typing import Any

from sonde.guard import guard
from sonde.probes.files.descriptors import path_of
from sonde.probes.files.paths import data_path
from sonde.probes.files.reads import here, process, thread

WRITING = os.O_WRONLY | os.O_RDWR


class _Hook:
    added = False


def listen() -> None:
    """Hear audit events from now on."""
    if not _Hook.added:
        _Hook.added = True
        sys.addaudithook(_heard)


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if not process.on or event not in ("open", "mmap.__new__"):
        return
    if event == "open":
        if not thread.opening:  # else `readers` knows more
            _open(args)
    else:
        _map(args[0])


@guard("noting an opened file")
def _open(args: tuple[Any, ...]) -> None:
    """The descriptor is used by native code, or by `os.read`."""
    path, _mode, flags = args
    if type(path) is int or (isinstance(flags, int) and flags & WRITING):
        return
    found = data_path(path)
    if found is not None:
        reading = here()
        reading.opened(found)
        reading.taken(found)


@guard("noting a mapped file")
def _map(descriptor: int) -> None:
    path = path_of(descriptor) if descriptor >= 0 else None
    if path is not None:
        here().map(path)
