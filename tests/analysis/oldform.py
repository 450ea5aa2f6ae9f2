"""Seals a run as versions before the first release did: all processes in one table of events, with a table of the processes."""

from __future__ import annotations

from pathlib import Path

from sonde.analysis.database import ALL
from sonde.analysis.ledger.sealed import write_sealed
from sonde.analysis.records import schema
from sonde.analysis.run import Run
from sonde.analysis.seal import RAW_FILES


def seal_in_one(folder: Path) -> Path:
    """Seal a run in the old form; its folder."""
    with Run([folder], files=True) as run:
        connection = run.database.connection
        run.database.make("events")
        ledgers = run.database.ledgers.all()
        tables = {"events": schema.EVENTS, "process_rows": ALL}
        for table, columns in tables.items():
            file = folder / f"{table.replace('process_rows', 'processes')}.parquet"
            connection.execute(f"COPY (SELECT {schema.names(columns)} FROM {table}) TO '{file}' (FORMAT parquet)")
        if ledgers:
            write_sealed(connection, ledgers, folder / "ledger.parquet")
    for process in folder.glob("*-*-*"):
        for name in RAW_FILES:
            (process / name).unlink(missing_ok=True)
    return folder
