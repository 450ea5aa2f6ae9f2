"""What is found in values, rule by rule: what is told, with which stage, function, field and items, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from tests.flow.making import Making
from tests.flow.pipeline import Pictures
from torch.utils.data import DataLoader

import sonde
from sonde.capture.diff import compare
from sonde.capture.result import TraceCall, TraceResult
from sonde.finding import Finding
from sonde.guard import counts
from sonde.values.note import ARRAY, MISSING, CapturedValue, Item, Note
from sonde.values.snapshot import SUMMARY

N = 4


@pytest.fixture
def making() -> Making:
    """An empty trace."""
    return Making()


@pytest.fixture(autouse=True)
def no_failed_rule() -> Any:
    """A rule that fails is swallowed by the guard: not here."""
    before = counts()
    yield
    assert counts() == before


def image(index: int) -> Any:
    """A picture like none of the others."""
    return np.random.default_rng(index).random((3, 8, 8), dtype=np.float32)


def only(made: Making) -> Finding:
    """The one finding."""
    (finding,) = made.findings()
    assert finding.why
    assert finding.next
    assert 0 < finding.confidence <= 1
    return finding


def told(finding: Finding) -> tuple[str, str, str, str, list[Any]]:
    """Its kind, and where it is."""
    where = finding.evidence
    return finding.kind, where["stage"], where["function"], where["field"], where["items"]


def stack(samples: list[Any]) -> Any:
    """Items as one array."""
    return np.stack(samples)


def fetched(made: Making, get: Any = image, count: int = N) -> list[Any]:
    """So many items of a data set."""
    return [made.get("data__get_image", get, index) for index in range(count)]


def test_nothing_is_found_in_nothing() -> None:
    """A trace without calls."""
    assert TraceResult().findings() == []


# ── changed in place ──


def test_a_change_between_getter_and_collate_is_told_with_its_item(making: Making) -> None:
    """Somebody wrote into item 2 after it was fetched."""
    samples = fetched(making)
    samples[2] += 1
    making.collate(stack, samples, range(N))
    finding = only(making)
    assert told(finding) == ("changed_in_place", "collate", "collate", "samples[*]", [2])
    assert finding.evidence["since"] == "data__get_image"


def test_a_buffer_that_is_reused_for_every_item_is_told(making: Making) -> None:
    """All rows of the batch are the last item."""
    buffer = np.empty((3, 8, 8), np.float32)

    def get(index: int) -> Any:
        buffer[:] = image(index)
        return buffer

    making.collate(stack, fetched(making, get), range(N))
    kinds = {finding.kind: finding for finding in making.findings()}
    assert kinds["changed_in_place"].evidence["items"] == [0, 1, 2]


def test_a_model_that_changes_its_input_is_told_where_the_input_is_used_again(making: Making) -> None:
    """The loss of an autoencoder compares with what the model left of the input."""
    batch = making.collate(stack, fetched(making), range(N))

    def forward(x: Any) -> Any:
        x *= 0.5
        return x + 1

    out = making.call("Model__forward", forward, batch, items=range(N))
    making.call("MSELoss__forward", lambda input, target: ((input - target) ** 2).mean(), out, batch, items=range(N))  # noqa: A006
    finding = only(making)
    assert told(finding)[:4] == ("changed_in_place", "evaluation", "MSELoss__forward", "target")
    assert "Model.forward" in finding.why


class Zeroing(torch.nn.Module):
    """A model that overwrites its input, and returns something else."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, batch: dict[str, Any]) -> Any:
        out = batch["image"].flatten(1).sum(1)
        if self.inside:
            batch["image"][2:].mul_(0)
        return out


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("few_workers")
def test_a_change_inside_a_function_is_told_with_the_function_and_the_rows(workers: int, tmp_path: Path) -> None:
    """Its inputs are looked at once more when it ends; also in a trace that was saved."""
    with sonde.flow.trace(items=4) as trace:
        for batch in DataLoader(Pictures(), batch_size=4, num_workers=workers):
            Zeroing(inside=True)(batch)
    trace.save(tmp_path / "t.sonde")
    for one in (trace, sonde.flow.load(tmp_path / "t.sonde")):
        (finding,) = [found for found in one.findings() if found.kind == "changed_in_place"]
        assert told(finding) == ("changed_in_place", "evaluation", "Zeroing__forward", "batch.image", [2, 3])
        assert "modified in place by Zeroing.forward" in finding.why
        assert "inputs changed in place:" in str(one)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("few_workers")
