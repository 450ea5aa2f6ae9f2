"""One part of a run: the same tables as its raw records, and whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.parts import partition as plan_module
from sonde.analysis.parts.partition import Part, plan
from sonde.analysis.records import schema
from sonde.analysis.records.load import offsets_of
from sonde.analysis.records.locate import process_folders
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.analysis.sealing.engines import in_loop
from sonde.analysis.sealing.part import seal_part
from sonde.store.process import read_info
from sonde.testing import Straggler, build_training, synthetic_run


def told(run: Run) -> dict[str, list[str]]:
    """All rows of all tables, in no order; and what else is known of each process."""
    tables = {name: sorted(map(repr, run.table(name).fetchall())) for name in schema.TABLES}
    named = {row["process"]: run.database.named_time(row["process"]) for row in run.rows}
    return tables | {"named": [repr(named)], "gaps": [repr(run.database.record_gaps())]}


def answers(folder: Path) -> dict[str, list[str]]:
    with open_run(folder) as run:
        return told(run)


def parts_of(run: Path) -> list[Part]:
    folders = process_folders(run)
    infos = [read_info(one, []) for one in folders]
    return plan("run", list(zip(folders, infos, strict=True)), offsets_of(infos, {}), set())


def losses(step: int) -> float:
    """Some of them are no numbers."""
    return {3: float("nan"), 4: float("inf"), 5: -0.0}.get(step, 1 / (step + 1))


TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {"ranks": 1, "steps": 20},
    "ranks": {"ranks": 3, "steps": 20, "workers": 2, "evaluate_every": 7, "loss": losses, "epoch_steps": 9},
    "deep": {"ranks": 2, "steps": 6, "layers": ["one", "two"], "micro_batches": 2, "rss": lambda *_: 10**9},
    "killed": {"ranks": 2, "steps": 12, "workers": 1, "killed": True},
}


@pytest.mark.parametrize("kind", list(TRAININGS))
def test_a_run_in_parts_has_the_tables_of_its_records(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value of every row of every table, with one part for each rank."""
    monkeypatch.setattr(plan_module, "EVENTS", 1)
    folder = build_training(tmp_path / "run", **TRAININGS[kind])
    raw = answers(folder)
    seal(folder, force=True)
    assert len(list((folder / "parts").glob("*-0*/"))) == TRAININGS[kind]["ranks"]
    assert answers(folder) == raw


def test_recorded_ranks_give_the_same_raw_sealed_and_half_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job of several hosts with workers, a straggler and a restart."""
    monkeypatch.setattr(plan_module, "EVENTS", 2000)
    folder = synthetic_run(
        tmp_path / "run", ranks=6, steps=60, workers=2, hosts=2, stragglers=[Straggler(3)], restarts=1, repeated=5
    )
    raw = answers(folder)
    seal(folder, engine=lambda source, parts: in_loop(source, parts[:2]))
    assert 0 < len(list(folder.glob("*/events.seg"))) < len(raw["processes"])
    assert answers(folder) == raw
    seal(folder)
    assert answers(folder) == raw


def test_a_part_is_not_made_again(tmp_path: Path) -> None:
    """The second call finds it whole; one that is not whole gives way."""
    folder = build_training(tmp_path / "run", steps=5)
    (part,) = parts_of(folder)
    files = seal_part(str(folder), part)
    stamps = [Path(file).stat().st_mtime_ns for file in files]
    assert seal_part(str(folder), part) == files
    assert [Path(file).stat().st_mtime_ns for file in files] == stamps
    Path(files[0]).write_bytes(b"")
    assert seal_part(str(folder), part) == files
    assert Path(files[0]).stat().st_size > 0


def test_nothing_is_made_of_folders_that_tell_nothing(tmp_path: Path) -> None:
    """There is no part then."""
    folder = build_training(tmp_path / "run", steps=2)
    (part,) = parts_of(folder)
    (only,) = part.processes
    for name in ("events.seg", "process.json", "rings"):
        (folder / only / name).unlink()
    assert seal_part(str(folder), part) == []
    assert not list((folder / "parts").iterdir())


def test_the_events_that_tables_are_made_of_lie_apart(tmp_path: Path) -> None:
    """Questions about the others do not read them; what failed or is open is among the others."""
    folder = build_training(tmp_path / "run", steps=50, workers=1, killed=True)
    with open_run(folder) as run:
        query = "SELECT process, seq FROM {} WHERE error OR open OR kind = 'mark' AND name <> 'update' ORDER BY ALL"
        before = run.sql(query.format("events")).fetchall()
    seal(folder, force=True)
    with open_run(folder) as run:
        few, many = (run.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in (schema.BESIDE, "events"))
        assert few < many / 10
        assert run.sql(query.format(schema.BESIDE)).fetchall() == before != []
