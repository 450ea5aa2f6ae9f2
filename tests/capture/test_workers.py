"""Loader workers: what they do is part of the trace, forked or not."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from tests.flow import pipeline
from tests.flow.pipeline import Pictures, loader, train

from sonde import flow
from sonde.capture import tape

pytestmark = pytest.mark.usefixtures("nothing_left", "few_workers")

WORKERS = {"fork": 3, "spawn": 2}  # one that is spawned imports torch anew
methods = pytest.mark.parametrize("method", WORKERS)


@methods
def test_every_item_of_a_batch_has_its_path_with_the_process_of_its_worker(method: str) -> None:
    """Getter, collate with its row, transfer and forward; shuffled, several workers."""
    with flow.trace(items=4) as trace:
        train(loader(shuffle=True, num_workers=WORKERS[method], multiprocessing_context=method))
    items = trace.collate[0].about.items
    assert len(items) == 4
    for item in items:
        path = trace.item(index=item.index)
        names = path.names()
        assert {"Pictures__getitem__", "default_collate", "Tensor__to", "Net__forward"} <= set(names)
        for call, row in zip(path.calls, path.rows, strict=True):
            fetched = call.stage_name in ("dataset_getter", "collate")
            assert (call.about.pid == os.getpid()) is not fetched
            assert (call.about.worker is None) is not fetched
            assert row == item.position
        assert path.collate[0].samples[item.position]["object_id"] == item.id


@methods
def test_all_batches_of_all_workers_are_matched_when_observing(method: str) -> None:
    """The images that a forward gets are those of the items that it is about."""
    with flow.trace() as trace:
        options = {"num_workers": WORKERS[method], "multiprocessing_context": method, "persistent_workers": True}
        train(loader(Pictures(40), shuffle=True, **options), epochs=2)
    forwards = trace.evaluation["Net__forward"]
    assert len(forwards) == 10
    for call in forwards:
        shown = [int(image.ravel()[0]) // 2 for image in call.batch]
        assert [item.index for item in call.about.items] == shown
    assert len({call.about.worker for call in trace.collate}) == WORKERS[method]
    assert len(trace.dataset_getter["Pictures__getitem__"]) == 80


def test_calls_of_all_processes_stand_in_the_order_of_their_start() -> None:
    """And parents are found again."""
    with flow.trace(items=4) as trace:
        train(loader(num_workers=2))
    calls = trace.calls()
    assert [call.about.seq for call in calls] == list(range(len(calls)))
    starts = [call.about.start_ns for call in calls]
    assert starts == sorted(starts)
    getter = trace.dataset_getter["Pictures__get_image"][0]
    assert getter.about.parent is not None
    assert calls[getter.about.parent].disp_name == "Pictures__getitem__"


def test_a_result_can_be_looked_at_while_workers_run() -> None:
    """What has arrived is there, and nothing twice in the end."""
    with flow.trace() as trace:
        batches = iter(loader(Pictures(32), num_workers=2))
        next(batches)
        assert len(trace.collate) >= 1
        str(trace)
        list(batches)
    assert sorted(call.about.batch or 0 for call in trace.collate) == [0, 1, 2, 3]


@methods
def test_an_exception_in_a_worker_carries_the_trace(method: str) -> None:
    """With the call that failed, and the index that it was given."""
    with pytest.raises(OSError, match="picture 3 is broken") as caught, flow.trace(items=5) as trace:
        train(loader(Pictures(broken=3), num_workers=WORKERS[method] - 1, multiprocessing_context=method))
    assert caught.value.sonde_trace is trace  # type: ignore[attr-defined]
    failed = [call for call in trace.dataset_getter if call.about.error]
    assert {call.disp_name for call in failed} == {"Pictures__getitem__", "Pictures__get_image"}
    assert failed[0].params == {"index": 3}
    assert failed[0].about.worker == 0
    assert failed[0].about.items[0].index == 3


def test_an_exception_in_a_worker_is_kept_also_when_only_some_batches_are_observed() -> None:
    """Its batch was never delivered, but it is what is looked for."""
    with pytest.raises(OSError, match="broken"), flow.trace(batches=2) as trace:
        train(loader(Pictures(broken=9), num_workers=2))
    assert [call.params["index"] for call in trace.dataset_getter if call.about.error] == [9, 9]


@methods
def test_persistent_workers_live_on_after_the_trace(method: str) -> None:
    """They capture no more, and give the same as before."""
    few = WORKERS[method] - 1
    data = loader(Pictures(16), num_workers=few, persistent_workers=True, multiprocessing_context=method)
    with flow.trace() as trace:
        list(data)
    count = len(trace.calls())
    for _ in range(2):
        assert len(list(data)) == 2
    assert len(trace.calls()) == count
    with flow.trace() as second:
        list(data)
    assert "started before the trace" in second.notes[0]


def test_workers_that_were_started_before_are_replaced_where_loaders_are_limited() -> None:
    """And live on afterwards."""
    data = loader(num_workers=1, persistent_workers=True)
    list(data)
    old: Any = data._iterator
    with flow.trace(items=3) as trace:
        list(data)
    assert len(trace.dataset_getter["Pictures__getitem__"]) == 3
    assert data._iterator is old
    assert len(list(data)) == 7


@methods
def test_workers_that_get_nothing_of_the_one_batch_are_fed_too(method: str) -> None:
    """By the thread that each would have in a whole loop: one that starts as the loader ends can close what is not its own."""
    with flow.trace(items=2):
        batches: Any = iter(loader(num_workers=2, multiprocessing_context=method))
        assert all(queue._thread.is_alive() for queue in batches._index_queues)
        assert len(list(batches)) == 1


@methods
def test_what_is_captured_by_name_is_captured_in_workers_too(method: str) -> None:
    """A function of a module, a method of a class."""
    with flow.trace(items=2) as trace:
        flow.capture(pipeline.Shift, "__call__", stage_name="resolve_data")
        list(loader(Pictures(transform=pipeline.Shift(1.0)), num_workers=1, multiprocessing_context=method))
    assert len(trace.resolve_data["Shift__call__"]) == 2


@methods
def test_arrays_come_back_from_workers(method: str) -> None:
    """With the digest that they have here."""
    with flow.trace(items=2) as trace:
        (batch,) = loader(num_workers=1, multiprocessing_context=method)
    with flow.trace(items=2) as here:
        (same,) = loader()
    assert torch.equal(batch["image"], same["image"])
    assert str(trace.collate[0]).partition("inputs:")[2] == str(here.collate[0]).partition("inputs:")[2]
    assert not trace.diff(here)


def test_the_subset_knows_the_index_in_the_whole_dataset() -> None:
    """Also in a worker."""
    subset = torch.utils.data.Subset(Pictures(), [7, 9, 11])
    with flow.trace(items=2) as trace:
        list(loader(subset, num_workers=1))
    assert trace.item(index=9).dataset_getter[0].params == {"index": 9}


def test_a_trace_of_many_workers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no process has captured is counted too."""
    monkeypatch.setattr(tape, "MAX_CALLS", 10)
    with flow.trace() as trace:
        list(loader(Pictures(16), num_workers=2, multiprocessing_context="fork"))
    assert len(trace.calls()) == 10
    # Each of two workers makes 4 calls for each of 8 items, and collates once.
    assert trace.notes == [f"{2 * 33 - 10} more calls were not captured: a trace holds at most 10."]
