"""Whole pipelines under a real trace: twelve that are right, in which nothing is found, and twelve with a seeded defect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import sonde.flow
from sonde.capture.result import TraceResult
from sonde.guard import counts

ITEMS = 8


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same numbers each time; no rule may fail, though the guard would swallow it."""
    torch.manual_seed(7)
    before = counts()
    yield
    assert counts() == before


def raw(index: int, shape: tuple[int, ...] = (8, 8, 3)) -> Any:
    """A picture as it comes from a file."""
    return np.random.default_rng(index).integers(0, 256, shape, dtype=np.uint8)


class Pictures(Dataset[Any]):
    """Pictures and labels; each part can be replaced by one with a fault."""

    def __init__(self, count: int = 32, transform: Callable[[Any], Any] | None = None) -> None:
        self.count = count
        self.transform = transform

    def __len__(self) -> int:
        return self.count

    def get_image(self, index: int) -> Any:
        """The picture."""
        return raw(index)

    def get_label(self, index: int) -> int:
        """Its class."""
        return index % 3

    def __getitem__(self, index: int) -> Any:
        image = torch.from_numpy(self.get_image(index)).permute(2, 0, 1).float() / 255
        if self.transform is not None:
            image = self.transform(image)
        return image, self.get_label(index)


class Normalize:
    """Mean and spread of this data."""

    def __call__(self, image: Any) -> Any:
        return (image - 0.5) / 0.29


def classifier() -> nn.Module:
    """Small, with all that a real one has."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 3)
    )


def train(loader: Any, model: nn.Module | None = None, loss: nn.Module | None = None) -> None:
    """A plain training loop."""
    model, criterion = model or classifier(), loss or nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x.to("cpu")), y.to("cpu")).backward()
        optimizer.step()


# ── pipelines that are right ──


def image_classification() -> None:
    """uint8 to float32 in 0..1, normalised, shuffled, trained, then validated."""
    data = Pictures(transform=Normalize())
    train(DataLoader(data, batch_size=ITEMS, shuffle=True))
    model = classifier().eval()
    with torch.no_grad():
        for x, _ in DataLoader(data, batch_size=ITEMS):
            model(x)


def augmentation() -> None:
    """Flips and noise, in place and not, on what the data set gives."""

    class Augment:
        def __call__(self, image: Any) -> Any:
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            image += 0.05 * torch.randn_like(image)
            return image

    train(DataLoader(Pictures(transform=Augment()), batch_size=ITEMS, shuffle=True))


def tabular() -> None:
    """float64 from a table, made float32 by the data set."""
    table = np.random.default_rng(0).normal(10, 5, (64, 6))

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return len(table)

        def __getitem__(self, index: int) -> Any:
            return {"features": table[index].astype(np.float32), "label": np.float32(table[index, 0] > 10)}

    model, loss = nn.Linear(6, 1), nn.BCEWithLogitsLoss()
    for batch in DataLoader(Rows(), batch_size=ITEMS):
        loss(model(batch["features"]).squeeze(1), batch["label"]).backward()


def text_tokens() -> None:
    """Sentences of different lengths, padded by collate, with a mask."""

    class Sentences(Dataset[Any]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Any:
            generator = np.random.default_rng(index)
            return {"ids": generator.integers(1, 100, 4 + index % 9), "id": f"s{index}"}

    def pad(samples: list[Any]) -> Any:
        tokens = nn.utils.rnn.pad_sequence([torch.from_numpy(one["ids"]) for one in samples], batch_first=True)
        return {"input_ids": tokens, "attention_mask": tokens != 0, "id": [one["id"] for one in samples]}

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(100, 8)
            self.head = nn.Linear(8, 2)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.embed(input_ids) * attention_mask.unsqueeze(-1)
            scores = hidden.sum(-1).masked_fill(~attention_mask, float("-inf"))
            return self.head((scores.softmax(1).unsqueeze(-1) * hidden).sum(1))

    model = Reader()
    for batch in DataLoader(Sentences(), batch_size=ITEMS, collate_fn=pad):
        model(batch["input_ids"], batch["attention_mask"])


def autoencoder() -> None:
    """The target is the input."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 192), nn.Unflatten(1, (3, 8, 8)))
    loss = nn.MSELoss()
    for x, _ in DataLoader(Pictures(), batch_size=ITEMS):
        loss(model(x), x).backward()


