"""The copies that reading commands make of runs at URLs, in the user's folder for caches."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.environment import cache_folder
from sonde.remote.pull import Pulled, pull
from sonde.store.redact import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable


def folder_of(url: str) -> Path:
    """The folder for copies of the runs that lie beside this one."""
    beside = redact_url(url).rstrip("/").rpartition("/")[0]
    return Path(cache_folder()) / "runs" / sha256(beside.encode()).hexdigest()[:12]


def fetch(url: str, progress: Callable[[int, int], None] | None = None) -> Pulled:
    """The run at a URL as a folder on this machine; only what is new is fetched."""
    return pull(url, folder_of(url), progress)
