"""Drawing the parts of the screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.text import Text

from sonde.analysis.live.run import Live
from sonde.testing import build_run, build_training
from sonde.tui import paint
from sonde.views.watch import MemoryNow, Opinion, PhaseShare, SlowestItems, SlowItemRow, WatchView, watch

PARTS = [PhaseShare("input wait", 2e6, 0.5), PhaseShare("forward", 1e6, 0.25), PhaseShare("untracked", 1e6, 0.25)]


def view_of(folder: Path, **training: Any) -> WatchView:
    live = Live(build_training(folder / "run", **training))
    live.look()
    return watch(live)


def rows(text: Text) -> list[str]:
    return text.plain.splitlines()


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=9), st.integers(0, 200))
def test_shares_fill_the_bar(values: list[float], width: int) -> None:
    """All cells are given away, and nobody has more than one cell too much."""
    cells = paint.shares(values, width)
    total = sum(values)
    if total > 0:
        assert sum(cells) == width
        assert all(abs(one - value / total * width) <= 1 for one, value in zip(cells, values, strict=True))


def test_the_bar_has_letters_where_there_are_no_colours() -> None:
    """They are those of the legend."""
    assert paint.bar(PARTS, 8, coloured=False).plain == "IIIIFFUU"
    assert [line.plain[0] for line in paint.legend(PARTS, 30, coloured=False)] == ["I", "F", "U"]


def test_the_legend_is_in_columns_and_does_without_times_if_narrow() -> None:
    """Name, share, and time if there is room."""
    assert [line.plain for line in paint.legend(PARTS, 58, coloured=True)] == [
        "■ input wait       50 %   ■ forward          25 %",
        "■ untracked        25 %",
    ]
    assert paint.legend(PARTS, 118, coloured=True)[0].plain.startswith("■ input wait       50 %  2.00 ms   ■ forward")


def test_a_history_shows_gaps_and_small_values() -> None:
    """What is there is at least a line, what is not there is nothing."""
    (line,) = paint.spark([8.0, None, 0.001, 4.0], 6, 1, 8.0)
    assert line.plain == "  █ ▁▄"


def test_a_history_of_several_rows() -> None:
    """The full cells stand below."""
    upper, lower = paint.spark([8.0, 4.0, 2.0], 3, 2, 8.0)
    assert (upper.plain, lower.plain) == ("█  ", "██▄")


@pytest.mark.parametrize(("ranks", "whose"), [(1, ""), (2, " slowest rank")])
def test_the_history_says_whose_it_is(tmp_path: Path, ranks: int, whose: str) -> None:
    """Beside the value that its highest column stands for."""
    text = paint.step_time(view_of(tmp_path, steps=20, ranks=ranks), 78, rows=2, coloured=True)
    assert rows(text)[-2].endswith(f" 12.0 ms{whose}")


@pytest.mark.parametrize("width", [38, 58, 78, 118, 158])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, width: int) -> None:
    """Whatever the terminal: no line is broken by it."""
    view = view_of(tmp_path, ranks=3, steps=40, workers=2, layers=("a" * 60, "b"), loss=lambda step: 1.0)
    drawn = [
        paint.headline(view, width),
        paint.step_time(view, width, rows=2, coloured=True),
        paint.ranks(view, width, 10),
        paint.items(view, width, 10),
        paint.layers(view, width, 10),
        paint.keys([("q", "leave"), ("o", "output")], None, width),
    ]
    assert max(cell_len(row) for text in drawn for row in rows(text)) <= width


@pytest.mark.parametrize("height", [1, 2, 5])
def test_nothing_is_higher_than_its_place(tmp_path: Path, height: int) -> None:
    """What does not fit is told as so many more."""
    view = view_of(tmp_path, ranks=9, steps=12, workers=1, rss=lambda rank, step: 10**9)
    for draw in (paint.ranks, paint.memory, paint.items):
        assert len(rows(draw(view, 80, height))) <= height


def test_many_ranks_show_the_slowest_first(tmp_path: Path) -> None:
    """Where not all fit."""

    def phases(rank: int, _: int) -> dict[str, int]:
        return {"input_wait": 10**6, "forward": (1 + rank) * 10**6, "backward": 10**6, "optimizer": 10**6}

    view = view_of(tmp_path, ranks=9, steps=12, phases=phases)
    drawn = rows(paint.ranks(view, 100, 4))
    assert drawn[1].split()[0] == "8"
    assert "slowest is rank 8, 12.0 ms" in paint.ranks_title(view)


def test_missing_is_na_and_never_zero(tmp_path: Path) -> None:
    """A run that has just begun."""
    live = Live(build_run(tmp_path / "run", []))
    live.look()
    view = watch(live)
    assert rows(paint.headline(view, 100))[1] == "step n/a · loss n/a · n/a steps/s · n/a samples/s"
    assert paint.step_time(view, 100, rows=2, coloured=True).plain == "Waiting for the first training step to finish."
    assert paint.memory(view, 100, 5).plain == "No memory samples yet."


def test_a_run_that_is_over_waits_for_nothing(tmp_path: Path) -> None:
    """It says that there was no step."""
    view = view_of(tmp_path, steps=0)
    assert "No training steps recorded." in paint.step_time(view, 100, rows=2, coloured=True).plain


@pytest.mark.parametrize(
    ("used", "style"), [(5, ""), (9, paint.WARN), (10, paint.BAD)], ids=["calm", "near the limit", "at the limit"]
)
def test_memory_near_its_limit_stands_out(tmp_path: Path, used: int, style: str) -> None:
    """By its colour."""
    one = MemoryNow("container", used * 10**9, None, 10 * 10**9, None, None, None, None)
    assert paint._pressure(one) == style


def test_an_item_without_worker_was_fetched_by_the_main_process(tmp_path: Path) -> None:
    """And one without an index has none."""
    view = view_of(tmp_path, steps=1)
    items = SlowestItems(1, None, [SlowItemRow(None, None, None, None, 5_000_000, None)])
    drawn = rows(paint.items(WatchView(**{**view.__dict__, "items": items}), 80, 5))
    assert drawn[1].split() == ["n/a", "5.00", "ms", "n/a", "main", "n/a"]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "n/a"), (41_900_000_000, "0:00:41"), (11_529 * 10**9, "3:12:09"), (183_600 * 10**9, "2 d 03:00")],
)
def test_the_clock(ns: int | None, text: str) -> None:
    """Hours, minutes and seconds; days when there are any."""
    assert paint.clock(ns) == text


def test_a_command_from_a_recording_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Control characters in names are shown as what they are."""
    run = build_run(tmp_path / "run", [], name="evil\x1b[2J", command=["a\nb"])
    live = Live(run)
    live.look()
    assert "\x1b" not in paint.headline(watch(live), 80).plain


LONG = Opinion(
    "STRAGGLER", "critical", "The other ranks wait for rank 2 in a usual step of the run.", "Compare what rank 2 does."
)


def test_a_long_verdict_goes_on_below_itself_where_there_is_room(tmp_path: Path) -> None:
    """Nobody has to guess how the sentence ends."""
    view = replace(view_of(tmp_path), verdict=LONG)
    assert rows(paint.verdict(view, 50, rows=2)) == [
        "STRAGGLER  The other ranks wait for rank 2 in a",
        "           usual step of the run.",
        "next  Compare what rank 2 does.",
    ]


def test_a_long_verdict_is_cut_where_there_is_none(tmp_path: Path) -> None:
    """One row each, and three dots for the rest."""
    view = replace(view_of(tmp_path), verdict=LONG)
    assert rows(paint.verdict(view, 30)) == ["STRAGGLER  The other ranks wa…", "next  Compare what rank 2 doe…"]
