"""Seals a run of many processes before it is read: each query of a raw run would read all of them again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from sonde.analysis.records.locate import locate
from sonde.analysis.seal import seal, unsealed
from sonde.analysis.sealing.engines import in_pool
from sonde.cli.output.progress import progress
from sonde.errors import SondeError

PROCESSES = 256  # with more raw ones, sealing and reading costs less than reading


def sealed(path: Path) -> Path:
    """The same path. A run with many raw processes that has ended is sealed now; what cannot be sealed is read as it is."""
    with suppress(SondeError, OSError):
        if unsealed(locate(path).path) > PROCESSES:
            with progress(f"Sealing {path.name}") as bar:
                done = seal(path, progress=bar, engine=in_pool())
            click.echo(f"sonde: sealed {done.processes:,} processes first; later commands are faster", err=True)
    return path