def test_a_change_between_collate_and_model_is_told(workers: int) -> None:
    """Also where a loader worker has collated the batch."""
    with sonde.flow.trace(items=4) as trace:
        for batch in DataLoader(Pictures(), batch_size=4, num_workers=workers):
            batch["image"][1] *= 2
            Zeroing(inside=False)(batch)
    (finding,) = [found for found in trace.findings() if found.kind == "changed_in_place"]
    assert told(finding) == ("changed_in_place", "evaluation", "Zeroing__forward", "batch.image", [1])
    assert finding.evidence["since"] == "default_collate"


def test_a_function_may_change_in_place_what_it_returns_a_view_of() -> None:
    """The change is its result: of an array, of a tensor, and of an array as a tensor."""

    @sonde.flow.trace_func(stage_name="prepare_inputs")
    def halve(x: Any) -> Any:
        x *= 0.5
        return torch.from_numpy(x).view(-1) if isinstance(x, np.ndarray) else x[:2]

    with sonde.flow.trace() as trace:
        halve(np.ones((4, 4)))
        halve(torch.ones(4, 4))
    assert trace.findings() == []
    assert not any(call.about.changed for call in trace.calls())


def test_the_rows_that_were_changed_are_named(making: Making) -> None:
    """A batch of which two rows were overwritten."""
    batch = making.collate(stack, fetched(making), range(N))
    batch[1:3] = 0.5
    making.call("Model__forward", lambda x: x.sum((1, 2, 3)), batch, items=range(N))
    assert only(making).evidence["items"] == [1, 2]


def test_a_change_that_is_returned_is_meant(making: Making) -> None:
    """A transform may work in place on what it returns, and so may the getter around it."""

    def scale(x: Any) -> Any:
        x *= 2
        return x

    def get(index: int) -> Any:
        inner = making.get("data__scale", lambda _, x: scale(x), index, image(index))
        inner += 1
        return inner

    making.collate(stack, fetched(making, get), range(N))
    assert making.findings() == []


def test_a_new_array_of_the_same_name_is_no_change(making: Making) -> None:
    """Code between two stages may compute something else."""
    batch = making.collate(stack, fetched(making), range(N))
    making.call("Model__forward", lambda x: x.mean(), batch / 2, items=range(N))
    assert making.findings() == []


def test_a_buffer_for_each_batch_is_no_change(making: Making) -> None:
    """It is filled again for the next batch."""
    buffer = np.empty((N, 3, 8, 8), np.float32)
    for number in range(3):
        making.batch = number
        items = range(number * N, number * N + N)
        buffer[:] = np.stack([image(index) for index in items])
        making.call("fill", lambda x: x, buffer, stage="prepare_inputs", items=items)
        making.call("Model__forward", lambda x: x.mean((1, 2, 3)), buffer, items=items)
    assert making.findings() == []


def test_a_loop_over_two_functions_is_no_change(making: Making) -> None:
    """The model, the choice of the next token, and the model again; also for a single item."""
    for items in ([0], [1, 2]):
        tokens = np.zeros((len(items), 9), np.int64)
        for position in range(8):
            scores = making.call("GPT__forward", lambda x: x[:, :2].sum(1) + 1, tokens, items=items)
            tokens[:, position + 1] = making.call("choose", lambda s, t: s + t[:, 0], scores, tokens, items=items)
    assert making.findings() == []