def few_items_of_one_class() -> None:
    """Sorted data: the first batch has one label."""

    class Sorted(Pictures):
        def get_label(self, index: int) -> int:
            return index // 16

    train(DataLoader(Sorted(), batch_size=ITEMS))


def embeddings() -> None:
    """Vectors of a frozen model, compared by cosine."""
    data = TensorDataset(torch.randn(64, 32), torch.randint(0, 5, (64,)))
    model = nn.Linear(32, 16)
    with torch.no_grad():
        for x, _ in DataLoader(data, batch_size=ITEMS, shuffle=True):
            nn.functional.normalize(model(x), dim=1)


def time_series() -> None:
    """Windows of a signal, each with the same time axis."""
    signal = np.cumsum(np.random.default_rng(3).normal(size=500)).astype(np.float32)

    class Windows(Dataset[Any]):
        def __len__(self) -> int:
            return 100

        def get_time(self, index: int) -> Any:
            return np.linspace(0, 1, 20, dtype=np.float32)

        def __getitem__(self, index: int) -> Any:
            window = signal[index * 3 : index * 3 + 20]
            return {"time": self.get_time(index), "value": window[:, None], "next": signal[index * 3 + 20]}

    model = nn.LSTM(1, 4, batch_first=True)
    for batch in DataLoader(Windows(), batch_size=ITEMS):
        model(batch["value"])


def several_inputs() -> None:
    """A picture, a vector and a mask in one nested item, from workers' default collate."""

    class Parts(Pictures):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            vector = np.random.default_rng(index).normal(size=5).astype(np.float32)
            inputs = {"image": image, "vector": vector, "mask": np.ones(5, bool), "size": np.array([8, 8])}
            return {"data": inputs, "label": label, "object_id": f"object-{index}"}

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picture = classifier()
            self.vector = nn.Linear(5, 3)

        def forward(self, image: Any, vector: Any, mask: Any) -> Any:
            return self.picture(image) + self.vector(vector * mask)

    model, loss = Both(), nn.CrossEntropyLoss()
    for batch in DataLoader(Parts(), batch_size=ITEMS, shuffle=True):
        data = batch["data"]
        loss(model(data["image"], data["vector"], data["mask"]), batch["label"]).backward()


def numpy_only() -> None:
    """No torch: decorated functions in a loop, float64 all the way, one buffer for the batch."""
    buffer = np.empty((ITEMS, 16))

    @sonde.flow.trace_dataset_func
    def load(index: int) -> Any:
        return np.random.default_rng(index).normal(size=16)

    @sonde.flow.trace_func(stage_name="prepare_inputs")
    def standardize(x: Any) -> Any:
        return (x - x.mean(0)) / x.std(0)

    @sonde.flow.trace_model_func
    def predict(x: Any) -> Any:
        return x @ np.ones(16)

    for batch in range(3):
        for row in range(ITEMS):
            buffer[row] = load(batch * ITEMS + row)
        predict(standardize(buffer))


def scikit_learn() -> None:
    """Objects that cannot be edited, captured by name."""
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    linear = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(5, 2, (60, 4))
    y = (x[:, 0] > 5).astype(int)
    scaler, model = preprocessing.StandardScaler().fit(x), linear.LogisticRegression()
    sonde.flow.capture(scaler, "transform", stage_name="prepare_inputs")
    sonde.flow.capture(model, "predict", stage_name="evaluation")
    model.fit(scaler.transform(x), y)
    model.predict(scaler.transform(x))


def stream() -> None:
    """An iterable data set, of float16, trained on in float32."""

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for index in range(32):
                yield torch.from_numpy(raw(index)).permute(2, 0, 1).half() / 255

    model = classifier().eval()
    with torch.no_grad():
        for x in DataLoader(Stream(), batch_size=ITEMS):
            model(x.float())


def detection() -> None:
    """Pictures of different sizes, which collate keeps in a list on purpose."""

    class Scenes(Dataset[Any]):
        def __len__(self) -> int:
            return 32

        def __getitem__(self, index: int) -> Any:
            image = torch.from_numpy(raw(index, (8 + index % 3, 8, 3))).permute(2, 0, 1).float() / 255
            boxes = torch.from_numpy(np.random.default_rng(index).random((index % 4 + 1, 4), dtype=np.float32))
            return image, {"boxes": boxes}

    for images, _ in DataLoader(
        Scenes(), batch_size=ITEMS, collate_fn=lambda samples: tuple(zip(*samples, strict=True))
    ):
        for image in images:
            image.mean()


