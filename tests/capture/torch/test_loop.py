"""Programs that have never heard of Sonde: a PyTorch loop, a NumPy pipeline, a scikit-learn script."""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.flow.pipeline import Net, Pictures, Shift, Stream, double, loader, train
from torch import nn
from torch.utils.data import DataLoader, Dataset

from sonde import ai, flow

pytestmark = pytest.mark.usefixtures("nothing_left", "few_workers")


def names(stage: flow.TraceStage) -> list[str]:
    """The functions of a stage, each once."""
    return stage.names()


# ── a plain PyTorch loop ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_stages_of_a_plain_loop_fill_by_themselves() -> None:
    """From the dataset to the optimizer."""
    with flow.trace(items=4) as trace:
        train(loader(shuffle=True))
    assert names(trace.dataset_getter) == [
        "Pictures__getitem__",
        "Pictures__get_image",
        "double",
        "Pictures__get_object_id",
    ]
    assert names(trace.collate) == ["default_collate"]
    assert names(trace.prepare_inputs) == ["Tensor__to"]
    assert names(trace.evaluation) == ["Net__forward", "CrossEntropyLoss__forward", "backward", "SGD__step"]


def test_values_are_captured_under_the_names_of_the_program() -> None:
    """Field of a getter, parameter of forward, loss as a number."""
    with flow.trace(items=2) as trace:
        (loss,) = train(loader())
    getter = trace.dataset_getter["Pictures__get_image"][1]
    assert getter.params == {"index": 1}
    assert getter.image.tolist() == [[[1.0] * 4] * 4]
    assert trace.evaluation["Net__forward"][0].batch.shape == (2, 1, 4, 4)
    assert float(trace.evaluation["backward"][0].loss) == pytest.approx(loss)
    assert trace.evaluation["SGD__step"][0].lr == 0.01


def test_a_transform_that_is_an_object() -> None:
    """Its class is patched for the time of the trace only."""
    original = vars(Shift)["__call__"]
    with flow.trace(items=2) as trace:
        list(loader(Pictures(transform=Shift(3.0))))
    assert trace.dataset_getter["Shift__call__"][1].output[0, 0, 0] == 4
    assert vars(Shift)["__call__"] is original


def test_a_transform_that_is_a_module_belongs_to_the_getters() -> None:
    """It is no evaluation."""
    with flow.trace(items=2) as trace:
        list(loader(Pictures(transform=nn.ReLU())))
    assert len(trace.dataset_getter["ReLU__forward"]) == 2
    assert len(trace.evaluation) == 0


def test_a_transform_that_is_a_function_stands_on_the_dataset_again_after_the_fetch() -> None:
    """Also while the trace goes on."""
    dataset = Pictures(transform=double)
    with flow.trace(items=2):
        list(loader(dataset))
        assert dataset.transform is double


def test_forward_by_keyword() -> None:
    """It works, and has its name."""
    with flow.trace() as trace:
        Net()(batch=torch.zeros(2, 16))
    assert list(trace.evaluation[0].params) == ["batch"]


def test_a_collate_function_that_is_a_method_of_the_dataset() -> None:
    """It is shown with its class."""

    class Rows(Dataset[int]):
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            return index

        def collate(self, samples: list[int]) -> list[int]:
            return samples

    rows = Rows()
    with flow.trace(items=3) as trace:
        list(DataLoader(rows, collate_fn=rows.collate))
    assert names(trace.collate) == ["Rows__collate"]


def test_a_decorated_forward_is_captured_once() -> None:
    """Not by the decorator and by the hook."""

    class Own(nn.Module):
        @flow.trace_model_func(result_name="scores")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    with flow.trace() as trace:
        Own()(torch.zeros(2))
    (call,) = trace.evaluation
    assert call.result_name == "scores"


class Decorated(nn.Module):
    """A model with a decorated forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @flow.trace_model_func
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x).relu()
        return out


class Undecorated(nn.Module):
    """The same without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x).relu()
        return out


