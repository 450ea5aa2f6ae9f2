"""The Perfetto export, read back by Perfetto's own trace processor."""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path
from typing import Any

import pytest
from tests.exchange.engine import Perfetto
from tests.exchange.spans import interleaved, nested
from tests.exchange.test_chrome import ARROWS, NAMES, SLICES, ask

from sonde.analysis.run import open_run
from sonde.exchange import chrome, packets, perfetto, rows
from sonde.store import record
from sonde.testing import START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run, build_training


def written(folder: Path, *records: BuiltRecord, **more: Any) -> bytes:
    run = build_run(folder / "run", [BuiltProcess(records, **more)])
    with open_run(run) as opened:
        assert perfetto.export(opened, folder / "out") == len(records)
    return (folder / "out").read_bytes()


def test_perfetto_finds_every_span_with_its_times_and_parent(tmp_path: Path) -> None:
    """Exact to the nanosecond, also where a clock stands still."""
    spans = [
        *nested(300, 1),
        *(
            BuiltRecord(f"s{n}", dur=n % 2, parent=301 + (n - 301) // 2 if n > 301 else 0, seq=n, thread=2)
            for n in range(301, 320)
        ),
    ]
    names = {one.seq: one.name for one in spans}
    found = {row["name"]: row for row in ask(written(tmp_path, *spans), SLICES)}
    assert len(found) == len(spans)
    for one in spans:
        row = found[one.name]
        assert (row["ts"], row["dur"]) == (one.start - START_NS, one.dur)
        if one.thread == 1:
            assert (row["depth"], row["parent"]) == (one.depth, names.get(one.parent))


def test_interleaving_tasks_keep_their_depths(tmp_path: Path) -> None:
    """Spans that overlap without nesting lie on tracks of their own."""
    spans = interleaved(6, 200, 2)
    names = {one.seq: one.name for one in spans}
    found = ask(written(tmp_path, *spans), SLICES)
    assert len(found) == len(spans)
    for row in found:
        one = spans[int(row["name"][1:]) - 1]
        assert (row["depth"], row["parent"]) == (one.depth, names.get(one.parent))


def test_counters_marks_and_arguments_arrive(tmp_path: Path) -> None:
    """Values as numbers, moments as instants, arguments with their types; what no viewer can draw is a mark."""
    args = {"path": "ä.npy", "on": True, "x": 1.5, "none": None, "size": {"w": 2, "l": [1, "b"]}}
    content = written(
        tmp_path,
        *(BuiltRecord("loss", kind=record.COUNTER, start=START_NS + n, value=n / 4) for n in range(5)),
        BuiltRecord("loss", kind=record.COUNTER, start=START_NS + 9, value=math.nan),
        BuiltRecord("here", kind=record.MARK, start=START_NS + 7),
        BuiltRecord("item", dur=5, key=2**60, step=3, epoch=1, flags=record.ERROR, args=args),
    )
    counters = ask(
        content, "SELECT t.name, c.ts, c.value FROM counter c JOIN counter_track t ON c.track_id = t.id ORDER BY ts"
    )
    assert [(row["name"], row["ts"], row["value"]) for row in counters] == [("loss", n, n / 4) for n in range(5)]
    slices = {row["name"]: (row["ts"], row["dur"]) for row in ask(content, SLICES)}
    assert slices == {"here": (7, 0), "loss": (9, 0), "item": (0, 5)}
    told = ask(
        content,
        "SELECT a.key, coalesce(string_value, int_value, real_value) AS value FROM args a JOIN slice s USING (arg_set_id) WHERE s.name = 'item'",
    )
    found = {row["key"].removeprefix("debug."): str(row["value"]) for row in told}
    assert found == {
        "key": str(2**60), "step": "3", "epoch": "1", "error": "1", "path": "ä.npy", "on": "1", "x": "1.5", "none": "null", "size.w": "2",
        "size.l[0]": "1", "size.l[1]": "b",
    }  # fmt: skip


def test_the_trace_knows_when_it_was(tmp_path: Path) -> None:
    """Its time 0 is the first event."""
    content = written(tmp_path, BuiltRecord(dur=1))
    clocks = ask(content, "SELECT clock_name, clock_value FROM clock_snapshot")
    assert {row["clock_name"]: row["clock_value"] for row in clocks} == {"BOOTTIME": 0, "REALTIME": WALL_NS}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two ranks with workers."""
    return build_training(tmp_path_factory.mktemp("runs") / "run", ranks=2, steps=4, workers=2, batch_size=2)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, count(*) AS n, sum(dur) AS total FROM slice GROUP BY 1 ORDER BY 1",
        "SELECT pid, name FROM process WHERE name IS NOT NULL ORDER BY 1",
        "SELECT tid, name FROM thread WHERE name IS NOT NULL AND name NOT IN ('swapper', 'steps', 'batches') ORDER BY 1, 2",
        "SELECT count(*) AS n, sum(value) AS total FROM counter",
        ARROWS,
    ],
)
def test_it_says_what_the_chrome_export_says(training: Path, tmp_path: Path, query: str) -> None:
    """The same slices, processes, threads, counters and arrows."""
    with open_run(training) as opened:
        perfetto.export(opened, tmp_path / "one")
        chrome.export(opened, tmp_path / "two")
    one, two = (ask((tmp_path / name).read_bytes(), query) for name in ("one", "two"))
    order = lambda row: str(sorted(row.items()))  # noqa: E731
    assert sorted(one, key=order) == sorted(two, key=order)
    assert one


def test_names_begin_anew_where_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader need not hold all of them."""
    monkeypatch.setattr(packets, "MOST_NAMES", 7)
    spans = nested(60, 4)
    assert {row["name"] for row in ask(written(tmp_path, *spans), SLICES)} == {one.name for one in spans}


def test_pieces_and_gzip_give_the_same_trace(training: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte."""
    with open_run(training) as opened:
        perfetto.export(opened, tmp_path / "one")
        perfetto.export(opened, tmp_path / "packed", gzip=True)
        monkeypatch.setattr(rows, "PIECE", 7)
        monkeypatch.setattr(rows, "BATCH", 3)
        perfetto.export(opened, tmp_path / "many")
    content = (tmp_path / "one").read_bytes()
    assert (tmp_path / "many").read_bytes() == content
    assert gzip.decompress((tmp_path / "packed").read_bytes()) == content


def test_whatever_a_run_holds_can_be_written(tmp_path: Path) -> None:
    """Names, values and times of any kind: each event is there."""
    records = [
        BuiltRecord(
            name,
            name,
            start=start,
            dur=dur,
            key=dur,
            args={name: 2**70},
            kind=kind,
            flags=flags,
            value=value,
            step=2**32 - 2,
        )
        for name in NAMES
        for start, dur in ((0, -(2**63)), (2**62, 2**63 - 1), (START_NS, 0))
        for kind, value in ((record.SPAN, 0.0), (record.COUNTER, math.inf), (record.MARK, 0.0))
        for flags in (0, record.OPEN | record.ERROR)
    ]
    content = written(tmp_path, *records)
    with Perfetto(trace=io.BytesIO(content)) as processor:
        ((count),) = [row.n for row in processor.query("SELECT count(*) AS n FROM slice")]
    assert count == len(records)