def test_a_stream_may_fill_one_buffer_for_each_batch(making: Making) -> None:
    """Its items have no index: row 0 of one batch is not row 0 of the next."""
    buffer = np.empty((2, 3), np.float32)
    for batch in range(3):
        making.batch = batch
        buffer[:] = np.random.default_rng(batch).random((2, 3))
        making.call("Stream__iter", lambda: buffer, stage="dataset_getter", items=[None])
    assert making.findings() == []


def test_a_loop_that_fills_its_buffer_step_by_step_is_no_change(making: Making) -> None:
    """Text generation calls the model with one token more each time."""
    tokens = np.zeros((2, 9), np.int64)
    for position in range(8):
        tokens[:, position + 1] = making.call("GPT__forward", lambda x: x[:, :2].sum(1) + 1, tokens, items=[0, 1])
    assert making.findings() == []


def test_an_object_that_a_cache_returns_changed_is_told(making: Making) -> None:
    """The second epoch gets what the first one left."""
    cache = {index: image(index) for index in range(N)}
    for epoch in range(2):
        making.batch = epoch
        for index in range(N):
            sample = making.get("data__getitem", lambda i: cache[i], index)
            sample *= 0.5
    kinds = [told(finding) for finding in making.findings()]
    assert kinds == [("changed_in_place", "dataset_getter", "data__getitem", "getitem", [0, 1, 2, 3])]


# ── NaN and Inf ──


def test_the_first_nan_is_told_with_its_items(making: Making) -> None:
    """It came with the data of items 1 and 3, and went through everything."""

    def get(index: int) -> Any:
        x = image(index)
        if index % 2:
            x[0, 0, :2] = np.nan
        return x

    batch = making.collate(stack, fetched(making, get), range(N))
    making.call("Model__forward", lambda x: x.mean(), batch, items=range(N))
    finding = only(making)
    assert told(finding) == ("nonfinite", "dataset_getter", "data__get_image", "image", [1, 3])
    assert finding.severity == "critical"
    assert finding.evidence["count"] == 4
    assert "comes from the data" in finding.why


def test_the_rows_of_a_batch_with_inf_are_named(making: Making) -> None:
    """A model that divides by zero for one item."""
    batch = making.collate(stack, fetched(making), range(N))

    def forward(x: Any) -> Any:
        out = x.mean((1, 2, 3))
        out[2] = np.inf
        return out

    making.call("Model__forward", forward, batch, items=range(N))
    finding = only(making)
    assert told(finding) == ("nonfinite", "evaluation", "Model__forward", "forward", [2])
    assert "it produced the NaN" in finding.why


def test_a_loss_that_is_nan_is_critical(making: Making) -> None:
    """A number, not an array."""
    making.call("Loss__forward", lambda x: float("nan"), image(1), items=range(N))
    finding = only(making)
    assert (finding.kind, finding.severity) == ("nonfinite", "critical")


def test_nan_in_an_input_that_nobody_returned_was_made_between(making: Making) -> None:
    """Code that is not captured made it."""
    batch = making.collate(stack, fetched(making), range(N)) * np.float32(1)
    batch[1, 0, 0, 0] = np.nan
    making.call("Model__forward", lambda x: x, batch, items=range(N))
    finding = only(making)
    assert told(finding) == ("nonfinite", "evaluation", "Model__forward", "x", [1])
    assert "before the call of Model.forward" in finding.why


def test_without_copies_all_items_of_the_batch_are_named() -> None:
    """Which row it was is not known."""
    making = Making(SUMMARY)
    making.call("Model__forward", lambda x: x / np.float32("nan"), np.ones((N, 2), np.float32), items=range(N))
    assert only(making).evidence["items"] == [0, 1, 2, 3]


def test_nan_that_a_later_stage_replaced_is_only_mentioned(making: Making) -> None:
    """Missing values are usual in tables."""

    def get(index: int) -> Any:
        return np.array([index, np.nan, index**2 + 0.5], np.float32)

    batch = making.collate(lambda samples: np.nan_to_num(np.stack(samples)), fetched(making, get), range(N))
    making.call("Model__forward", lambda x: x.sum(1), batch, items=range(N))
    finding = only(making)
    assert finding.severity == "info"
    assert "output of later stages is finite" in finding.why


