"""Rows of computed tables: whatever is added block by block comes back from DuckDB, in as few bytes as it may lie meanwhile."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sonde.analysis.records import builder as module
from sonde.analysis.records.builder import TableBuilder
from sonde.analysis.records.columns import LEAST

SMALL = 2**31  # from here on a number does not go into 4 bytes
COLUMNS = {"number": "BIGINT", "value": "BIGINT"}


def told(blocks: list[list[int]], columns: dict[str, str] | None = None, numbers: list[int] | None = None) -> list[Any]:
    """The values of blocks that were added one after the other; None where LEAST was added."""
    found = TableBuilder("found", columns or COLUMNS, {"value"})
    for number, block in zip(numbers or [0] * len(blocks), blocks, strict=True):
        found.add({"number": np.broadcast_to(np.int64(number), len(block)), "value": np.array(block, dtype=np.int64)})
        found.next_process()
    return [value for _, value in answer(found)]


def answer(found: TableBuilder, wanted: str = "number, value") -> list[Any]:
    """What DuckDB gives of the rows."""
    with duckdb.connect() as connection:
        people = "range AS number, 'h' AS host, range AS rank, 1 AS pid, 'p' || range AS process FROM range(3)"
        connection.execute(f"CREATE TABLE process_numbers AS SELECT {people}")
        found.register(connection)
        return connection.execute(f"SELECT {wanted} FROM found").fetchall()


def meant(blocks: list[list[int]]) -> list[int | None]:
    """What should come back."""
    return [None if value == LEAST else value for block in blocks for value in block]


@pytest.mark.parametrize("edge", [SMALL - 1, SMALL, SMALL + 1, -SMALL + 1, -SMALL, -SMALL - 1, 2**63 - 1, LEAST + 1])
def test_numbers_at_the_edge_of_four_bytes_stay_what_they_are(edge: int) -> None:
    """The least number of 4 bytes stands for no value there, and is a value nevertheless."""
    for block in ([edge, 7], [edge, LEAST, 7], [edge, edge], [LEAST, edge]):
        assert told([block]) == meant([block])


def test_blocks_of_both_widths_are_joined() -> None:
    """One block goes into 4 bytes and the next does not, each with gaps of its own."""
    blocks = [[1, LEAST, 3], [SMALL * 4, LEAST, -1], [5, 5], [LEAST, LEAST], [-SMALL, 2]]
    assert told(blocks) == meant(blocks)


def test_blocks_of_one_value_are_joined_with_others() -> None:
    """A block that has nothing, or one value only, takes no room, and has its rows all the same."""
    for lonely in (LEAST, 9, SMALL * 9, -SMALL):
        blocks = [[lonely] * 4, [1, LEAST, 2], [lonely]]
        assert told(blocks) == meant(blocks)


def test_nothing_at_all_is_a_table_without_rows() -> None:
    """A run without steps has the table."""
    assert told([]) == []
    assert told([[]]) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.one_of(st.just(LEAST), st.integers(-10, 300), st.integers(-SMALL - 2, SMALL + 2), st.integers(LEAST, 2**63 - 1)),
            max_size=5,
        ),
        max_size=5,
    )
)  # fmt: skip
def test_any_numbers_come_back(blocks: list[list[int]]) -> None:
    """Whatever lies beside what."""
    assert told(blocks) == meant(blocks)


def test_losses_that_are_no_numbers_stay_apart_from_none() -> None:
    """A block without any loss beside blocks with losses, one of them NaN."""
    found = TableBuilder("found", {"number": "BIGINT", "loss": "DOUBLE", "has_loss": "BOOLEAN"}, ())
    number = np.broadcast_to(np.int64(0), 2)
    nothing = {"loss": np.broadcast_to(np.int64(0), 2), "has_loss": np.zeros(2, bool)}
    found.add({"number": number, **nothing})
    found.add({"number": number, "loss": np.array([0.5, np.nan]), "has_loss": np.ones(2, bool)})
    found.add({"number": number, **nothing})
    losses = answer(found, "CASE WHEN has_loss THEN coalesce(loss, 'NaN'::DOUBLE) END")
    assert repr([loss for (loss,) in losses]) == "[None, None, 0.5, nan, None, None]"


@pytest.mark.parametrize("least", [1, 3, 100])
def test_rows_keep_their_process(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts with the rows of one process and of several, as they are cut."""
    monkeypatch.setattr(module, "LEAST_PART", least)
    found = TableBuilder("found", COLUMNS, {"value"})
    for number, values in ((0, [1, 2]), (2, [3, 4]), (0, [LEAST, 5]), (1, [6])):  # one after the other, and again
        found.add({"number": np.full(len(values), number), "value": np.array(values, dtype=np.int64)})
        found.next_process()
    assert sorted(answer(found, "value, number, rank, process"), key=repr) == [
        (1, 0, 0, "p0"), (2, 0, 0, "p0"), (3, 2, 2, "p2"), (4, 2, 2, "p2"), (5, 0, 0, "p0"), (6, 1, 1, "p1"), (None, 0, 0, "p0"),
    ]  # fmt: skip


def test_what_was_added_may_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of one process is used again for the next one, before the rows are packed."""
    monkeypatch.setattr(module, "LEAST_PART", 100)
    found = TableBuilder("found", COLUMNS, {"value"})
    memory = np.empty(2, dtype=np.int64)
    for values in ([1, 2], [SMALL * 2, 4], [LEAST, LEAST]):
        memory[:] = values
        found.add({"number": np.full(2, 0), "value": memory})
        found.next_process()
    assert [value for _, value in answer(found)] == [1, 2, SMALL * 2, 4, None, None]