def two_epochs() -> None:
    """The same items again, a part of a data set, and a second part for validation."""
    data = Pictures()
    model = classifier()
    for _ in range(2):
        train(DataLoader(Subset(data, range(16)), batch_size=ITEMS, shuffle=True), model)
        with torch.no_grad():
            for x, _ in DataLoader(Subset(data, range(16, 32)), batch_size=ITEMS):
                model(x)


CLEAN = (
    image_classification,
    augmentation,
    tabular,
    text_tokens,
    autoencoder,
    few_items_of_one_class,
    embeddings,
    time_series,
    several_inputs,
    numpy_only,
    scikit_learn,
    stream,
    detection,
    two_epochs,
)

# ── pipelines with a defect ──


def shared_buffer() -> None:
    """The getter fills one buffer again for every item."""

    class Buffered(Pictures):
        buffer = torch.empty(3, 8, 8)

        def __getitem__(self, index: int) -> Any:
            self.buffer.copy_(torch.from_numpy(self.get_image(index)).permute(2, 0, 1) / 255)
            return self.buffer, self.get_label(index)

    train(DataLoader(Buffered(), batch_size=4))


def greedy_model() -> None:
    """An autoencoder that changes its input, which is the target too."""

    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 1)

        def forward(self, x: Any) -> Any:
            return self.layer(x.sub_(0.5))

    model, loss = Greedy(), nn.MSELoss()
    for x, _ in DataLoader(Pictures(), batch_size=4):
        loss(model(x), x)


def nan_in_the_data() -> None:
    """Item 2 has a hole."""

    class Holes(Pictures):
        def get_image(self, index: int) -> Any:
            image = raw(index).astype(np.float32)
            if index == 2:
                image[0, 0] = np.nan
            return image

    train(DataLoader(Holes(), batch_size=4))