def test_a_mask_of_minus_infinity_is_as_it_should_be(making: Making) -> None:
    """And so is a limit that is infinite."""
    mask = np.triu(np.full((8, 8), -np.inf, np.float32), 1)
    making.call("Model__forward", lambda x, attn_mask, limit: x.mean(1), image(0), mask, float("inf"), items=range(3))
    assert making.findings() == []


# ── transforms without effect ──


def transformed(making: Making, name: str, function: Any, count: int) -> None:
    for index in range(count):
        making.get(name, lambda _, x: function(x), index, image(index))


def test_a_transform_that_changes_nothing_is_told(making: Making) -> None:
    """Normalising with mean 0 and spread 1, or a result that was thrown away."""
    transformed(making, "data__normalize", lambda x: (x - 0) / 1, 4)
    finding = only(making)
    assert told(finding) == ("no_effect", "dataset_getter", "data__normalize", "normalize", [0, 1, 2, 3])


def test_one_item_is_not_enough_for_it(making: Making) -> None:
    """A single item may be as it should be already."""
    transformed(making, "data__normalize", lambda x: x, 1)
    assert making.findings() == []


@pytest.mark.parametrize(("count", "severity"), [(3, None), (4, "info"), (8, "warn")])
def test_a_random_transform_needs_more_items(making: Making, count: int, severity: str | None) -> None:
    """It leaves half of the items alone, by right."""
    transformed(making, "data__random_flip", lambda x: x, count)
    assert [finding.severity for finding in making.findings()] == ([severity] if severity else [])


def test_missing_targets_that_the_loss_leaves_out_are_only_mentioned(making: Making) -> None:
    """NaN for unknown is usual where there are several tasks."""
    target = making.collate(stack, fetched(making, lambda i: np.array([i, np.nan], np.float32)), range(N))
    making.call("Masked__forward", lambda target: float(np.nansum(target)), target, items=range(N))
    assert only(making).severity == "info"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("data__transform", lambda x: x * 2),
        ("data__resize", lambda x: x),
        ("data__random_crop_transform", lambda x: x),
        ("data__get_raw", lambda x: x),
        ("data__transform", lambda x: __import__("torch").from_numpy(x)),
    ],
)
def test_other_functions_may_return_what_they_got(making: Making, name: str, function: Any) -> None:
    """Resizing to the same size, changing the type, or not being a transform at all."""
    transformed(making, name, function, 8)
    assert making.findings() == []


# ── constant fields ──


def test_a_picture_that_is_the_same_for_all_items_is_told(making: Making) -> None:
    """The getter forgot its index; told once, though collate sees it too."""
    making.collate(stack, fetched(making, lambda index: image(7)), range(N))
    finding = only(making)
    assert told(finding) == ("constant_field", "dataset_getter", "data__get_image", "image", [0, 1, 2, 3])


def test_pictures_that_are_all_zero_are_told(making: Making) -> None:
    """A read that failed silently."""
    fetched(making, lambda index: np.zeros((8, 8), np.uint8))
    assert "always 0" in only(making).why


@pytest.mark.parametrize(
    "get",
    [
        lambda index: {"x": image(index), "label": 1},
        lambda index: {"x": image(index), "mask": np.ones(16, bool)},
        lambda index: {"x": image(index), "signal": np.linspace(0, 1, 50)},
        lambda index: {"x": image(index), "orig_size": np.array([224, 224])},
        lambda index: {"x": image(index), "source": "survey"},
        lambda index: {"x": image(index), "nodes": np.ones((20, 1), np.float32)},
        lambda index: {"x": image(index), "codes": np.array([2, 0, index % 2, 5], np.float32)},
        lambda index: {"x": image(index), "probabilities": np.eye(10, dtype=np.float32)[3]},
    ],
)
def test_what_items_share_by_right_is_no_finding(making: Making, get: Any) -> None:
    """Labels of few items, masks, axes, sizes, names, a class."""
    fetched(making, get, 8)
    assert making.findings() == []


