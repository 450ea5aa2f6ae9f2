"""What is told of one run."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sonde.analysis.records import schema
from sonde.analysis.run import open_run
from sonde.errors import UnknownName
from sonde.store import record
from sonde.store.folder import boot_id, host
from sonde.terminal.show import draw_show
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run, build_training
from sonde.views.listing import listing
from sonde.views.show import Show, show

SECOND = 1_000_000_000


def of(folder: Path, *processes: BuiltProcess, sort: str = "total", limit: int = 0) -> Show:
    with open_run(build_run(folder / "run", processes)) as run:
        return show(run, sort, limit)


def dead(*records: BuiltRecord, **process: Any) -> BuiltProcess:
    facts = {"end": None, "boot_id": boot_id(), "start_ticks": 1, **process}
    return BuiltProcess(records, pid=4_000_000, host=host(), process=facts)


def test_names_have_count_total_and_quantiles(tmp_path: Path) -> None:
    """One entry for each category and name, with the numbers of its completed spans."""
    spans = [BuiltRecord("forward", "compute", start=START_NS + n * 1000, dur=n) for n in range(1, 101)]
    (name,) = of(tmp_path, BuiltProcess(spans)).names
    assert (name.label, name.count, name.total_ns, name.max_ns) == ("compute.forward", 100, 5050, 100)
    assert (name.p50_ns, name.p95_ns, name.p99_ns) == (50, 95, 99)


def test_names_of_the_user_stand_without_category(tmp_path: Path) -> None:
    """`sonde.span("load")` is told as load, `data.io.read` not as data.data.io.read."""
    spans = [BuiltRecord("load"), BuiltRecord("data.io.read", "data"), BuiltRecord("compute", "compute")]
    assert {one.label for one in of(tmp_path, BuiltProcess(spans)).names} == {"load", "data.io.read", "compute"}


@pytest.mark.parametrize(
    ("sort", "order"),
    [("total", ["b", "a", "c"]), ("count", ["c", "a", "b"]), ("p99", ["b", "a", "c"]), ("name", ["a", "b", "c"])],
)
def test_names_can_be_sorted(tmp_path: Path, sort: str, order: list[str]) -> None:
    """The largest first, or by name."""
    spans = [
        BuiltRecord(name, dur=dur) for name, dur in (("a", 10), ("a", 20), ("b", 50), ("c", 1), ("c", 2), ("c", 3))
    ]
    assert [one.name for one in of(tmp_path, BuiltProcess(spans), sort=sort).names] == order


def test_a_limit_says_what_it_leaves_out(tmp_path: Path) -> None:
    """The number of names that are not shown is told."""
    view = of(tmp_path, BuiltProcess([BuiltRecord(f"n{n}", dur=n) for n in range(5)]), limit=2)
    assert (len(view.names), view.names_left_out) == (2, 3)


def test_the_open_span_of_a_dead_process_comes_first(tmp_path: Path) -> None:
    """Who died in what, for how long, on which item, inside what."""
    worker = dead(
        BuiltRecord("train", "pipeline", flags=record.OPEN, seq=1),
        BuiltRecord("item", "data", start=START_NS + SECOND, flags=record.OPEN, seq=2, parent=1, depth=1, key=8412),
        rank=0,
        role="worker",
        worker=2,
    )
    ended = BuiltProcess(
        [BuiltRecord("x", flags=record.OPEN), BuiltRecord("y", start=START_NS + 42 * SECOND)], host=host()
    )
    first, second = of(tmp_path, ended, worker).open
    assert (first.process, first.state, first.label, first.key) == ("rank 0 worker 2", "died", "data.item", 8412)
    assert (first.for_ns, first.within) == (41 * SECOND, ["pipeline.train"])
    assert (second.state, second.label) == ("ended", "x")


def test_how_a_process_ended_is_told(tmp_path: Path) -> None:
    """The exception, the signal, or the exit code, as far as they are known."""
    facts: list[dict[str, object]] = [{"signal": 9, "end": None}, {"exit_code": 3}, {"exit_code": 0}]
    end = {"mono_ns": START_NS, "wall_ns": 1, "reason": "exception", "exception": "ValueError"}
    facts.append({"end": end})
    view = of(tmp_path, *(BuiltProcess([BuiltRecord()], pid=n + 1, process=one) for n, one in enumerate(facts)))
    assert {one.pid: one.how for one in view.processes} == {1: "signal 9", 2: "exit code 3", 3: "", 4: "ValueError"}


def test_counters_have_first_last_and_range(tmp_path: Path) -> None:
    """By time, and without the values that are no numbers, which are counted."""
    values = [3.0, 1.0, math.inf, 2.0, math.nan]
    counters = [BuiltRecord("loss", kind=record.COUNTER, start=START_NS + n, value=v) for n, v in enumerate(values)]
    (one,) = of(tmp_path, BuiltProcess(counters)).counters
    assert (one.count, one.first, one.low, one.high, one.nonfinite) == (5, 3.0, 1.0, 3.0, 2)
    assert math.isnan(one.last)


def test_the_load_of_the_host_is_not_that_of_a_process(tmp_path: Path) -> None:
    """Both are called the same; the host has no number."""
    values = [(0, 90.0), (42, 10.0), (43, 20.0)]
    samples = [
        BuiltRecord("cpu", cat="system", kind=record.COUNTER, start=START_NS + n, value=value, key=key)
        for n, (key, value) in enumerate(values)
    ]
    found = of(tmp_path, BuiltProcess(samples)).counters
    assert [(one.label, one.low, one.high) for one in found] == [
        ("system.cpu", 10.0, 20.0), ("system.cpu (host)", 90.0, 90.0),
    ]  # fmt: skip


def test_losses_have_their_reason(tmp_path: Path) -> None:
    """Missing records are counted, and told with the reason that the process left."""
    (loss,) = of(tmp_path, BuiltProcess([BuiltRecord()], next_seq=5, header={"lost_space": 3})).drops
    assert loss.count == 3
    assert "disk full" in loss.reason


def test_what_was_lost_with_a_file_is_not_known(tmp_path: Path) -> None:
    """A copy without rings: missing is not zero."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord(dur=1)], spilled=1)])
    next(folder.glob("*/rings")).unlink()
    with open_run(folder) as run:
        view = show(run)
    (loss,) = view.drops
    assert loss.count is None
    console = Console(width=120, file=io.StringIO())
    draw_show(view, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "No record was lost" not in text
    assert "an unknown number of records" in text


def test_nothing_lost_is_an_empty_list(tmp_path: Path) -> None:
    """A good run has no losses and no notes."""
    view = of(tmp_path, BuiltProcess([BuiltRecord()]))
    assert (view.drops, view.notes) == ([], [])


def test_what_cannot_be_read_is_noted(tmp_path: Path) -> None:
    """A damaged file does not hide the rest."""
    run = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord("a", dur=1)])])
    next(run.glob("*/args.bin")).unlink()
    next(run.glob("*/process.json")).write_text("{")
    with open_run(run) as opened:
        view = show(opened)
    assert [one.label for one in view.names] == ["a"]
    assert any("process.json" in note for note in view.notes)