def log_of_zero() -> None:
    """The model makes infinite numbers of one finite item."""

    class Log(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.log(x.mean((1, 2, 3)))

    class Dark(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(index) * (index != 3)

    with torch.no_grad():
        for x, _ in DataLoader(Dark(), batch_size=4):
            Log()(x)


def lost_transform() -> None:
    """The transform computes something and returns what it was given."""

    class Forgetful:
        def __call__(self, image: Any) -> Any:
            (image - 0.5) / 0.29
            return image

    train(DataLoader(Pictures(transform=Forgetful()), batch_size=4))


def wrong_index() -> None:
    """Every item is the first one."""

    class Stuck(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(0)

    train(DataLoader(Stuck(), batch_size=4))


def duplicate() -> None:
    """Item 3 is item 1 under another id."""

    class Twice(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(1 if index == 3 else index)

        def get_object_id(self, index: int) -> str:
            return f"id{index}"

    train(DataLoader(Twice(), batch_size=4))


def cast_too_early() -> None:
    """0..1 becomes uint8, which is 0."""

    class Cast(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(index).astype(np.float32) / 255

        def __getitem__(self, index: int) -> Any:
            return {"image": self.get_image(index).astype(np.uint8), "label": self.get_label(index)}

    for _ in DataLoader(Cast(), batch_size=4):
        pass


def double_target() -> None:
    """float64 targets beside float32 predictions."""

    class Targets(Pictures):
        def get_label(self, index: int) -> Any:
            return np.random.default_rng(index).normal(size=3)

    train(DataLoader(Targets(), batch_size=4), loss=nn.L1Loss())


def one_way_without_scaling() -> None:
    """Item 1 is still in 0..255."""

    class Mixed(Pictures):
        def __getitem__(self, index: int) -> Any:
            image = torch.from_numpy(self.get_image(index)).permute(2, 0, 1).float()
            return (image if index == 1 else image / 255), self.get_label(index)

    train(DataLoader(Mixed(), batch_size=4))


def scaled_twice() -> None:
    """Divided by 255 in the data set and in the transform."""
    train(DataLoader(Pictures(transform=lambda image: image / 255), batch_size=4))


def odd_shape() -> None:
    """Item 2 is one row short: collate fails."""

    class Short(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(index)[: 7 if index == 2 else 8]

    with pytest.raises(RuntimeError):
        train(DataLoader(Short(), batch_size=4))


def other_range_in_validation() -> None:
    """The model sees 0..255 in validation."""
    model = classifier()
    train(DataLoader(Pictures(), batch_size=4), model)
    with torch.no_grad():
        for x, _ in DataLoader(Pictures(transform=lambda image: image * 255), batch_size=4):
            model(x)


# (pipeline, kind, stage, a part of the function's name, a part of the field, items)
SEEDED = (
    (shared_buffer, "changed_in_place", "collate", "collate", "[*][0]", [0, 1, 2]),
    (greedy_model, "changed_in_place", "evaluation", "Greedy__forward", "x", [0, 1, 2, 3]),
    (nan_in_the_data, "nonfinite", "dataset_getter", "get_image", "image", [2]),
    (log_of_zero, "nonfinite", "evaluation", "Log__forward", "output", [3]),
    (lost_transform, "no_effect", "dataset_getter", "Forgetful", "output", [0, 1, 2, 3]),
    (wrong_index, "constant_field", "dataset_getter", "get_image", "image", [0, 1, 2, 3]),
    (duplicate, "same_content", "dataset_getter", "get_image", "image", [1, 3]),
    (cast_too_early, "dtype", "dataset_getter", "getitem", "image", [0, 1, 2, 3]),
    (double_target, "dtype", "evaluation", "L1Loss", "target", [0, 1, 2, 3]),
    (one_way_without_scaling, "range", "dataset_getter", "getitem", "[0]", [1]),
    (scaled_twice, "range", "dataset_getter", "", "", [0, 1, 2, 3]),
    (odd_shape, "shapes", "collate", "collate", "[*][0]", [2]),
    (other_range_in_validation, "range", "evaluation", "forward", "input", [0, 1, 2, 3]),
)


def observed(pipeline: Callable[[], None], **limits: Any) -> TraceResult:
    """The trace of a pipeline."""
    with sonde.flow.trace(**limits) as trace:
        pipeline()
    assert trace.calls()
    return trace


@pytest.mark.parametrize("limits", [{}, {"items": ITEMS}], ids=["observed", "limited"])
@pytest.mark.parametrize("pipeline", CLEAN, ids=lambda one: one.__name__)
def test_nothing_is_found_in_a_pipeline_that_is_right(pipeline: Callable[[], None], limits: dict[str, int]) -> None:
    """No false alarm, over all the data and over one batch."""
    assert observed(pipeline, **limits).findings() == []


@pytest.mark.parametrize(
    ("pipeline", "kind", "stage", "function", "field", "items"), SEEDED, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_seeded_defect_is_named(
    pipeline: Callable[[], None], kind: str, stage: str, function: str, field: str, items: list[int]
) -> None:
    """With its stage, function, field and items; the gravest finding is the defect."""
    found = observed(pipeline, items=4).findings()
    assert found
    first = next(one for one in found if one.kind == kind)
    where = first.evidence
    assert (where["stage"], where["items"]) == (stage, items)
    assert function in where["function"]
    assert field in where["field"]


def test_what_happened_in_workers_is_found_too() -> None:
    """A worker's getter returned NaN; its item is named, and nothing else is."""

    class Holes(Pictures):
        def get_image(self, index: int) -> Any:
            return raw(index).astype(np.float32) * (np.nan if index == 5 else 1)

    trace = observed(lambda: train(DataLoader(Holes(16), batch_size=4, num_workers=2)))
    (finding,) = trace.findings()
    assert (finding.kind, finding.evidence["function"]) == ("nonfinite", "Holes__get_image")
    assert finding.evidence["items"] == [5]


def test_a_seeded_training_gives_the_same_trace_twice() -> None:
    """And another seed does not: the first difference is what the model made of the same batch."""

    def run(seed: int) -> TraceResult:
        torch.manual_seed(seed)
        model = classifier()
        return observed(lambda: train(DataLoader(Pictures(), batch_size=4), model), batches=2)

    assert not run(1).diff(run(1))
    first = run(1).diff(run(2)).first
    assert first is not None
    assert (first.stage, first.function, first.field) == ("evaluation", "Sequential__forward", "output")


def test_findings_survive_a_file(tmp_path: Any) -> None:
    """What is found in a saved trace is what was found in the trace."""
    trace = observed(shared_buffer, items=4)
    trace.save(tmp_path / "t.sonde")
    assert sonde.flow.load(tmp_path / "t.sonde").findings() == trace.findings() != []
