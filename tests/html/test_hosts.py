"""The heat map of hosts: one row for each, the latest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from sonde.analysis.run import open_run
from sonde.html import page
from sonde.testing import MS, build_run, training_processes
from sonde.views.charts import charts
from sonde.views.report import report

if TYPE_CHECKING:
    from pathlib import Path

LATE = 37  # the host


def content(path: Path, hosts: int, ranks: int = 1) -> str:
    """The page of a job with so many ranks on each host. The others wait for one host, from the middle on."""

    def times(rank: int, step: int) -> dict[str, int]:
        slow = rank // ranks == LATE % hosts and step >= 6
        return {"forward": (60 if slow else 10) * MS, "communication": (1 if slow else 51) * MS}

    built = training_processes(ranks=hosts * ranks, steps=12, phases=times)
    placed = [one._replace(host=f"node-{(one.pid - 1000) // ranks:03}") for one in built]
    with open_run(build_run(path, placed)) as run:
        return page(report(run), charts(run))


def rows(text: str) -> list[str]:
    return re.findall(r'<div class="strip wide(?: thin)?">.*?</div>', text)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    return content(tmp_path_factory.mktemp("many") / "run", 80)


def test_the_latest_host_is_first_and_says_when(many: str) -> None:
    """Only its second half is coloured; the others are pale."""
    first, *others = rows(many)
    assert f"node-{LATE:03}" in first
    assert re.findall(r'x="(\d+)" width="(\d+)"', first) == [("6", "6")]
    assert f"rank {LATE}" in first
    assert not any("<rect" in one for one in others)


def test_many_hosts_have_thin_rows_without_a_name(many: str) -> None:
    """All 80 are there."""
    assert len(rows(many)) == 80
    assert sum("thin" in one for one in rows(many)) == 56
    assert "The other 56 hosts are below" in many


def test_few_hosts_all_have_a_name(tmp_path: Path) -> None:
    text = content(tmp_path / "run", 3, ranks=2)
    assert next(re.findall(r"node-\d+", one)[0] for one in rows(text)) == f"node-{LATE % 3:03}"
    assert "thin" not in "".join(rows(text))


def test_a_run_of_one_host_has_no_map_of_hosts(tmp_path: Path) -> None:
    with open_run(build_run(tmp_path / "run", training_processes(ranks=4))) as run:
        assert not rows(page(report(run), charts(run)))
