"""The exports for flame graphs: speedscope and collapsed stacks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.exchange.spans import interleaved, nested

from sonde.analysis.run import open_run
from sonde.exchange import collapsed, speedscope
from sonde.store import record
from sonde.testing import START_NS, BuiltProcess, BuiltRecord, build_run


def built(folder: Path, *records: BuiltRecord) -> Path:
    return build_run(folder / "run", [BuiltProcess(records, process={"rank": 0, "role": "trainer"})])


def scoped(folder: Path, *records: BuiltRecord) -> dict[str, Any]:
    with open_run(built(folder, *records)) as opened:
        assert speedscope.export(opened, folder / "out") == sum(one.kind == record.SPAN for one in records)
    found: dict[str, Any] = json.loads((folder / "out").read_text("ascii"))
    return found


def stacks(folder: Path, *records: BuiltRecord) -> dict[str, int]:
    with open_run(built(folder, *records)) as opened:
        collapsed.export(opened, folder / "out")
    lines = (folder / "out").read_text("ascii").splitlines()
    return {stack: int(time) for stack, _, time in (line.rpartition(" ") for line in lines)}


def totals(profile: dict[str, Any], frames: list[str]) -> Counter[str]:
    """The time of each frame; also checks that what opens last closes first, and that time never goes back."""
    found: Counter[str] = Counter()
    stack: list[tuple[int, int]] = []
    last = profile["startValue"]
    for event in profile["events"]:
        assert last <= event["at"] <= profile["endValue"]
        last = event["at"]
        if event["type"] == "O":
            stack.append((event["frame"], last))
        else:
            frame, begun = stack.pop()
            assert frame == event["frame"]
            found[frames[frame]] += last - begun
    assert not stack
    return found


@pytest.mark.parametrize("spans", [nested(200, 1), interleaved(5, 150, 2)], ids=["nested", "tasks"])
def test_speedscope_has_each_span_with_its_time(tmp_path: Path, spans: list[BuiltRecord]) -> None:
    """On a profile for each thread, and more where its spans overlap."""
    spans = [one for one in spans if not one.flags]
    found = scoped(
        tmp_path,
        *spans,
        BuiltRecord("loss", kind=record.COUNTER, seq=900),
        BuiltRecord("far", dur=3, thread=2, seq=901),
    )
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    profiles = found["profiles"]
    assert sum((totals(one, frames) for one in profiles), Counter()) == Counter(
        {one.name: one.dur for one in spans} | {"far": 3}
    )
    names = [one["name"] for one in profiles]
    assert len(set(names)) == len(names)
    assert {"rank 0, T1", "rank 0, T2"} <= set(names)
    assert found["$schema"] == speedscope.SCHEMA


def test_speedscope_of_an_empty_run_is_valid(tmp_path: Path) -> None:
    """No profile at all."""
    assert scoped(tmp_path)["profiles"] == []


def test_stacks_add_up_to_the_time_of_the_outermost_spans(tmp_path: Path) -> None:
    """Each line has the time that was spent in its last span itself."""
    spans = nested(200, 3)
    found = stacks(tmp_path, *spans)
    assert sum(found.values()) == sum(one.dur for one in spans if one.depth == 0)
    parents = {one.seq: one for one in spans}
    inner = Counter[int]()
    for one in spans:
        inner[one.parent] += one.dur
    for one in spans:
        path, at = [one.name], one
        while at.parent:
            at = parents[at.parent]
            path.insert(0, at.name)
        assert found.get(";".join(["rank 0", "T1", *path]), 0) == one.dur - inner[one.seq]


def test_equal_stacks_are_one_line(tmp_path: Path) -> None:
    """As often as they came; signs that separate are not part of a name."""
    spans = [BuiltRecord("a;b\nc ü", "x", start=START_NS + 10 * n, dur=5) for n in range(3)]
    assert stacks(tmp_path, *spans) == {"rank 0;T1;x.a:b c \\xfc": 15}


def test_more_stacks_than_can_be_kept_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is lost."""
    monkeypatch.setattr(collapsed, "MOST_STACKS", 3)
    found = stacks(tmp_path, *(BuiltRecord(f"s{n}", start=START_NS + 10 * n, dur=5) for n in range(9)))
    assert (len(found), found[collapsed.OTHER], sum(found.values())) == (4, 30, 45)
