"""What card and page say of hosts and attempts."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from sonde.analysis.run import open_run
from sonde.html import page
from sonde.terminal.report import draw_card
from sonde.testing import MS, synthetic_run
from sonde.views.charts import charts
from sonde.views.report import Report, report

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten hosts, one of which was set, and a restart."""
    folder = tmp_path_factory.mktemp("hosts") / "run"
    skew = [0, *(5 * MS * host for host in range(1, 10))]
    return synthetic_run(
        folder, ranks=10, hosts=10, steps=60, restarts=1, repeated=5, skew_ns=skew, jump_ns=[0, 3000 * MS] + [0] * 8
    )


@pytest.fixture(scope="module")
def view(path: Path) -> Report:
    with open_run(path) as run:
        return report(run)


def card(view: Report) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, emoji=False, markup=False)
    draw_card(view, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_card_has_hosts_with_offset_error_and_what_told_it(view: Report) -> None:
    """Of many, those that were set or are farthest off."""
    lines = card(view).splitlines()
    host = next(line for line in lines if line.strip().startswith("node-009"))
    assert "+45." in host or "+44." in host
    assert "collectives" in host
    jumped = next(line for line in lines if line.strip().startswith("node-001"))
    assert "by +3.00 s" in jumped
    assert any("and 2 more" in line for line in lines)


def test_the_card_has_the_attempts_and_the_goodput(view: Report) -> None:
    """And counts ranks and steps once."""
    text = card(view)
    assert "10 of 10 ranks · 2 attempts · 10 hosts" in text
    assert " 60 steps " in text
    assert f"{view.goodput.repeated} steps repeated" in text  # type: ignore[union-attr]
    assert "attempt 1" in text


def test_ranks_are_those_of_the_newest_attempt(view: Report) -> None:
    """The JSON has all of them."""
    assert len(view.ranks) == 20
    assert {one.attempt for one in view.ranks if one.worst or one.slow} == {1} or not any(
        one.worst for one in view.ranks if one.attempt == 0
    )
    assert card(view).count("rank 9 ") <= 2


def test_the_page_has_both(path: Path, view: Report) -> None:
    with open_run(path) as run:
        text = page(view, charts(run))
    assert "Attempts" in text
    assert "Clocks of the hosts" in text
    assert "+45." in text or "+44." in text
    assert "repeated later" in text