@pytest.mark.parametrize("kind", [Decorated, Undecorated])
def test_a_model_can_be_compiled_whole(kind: type[nn.Module]) -> None:
    """With and without a trace, also if its forward is decorated."""
    model, x = kind(), torch.ones(2, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), model(x))
    with flow.trace() as trace:
        assert torch.equal(compiled(x), model(x))
    assert trace.evaluation.names() == [f"{kind.__name__}__forward"]
    assert [list(call.params) for call in trace.evaluation] == [["x"], ["x"]]


@pytest.mark.parametrize("kind", [Decorated, Undecorated])
def test_what_torch_writes_down_is_not_disturbed(kind: type[nn.Module]) -> None:
    """Our look at the values does not become part of a jit graph; what runs is captured."""
    model, x = kind(), torch.ones(2, 4)
    with flow.trace() as trace:
        graph: Any = torch.jit.trace(model, x)  # type: ignore[no-untyped-call]
        assert torch.equal(graph(x), model(x))
    assert "aten::relu" in str(graph.graph)
    assert f"{kind.__name__}__forward" in trace.evaluation.names()


def test_step_epoch_and_batch_of_each_call() -> None:
    """Counted from 0, by the optimizer, the rounds over the loader, and its batches."""
    with flow.trace() as trace:
        train(loader(Pictures(16)), epochs=2)
    steps = [(c.about.epoch, c.about.step, c.about.batch) for c in trace.evaluation["Net__forward"]]
    assert steps == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 3, 1)]
    assert [(c.about.epoch, c.about.step, c.about.batch) for c in trace.collate] == steps


def test_a_program_that_tells_its_step_is_believed() -> None:
    """As in events."""
    try:
        with flow.trace() as trace:
            ai.update(step=41, epoch=7)
            Net()(torch.zeros(1, 16))
    finally:
        ai.update(step=-1, epoch=-1)
    assert (trace.evaluation[0].about.step, trace.evaluation[0].about.epoch) == (41, 7)


def test_a_loop_that_fetches_one_batch_ahead() -> None:
    """Each forward is about the batch that it was given, not about the one that came last."""
    model = Net()
    with flow.trace() as trace:
        batches = iter(loader(Pictures(24)))
        ahead = next(batches)
        for following in [*batches, None]:
            model(ahead["image"].to("cpu"))
            ahead = following
    forwards = trace.evaluation["Net__forward"]
    assert [call.about.batch for call in forwards] == [0, 1, 2]
    assert [call.about.items[0].index for call in forwards] == [0, 8, 16]


def test_the_path_of_an_item_goes_through_all_stages() -> None:
    """By index or id, with its row."""
    with flow.trace(items=4) as trace:
        train(loader(shuffle=True))
    for item in trace.known_items():
        path = trace.item(index=item.index)
        assert [call.stage_name for call in path] == [call.stage_name for call in trace.item(id=item.id)]
        assert set(path.stages) == {"dataset_getter", "collate", "prepare_inputs", "evaluation"}
        row = path.rows[-1]
        assert path.collate[0].samples[row]["object_id"] == item.id == str(100 + item.index)  # type: ignore[operator]


