"""What the tests of this folder share: hosts that push, a store that fails, and what a run says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sonde
from sonde.remote import changes, push as pushing
from sonde.remote.push import Pushed, push
from sonde.testing import build_run, training_processes


class FaultyStore(MemoryFileSystem):
    """Objects in memory, at `faulty://`; `fault` is called with the name of each operation and the path, and may raise."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    fault: Callable[[str, str], None] = staticmethod(lambda operation, path: None)

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        type(self).fault("write", path)
        super().pipe_file(path, value, **kwargs)

    def cat_file(self, path: str, **kwargs: Any) -> bytes:
        type(self).fault("read", path)
        return bytes(super().cat_file(path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        type(self).fault("list", path)
        return super().ls(path, detail=detail, **kwargs)


def ranks_on(path: Path, host: str, ranks: tuple[int, ...], world: int = 4, steps: int = 12) -> Path:
    """A run folder with some ranks of a training, all of one host."""
    every = training_processes(ranks=world, steps=steps, workers=1)
    mine = [one._replace(host=host) for one in every if (one.process or {}).get("rank") in ranks]
    assert len(mine) == 2 * len(ranks)
    return build_run(path, mine, host=host)


def push_as(patch: pytest.MonkeyPatch, host: str, run: Path, url: str, **options: Any) -> Pushed:
    """Push as a host of this name would."""
    with patch.context() as here:
        here.setattr(pushing, "host", lambda: host)
        here.setattr(changes, "host", lambda: host)
        return push(run, url, **options)


def content(run: Path) -> list[tuple[Any, ...]]:
    """All events and steps of a run as two sums, and its ranks."""
    with sonde.open_run(run) as opened:
        sums = [
            opened.sql(f"SELECT count(*), sum(hash(COLUMNS(*))) FROM {table}").fetchall()[0]
            for table in ("events", "steps")
        ]
        return [*sums, *opened.sql("SELECT DISTINCT rank, host FROM processes ORDER BY ALL").fetchall()]


def copied(run: Path, to: Path) -> Path:
    """A copy of a run as it is now."""
    return Path(shutil.copytree(run, to))
