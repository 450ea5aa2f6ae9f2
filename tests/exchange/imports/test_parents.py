"""Parents, depths and steps of imported records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.exchange.spans import nested

from sonde.exchange.imports import parents
from sonde.exchange.imports.parents import StepRange
from sonde.exchange.imports.writer import ProcessWriter
from sonde.store.folder import SEGMENT_FILE


def placed(folder: Path, spans: list[tuple[int, int]], steps: list[StepRange] | None = None) -> dict[int, Any]:
    """The records of these spans by their numbers, after they were nested; written in the given order."""
    writer = ProcessWriter(folder / "process")
    for start, dur in spans:
        writer.add("thread", "cat", "name", start, dur)
        if random.Random(start).random() < 0.1:
            writer.flush()
    writer.flush()
    parents.fill(writer.folder / SEGMENT_FILE, writer.threads["thread"].extents, steps or [])
    return {int(one["seq"]): one for _, found in writer.records() for one in found}


def plainly(spans: list[tuple[int, int]]) -> list[int]:
    """The number of the parent of each span: the shortest one that encloses it and began before or reaches further."""
    found = []
    for number, (start, dur) in enumerate(spans):
        around = [
            (length, -begin, other)
            for other, (begin, length) in enumerate(spans)
            if length and begin <= start and begin + length >= start + dur and (begin, length) != (start, dur)
            if begin + length > start and other != number
        ]
        found.append(min(around)[2] + 1 if around else 0)
    return found


@pytest.mark.parametrize("window", [7, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_what_lies_inside_of_a_span_is_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, window: int
) -> None:
    """In whatever order it was written, and however many records are looked at together."""
    monkeypatch.setattr(parents, "WINDOW", window)
    monkeypatch.setattr(parents, "SAMPLED", 2)
    spans = [(one.start, one.dur) for one in nested(150, seed)]
    random.Random(seed).shuffle(spans)
    found = placed(tmp_path, spans)
    assert [int(found[number + 1]["parent"]) for number in range(len(spans))] == plainly(spans)
    depths = {number: int(one["depth"]) for number, one in found.items()}
    assert all(
        depths[number] == (depths[int(one["parent"])] + 1 if one["parent"] else 0) for number, one in found.items()
    )


def test_spans_that_overlap_are_no_parents_of_each_other(tmp_path: Path) -> None:
    """What begins in one span and ends after it belongs to what encloses both."""
    found = placed(tmp_path, [(0, 100), (10, 50), (40, 50), (45, 10), (200, 5)])
    assert [int(found[number]["parent"]) for number in range(1, 6)] == [0, 1, 1, 3, 0]


def test_a_span_of_no_length_is_a_child_and_never_a_parent(tmp_path: Path) -> None:
    """Marks and counters too."""
    found = placed(tmp_path, [(10, 0), (10, 0), (5, 20), (10, 15)])
    assert [int(found[number]["parent"]) for number in range(1, 5)] == [4, 4, 0, 3]


def test_records_get_the_step_in_which_they_begin(tmp_path: Path) -> None:
    """What lies between two steps has none."""
    found = placed(tmp_path, [(5, 1), (15, 90), (25, 1), (35, 1)], [StepRange(30, 40, 8), StepRange(10, 20, 7)])
    none = 2**32 - 1
    assert [int(found[number]["step"]) for number in range(1, 5)] == [none, 7, none, 8]
