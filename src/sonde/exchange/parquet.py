"""Export to a folder of Parquet files, one for each table, which every data tool reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sonde.analysis.records.schema import TABLES
from sonde.analysis.run import Run
from sonde.errors import FolderRefused
from sonde.exchange.output import Progress, ignore
from sonde.store.folder import FOLDER_MODE, opened, write_json
from sonde.store.process import read_object
from sonde.version import __version__

ABOUT_FILE = "export.json"
SCHEMA = 1


def export(run: Run, path: Path, progress: Progress | None = None) -> int:
    """Write the tables into the folder `path`, which appears when it is complete; returns how many rows they have.

    The run must be open with `files=True`. A folder that an earlier export wrote is replaced.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir(FOLDER_MODE)
    try:
        rows = _write(run, part, progress or ignore)
        if path.exists():
            _remove(path)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sum(rows.values())


def _write(run: Run, folder: Path, progress: Progress) -> dict[str, int]:
    rows = {}
    for number, table in enumerate(TABLES):
        found = run.table(table)
        found.write_parquet(str(folder / f"{table}.parquet"), compression="zstd")
        rows[table] = int(found.aggregate("count(*)").fetchall()[0][0])
        progress(number + 1, len(TABLES))
    about = {"schema": SCHEMA, "sonde": __version__, "run": run.id, "name": run.name, "state": run.state, "rows": rows}
    with opened(str(folder)) as where:
        write_json(where, ABOUT_FILE, about)
    return rows


def _remove(path: Path) -> None:
    """Remove an earlier export, and nothing else."""
    files = {ABOUT_FILE, *(f"{table}.parquet" for table in TABLES)}
    if path.is_symlink() or not read_object(path / ABOUT_FILE, []) or {one.name for one in path.iterdir()} - files:
        raise FolderRefused(f"{path} is not an export of Sonde. Choose another folder with -o.")
    shutil.rmtree(path)
