"""Rebuilds the batches of a step of a recorded run from its ledger and the dataset, without the model.

It reads a run as the reading half does, and judges values as the recording half did: so it stands above both.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.ledger.items import StepBatch, loader_workers, step_batches
from sonde.analysis.ledger.ledger import WHOLE
from sonde.analysis.run import Run, open_run
from sonde.blackbox import checksum
from sonde.capture.show.text import indented, value_text
from sonde.errors import MissingExtra, ReplayError
from sonde.lazy import numpy as np
from sonde.replay.target import USUAL
from sonde.values.nested import parts_of
from sonde.values.snapshot import DESCRIBED, freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sonde.analysis.ledger.ledger import LedgerBatch

MOST_READ = 1_000_000  # items of an iterable dataset that are read to come to a batch
SHOWN_ITEMS = 4  # whose values are printed
SHOWN_NUMBERS = 16


@dataclass(frozen=True)
class Rebuilt:
    """One batch: `items` as the dataset gave them, `data` as the loader would deliver them.

    `recorded` is the digest that was taken when the batch was delivered, `digest` that of `data`; None where there is none.
    """

    loader: int
    round: int
    number: int
    worker: int | None
    indices: list[Any]
    items: list[Any]
    data: Any
    digest: int | None
    recorded: int | None
    whole: bool  # the digests are over all of the batch, else over a sample of it: not all of it was read

    @property
    def same(self) -> bool | None:
        """Is it what was delivered? None: nobody knows, because no digest was recorded."""
        return None if self.recorded is None else self.digest == self.recorded

    def __str__(self) -> str:
        where = f"round {self.round}" + ("" if self.worker is None else f", worker {self.worker}")
        head = f"batch {self.number} of loader {self.loader} ({where}), {units.plural(len(self.indices), 'item')}: {units.listed(self.indices, SHOWN_NUMBERS)}"
        places = [
            f"item {index} = {_described(item)}"
            for index, item in zip(self.indices[:SHOWN_ITEMS], self.items, strict=False)
        ]
        left = len(self.items) - len(places)
        places += [f"... {units.plural(left, 'item')} more"] if left > 0 else []
        return "\n".join([head, *map(indented, [*places, f"batch = {_described(self.data)}", self._verdict()])])

    def _verdict(self) -> str:
        part = "all of it" if self.whole else "a sample of it"
        if self.same is None:
            return "not compared: no digest was recorded (record with --blackbox)"
        if self.same:
            far = "" if self.whole else " (partly read)"
            return f"same data as in the run{far}, by the digest of {part} ({self.digest})"
        return (
            f"DIFFERENT DATA: the digest is {self.digest}, in the run it was {self.recorded} (of {part}). The files "
            "or the code have changed, or the dataset is random"
        )


@dataclass(frozen=True)
class Replay:
    """The batches of one step, rebuilt; `print()` shows them."""

    run: str
    step: int
    rank: int | None
    rebuilt: list[Rebuilt]
    notes: list[str] = field(default_factory=list)

    @property
    def batches(self) -> list[Any]:
        """What the loader would deliver, one for each micro-batch."""
        return [one.data for one in self.rebuilt]

    @property
    def indices(self) -> list[list[Any]]:
        """The numbers of the items of each batch in the innermost dataset."""
        return [one.indices for one in self.rebuilt]

    @property
    def digest(self) -> list[int | None]:
        """The digest of each batch as it was rebuilt."""
        return [one.digest for one in self.rebuilt]

    @property
    def recorded(self) -> list[int | None]:
        """The digest of each batch as it was delivered; None where none was recorded."""
        return [one.recorded for one in self.rebuilt]

    @property
    def same(self) -> bool | None:
        """Are all batches what was delivered? None: not known of all of them."""
        found = [one.same for one in self.rebuilt]
        return False if False in found else None if None in found else True

    def save(self, path: str | Path) -> None:
        """Write the arrays of the batches into a new .npz file, one for each: `0.image` is in the first batch."""
        arrays: dict[str, Any] = {}
        for place, batch in enumerate(self.batches):
            for inner, part in parts_of(batch):
                if hasattr(part, "shape"):
                    arrays[".".join(map(str, (place, *inner)))] = np.asarray(part)
        with open(path, "xb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def __len__(self) -> int:
        return len(self.rebuilt)

    def __str__(self) -> str:
        whose = "" if self.rank is None else f", rank {self.rank}"
        head = f"Step {self.step} of {self.run}{whose}: {units.plural(len(self.rebuilt), 'batch', 'batches')}, rebuilt from the recorded item order"
        return "\n".join([head, *map(str, self.rebuilt), *(f"Note: {note}." for note in self.notes)])

    __repr__ = __str__


def replay(
    run: str | Path | Run, step: int, dataset: Any, rank: int = 0, collate: Callable[[list[Any]], Any] | None = None
) -> Replay:
    """Rebuild the batches of a step with `dataset[index]` and `collate` (default: torch's).

    `dataset` is the dataset used in the run, a subset of it, or a loader, whose collate function is then used. Raises
    ReplayError if that is impossible, UnknownName if the run has no such step.
    """
    data = _torch_data()
    if isinstance(dataset, data.DataLoader):
        collate = collate or dataset.collate_fn
        dataset = dataset.dataset
    opened = run if isinstance(run, Run) else open_run(run)
    notes: list[str] = []
    batches = _of_one_process(step_batches(opened, step, rank), notes)
    settings = opened.meta.get("settings")
    exclude = settings.get("exclude") if isinstance(settings, dict) else None
    rebuild = _Rebuild(opened, dataset, collate, frozenset(exclude or ()))
    return Replay(opened.id, step, batches[0].rank, [rebuild(one) for one in batches], notes)


def _of_one_process(batches: list[StepBatch], notes: list[str]) -> list[StepBatch]:
    """Of several processes that made this step, the last one: a program that was started again."""
    last = batches[-1].process
    others = {one.process for one in batches} - {last}
    if others:
        notes.append(f"{len(others) + 1} processes ran this step; this one is from {last}")
    return [one for one in batches if one.process == last]


def _torch_data() -> Any:
    try:
        import torch.utils.data
    except ImportError:
        raise MissingExtra.of("torch", "pipeline", "Replaying a batch") from None
    return torch.utils.data


class _Rebuild:
    """Makes batches of a dataset again."""

    def __init__(
        self, run: Run, dataset: Any, collate: Callable[[list[Any]], Any] | None, exclude: frozenset[str]
    ) -> None:
        self._run = run
        self._dataset = dataset
        self._collate = collate
        self._exclude = exclude
        self._data = _torch_data()

    def __call__(self, one: StepBatch) -> Rebuilt:
        content = one.content
        if content is None:
            raise ReplayError(
                f"The items of batch {one.batch} of loader {one.loader} are unknown: the run has no ledger for it. "
                "Record with the loader probe on."
            )
        indices, items, data = self._made(one, content)
        seen = checksum.glance(data, self._exclude)[1]
        whole = seen.whole and (content.digest is None or content.digest_of == WHOLE)
        place = (one.loader, one.round, one.batch, content.worker)
        return Rebuilt(*place, indices, items, data, seen.digest, content.digest, whole)

    def _made(self, one: StepBatch, content: LedgerBatch) -> tuple[list[Any], list[Any], Any]:
        """The numbers of the items, the items, and the batch of them."""
        if content.stream:
            indices, items = self._read_stream(one, content)
        else:
            indices = _keys(content)
            source = self._innermost(indices)
            if content.alone and self._asks_for_lists(one):
                whole = _asked(self._dataset, indices, str(indices))
                return indices, [], whole
            items = self._items(*source)
        if content.alone:
            convert = self._collate or self._data.default_convert
            return indices, items, convert(items[0])
        return indices, items, (self._collate or self._data.default_collate)(items)

    # ── datasets with indices ────────────────────────────────────────────────────────────────────────────────────────

    def _innermost(self, indices: Sequence[Any]) -> tuple[Any, Sequence[Any], Sequence[Any]]:
        """The dataset, what it is asked for, and the numbers in the innermost one that these are.

        A subset is asked, and not what it is a subset of: it may be of a kind that changes its items.
        """
        chain, dataset = [], self._dataset
        while isinstance(dataset, self._data.Subset):
            chain.append(dataset)
            dataset = dataset.dataset
        _check_range(dataset, indices)
        asked = list(indices)
        for subset in reversed(chain):
            places = {int(index): place for place, index in reversed(list(enumerate(subset.indices)))}
            missing = [index for index in asked if index not in places]
            if missing:
                raise ReplayError(
                    f"Item {missing[0]} is not in the given subset. Give the subset used in the run, or the whole "
                    "dataset."
                )
            asked = [places[index] for index in asked]
        return self._dataset, asked, indices

    def _items(self, dataset: Any, asked: Sequence[Any], indices: Sequence[Any]) -> list[Any]:
        if callable(getattr(dataset, "__getitems__", None)) and not isinstance(dataset, self._data.Subset):
            return list(_called(dataset.__getitems__, list(asked), f"items {units.listed(indices, SHOWN_NUMBERS)}"))
        return [_asked(dataset, one, f"item {index}") for one, index in zip(asked, indices, strict=True)]

    def _asks_for_lists(self, one: StepBatch) -> bool:
        """Without automatic batching: does this loader ask for lists of items? The ledger tells it by any other batch."""
        ledger = self._run.database.ledgers.of(one.process)
        return ledger is not None and ledger.largest(one.loader) > 1

    # ── iterable datasets ────────────────────────────────────────────────────────────────────────────────────────────

    def _read_stream(self, one: StepBatch, content: LedgerBatch) -> tuple[list[Any], list[Any]]:
        workers = loader_workers(self._run, one)
        if workers > 1:
            raise ReplayError(
                f"Cannot rebuild this batch: {workers} workers of loader {one.loader} read an iterable dataset, and "
                "each chose its own part. It works with one worker or none."
            )
        if not hasattr(self._dataset, "__iter__"):
            raise ReplayError(
                f"Loader {one.loader} read an iterable dataset, but {type(self._dataset).__name__} is not iterable. "
                "Give the dataset used in the run."
            )
        indices = content.indices or []
        first, last = (indices[0], indices[-1]) if indices else (0, -1)
        if last >= MOST_READ:
            raise ReplayError(
                f"The batch holds items {first} to {last} of an iterable dataset: over {MOST_READ} items would have "
                "to be read first."
            )
        items = list(islice(_iterated(self._dataset), first, last + 1))
        if not items:
            raise ReplayError(
                f"The dataset ends before item {first}: it is not the one used in the run, or it has changed."
            )
        return indices[: len(items)], items


def _keys(content: LedgerBatch) -> list[Any]:
    """What the dataset was asked for."""
    if content.indices is not None:
        return content.indices
    if content.keys is None:
        raise ReplayError(
            "The items of this batch are no longer available: an earlier version of Sonde sealed the run and stored "
            "their order as a recipe."
        )
    keys = content.keys
    if len(keys) < content.size or not all(isinstance(key, str) for key in keys):
        raise ReplayError(
            "The items of this batch have keys that are neither numbers nor short texts, so the ledger does not "
            "contain them."
        )
    return keys


def _check_range(dataset: Any, indices: Sequence[Any]) -> None:
    try:
        length = len(dataset)
    except TypeError:  # it has none
        return
    beyond = [index for index in indices if isinstance(index, int) and not -length <= index < length]
    if beyond:
        raise ReplayError(
            f"Item {beyond[0]} is not in the given dataset, which has {units.plural(length, 'item')}. Give the dataset used in the "
            "run."
        )


def _asked(dataset: Any, index: Any, what: str) -> Any:
    return _called(dataset.__getitem__, index, what)


def _called(function: Callable[[Any], Any], argument: Any, what: str) -> Any:
    try:
        return function(argument)
    except USUAL as error:
        raise ReplayError(_failed(what, error)) from error


def _iterated(dataset: Any) -> Iterator[Any]:
    place = -1
    try:
        for place, item in enumerate(dataset):  # noqa: B007  told when the next one fails
            yield item
    except USUAL as error:
        raise ReplayError(_failed(f"item {place + 1}", error)) from error


def _failed(what: str, error: BaseException) -> str:
    """What the dataset said, and where in its code."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    where = f" (in {frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name})" if frames else ""
    return f"The dataset fails for {what}: {type(error).__name__}: {error}{where}."


def _described(value: Any) -> str:
    return value_text(freeze(value, DESCRIBED).note)
