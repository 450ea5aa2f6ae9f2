"""Records a block for real, and reads what it recorded."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sonde import config, environment, session
from sonde.analysis.run import open_run
from sonde.errors import RunBusy, SondeError

if TYPE_CHECKING:
    from pathlib import Path


class Recorded:
    """What a `record()` block has recorded: so far, or, after the block, in total."""

    def __init__(self, path: Path) -> None:
        """`path`: the run folder. It may be gone after the block."""
        self.path = path
        self._kept: list[dict[str, Any]] | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        """The rows of the table `events`, sorted by start; `args` as a dict or None."""
        return self._read() if self._kept is None else self._kept

    @property
    def names(self) -> list[str]:
        """The names of the events."""
        return [str(event["name"]) for event in self.events]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events with this name."""
        return [event for event in self.events if event["name"] == name]

    def keep(self) -> None:
        """Read all events into memory, so that the folder can be deleted."""
        self._kept = self._read()

    def _read(self) -> list[dict[str, Any]]:
        with open_run(self.path) as run:
            found = run.sql("select * from events order by start_ns, pid, seq")
            rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
        for row in rows:
            row["args"] = json.loads(row["args"]) if row["args"] else None
        return rows


@contextmanager
def record(**settings: object) -> Iterator[Recorded]:
    """Record the block for real, into a temporary folder (or into `dir`, which then stays).

    Takes the settings of `sonde.init()`. Whatever the environment says, this block is recorded, in a run of its own.
    """
    if session.current() is not None:
        raise RunBusy(f"record() cannot start: {session.current()!r} is active. Call sonde.finish() first.")
    outer = config.peek("run")
    environment.publish_run(None)
    temporary = None if settings.get("dir") else tempfile.mkdtemp(prefix="sonde-test-")
    try:
        running = session.init(**{"enabled": True, "dir": temporary, "name": "test", **settings})  # type: ignore[arg-type]
        if running.path is None:
            raise SondeError(f"record() could not record to {temporary or settings['dir']}. The log has the reason.")
        recorded = Recorded(running.path)
        try:
            yield recorded
        finally:
            running.finish()
            recorded.keep()
    finally:
        environment.publish_run(outer)
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
