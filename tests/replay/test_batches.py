"""Rebuilding the batches of a step from the ledger: exactly what was delivered, or a clear word on why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import Numbers, Stream, Together, Words  # noqa: E402

import sonde  # noqa: E402
from sonde.analysis.seal import seal  # noqa: E402
from sonde.errors import ReplayError, UnknownName  # noqa: E402
from sonde.testing import build_training  # noqa: E402

DataLoader = torch.utils.data.DataLoader
BatchSampler = torch.utils.data.BatchSampler
Subset = torch.utils.data.Subset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on a small machine


class Pictures(torch.utils.data.Dataset):
    """Item i is a small image of i and its label; `plus` is added to the images."""

    def __init__(self, length: int = 40, plus: float = 0.0, bad: int | None = None) -> None:
        self.length, self.plus, self.bad = length, plus, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.bad:
            raise OSError(f"{index}.fits is broken")
        return {"image": torch.full((2, 3), index + self.plus), "label": index % 2}


class Doubled(torch.utils.data.Subset):
    """A subset that changes its items."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) * 2

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The items."""
        return [self[index] for index in indices]


def numbers_of(batch: Any) -> Any:
    """Something to train with."""
    tensor = batch["image"] if isinstance(batch, dict) else batch
    return torch.as_tensor(tensor).float().sum()


def trained(tmp_path: Path, data: Any, every: int = 1, **settings: Any) -> tuple[Path, list[Any]]:
    """Train over a loader, an update each `every` batches; the run, and what was delivered."""
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=1e-9)
    came = []
    with sonde.init(dir=tmp_path, **settings) as session:
        for number, batch in enumerate(data):
            came.append(batch)
            (weight * numbers_of(batch)).backward()
            if number % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()
    assert session.path is not None
    return session.path, came


def equal(left: Any, right: Any) -> bool:
    """Are two batches the same?"""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    return bool(torch.equal(left, right))


# ── what is rebuilt ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_batches_with_their_micro_batches(tmp_path: Path, workers: int) -> None:
    """Shuffled; the digest of the black box says that it is the same, raw and sealed."""
    data = DataLoader(Pictures(), batch_size=4, shuffle=True, num_workers=workers)
    path, came = trained(tmp_path, data, every=2, blackbox=2)
    for _ in range(2):
        found = sonde.flow.replay(path, step=2, dataset=Pictures())
        assert len(found) == 2
        assert all(map(equal, found.batches, came[4:6]))
        assert [index for batch in found.indices for index in batch] == [
            int(value) for batch in came[4:6] for value in batch["image"][:, 0, 0]
        ]
        assert found.same is True
        assert found.digest == found.recorded
        seal(path)
    assert "same data as in the run, by the digest of all of it" in str(found)
    assert f"batch 4 of loader {found.rebuilt[0].loader} (round 0" in str(found)
    assert "dtype=float32" in str(found)


def test_data_that_has_changed_since_is_told(tmp_path: Path) -> None:
    """By the digest that was taken at the delivery."""
    path, _ = trained(tmp_path, DataLoader(Pictures(), batch_size=4, shuffle=True), blackbox=2)
    found = sonde.flow.replay(path, 1, Pictures(plus=0.5))
    assert found.same is False
    assert found.digest != found.recorded
    assert "DIFFERENT DATA" in str(found)


def test_without_a_digest_nobody_knows(tmp_path: Path) -> None:
    """The batch is there all the same."""
    path, came = trained(tmp_path, DataLoader(Pictures(), batch_size=4, shuffle=True))
    found = sonde.flow.replay(path, 3, Pictures())
    assert found.same is None
    assert found.recorded == [None]
    assert equal(found.batches[0], came[3])
    assert "no digest was recorded" in repr(found)


def test_large_batches_are_compared_by_a_sample(tmp_path: Path) -> None:
    """And it says so."""
    data = DataLoader(torch.arange(400_000.0).reshape(8, 50_000), batch_size=4)
    path, _ = trained(tmp_path, data, blackbox=1)
    found = sonde.flow.replay(path, 1, data.dataset)
    assert found.same is True
    assert "same data as in the run (partly read), by the digest of a sample of it" in str(found)


def turned(items: list[Any]) -> Any:
    """A collate function whose images lie in another order than their own."""
    return {"image": torch.stack([item["image"] for item in items]).permute(2, 0, 1)}


def named(items: list[Any]) -> Any:
    """One that makes texts of the images."""
    return {"image": torch.ones(2), "text": [str(item["image"].tolist()) for item in items]}


@dataclass
class Labelled:
    """A batch as a class of the program."""

    image: Any
    names: list[str]


def classed(items: list[Any]) -> Any:
    """One that makes an object."""
    return {"image": torch.ones(2), "all": Labelled(torch.stack([item["image"] for item in items]), ["a", "b"])}


def many(items: list[Any]) -> Any:
    """One that makes many tensors; all of the first ones are the same."""
    return {"image": torch.ones(2), "rows": [torch.ones(1)] * 64 + [item["image"] for item in items]}


def every_second(items: list[Any]) -> Any:
    """One that leaves columns out, without a copy."""
    return torch.stack([item["image"] for item in items])[:, :, ::2]


@pytest.mark.parametrize("collate", [turned, named, classed])
def test_a_change_is_seen_in_any_order_of_memory_in_texts_and_in_dataclasses(tmp_path: Path, collate: Any) -> None:
    """All of it is read."""
    path, _ = trained(tmp_path, DataLoader(Pictures(), batch_size=4, collate_fn=collate), blackbox=1)
    same = sonde.flow.replay(path, 1, Pictures(), collate=collate)
    assert same.same is True
    assert "by the digest of all of it" in str(same)
    assert sonde.flow.replay(path, 1, Pictures(plus=0.5), collate=collate).same is False


@pytest.mark.parametrize("collate", [many, every_second])
def test_what_was_not_read_is_not_said_to_be_the_same(tmp_path: Path, collate: Any) -> None:
    """Parts beyond those that are taken, and memory with gaps."""
    data = DataLoader(
        Pictures(), batch_size=4, collate_fn=lambda items: {"image": torch.ones(2), "more": collate(items)}
    )
    path, _ = trained(tmp_path, data, blackbox=1)
    found = sonde.flow.replay(path, 1, DataLoader(Pictures(plus=0.5), collate_fn=data.collate_fn))
    assert "same data as in the run (partly read)" in str(found)
    assert not found.rebuilt[0].whole


@pytest.mark.parametrize("given", ["whole", "subset", "loader"])
def test_a_subset_its_dataset_or_a_loader_may_be_given(tmp_path: Path, given: str) -> None:
    """The ledger has the numbers of the innermost dataset."""
    subset = Subset(Subset(Pictures(), range(30, 10, -1)), [5, 3, 1, 0, 7, 9])
    data = DataLoader(subset, batch_size=3, shuffle=True)
    path, came = trained(tmp_path, data)
    found = sonde.flow.replay(path, 1, {"whole": Pictures(), "subset": subset, "loader": data}[given])
    assert equal(found.batches[0], came[1])


def test_a_subset_that_changes_its_items_is_asked_itself(tmp_path: Path) -> None:
    """And one in which an item is not, is refused."""
    data = Doubled(Numbers(20), [4, 8, 12, 16])
    path, came = trained(tmp_path, DataLoader(data, batch_size=2, shuffle=True))
    assert equal(sonde.flow.replay(path, 1, data).batches[0], came[1])
    with pytest.raises(ReplayError, match="is not in the given subset"):
        sonde.flow.replay(path, 1, Subset(Numbers(20), [1, 2]))


def test_collate_of_the_user(tmp_path: Path) -> None:
    """Given, or taken from the loader."""
    data = DataLoader(Numbers(9), batch_size=3, collate_fn=lambda items: torch.stack(items).flip(0))
    path, came = trained(tmp_path, data)
    assert equal(sonde.flow.replay(path, 1, Numbers(9), collate=data.collate_fn).batches[0], came[1])
    assert equal(sonde.flow.replay(path, 1, data).batches[0], came[1])


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(Together(9), batch_size=2, shuffle=True),
        DataLoader(Numbers(9), batch_size=None),
        DataLoader(Numbers(9), batch_size=None, sampler=BatchSampler(range(9), 2, drop_last=False)),
        DataLoader(Stream(9), batch_size=2),
        DataLoader(Stream(9), batch_size=2, num_workers=1),
        DataLoader(Stream(9), batch_size=None),
        DataLoader(Words(), sampler=["a", "bcd", "ef", "g", "hij"], batch_size=1),
    ],
    ids=["getitems", "alone", "lists", "stream", "one worker", "stream alone", "words"],
)
def test_every_kind_of_loader(tmp_path: Path, data: Any) -> None:
    """The last batch, which may be short, is rebuilt."""
    path, came = trained(tmp_path, data)
    found = sonde.flow.replay(path, len(came) - 1, data.dataset)
    assert equal(found.batches[0], came[-1])


def test_the_arrays_can_be_written(tmp_path: Path) -> None:
    """One file, never over another."""
    path, came = trained(tmp_path, DataLoader(Pictures(), batch_size=4))
    found = sonde.flow.replay(path, 0, Pictures())
    found.save(tmp_path / "batch.npz")
    with np.load(tmp_path / "batch.npz") as arrays:
        assert sorted(arrays) == ["0.image", "0.label"]
        assert np.array_equal(arrays["0.image"], came[0]["image"].numpy())
    with pytest.raises(FileExistsError):
        found.save(tmp_path / "batch.npz")


# ── what cannot be ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_iterable_dataset_with_several_workers_is_refused(tmp_path: Path) -> None:
    """Each worker chooses its part itself."""
    path, _ = trained(tmp_path, DataLoader(Stream(4, 4), batch_size=2, num_workers=2))
    with pytest.raises(ReplayError, match="2 workers of loader"):
        sonde.flow.replay(path, 1, Stream(4, 4))


def test_an_iterable_dataset_that_is_shorter_now(tmp_path: Path) -> None:
    """It ends before the batch."""
    path, _ = trained(tmp_path, DataLoader(Stream(9), batch_size=2))
    with pytest.raises(ReplayError, match="The dataset ends before item 6"):
        sonde.flow.replay(path, 3, Stream(4))
    with pytest.raises(ReplayError, match="The dataset fails for item 6: ValueError: the stream is broken"):
        sonde.flow.replay(path, 3, Stream(7, fail=True))


def test_a_dataset_that_is_smaller(tmp_path: Path) -> None:
    """It is another one."""
    path, _ = trained(tmp_path, DataLoader(Pictures(), batch_size=4))
    with pytest.raises(ReplayError, match=r"Item 20 is not in the given dataset, which has 3 items"):
        sonde.flow.replay(path, 5, Pictures(3))


def test_an_item_that_fails_is_named(tmp_path: Path) -> None:
    """With what the dataset said, and where."""
    path, _ = trained(tmp_path, DataLoader(Pictures(), batch_size=4))
    with pytest.raises(
        ReplayError, match=r"fails for item 22: OSError: 22.fits is broken \(in .*test_batches.py:"
    ) as caught:
        sonde.flow.replay(path, 5, Pictures(bad=22))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_step_that_is_not_there(tmp_path: Path) -> None:
    """The range that exists is told."""
    path, _ = trained(tmp_path, DataLoader(Pictures(), batch_size=4))
    with pytest.raises(UnknownName, match="which has steps 0 to 9"):
        sonde.flow.replay(path, 10, Pictures())


def test_a_run_without_a_ledger(tmp_path: Path) -> None:
    """The probes may have been off, or it is older."""
    with pytest.raises(ReplayError, match="the run has no ledger for it"):
        sonde.flow.replay(build_training(tmp_path / "run", steps=2), 1, Pictures())
