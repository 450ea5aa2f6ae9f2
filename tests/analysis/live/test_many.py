"""A run of very many processes is read over several looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.analysis.live import run as module
from sonde.analysis.live.run import Live
from sonde.cli.live.screen import Reader
from sonde.testing import build_training
from sonde.views.watch import watch


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of two ranks with a worker each, which take more CPU to read than a look may."""
    monkeypatch.setattr(module, "FIRST_S", 1e-6)
    return build_training(tmp_path / "run", ranks=2, steps=20, workers=1)


def test_each_look_reads_some_and_says_how_many_are_left(run: Path) -> None:
    """Ranks first; in the end all of them, and nothing is said any more."""
    live = Live(run)
    ranks, notices = [], []
    for _ in range(4):
        live.look()
        view = watch(live)
        ranks.append(len(view.ranks))
        notices.append(view.notices)
    assert ranks == [1, 2, 2, 2]
    assert notices[0] == ["1 of 4 processes read so far"]
    assert not notices[-1]


def test_a_screen_looks_at_once_until_all_is_read_and_then_rarely(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rarely as the CPU of a look wants it."""
    monkeypatch.setattr("sonde.cli.live.screen.SHARE", 1e-9)
    reader = Reader(run)
    views = [reader.look() for _ in range(6)]
    reader.close()
    assert [len(view.ranks) for view in views[:2]] == [1, 2]
    assert views[3] is views[4] is views[5]