def test_three_items_are_not_enough_for_it(making: Making) -> None:
    """Three of a kind happen."""
    assert "constant_field" not in [one.kind for one in _constant(making, 3)]


def _constant(making: Making, count: int) -> list[Finding]:
    fetched(making, lambda index: image(7), count)
    return making.findings()


def test_a_label_that_never_changes_is_mentioned_after_many_items(making: Making) -> None:
    """32 of a kind are worth a look."""
    fetched(making, lambda index: {"x": image(index), "label": 0}, 32)
    finding = only(making)
    assert (finding.kind, finding.severity, finding.evidence["field"]) == ("constant_field", "info", "image.label")


# ── the same content twice ──


def test_the_same_content_under_two_ids_is_told(making: Making) -> None:
    """Items a and d are one."""
    for index, name in enumerate("abcd"):
        making.get("data__get_image", lambda index: image(index % 3), (index, name))
    finding = only(making)
    assert told(finding) == ("same_content", "dataset_getter", "data__get_image", "image", [0, 3])
    assert "0 (id 'a') and 3 (id 'd')" in finding.why


def test_the_same_picture_with_another_text_is_only_mentioned(making: Making) -> None:
    """Several questions about one picture."""
    fetched(making, lambda index: {"picture": image(index // 2), "question": f"question {index}"})
    found = making.findings()
    assert [(one.kind, one.severity) for one in found] == [("same_content", "info")] * 2
    assert "`question` differ" in found[0].why


def test_an_item_that_is_seen_twice_is_one_item(making: Making) -> None:
    """Two epochs, or sampling with replacement."""
    for batch in range(2):
        making.batch = batch
        fetched(making)
    assert making.findings() == []


# ── types and ranges ──


def test_fractions_that_became_whole_numbers_are_told(making: Making) -> None:
    """0..1 as uint8 is 0."""
    for index in range(N):
        x = making.get("data__get_image", image, index)
        making.get("data__quick", lambda _, x: x.astype(np.uint8) + 0 * x.astype(np.uint8), index, x)
    found = [one for one in making.findings() if one.kind == "dtype"]
    assert [told(one) for one in found] == [("dtype", "dataset_getter", "data__quick", "quick", [0, 1, 2, 3])]
    assert found[0].severity == "critical"


def test_numbers_too_large_for_float32_are_told(making: Making) -> None:
    """Nanoseconds since 1970."""
    stamps = np.arange(1, 9) * 1_000_003 + 1_700_000_000_000_000_000
    making.call("prepare", lambda stamp: stamp.astype(np.float32), stamps, stage="prepare_inputs", items=range(8))
    finding = only(making)
    assert (finding.kind, finding.severity) == ("dtype", "warn")
    assert "Precision was lost" in finding.why


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.astype(np.float32) / 255,
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.float64).astype(np.float32),
        lambda x: (x > 100).astype(np.uint8),
        lambda x: x.astype(np.int64),
    ],
)
def test_usual_changes_of_type_are_no_findings(making: Making, function: Any) -> None:
    """What every pipeline does."""
    for index in range(N):
        x = making.get("data__get_image", lambda i: (image(i) * 255).astype(np.uint8), index)
        making.get("data__convert", lambda _, x: function(x), index, x)
    assert making.findings() == []


def test_an_item_of_another_type_is_told(making: Making) -> None:
    """One file of another format."""
    fetched(making, lambda index: (image(index) * 255).astype(np.uint16 if index == 2 else np.uint8))
    finding = only(making)
    assert told(finding) == ("dtype", "dataset_getter", "data__get_image", "image", [2])


def test_float64_beside_float32_is_told_with_its_origin(making: Making) -> None:
    """A target that nobody made float32."""
    x = making.collate(stack, fetched(making), range(N))
    y = making.call("target", lambda x: x.astype(np.float64).mean((1, 2, 3)), x, stage="prepare_inputs", items=range(N))
    making.call("MSELoss__forward", lambda a, target: ((a - target) ** 2).mean(), x.mean((1, 2, 3)), y, items=range(N))
    finding = only(making)
    assert told(finding)[:4] == ("dtype", "evaluation", "MSELoss__forward", "target")
    assert finding.evidence["first"] == "target"