# ── observing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def seeded(block: Any, workers: int, method: str | None) -> tuple[Any, ...]:
    """A training from fixed seeds: everything that a trace could have changed."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  the global state is what a trace could change
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    options = {"num_workers": workers, "multiprocessing_context": method, "persistent_workers": workers > 0}
    data = loader(Pictures(40), shuffle=True, **options)
    with block as trace:
        for _ in range(2):
            for batch in data:
                loss = nn.functional.cross_entropy(model(batch["image"].to("cpu")), batch["label"])
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    state: Any = np.random.get_state()  # noqa: NPY002
    return trace, parameters, torch.get_rng_state(), random.getstate(), state[1].tolist(), len(data)


@cache
def untraced(workers: int) -> tuple[Any, ...]:
    """The same without a trace; how workers are started makes no difference to it."""
    return seeded(nullcontext(), workers, "fork" if workers else None)[1:]


WAYS: list[dict[str, Any]] = [{}, {"batches": 2}, {"steps": range(4, 6)}]


@pytest.mark.parametrize(
    ("workers", "method", "way"),
    [*((0, None, way) for way in WAYS), *((2, "fork", way) for way in WAYS), (1, "spawn", {})],
)
def test_observing_changes_no_result(workers: int, method: str | None, way: dict[str, Any]) -> None:
    """Parameters and the state of all generators are bit-identical to those of an untraced run."""
    plain = untraced(workers)
    trace, *traced = seeded(flow.trace(**way), workers, method)
    assert all(torch.equal(one, other) for one, other in zip(plain[0], traced[0], strict=True))
    assert torch.equal(plain[1], traced[1])
    assert plain[2:] == tuple(traced[2:])
    forwards, collates = len(trace.evaluation["Net__forward"]), len(trace.collate)
    assert forwards == collates == (2 if way else 10)


def test_batches_are_those_of_each_loader() -> None:
    """The first two for training and the first two for validation."""
    with flow.trace(batches=2) as trace:
        train(loader(Pictures(40)), epochs=2)
        for batch in loader(Pictures(40)):
            Net()(batch["image"])
    assert [(c.about.loader, c.about.batch) for c in trace.evaluation["Net__forward"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_steps_are_those_of_the_optimizer() -> None:
    """With everything that belongs to them, and nothing else."""
    with flow.trace(steps=range(2, 4)) as trace:
        train(loader(Pictures(40)))
    assert {call.about.step for call in trace.calls()} == {2, 3}
    assert [call.about.batch for call in trace.collate] == [2, 3]


def test_items_of_an_iterable_dataset_are_counted() -> None:
    """They have no index in a dataset, only a place in the stream."""
    with flow.trace() as trace:
        list(DataLoader(Stream(5), batch_size=2))
    assert [call.about.items[0].index for call in trace.dataset_getter] == [0, 1, 2, 3, 4]
    assert [len(call.about.items) for call in trace.collate] == [2, 2, 1]


# ── without torch's loaders ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_numpy_pipeline() -> None:
    """Decorated where it can be edited, captured where not."""

    @flow.trace_dataset_func(result_name="row")
    def read(index: int) -> Any:
        return np.arange(3.0) + index

    class Scaler:
        def scale(self, rows: Any) -> Any:
            return rows / 2

    with flow.trace() as trace:
        flow.capture(Scaler, "scale", stage_name="prepare_inputs", result_name="scaled")
        Scaler().scale(np.stack([read(n) for n in range(2)]))
    assert [call.row.tolist() for call in trace.dataset_getter] == [[0, 1, 2], [1, 2, 3]]
    assert trace.prepare_inputs[0].scaled.tolist() == [[0, 0.5, 1], [0.5, 1, 1.5]]


def test_a_scikit_learn_script() -> None:
    """An estimator and a pipeline of them."""
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    rows, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression())
    with flow.trace() as trace:
        flow.capture(preprocessing.StandardScaler, "transform", stage_name="prepare_inputs", result_name="scaled")
        flow.capture(linear.LogisticRegression, "fit", stage_name="evaluation")
        flow.capture(model, "predict", stage_name="evaluation", result_name="predicted")
        model.fit(rows, labels)
        predicted = model.predict(rows)
    assert names(trace.prepare_inputs) == ["StandardScaler__transform"]
    assert names(trace.evaluation) == ["LogisticRegression__fit", "Pipeline__predict"]
    assert abs(trace.prepare_inputs[0].scaled.mean()) < 1e-9
    assert trace.evaluation["Pipeline__predict"][0].predicted.tolist() == predicted.tolist()
