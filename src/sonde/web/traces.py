"""Which traces of values a run holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.locate import is_plain

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.analysis.run import Run
    from sonde.web.asking import Ask

PATTERN = "*/values/*.sonde"


def trace_files(path: Path) -> list[Path]:
    """The files of the traces, the oldest first."""
    return sorted((one for one in path.glob(PATTERN) if is_plain(one)), key=lambda one: one.name)


def traces(run: Run, ask: Ask) -> object:
    """The traces of a run."""
    return {
        "traces": [{"name": one.stem, "file": one.name, "size": one.stat().st_size} for one in trace_files(run.path)]
    }
