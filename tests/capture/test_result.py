"""Results, stages and calls: every way to reach a call or a value, and what is said when it is not there."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy
import pytest
from tests.flow.hand import array, number, train

from sonde.capture.call import FIELDS
from sonde.capture.result import TraceCall, TraceItem, TraceResult, TraceStage
from sonde.errors import UnknownName
from sonde.values.note import MISSING, CapturedValue, Item
from sonde.values.snapshot import freeze


@pytest.fixture
def trace() -> TraceResult:
    """The trace of a small training."""
    return train()


@pytest.fixture
def call() -> TraceCall:
    """A call with two arguments and a result."""
    inputs = [freeze(numpy.arange(3), name="x"), freeze(2, name="scale")]
    return TraceCall("Model__forward", inputs=inputs, output=freeze("done", name="y"), duration_ns=5, step=4, pid=17)


# ── the result ──


def test_a_stage_is_reached_by_attribute_item_and_number(trace: TraceResult) -> None:
    """Three ways, one stage."""
    assert trace.collate is trace["collate"] is trace[2] is trace[-3]
    assert [stage.name for stage in trace[2:4]] == ["collate", "prepare_inputs"]


def test_a_result_has_a_length_and_goes_through_its_stages(trace: TraceResult) -> None:
    """As a list of stages would."""
    assert len(trace) == 5
    assert [len(stage) for stage in trace] == [4, 2, 2, 1, 1]
    assert "collate" in trace
    assert "nothing" not in trace


def test_an_unknown_stage_is_a_key_error_with_the_valid_ones(trace: TraceResult) -> None:
    """By item."""
    with pytest.raises(KeyError, match=r"No stage 'colate'.*Did you mean 'collate'.*dataset_getter, resolve_data"):
        trace["colate"]


def test_an_unknown_attribute_is_an_attribute_error_with_the_valid_ones(trace: TraceResult) -> None:
    """By attribute; so hasattr and getattr with a default work."""
    with pytest.raises(AttributeError, match="Valid: dataset_getter"):
        _ = trace.nothing
    assert not hasattr(trace, "nothing")
    assert hasattr(trace, "collate")
    assert getattr(trace, "nothing", 7) == 7


def test_a_stage_number_that_is_too_large_is_an_index_error(trace: TraceResult) -> None:
    """It says how many there are."""
    with pytest.raises(IndexError, match="there are 5"):
        trace[5]


def test_dir_names_the_stages(trace: TraceResult) -> None:
    """So that a notebook completes them; each name it gives is there."""
    assert {"collate", "evaluation", "item", "save", "findings"} <= set(dir(trace))
    assert all(hasattr(trace, name) for name in dir(trace))


def test_an_empty_result_is_true_and_prints() -> None:
    """`if trace:` asks whether there is one, not whether it holds anything."""
    assert TraceResult()
    assert str(TraceResult()).splitlines()[1] == "\tdataset_getter: []"


def test_calls_of_an_unknown_stage_make_the_stage() -> None:
    """A file may come from a program that declared more stages."""
    trace = TraceResult(calls=[TraceCall("f", stage_name="augment")])
    assert trace.augment[0].disp_name == "f"


def test_calls_that_arrive_later_stand_in_order() -> None:
    """Workers hand in their calls when the block has ended; `seq` tells where they belong."""
    trace = TraceResult(calls=[TraceCall("second", seq=2)])
    trace.extend([TraceCall("third", seq=3), TraceCall("first", seq=1)])
    assert trace.evaluation.names() == ["first", "second", "third"]


def test_a_source_is_asked_at_each_look() -> None:
    """What was captured elsewhere shows as soon as it is there."""
    waiting = [[TraceCall("late", seq=1)], []]
    trace = TraceResult()
    trace.source = lambda: waiting.pop(0) if waiting else []
    assert trace.evaluation.names() == ["late"]
    assert len(trace.evaluation) == 1


def test_a_source_that_fails_does_not_keep_the_rest_from_being_seen() -> None:
    """The folder of the workers may be gone."""

    def fails() -> list[TraceCall]:
        raise OSError("gone")

    trace = TraceResult(calls=[TraceCall("here")])
    trace.source = fails
    assert "here" in str(trace)


def test_threads_may_add_while_others_are_sorted_in() -> None:
    """No call is lost."""
    trace = TraceResult()

    def add() -> None:
        for n in range(300):
            trace.add(TraceCall("f", seq=n))

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(100):
        trace.extend([TraceCall("g", seq=n)])
    for thread in threads:
        thread.join()
    assert len(trace.evaluation) == 1000


# ── stages ──


def test_a_call_is_reached_by_number(trace: TraceResult) -> None:
    """From the front and from the back."""
    assert trace.collate[0].disp_name == "DataProvider__collate"
    assert trace.collate[-1].disp_name == "DataProvider__handle_nans"


def test_the_calls_of_a_function_are_reached_by_its_name(trace: TraceResult) -> None:
    """By item and by attribute."""
    calls = trace.resolve_data["DataProvider__resolve_data"]
    assert len(calls) == 2
    assert calls[1].data_dict is MISSING
    assert len(trace.dataset_getter.data__get_image) == 2


def test_a_slice_of_a_stage_is_a_stage(trace: TraceResult) -> None:
    """It prints, and can be asked further."""
    some = trace.dataset_getter[1:3]
    assert isinstance(some, TraceStage)
    assert some.names() == ["data__get_object_id", "data__get_image"]


def test_an_unknown_function_is_told_with_those_there_are(trace: TraceResult) -> None:
    """KeyError by item, AttributeError by attribute."""
    with pytest.raises(KeyError, match="Did you mean 'data__get_image'"):
        trace.dataset_getter["data__get_imag"]
    with pytest.raises(AttributeError, match="Valid: data__get_image, data__get_object_id"):
        _ = trace.dataset_getter.nothing
    assert not hasattr(trace.dataset_getter, "nothing")


def test_a_call_number_that_is_too_large_is_an_index_error(trace: TraceResult) -> None:
    """It says how many there are."""
    with pytest.raises(IndexError, match="No call number 9 in the stage collate: it has 2"):
        trace.collate[9]


def test_dir_of_a_stage_names_its_functions(trace: TraceResult) -> None:
    """Each name it gives is there."""
    assert "data__get_image" in dir(trace.dataset_getter)
    assert all(hasattr(trace.dataset_getter, name) for name in dir(trace.dataset_getter))


def test_an_empty_stage_says_that_there_is_nothing() -> None:
    """Instead of a list of no names."""
    with pytest.raises(KeyError, match="There are none"):
        TraceResult().collate["f"]


# ── calls ──


def test_a_value_is_reached_by_attribute_name_and_number(call: TraceCall) -> None:
    """Numbers go over the inputs, then the output."""
    assert call.scale == call["scale"] == call[1] == 2
    assert call.y == call["y"] == call[2] == call[-1] == "done"
    assert call[1:] == [2, "done"]
    assert len(call) == 3


def test_a_call_has_the_fields_of_the_seed(call: TraceCall) -> None:
    """`params` by name, `retval`, names and duration."""
    assert call.params["scale"] == 2
    assert list(call.params) == ["x", "scale"]
    assert call.retval == "done"
    assert (call.disp_name, call.func_name, call.result_name) == ("Model__forward", "forward", "y")
    assert (call.duration_ns, call.stage_name) == (5, "evaluation")


def test_a_name_that_is_input_and_output_gives_both() -> None:
    """As a pair: before and after."""
    call = TraceCall("f", inputs=[freeze(1, name="x")], output=freeze(2, name="x"))
    assert call.x == call["x"] == (1, 2)


def test_an_unknown_value_is_told_with_those_there_are(call: TraceCall) -> None:
    """KeyError and IndexError by item, AttributeError by attribute."""
    with pytest.raises(KeyError, match="Did you mean 'scale'"):
        call["scal"]
    with pytest.raises(IndexError, match=r"has no captured value number 3: it has 3. Valid: x, scale, y"):
        call[3]
    with pytest.raises(AttributeError, match="Valid: x, scale, y"):
        _ = call.nothing
    assert not hasattr(call, "nothing")


def test_the_facts_about_a_call_are_attributes(call: TraceCall) -> None:
    """Where it ran and what it was about."""
    assert (call.step, call.pid, call.items, call.error) == (4, 17, (), None)


def test_a_captured_value_comes_before_a_fact_of_the_same_name() -> None:
    """`forward(batch)`: call.batch is what the model got; the number of the batch stands in call.about."""
    call = TraceCall("Model__forward", inputs=[freeze("data", name="batch")], output=freeze(1, name="output"), batch=3)
    assert call.batch == "data"
    assert call.output == 1
    assert call.about.batch == 3


def test_facts_are_filled_in_later() -> None:
    """A call is filed when the function is entered; what it returned is known afterwards."""
    call = TraceCall("f", result_name="y")
    assert "not finished" in str(call)
    call.output = freeze(3, name="y")
    call.duration_ns = 9
    assert (call.retval, call.result_name, call.duration_ns) == (3, "y", 9)


def test_nothing_else_can_be_set(call: TraceCall) -> None:
    """A mistyped field is told."""
    with pytest.raises(AttributeError, match="Did you mean 'output'"):
        call.outptu = 1


def test_dir_of_a_call_names_values_and_facts(call: TraceCall) -> None:
    """Each name it gives is there."""
    assert {"x", "scale", "y", "params", "retval", *FIELDS} <= set(dir(call))
    assert all(hasattr(call, name) for name in dir(call))


# ── copies ──


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_results_stages_and_calls_can_be_copied(trace: TraceResult, again: object) -> None:
    """By copy, deepcopy and pickle; the copy says the same."""
    trace.source = list
    for one in (trace, trace.collate, trace.collate[0], trace.item(0)):
        assert str(again(one)) == str(one)  # type: ignore[operator]


def test_a_value_that_was_not_kept_is_the_same_in_every_copy(trace: TraceResult) -> None:
    """`value is MISSING` stays true."""
    assert copy.deepcopy(trace).collate[0].batch_dict is MISSING
    assert pickle.loads(pickle.dumps(trace)).collate[0].batch_dict is MISSING


def test_a_copy_is_filled_on_its_own(trace: TraceResult) -> None:
    """Calls added to the copy are not in the original."""
    copy.copy(trace).add(TraceCall("more"))
    assert len(trace.evaluation) == 1


# ── one item ──


def test_the_path_of_an_item_goes_through_all_stages(trace: TraceResult) -> None:
    """By index: the calls about it alone, and those about its batch with its row."""
    path = trace.item(index=1)
    assert isinstance(path, TraceItem)
    assert [call.stage_name for call in path] == [
        "dataset_getter",
        "dataset_getter",
        "resolve_data",
        "collate",
        "collate",
        "prepare_inputs",
        "evaluation",
    ]
    assert path.rows[-1] == 1
    assert (path.index, path.id) == (1, "24")


def test_an_item_is_found_by_its_id(trace: TraceResult) -> None:
    """The same path as by its index; ids are texts, numbers are taken for them."""
    assert str(trace.item(id="24")) == str(trace.item(1)) == str(trace.item(id=24))


def test_an_id_finds_also_calls_that_know_only_the_index() -> None:
    """A getter does not know the id; a later call of the same loader does."""
    trace = TraceResult(
        calls=[
            TraceCall("get", stage_name="dataset_getter", items=[Item(0, 7)], seq=1, loader=0),
            TraceCall("get", stage_name="dataset_getter", items=[Item(0, 7)], seq=2, loader=1),
            TraceCall("collate", stage_name="collate", items=[Item(0, 7, "a"), Item(1, 8, "b")], seq=3, loader=0),
        ]
    )
    assert [call.about.seq for call in trace.item(id="a")] == [1, 3]


def test_an_unknown_item_is_told_with_those_there_are(trace: TraceResult) -> None:
    """Index and id of each."""
    with pytest.raises(UnknownName, match=r"involved item index 5. Known: item index 0 id '23'; item index 1 id '24'"):
        trace.item(5)
    with pytest.raises(UnknownName, match="involved item id 'x'"):
        trace.item(id="x")


def test_a_trace_without_items_says_so() -> None:
    """There is nothing to list."""
    with pytest.raises(UnknownName, match="names its items"):
        TraceResult(calls=[TraceCall("f")]).item(0)


def test_many_items_are_not_all_listed() -> None:
    """The message stays short."""
    trace = TraceResult(calls=[TraceCall("get", items=[Item(0, n)]) for n in range(50)])
    with pytest.raises(UnknownName, match=r"item index 19; and 30 more"):
        trace.item(50)


def test_the_stages_of_a_path_are_reached_by_name(trace: TraceResult) -> None:
    """As those of a result; functions too."""
    path = trace.item(0)
    assert len(path.collate) == 2
    assert len(path.data__get_image) == 1
    assert all(hasattr(path, name) for name in dir(path))
    with pytest.raises(AttributeError, match="the path of item index 0 id '23'"):
        _ = path.nothing


def batch(items: int = 2) -> TraceCall:
    """A collate call of real arrays: rows in a list go in, columns come out."""
    samples = [{"image": numpy.full((3, 3), n), "label": n} for n in range(items)]
    output = {"image": numpy.stack([numpy.full((3, 3), n) for n in range(items)]), "label": numpy.arange(items)}
    return TraceCall(
        "collate",
        stage_name="collate",
        inputs=[freeze(samples, name="samples")],
        output=freeze(output, name="batch"),
        items=[Item(n, 10 + n) for n in range(items)],
    )


def test_a_path_shows_what_a_batch_holds_of_the_item() -> None:
    """Its row of each array, its entry of each list; the call itself keeps the whole batch."""
    path = TraceResult(calls=[batch(3)]).item(12)
    mine = path.values(0)
    assert mine.samples["label"] == 2
    assert mine.batch["label"] == 2
    assert (mine.batch["image"] == 2).all()
    assert path[0].batch["image"].shape == (3, 3, 3)
    assert "at row 2 of 3" in str(path)


def test_the_digest_of_an_item_is_the_same_in_and_behind_the_batch() -> None:
    """So that one sees whether the value is still the one from the dataset."""
    mine = TraceResult(calls=[batch()]).item(11).values(0).about
    before, after = dict(mine.inputs[0].note.children), dict(mine.output.note.children)  # type: ignore[union-attr]
    assert before["image"].digest == after["image"].digest is not None


def test_columns_in_a_list_are_not_taken_for_rows() -> None:
    """[images, labels] of two items: each of the two columns gives its row."""
    columns = [numpy.zeros((2, 3)), numpy.arange(2)]
    call = TraceCall("collate", output=freeze(columns, name="batch"), items=[Item(0, 5), Item(1, 6)])
    image, label = TraceResult(calls=[call]).item(6).values(0).batch
    assert image.shape == (3,)
    assert label == 1


def test_a_value_without_rows_stays_whole() -> None:
    """A loss belongs to all items; an array without a copy has no rows to take."""
    kept = [CapturedValue("lost", array((2, 4), 5)), CapturedValue("loss", number(0.5), 0.5)]
    call = TraceCall("f", inputs=kept, items=[Item(0, 0), Item(1, 1)])
    mine = TraceResult(calls=[call]).item(1).values(0)
    assert mine.loss == 0.5
    assert mine.about.inputs[0] == kept[0]


# ── what it says ──


def test_repr_is_str(trace: TraceResult) -> None:
    """A notebook shows the one, print the other."""
    for one in (trace, trace.collate, trace.collate[0], trace.item(0)):
        assert repr(one) == str(one)


def test_findings_and_diff_are_asked_of_the_result(trace: TraceResult) -> None:
    """A trace equals itself, and one with another value does not."""
    other = train()
    assert not trace.diff(other)
    other.evaluation[0].about.output = CapturedValue("loss_dict", number(1.0))
    assert trace.diff(other)
    assert isinstance(trace.findings(), list)


def test_a_stage_and_a_path_have_html(trace: TraceResult) -> None:
    """As the whole result has."""
    assert "DataProvider.collate" in trace.collate._repr_html_()
    assert "train_batch" in trace.item(0)._repr_html_()


def test_a_function_is_found_by_its_own_name_too() -> None:
    """`stage["get_image"]` for what is shown as `Pictures__get_image`."""
    call = TraceCall("Pictures__get_image", stage_name="dataset_getter", func_name="get_image")
    stage = TraceStage("dataset_getter", [call])
    assert stage["get_image"][0] is call
    assert stage.get_image[0] is call


def test_a_stage_gives_its_calls_as_a_list_and_by_function() -> None:
    """The list is the stage's own: a call can be appended."""
    trace = train()
    stage = trace.dataset_getter
    assert list(stage.calls) == list(stage)
    assert {name: len(calls) for name, calls in stage.func_dict.items()} == {
        name: len(stage[name]) for name in stage.names()
    }
    stage.append(TraceCall("one__more", stage_name="dataset_getter"))
    assert [call.func_name for call in stage.func_dict["one__more"]] == ["more"]


def test_a_result_can_be_emptied() -> None:
    """Its stages stay, and so does the number of items that were asked for."""
    trace = TraceResult(4, train().calls())
    trace.reset()
    assert trace.calls() == []
    assert len(trace) == 5
    assert trace.trace_batch_size == 4
