"""The pyramid of a sealed part: its bins are what the events of the same time say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sonde.analysis.parts import partition as plan_module
from sonde.analysis.questions.timeline.lanes import lanes
from sonde.analysis.questions.timeline.slices import slices
from sonde.analysis.records import schema
from sonde.analysis.run import Run, open_run
from sonde.analysis.seal import seal
from sonde.analysis.sealing import part as part_module, pyramid
from sonde.analysis.sealing.engines import in_loop
from sonde.store import record
from sonde.testing import BuiltProcess, BuiltRecord, build_run
from sonde.testing.building import START_NS

MANY, FEW = 3000, 15
LEVELS = range(8, 31)
AS_EVENTS = """
    SELECT process, lane, depth, start_ns >> {level} AS bin, min(start_ns), max(start_ns + dur_ns), count(*), sum(dur_ns)::BIGINT, max(dur_ns)
    FROM events WHERE kind = 'span' AND dur_ns < 1::BIGINT << {level} AND {of} GROUP BY ALL ORDER BY ALL
"""
AS_BINS = """
    SELECT process, lane, depth, start_ns >> {level} AS bin, start_ns, end_ns, count, busy_ns, longest_ns
    FROM pyramid WHERE level = {level} AND NOT single AND {of} ORDER BY ALL
"""


def spans(seed: int) -> list[BuiltRecord]:
    """Of two busy threads and one of few spans; as long as a nanosecond, or as the whole; one is open."""
    chance = random.Random(seed)

    def one(thread: int) -> BuiltRecord:
        length = 30 * 10**6
        dur = int(10 ** chance.uniform(0, 5 if chance.random() < 0.95 else 7.4))
        name = chance.choice(["forward", "backward", "load"])
        start = START_NS + chance.randrange(length)
        return BuiltRecord(name, start=start, dur=dur, depth=chance.randrange(3), thread=thread)

    found = [one(thread) for thread, count in ((1, MANY), (2, MANY // 2), (3, FEW)) for _ in range(count)]
    found.append(BuiltRecord("hangs", start=START_NS + 10**6, thread=1, flags=record.OPEN))
    return sorted(found, key=lambda span: span.start)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A run of two processes, which is sealed in two parts."""
    monkeypatch.setattr(pyramid, "FEW", FEW)
    monkeypatch.setattr(plan_module, "EVENTS", 1)
    seed = getattr(request, "param", 1)
    return build_run(tmp_path / "run", [BuiltProcess(spans(seed + pid), pid=pid) for pid in (1000, 1001)])


def rows(run: Run, query: str) -> list[tuple[Any, ...]]:
    return run.database.connection.execute(query).fetchall()


def of_lane(process: str, lane: int | None) -> str:
    return f"process = {schema.quoted(process)} AND lane IS NOT DISTINCT FROM {'NULL' if lane is None else lane}"


def shown(run: Run, first: int, last: int, pixels: int) -> dict[str, list[list[Any]]]:
    """What a timeline draws in a window, without what only reaches into it; with the names of single spans."""
    names, found = slices(run, lanes(run), first, last, pixels)
    return {
        id: sorted(
            [*row[:3], names[row[3]] if row[4] == 1 else None, *row[4:]] for row in some if first <= row[0] < last
        )
        for id, some in found.items()
    }


@pytest.mark.parametrize("folder", [1, 2, 3], indirect=True)
def test_each_bin_is_what_its_events_add_up_to(folder: Path) -> None:
    """At each level of each lane; and its name is that of a longest span."""
    seal(folder)
    with open_run(folder) as run:
        run.database.make("events")
        files = " UNION ALL ".join(run.database.parts.selects("pyramid", ("*",)))
        rows(run, f"CREATE TEMP VIEW pyramid AS {files.replace(chr(34), '')}")
        busy = [one for one in run.database.parts.lanes if one.lowest is not None]
        assert len(busy) == 4
        for lane in busy:
            of = of_lane(lane.process, lane.lane)
            assert lane.lowest is not None
            for level in range(lane.lowest, lane.highest + 1):
                expected = rows(run, AS_EVENTS.format(level=level, of=of))
                assert rows(run, AS_BINS.format(level=level, of=of)) == expected != []
            named = f"SELECT process, lane, depth, name, longest_ns FROM pyramid WHERE {of}"
            known = f"SELECT process, lane, depth, name, dur_ns FROM events WHERE kind = 'span' AND {of}"
            assert rows(run, f"{named} EXCEPT {known}") == []
            longer = f"SELECT seq FROM events WHERE kind = 'span' AND {of} AND (dur_ns IS NULL OR dur_ns >= {1 << lane.lowest}) ORDER BY 1"
            assert rows(run, f"SELECT seq FROM pyramid WHERE single AND {of} ORDER BY 1") == rows(run, longer)


@pytest.mark.parametrize("folder", [4, 5], indirect=True)
@pytest.mark.parametrize("sealed", ["whole", "half"])
def test_the_timeline_of_a_sealed_run_is_that_of_its_records(folder: Path, sealed: str) -> None:
    """At every zoom, as wide as a pixel is a power of two."""
    with open_run(folder) as run:
        started, last = run.started or 0, max(row["last_ns"] for row in run.rows)
        windows = []
        for level in LEVELS:
            first = ((started + 3 * 10**6) >> level << level) - started
            windows.append((first, first + (16 << level), 16))
        windows = [one for one in windows if one[0] < last - started]
        raw = [shown(run, *one) for one in windows]
    seal(folder, engine=in_loop if sealed == "whole" else lambda source, parts: in_loop(source, parts[:1]))
    with open_run(folder) as run:
        assert len(run.database.parts.with_pyramid) == (2 if sealed == "whole" else 1)
        for window, expected in zip(windows, raw, strict=True):
            assert shown(run, *window) == expected


def test_a_run_that_was_sealed_without_a_pyramid_still_has_its_timeline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read from the events."""
    with open_run(folder) as run:
        raw = shown(run, 0, 40 * 10**6, 100)
    monkeypatch.setattr(part_module._PartWriter, "pyramid", lambda self: None)
    seal(folder)
    with open_run(folder) as run:
        assert not run.database.parts.with_pyramid
        assert shown(run, 0, 40 * 10**6, 100) == raw


def test_spans_whose_times_are_damaged_do_not_stop_sealing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the events, and not on the timeline."""
    monkeypatch.setattr(pyramid, "FEW", 1)
    good = [BuiltRecord(start=START_NS + 100 * n, dur=50) for n in range(40)]
    bad = [BuiltRecord("bad", start=2**62 + 5, dur=10), BuiltRecord("bad", start=START_NS, dur=2**62)]
    folder = build_run(tmp_path / "run", [BuiltProcess([*good, *bad])])
    seal(folder, force=True)
    with open_run(folder) as run:
        assert [one.events for one in lanes(run)] == [40]
        assert rows(run, "SELECT count(*) FROM processes") == [(1,)]
        assert run.sql("SELECT count(*) FROM events WHERE name = 'bad'").fetchall() == [(2,)]
