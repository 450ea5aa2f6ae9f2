"""Evidence: there is a run for each kind, and what is listed can be asked for again as well as what is counted."""

from __future__ import annotations

from pathlib import Path

from tests.diagnosis.building import check, diagnosed
from tests.diagnosis.catalogue import RUNS

from sonde.analysis.run import open_run
from sonde.diagnosis.rules import RULES


def test_there_is_a_run_for_each_kind() -> None:
    """The reports of all of them are checked, in tests/views: no rule is forgotten there."""
    assert set(RUNS) == {rule.kind for rule in RULES}


def test_each_slow_item_has_a_query_that_gives_its_time(tmp_path: Path) -> None:
    """The items that are named are evidence, too."""
    found = diagnosed(tmp_path, RUNS["SLOW_ITEMS"]())
    items = found.verdict.evidence["items"]
    with open_run(tmp_path / "run") as run:
        for item in items:
            check(run.sql(item["query"]).fetchall(), item["median_ns"], item["query"])
    assert items


def test_a_process_that_hangs_is_known_by_its_last_sign_of_life(tmp_path: Path) -> None:
    """How long it has hung depends on when one looks; since when does not."""
    found = diagnosed(tmp_path, RUNS["HUNG"]())
    numbers = found.verdict.evidence["numbers"]
    assert numbers["last step"] == 59
    assert set(numbers) == {"last sign of life ns", "last step", "longest step ns"}
