"""Traces of named functions only (`automatic=False`), and phases, by which a program tells its parts apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.pipeline import loader, train

from sonde import flow

pytestmark = pytest.mark.usefixtures("nothing_left", "few_workers")


@flow.trace_func(stage_name="prepare_inputs", result_name="same")
def named(value: int) -> int:
    """A function that its author wants to see."""
    return value


@pytest.mark.parametrize("workers", [0, 1])
def test_only_named_functions_appear(workers: int) -> None:
    """Nothing of torch, in workers neither; the loader is limited as ever."""
    with flow.trace(items=2, automatic=False) as trace:
        batches = train(loader(num_workers=workers))
        named(7)
    assert len(batches) == 1
    assert [call.disp_name for call in trace.calls()] == ["named"]


def test_items_of_a_named_function_in_a_fetch_are_known() -> None:
    """The getter tells which item is at hand, although it does not appear itself."""

    class Told(type(loader().dataset)):  # type: ignore[misc]
        def __getitem__(self, index: int) -> object:
            named(index)
            return super().__getitem__(index)

    made = loader()
    made.dataset.__class__ = Told
    with flow.trace(items=3, automatic=False) as trace:
        train(made)
    assert [[item.index for item in call.about.items] for call in trace.calls()] == [
        [call.value] for call in trace.calls()
    ]
    assert len(trace.calls()) == 3


def test_a_block_gives_its_calls_a_phase(tmp_path: Path) -> None:
    """Inner blocks go before outer ones; without one there is none, and the text says nothing."""
    with flow.trace(automatic=False) as trace:
        named(0)
        with flow.phase("train"):
            named(1)
            with flow.phase("validate"):
                named(2)
            named(3)
    assert [call.about.phase for call in trace.calls()] == [None, "train", "validate", "train"]
    assert [" phase=" in str(call).splitlines()[0] for call in trace.calls()] == [False, True, True, True]
    trace.to_html(tmp_path / "a.html")
    assert "phase validate" in (tmp_path / "a.html").read_text()
    trace.save(tmp_path / "a.sonde")
    assert [call.about.phase for call in flow.load(tmp_path / "a.sonde").calls()] == [
        None,
        "train",
        "validate",
        "train",
    ]


def test_calls_of_workers_have_the_phase_in_which_their_loader_was_used() -> None:
    """They run ahead of the program, in processes that know of no phase."""
    with flow.trace(items=2) as trace:
        for name in ("train", "validate"):
            with flow.phase(name):
                train(loader(num_workers=1))
    assert [call.about.phase for call in trace.collate] == ["train", "validate"]


def test_a_phase_without_a_trace_is_harmless() -> None:
    """And lets exceptions pass."""
    with pytest.raises(ZeroDivisionError), flow.phase("train"):
        raise ZeroDivisionError