def test_float64_all_the_way_is_meant(making: Making) -> None:
    """As in scikit-learn."""
    x = making.collate(stack, fetched(making, lambda i: image(i).astype(np.float64)), range(N))
    making.call("fit", lambda x: x.mean(), x, items=range(N))
    assert making.findings() == []


def test_an_item_in_0_to_255_among_others_in_0_to_1_is_told(making: Making) -> None:
    """It went another way."""
    making.collate(stack, fetched(making, lambda i: image(i) * np.float32(255 if i == 1 else 1)), range(N))
    finding = only(making)
    assert told(finding) == ("range", "dataset_getter", "data__get_image", "image", [1])


@pytest.mark.parametrize("offset", [-0.01, 0.01])
def test_a_range_that_goes_a_little_beyond_its_ends_is_still_compared(making: Making, offset: float) -> None:
    """Noise, an offset or a resampling takes pictures of 0..1 below 0, or above 1."""
    fetched(making, lambda index: (image(index) + np.float32(offset)) * (255 if index == 1 else 1))
    assert told(only(making)) == ("range", "dataset_getter", "data__get_image", "image", [1])


def test_a_model_that_gets_another_range_in_validation_is_told(making: Making) -> None:
    """The division by 255 is in the training transform only."""
    for loader, scale in enumerate((1, 255)):
        making.loader = loader
        items = range(loader * N, loader * N + N)
        x = np.stack([image(index) for index in items]) * np.float32(scale)
        making.call("Model__forward", lambda x: x.mean((1, 2, 3)), x, items=items)
    finding = only(making)
    assert told(finding)[:4] == ("range", "evaluation", "Model__forward", "x")
    assert "loader 1" in finding.why


def test_a_picture_scaled_twice_is_told(making: Making) -> None:
    """ToTensor divides by 255, and so does the getter."""
    for index in range(N):
        raw = making.get("data__get_raw", lambda i: (image(i) * 255).round().astype(np.uint8), index)
        making.get("data__get_image", lambda _, x: x.astype(np.float32) / 255 / 255, index, raw)
    finding = only(making)
    assert told(finding) == ("range", "dataset_getter", "data__get_image", "image", [0, 1, 2, 3])


def test_heavy_tails_are_no_other_range(making: Making) -> None:
    """Prices and brightness have outliers."""
    fetched(making, lambda i: np.random.default_rng(i).pareto(1.0, 64).astype(np.float32), 16)
    assert making.findings() == []


# ── shapes ──


def test_a_collate_that_fails_over_shapes_is_told_with_the_odd_item(making: Making) -> None:
    """Item 2 is one column short."""
    making.collate(stack, fetched(making, lambda i: image(i)[..., : 7 if i == 2 else 8]), range(N))
    finding = only(making)
    assert told(finding) == ("shapes", "collate", "collate", "samples[*]", [2])
    assert finding.severity == "critical"
    assert "(3, 8, 7)" in finding.why


def test_an_array_of_objects_is_told(making: Making) -> None:
    """NumPy takes arrays of different lengths, and makes objects of them."""

    def ragged(samples: list[Any]) -> Any:
        made = np.empty(len(samples), object)
        made[:] = samples
        return made

    making.collate(ragged, fetched(making, lambda i: image(i)[: 1 if i == 2 else 3]), range(N))
    assert [one.kind for one in making.findings()] == ["shapes"]


def test_padding_is_the_answer_and_no_finding(making: Making) -> None:
    """Sequences of different lengths are usual."""

    def pad(samples: list[Any]) -> Any:
        return np.stack([np.pad(one, (0, 20 - len(one))) for one in samples])

    making.collate(pad, fetched(making, lambda i: np.arange(5 + i) * (i + 2) % 17), range(N))
    assert making.findings() == []


