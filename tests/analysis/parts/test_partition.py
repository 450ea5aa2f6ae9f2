"""How a run is cut into parts."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.analysis.sample import records
from tests.diagnosis.building import replaced

from sonde.analysis.parts import partition as module
from sonde.analysis.parts.partition import Part, plan
from sonde.analysis.records.locate import process_folders
from sonde.store.folder import host
from sonde.store.process import read_info
from sonde.testing import BuiltProcess, build_run, training_processes


def planned(run: Path, taken: set[str] | None = None) -> list[Part]:
    """The parts of a run."""
    folders = process_folders(run)
    return plan("run", [(one, read_info(one, [])) for one in folders], {}, taken or set())


def training(path: Path, ranks: int, workers: int) -> Path:
    """Ranks with workers, all of whose records have left the rings."""
    built = training_processes(ranks=ranks, steps=50, workers=workers)
    return build_run(path, [one._replace(spilled=10_000) for one in built])


def test_small_ranks_share_a_part(tmp_path: Path) -> None:
    """As long as they have few records together."""
    (part,) = planned(training(tmp_path / "run", ranks=4, workers=2))
    assert (part.name, part.run, len(part.processes)) == (f"{host()}-0000", "run", 12)


def test_a_rank_stays_with_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small parts are to be; each worker is known with its rank."""
    monkeypatch.setattr(module, "EVENTS", 1)
    parts = planned(training(tmp_path / "run", ranks=3, workers=2))
    assert [part.name for part in parts] == [f"{host()}-{number:04d}" for number in range(3)]
    for part in parts:
        (rank,) = {one for one in part.processes if one not in part.owners}
        assert set(part.owners.values()) == {rank}
        assert len(part.owners) == 2


def test_a_part_has_no_more_processes_than_are_good_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process costs something, however few records it has."""
    monkeypatch.setattr(module, "PROCESSES", 4)
    assert [len(part.processes) for part in planned(training(tmp_path / "run", ranks=5, workers=1))] == [4, 4, 2]


def test_a_program_stays_with_the_one_that_took_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the kernel they are one process; only together they tell how the first one ended."""
    monkeypatch.setattr(module, "EVENTS", 1)
    run = build_run(tmp_path / "run", [*replaced(BuiltProcess(records(3))), BuiltProcess(records(3), pid=7)])
    assert sorted(len(part.processes) for part in planned(run)) == [1, 2]


def test_new_parts_get_names_that_are_free(tmp_path: Path) -> None:
    """What is there already is not named again."""
    taken = {f"{host()}-{number}" for number in ("0000", "0002")}
    assert [part.name for part in planned(training(tmp_path / "run", 1, 0), taken)] == [f"{host()}-0001"]


def test_a_part_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """It is made of plain values."""
    (part,) = planned(training(tmp_path / "run", ranks=2, workers=1))
    assert pickle.loads(pickle.dumps(part)) == part
