"""Folders that a process has in the user's folder for temporary files, and the removal of those whose process was killed."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from typing import Any
from zlib import crc32

from sonde import config, system
from sonde.guard import pass_on
from sonde.store.folder import boot_id, private_folder

_NAME = r"flow-([0-9]+)-([0-9]+)-([0-9a-f]{8})-[0-9a-f]{16}"


def folder() -> str:
    """The user's own folder for temporary files."""
    parent: str = config.peek("scratch")
    return private_folder(parent)


def name() -> str:
    """A new name for a folder of this process, which says whose it is: pid, start time, machine."""
    pid = os.getpid()
    return f"flow-{pid}-{system.start_ticks(pid) or 0}-{_machine()}-{os.urandom(8).hex()}"


def remove_dead() -> None:
    """Remove the folders of processes that are gone. Those of other machines and containers stay."""
    for one in os.listdir(folder()):
        found = re.fullmatch(_NAME, one)
        if found and found[3] == _machine() and (system.start_ticks(int(found[1])) or 0) != int(found[2]):
            remove(os.path.join(folder(), one))


def remove(path: str) -> None:
    """Remove a folder, as far as that works."""
    import shutil  # rarely needed

    def failed(_function: object, _path: str, error: Any) -> None:
        pass_on(error[1] if isinstance(error, tuple) else error)

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=failed)
    else:
        shutil.rmtree(path, onerror=failed)


@lru_cache(1)
def _machine() -> str:
    """This boot of this machine, and the process ids that count here: containers have their own."""
    try:
        ids = os.stat("/proc/self/ns/pid").st_ino
    except OSError as error:
        pass_on(error)
        ids = 0
    return f"{crc32(f'{boot_id()} {ids}'.encode()):08x}"