def test_one_odd_shape_without_any_collate_is_told(making: Making) -> None:
    """A data set that is only read."""
    fetched(making, lambda i: image(i)[: 1 if i == 5 else 3], 8)
    finding = only(making)
    assert told(finding) == ("shapes", "dataset_getter", "data__get_image", "image", [5])


def test_lengths_that_all_differ_without_any_collate_are_no_finding(making: Making) -> None:
    """Texts, recordings, point clouds."""
    fetched(making, lambda i: image(i).reshape(-1)[: 100 + i], 8)
    assert making.findings() == []


# ── anything goes ──


def test_the_gravest_comes_first(making: Making) -> None:
    """Critical before a warning."""

    def get(index: int) -> Any:
        return np.full((4, 4), np.nan, np.float32) if index == 5 else image(index // 2)

    fetched(making, get, 6)
    assert [one.severity for one in making.findings()][:2] == ["critical", "warn"]


class Monkey(Random):
    """Makes calls of everything that a description may say."""

    def number(self) -> float | None:
        return self.choice([None, 0.0, 1.0, -3.5, 200.0, 1e300, self.random()])

    def leaf(self) -> Note:
        kind = self.choice([ARRAY, ARRAY, "scalar", "text", "none", "again", "unheard of"])
        shape = self.choice([None, (), (0,), (4,), (4, 5), (3, 40)])
        dtype = self.choice([None, "float32", "float64", "uint8", "int64", "object", "<U3", "bfloat16"])
        facts: dict[str, Any] = {name: self.number() for name in ("value", "low", "high", "mean")}
        digest, identity, bad = self.choice([None, 1, 2]), self.choice([None, 1, 2]), self.choice([None, 0, 3])
        made = Note(kind, self.choice(["numpy.ndarray", "torch.Tensor"]), shape=shape, dtype=dtype, digest=digest)
        return made._replace(identity=identity, nonfinite=bad, **facts)

    def note(self, depth: int = 0) -> Note:
        if depth > 2 or self.random() < 0.4:
            return self.leaf()
        names = self.choices(["image", "0", "label", "mask"], k=self.randrange(4))
        children = tuple((name, self.note(depth + 1)) for name in names)
        return Note(self.choice(["sequence", "tuple", "mapping"]), "list", length=len(names), children=children)

    def kept(self) -> CapturedValue:
        return CapturedValue(
            self.choice(["x", "image", "samples"]), self.note(), self.choice([MISSING, None, "text", [1]])
        )

    def call(self) -> TraceCall:
        return TraceCall(
            self.choice(["get_image", "transform", "random_flip", "collate"]),
            stage_name=self.choice(["dataset_getter", "collate", "evaluation"]),
            inputs=[self.kept() for _ in range(self.randrange(3))],
            output=self.choice([None, self.kept()]),
            seq=self.randrange(7),
            parent=self.choice([None, self.randrange(7)]),
            batch=self.choice([None, 0, 1]),
            items=[Item(row, self.choice([None, row, "a"])) for row in range(self.randrange(4))],
            error=self.choice([None, "ValueError"]),
        )


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_rule_fails_whatever_was_captured(seed: int) -> None:
    """Files may come from anywhere: each rule answers, with what JSON can hold."""
    monkey = Monkey(seed)
    made = [monkey.call() for _ in range(monkey.randrange(9))]
    before = counts()
    found = TraceResult(calls=made).findings()
    assert counts() == before
    for one in found:
        json.dumps(one._asdict())
        assert str(one)
    assert not compare(TraceResult(calls=made), TraceResult(calls=made))


def test_a_broken_description_costs_one_rule_only() -> None:
    """The others still answer; the guard counts it."""
    note = Note(ARRAY, "numpy.ndarray", shape=(3,), dtype="float32", digest=1, nonfinite=1, low=0.0, high=1.0)
    call = TraceCall("f", inputs=[CapturedValue("x", note, "no array")], items=())
    assert [one.kind for one in TraceResult(calls=[call]).findings()] == ["nonfinite"]
