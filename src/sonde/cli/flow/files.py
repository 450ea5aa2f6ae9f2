"""Which trace files a command means: a file, or those of a run."""

from __future__ import annotations

from pathlib import Path

from sonde.analysis.records.locate import is_plain
from sonde.cli.options.choose import choose, runs_dir
from sonde.errors import RunNotFound, UnknownName

SUFFIX = ".sonde"
MOST_LISTED = 10
CAPTURE = "Capture values with `with sonde.flow.trace(...)`."


def trace_files(source: str | None, dir: str | None) -> list[Path]:
    """The trace files that are meant: one, or those of a run."""
    if source is not None and Path(source).is_file():
        return [Path(source)]
    if source is not None and source.endswith(SUFFIX):
        raise RunNotFound(f"No such file: {source}. Write one with trace.save({Path(source).name!r}).")
    run = choose(source, runs_dir(dir))
    found = [file for file in sorted(run.glob(f"*/values/*{SUFFIX}")) if is_plain(file)]
    if not found:
        raise RunNotFound(f"The run {run.resolve().name} has no traces. {CAPTURE}")
    return found


def one_trace(files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    names = "".join(f"\n  {file}" for file in files[:MOST_LISTED])
    more = f"\n  and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
    raise UnknownName(f"This run has {len(files)} traces. Choose one of these files:{names}{more}")
