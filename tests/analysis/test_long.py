"""Long runs: the records that only steps are made of stay in their files until somebody asks for all events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.records import load, schema, steponly
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.errors import RunUnreadable
from sonde.testing import BuiltProcess, build_run, training_processes


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that counts as a long one, with workers and evaluation."""
    monkeypatch.setattr(load, "MANY", -1)
    monkeypatch.setattr(steponly, "MIDDLE", 10)
    return build_run(tmp_path / "run", processes())


def processes(**training: Any) -> list[BuiltProcess]:
    """Ranks with workers, evaluation, losses, layers and memory; most records have left the rings."""
    built = training_processes(
        ranks=2, steps=40, workers=2, evaluate_every=10, layers=["one"], loss=float, rss=lambda *_: 10**9, **training
    )
    return [one._replace(spilled=100) for one in built]


def told(run: Run, table: str) -> list[str]:
    """All rows of a table, in no order."""
    return sorted(map(repr, run.table(table).fetchall()))


def test_steps_are_made_without_loading_their_records(long: Path) -> None:
    """Of the steps' own records only a few are loaded, until `events` is asked for."""
    with open_run(long) as run:
        steps = told(run, "steps")
        ((few,),) = run.sql(f"SELECT count(*) FROM {schema.BESIDE}").fetchall()
        ((all_of_them,),) = run.sql("SELECT count(*) FROM events").fetchall()
        assert few < all_of_them == sum(row["events"] for row in run.rows)
        assert told(run, "steps") == steps


@pytest.mark.parametrize("table", schema.TABLES)
def test_a_long_run_has_the_tables_of_a_short_one(long: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left in the files is missing in no table, whichever is asked for first."""
    with open_run(long) as run:
        found = told(run, table)
    monkeypatch.setattr(load, "MANY", 10**9)
    with open_run(long) as run:
        assert told(run, table) == found


@pytest.mark.usefixtures("long")
def test_what_is_open_is_loaded_at_once(tmp_path: Path) -> None:
    """Everything that is not simply done can be found among the few records that are loaded."""
    with open_run(build_run(tmp_path / "killed", processes(killed=True))) as run:
        query = "SELECT process, seq FROM {} WHERE error OR open OR args IS NOT NULL ORDER BY ALL"
        few = run.sql(query.format(schema.BESIDE)).fetchall()
        assert few == run.sql(query.format("events")).fetchall() != []


def test_names_are_counted_alike_in_raw_and_sealed_runs(long: Path) -> None:
    """The name_counts of a sealed run is that of its records."""
    with open_run(long) as run:
        raw = {process: sorted(named) for process, named in run.database.source.name_counts.items()}
        first = run.database.source.first_ns()
    seal(long)
    with open_run(long) as run:
        assert run.database.source.name_counts == raw
        assert run.database.source.first_ns() == first


def test_a_run_that_is_sealed_while_it_is_read_says_so(long: Path) -> None:
    """The records are gone from where they were: an error in words, no wrong numbers."""
    with open_run(long) as run:
        assert run.rows
        seal(long)
        with pytest.raises(RunUnreadable, match="Open it again"):
            run.table("steps")
        run.refresh()
        assert len(told(run, "steps")) == 80