def test_an_empty_run_can_be_shown(tmp_path: Path) -> None:
    """No processes, no names, no error."""
    view = of(tmp_path)
    assert (view.events, view.names, view.processes) == (0, [], [])


def test_the_view_is_plain_data(tmp_path: Path) -> None:
    """It goes through JSON and back."""
    view = of(tmp_path, dead(BuiltRecord("x", flags=record.OPEN)))
    assert json.loads(json.dumps(dataclasses.asdict(view)))["open"][0]["label"] == "x"


def test_a_table_is_listed_in_the_order_of_time(tmp_path: Path) -> None:
    """The first rows, and how many there are."""
    spans = [BuiltRecord(f"n{n}", start=START_NS + 10 - n) for n in range(5)]
    with open_run(build_run(tmp_path / "run", [BuiltProcess(spans)])) as run:
        found = listing(run, "events", 2)
        assert [row[found.columns.index("name")] for row in found.rows] == ["n4", "n3"]
        assert found.total == 5
        assert listing(run, "processes", 0).total == 1


def test_an_unknown_table_names_the_valid_ones(tmp_path: Path) -> None:
    """A typo gets a hint."""
    with open_run(build_run(tmp_path / "run")) as run, pytest.raises(UnknownName, match="events"):
        listing(run, "evnts", 1)


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_table_can_be_listed(tmp_path: Path, table: str) -> None:
    """With rows or without."""
    for path in (build_training(tmp_path / "full", steps=2, layers=["a"]), build_run(tmp_path / "empty")):
        with open_run(path) as run:
            found = listing(run, table, 3)
            assert found.columns == [name for name, _ in schema.COLUMNS[table]]
            assert len(found.rows) == min(found.total, 3)


def test_steps_are_listed_in_the_order_of_time(tmp_path: Path) -> None:
    """Ranks side by side."""
    with open_run(build_training(tmp_path / "run", ranks=2, steps=3)) as run:
        found = listing(run, "steps", 0)
        place = [found.columns.index(name) for name in ("step", "rank")]
        assert [[row[one] for one in place] for row in found.rows] == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
