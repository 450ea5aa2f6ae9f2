"""The card of a report: what stands on it, how wide it is, and that it is safe to print."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.views.runs import EVIL, SLOW, STEPS, apart, changed, ranks, with_slow_item

from sonde.analysis.run import open_run
from sonde.store.record import COUNTER
from sonde.terminal.report import draw_card
from sonde.testing import MS, BuiltProcess, BuiltRecord, build_run, training_processes
from sonde.views.report import Report, report


def drawn(view: Report, width: int = 100, *, narrow: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False, markup=False)
    draw_card(view, console, narrow=narrow)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A training with a slow item."""
    with open_run(with_slow_item(tmp_path_factory.mktemp("runs") / "run")) as run:
        return report(run)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two ranks."""
    with open_run(ranks(tmp_path_factory.mktemp("runs") / "run")) as run:
        return report(run)


def test_verdict_why_and_next_come_first(slow: Report) -> None:
    """What matters most is read first."""
    lines = drawn(slow)
    assert slow.verdict.kind in lines[3]
    assert lines[4].split()[0] == "why"
    assert any(line.strip().startswith("next") for line in lines[4:12])


def test_the_slowest_items_are_named(slow: Report) -> None:
    """Also where another verdict explains more."""
    (line,) = [line for line in drawn(slow) if line.strip().startswith("slowest  ")]
    assert line.split()[1:3] == ["item", slow.items.slowest[0].id or str(slow.items.slowest[0].index)]


def test_the_answer_is_not_dim(slow: Report) -> None:
    """Only the labels in front of it are."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="truecolor", highlight=False)
    draw_card(slow, console)
    assert isinstance(console.file, io.StringIO)
    why, following = [line for line in console.file.getvalue().splitlines() if re.search(r"\[2m(why|next) ", line)][:2]
    assert f"\x1b[2mwhy    \x1b[0m{slow.verdict.why[:20]}" in why
    assert f"\x1b[1m{slow.verdict.next[:20]}" in following


def test_everything_that_was_promised_is_on_it(slow: Report) -> None:
    """From the breakdown to what was lost."""
    text = "\n".join(drawn(slow))
    for part in (
        "STEP TIME",
        "p50",
        "p95",
        "p99",
        "warm-up",
        "MEMORY",
        "SLOWEST STEPS",
        "LAYERS",
        "cost",
        "limits",
        "lost",
    ):
        assert part in text
    assert f"{SLOW} (198 ms, worker 0)" in text


def test_ranks_are_told_with_the_worst(two: Report) -> None:
    """The median, the worst one, and how much slower it is by itself."""
    text = "\n".join(drawn(two))
    assert "slowest rank 1" in text
    assert "own time" in text


def test_memory_of_several_hosts_has_their_names(tmp_path: Path) -> None:
    """Or nobody could tell two rows `host` apart."""
    used = [
        BuiltProcess([BuiltRecord("ram.used", "system", kind=COUNTER, value=1e9)], pid=pid, host=f"node-{pid}")
        for pid in (1, 2)
    ]
    with open_run(build_run(tmp_path / "run", [*training_processes(steps=20), *used])) as run:
        lines = drawn(report(run))
    assert [line.split()[1] for line in lines if line.split()[:1] == ["host"] and "GB" in line] == ["node-1", "node-2"]


def test_processes_without_a_rank_are_trainings_of_their_own(tmp_path: Path) -> None:
    """All their steps are counted, none is called slower than another, and each has the name of its process."""
    with open_run(apart(tmp_path / "run")) as run:
        view = report(run)
    text = "\n".join(drawn(view))
    assert f"{2 * STEPS + STEPS // 2} steps · 3 separate trainings" in text
    assert ", 3 trainings together" in text
    assert "TRAININGS" in text
    assert all(f"process {pid}" in text for pid in (1000, 1001, 1002))
    assert "rank " not in text
    assert "RANKS" not in text
    assert view.run.trainings == 3


def test_processes_without_a_rank_that_exchange_something_are_ranks(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn` sets no variable that would tell their numbers."""
    trainers = training_processes(ranks=2, steps=STEPS, phases={"backward": 5 * MS, "communication": MS})
    built = build_run(tmp_path / "run", [changed(one, rank=None, local_rank=None, world_size=None) for one in trainers])
    with open_run(built) as run:
        view = report(run)
    assert view.run.trainings == 1
    assert view.steps.count + view.steps.warmup == STEPS
    assert ", 2 ranks together" in "\n".join(drawn(view))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_it_is_never_wider_than_the_terminal_or_a_hundred_columns(slow: Report, two: Report, width: int) -> None:
    """A wider terminal gets no wider card."""
    for view in (slow, two):
        lines = drawn(view, width)
        assert max(map(cell_len, lines)) <= min(width, 100)
        assert all(line.isprintable() for line in lines)


def test_the_narrow_one_has_sixty_columns(slow: Report) -> None:
    """Whatever the terminal has."""
    assert max(map(cell_len, drawn(slow, 140, narrow=True))) <= 60


def test_what_is_not_known_is_not_zero(slow: Report) -> None:
    """It prints as n/a."""
    steps = dataclasses.replace(slow.steps, p99_ns=None)
    lines = drawn(dataclasses.replace(slow, steps=steps))
    line = lines[lines.index(next(one for one in lines if one.startswith("STEP TIME"))) + 2]
    assert line.split()[0] == "step"
    assert "n/a" in line


def test_what_was_lost_with_a_file_is_not_known(tmp_path: Path) -> None:
    """A copy without rings does not have no records."""
    folder = ranks(tmp_path / "run")
    for rings in folder.glob("*/rings"):
        rings.unlink()
    with open_run(folder) as run:
        view = report(run)
    text = " ".join(" ".join(drawn(view)).split())
    assert [one.count for one in view.drops] == [None]
    assert "no records" not in text
    assert "an unknown number of records" in text


def test_hostile_names_neither_move_the_cursor_nor_break_lines(tmp_path: Path, slow: Report) -> None:
    """Names and texts may hold anything."""
    with open_run(build_run(tmp_path / "run", [], name=EVIL, command=[EVIL])) as run:
        hostile = dataclasses.replace(slow, run=report(run).run, verdict=dataclasses.replace(slow.verdict, why=EVIL))
    assert all(line.isprintable() for line in drawn(hostile))
