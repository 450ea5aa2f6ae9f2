"""Are two runs the same training? Losses, learning rates and batches, step by step: where they diverge, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.records.schema import quoted
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.probe import batch_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sonde.analysis.ledger.ledger import Ledger
    from sonde.analysis.run import Run

LOSS, RATE, BATCH, FINGERPRINT = "loss", "learning rate", "batch", "fingerprint"
ALIKE = 3  # losses in a row that are equal to the bit are no chance
SOON = 20_000  # batches: most runs that differ do so in one of these
PIECE = 4096  # batches that are compared at once


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ in one respect. `a` and `b`: the values, the items, or how many of them."""

    step: int
    what: str
    rank: int
    a: Any
    b: Any
    difference: float | None = None  # of numbers: |b - a|; of batches: of their sizes, where only these differ
    layer: str | None = None  # of fingerprints
    direction: str | None = None  # input, before, forward, backward or update


@dataclass(frozen=True)
class Stream:
    """One respect in which they were compared. `compared`: how many steps, of all ranks, both have."""

    what: str
    compared: int
    first_step: int | None
    first_difference: Divergence | None


@dataclass(frozen=True)
class Numbers:
    """Whether the numbers of two runs are the same; None: there is nothing to compare."""

    identical: bool | None
    first_difference: Divergence | None
    steps: int  # that both have
    shift: int = 0  # of a resumed run that counts from 0: its step 0 is this step of A
    streams: list[Stream] = field(default_factory=list)
    text: str = ""


def compare_numbers(a: Run, b: Run, *more: Stream | None) -> Numbers:
    """Compare what both runs recorded, step by step. `more`: what else was compared."""
    losses = [_series(run, _LOSSES) for run in (a, b)]
    shift = _shift(losses[0], losses[1]) if _resumed(b) else 0
    streams = [
        _stream(LOSS, losses[0], _moved(losses[1], shift)),
        _rates(a, b, shift),
        *(() if shift else (_batches(a, b), *more)),
    ]
    found = joined([one for one in streams if one is not None])
    text = f"Step 0 of B is compared with step {shift} of A, where its losses begin. {found.text}"
    return replace(found, text=text, shift=shift) if shift else found


def joined(streams: Sequence[Stream]) -> Numbers:
    """What all streams say together."""
    known = [one for one in streams if one.compared]
    steps = max((one.compared for one in known), default=0)
    if not known:
        return Numbers(
            None,
            None,
            0,
            streams=list(streams),
            text="Nothing to compare: no losses, learning rates or batches in common.",
        )
    parted = sorted((one.first_difference for one in known if one.first_difference), key=_order)
    text = _text(known, parted, steps)
    return Numbers(not parted, parted[0] if parted else None, steps, streams=list(streams), text=text)


def _order(one: Divergence) -> tuple[int, int]:
    """The earlier first; in one step causes before what follows from them."""
    return one.step, (BATCH, RATE, FINGERPRINT, LOSS).index(one.what)


def _text(known: Sequence[Stream], parted: Sequence[Divergence], steps: int) -> str:
    names = ", ".join(PLURALS.get(one.what, one.what) for one in known)
    if not parted:
        return f"Identical: {names} of all {units.plural(steps, 'common step')}."
    first = parted[0]
    begins = min((one.first_step for one in known if one.first_step is not None), default=0)
    begun = "Different from the start" if first.step <= begins else f"Identical up to step {first.step - 1}"
    same = [PLURALS.get(one.what, one.what) for one in known if one.first_difference is None]
    rest = f" The same throughout: {', '.join(same)}." if same else ""
    return f"{begun}; {'; '.join(describe_divergence(one) for one in parted)}.{rest}"


PLURALS = {LOSS: "losses", RATE: "learning rates", BATCH: "batches", FINGERPRINT: "fingerprints"}
OUTPUT = "output"  # the name of the fingerprint of the whole model
DIRECTIONS = {
    "input": "input {} of the model",
    "before": "parameter `{}` (before the step)",
    "forward": "output of `{}` (forward)",
    "backward": "gradient of `{}` (backward)",
    "update": "parameter `{}` (update)",
}


def describe_divergence(one: Divergence) -> str:
    """A difference in words."""
    who = f" of rank {one.rank}" if one.rank else ""
    if one.what == BATCH:
        begun = f"the batches{who} differ from step {one.step} on: B loaded"
        if one.difference is not None:
            return f"{begun} {units.plural(one.b, 'item')} where A loaded {one.a}"
        return f"{begun} item {one.b} where A loaded {one.a}"
    if one.what == RATE:
        return f"at step {one.step} the learning rate{who} is {one.a:g} in A and {one.b:g} in B"
    if one.what == FINGERPRINT:
        output = one.direction == "forward" and one.layer == OUTPUT
        what = "output of the model" if output else DIRECTIONS.get(one.direction or "", "{}").format(one.layer)
        amount = f", its sum by {one.difference:.2g}" if one.difference else ", with the same sum"
        return f"at step {one.step} the {what}{who} differs{amount}"
    if one.difference is None:
        return f"at step {one.step} the {one.what}{who} is {_value(one.a)} in A and {_value(one.b)} in B"
    return f"at step {one.step} the {one.what}{who} differs by {one.difference:.1g}"


def _value(value: Any) -> str:
    return "NaN" if isinstance(value, float) and value != value else str(value)  # noqa: PLR0124  that is how NaN is recognised


# ── losses and learning rates ────────────────────────────────────────────────────────────────────────────────────────

Series = dict[int, tuple["NDArray[np.int64]", "NDArray[np.float64]"]]  # rank -> steps in order, and their values


_LOSSES = "SELECT coalesce(rank, 0) AS rank, step, loss AS value FROM steps WHERE loss IS NOT NULL"


def _resumed(run: Run) -> bool:
    """Whether it read a checkpoint."""
    query = f"SELECT 1 FROM events WHERE cat = '{probe.PROBE}' AND name = '{probe.LOADED}' LIMIT 1"
    return bool(run.sql(query).fetchall())


def _shift(mine: Series, theirs: Series) -> int:
    """Where in A the first losses of B stand, to the bit, if B counts its steps from 0; 0 if nowhere else."""
    rank = min(mine.keys() & theirs.keys(), default=None)
    if rank is None or len(theirs[rank][1]) < ALIKE or theirs[rank][0][0] != 0:
        return 0
    (steps, values), first = mine[rank], theirs[rank][1][:ALIKE]
    for place in np.flatnonzero(values == first[0]).tolist():
        if np.array_equal(values[place : place + ALIKE], first):
            return int(steps[place])
    return 0


def _moved(series: Series, shift: int) -> Series:
    return {rank: (steps + shift, values) for rank, (steps, values) in series.items()}


def _series(run: Run, query: str) -> Series:
    """Values by rank and step; of a step that was made twice, the first."""
    found = run.sql(f"SELECT rank, step, value FROM ({query}) WHERE step IS NOT NULL ORDER BY rank, step").fetchnumpy()
    ranks, steps = (np.asarray(np.ma.getdata(found[name]), np.int64) for name in ("rank", "step"))
    values = np.ma.filled(np.ma.asarray(found["value"], np.float64), np.nan)
    series: Series = {}
    for rank in np.unique(ranks).tolist():
        here = ranks == rank
        unique, first = np.unique(steps[here], return_index=True)
        series[rank] = unique, values[here][first]
    return series


def _stream(what: str, mine: Series, theirs: Series) -> Stream:
    compared, begins, parted = 0, None, []
    for rank in mine.keys() & theirs.keys():
        steps, one, other = np.intersect1d(mine[rank][0], theirs[rank][0], assume_unique=True, return_indices=True)
        left, right = mine[rank][1][one], theirs[rank][1][other]
        compared += len(steps)
        begins = min((begins, int(steps[0])), key=_or_last) if len(steps) else begins
        differs = ~((left == right) | (np.isnan(left) & np.isnan(right)))
        if differs.any():
            place = int(np.argmax(differs))
            values = float(left[place]), float(right[place])
            gap = abs(values[1] - values[0])
            parted.append(Divergence(int(steps[place]), what, rank, *values, gap if np.isfinite(gap) else None))
    return Stream(what, compared, begins, min(parted, key=lambda one: (one.step, one.rank), default=None))


def _or_last(step: int | None) -> int:
    return 2**63 if step is None else step


def _rates(a: Run, b: Run, shift: int) -> Stream | None:
    """Learning rates are recorded when they change: each holds until the next."""
    mine, theirs = (_rate_series(run) for run in (a, b))
    return _stream(RATE, mine, _moved(theirs, shift)) if mine and theirs else None


def _rate_series(run: Run) -> Series:
    changes = _series(
        run,
        f"SELECT coalesce(rank, 0) AS rank, step, value FROM events WHERE kind = 'counter' AND cat = '{probe.PROBE}' "
        f"AND name = '{probe.RATE}' AND key = 0",
    )
    if not changes:
        return {}
    every = _series(run, "SELECT coalesce(rank, 0) AS rank, step, 0.0 AS value FROM steps")
    found: Series = {}
    for rank, (steps, _) in every.items():
        if rank in changes:
            place = np.searchsorted(changes[rank][0], steps, side="right") - 1
            found[rank] = steps[place >= 0], changes[rank][1][place[place >= 0]]
    return found


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _batches(a: Run, b: Run) -> Stream | None:
    mine, theirs = _trainers(a), _trainers(b)
    compared, parted, known = 0, [], False
    for rank in mine.keys() & theirs.keys():
        left, right = a.database.ledgers.of(mine[rank]), b.database.ledgers.of(theirs[rank])
        if left is None or right is None:
            continue
        known = True
        compared += _common_steps(a, mine[rank], b, theirs[rank])
        found = _parting(a, b, (mine[rank], theirs[rank]), rank, left, right)
        if found is not None:
            parted.append(found)
    return (
        Stream(BATCH, compared, None, min(parted, key=lambda one: (one.step, one.rank), default=None))
        if known
        else None
    )


def _common_steps(a: Run, one: str, b: Run, other: str) -> int:
    """How many steps both processes made."""
    mine, theirs = (
        run.sql(f"SELECT DISTINCT step FROM steps WHERE process = {quoted(process)}").fetchnumpy()["step"]
        for run, process in ((a, one), (b, other))
    )
    return len(np.intersect1d(mine, theirs, assume_unique=True))


def _trainers(run: Run) -> dict[int, str]:
    """The process of each rank that trained; of several, the first."""
    rows = run.sql(
        "SELECT coalesce(rank, 0), arg_min(process, start_ns) FROM steps GROUP BY coalesce(rank, 0), process ORDER BY min(start_ns)"
    ).fetchall()
    found: dict[int, str] = {}
    for rank, process in rows:
        found.setdefault(rank, process)
    return found


def _parting(a: Run, b: Run, processes: tuple[str, str], rank: int, left: Ledger, right: Ledger) -> Divergence | None:
    """The first batch of a training step whose items differ. The number of its loader, and what was evaluated, do not count."""
    if _equal(left, right):
        return None
    for most in (SOON, None):
        mine, theirs = (_trained(run, process, most) for run, process in zip((a, b), processes, strict=True))
        common = min(len(mine), len(theirs))
        one, other = (_places(ledger, of[:common]) for ledger, of in ((left, mine), (right, theirs)))
        found = _first_other(left, right, one, other)
        if found is not None:
            return Divergence(mine[found][1], BATCH, rank, *_items(left, right, int(one[found]), int(other[found])))
        if most is None or common < most:
            break
    return None


def _trained(run: Run, process: str, most: int | None) -> list[tuple[int, int]]:
    """The key and the step of the first batches that a process trained on."""
    rows = run.sql(
        f"SELECT loader, round, batch, step FROM batches WHERE process = {quoted(process)} AND step IS NOT NULL "
        f"AND loader IS NOT NULL AND purpose <> 'evaluate' ORDER BY start_ns {'' if most is None else f'LIMIT {most}'}"
    ).fetchall()
    return [(batch_key(*row[:3]), row[3]) for row in rows]


def _equal(left: Ledger, right: Ledger) -> bool:
    """Are all batches that both have the same?"""
    count = min(len(left), len(right))
    rows = int(left.start[count])
    texts = ({place: text for place, text in one.texts.items() if place < count} for one in (left, right))
    pairs = (
        (left.start[: count + 1], right.start[: count + 1]),
        (left.first[:rows], right.first[:rows]),
        (left.run[:rows], right.run[:rows]),
    )
    return all(np.array_equal(*pair) for pair in pairs) and next(texts) == next(texts)


def _places(ledger: Ledger, trained: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Where batches stand in a ledger; -1: nowhere."""
    keys = np.array([key for key, _ in trained], np.int64)
    order = np.argsort(ledger.key, kind="stable")
    at = order[np.minimum(np.searchsorted(ledger.key, keys, sorter=order), len(order) - 1)]
    return np.where(ledger.key[at] == keys, at, -1)


def _first_other(left: Ledger, right: Ledger, one: NDArray[np.int64], other: NDArray[np.int64]) -> int | None:
    """Which of these pairs of batches is the first that differs. What a ledger does not know, differs from nothing."""
    known = np.flatnonzero((one >= 0) & (other >= 0))
    for piece in np.array_split(known, len(known) // PIECE + 1):
        (sizes, rows), (others, other_rows) = _rows(left, one[piece]), _rows(right, other[piece])
        differs = sizes != others
        same = int(np.argmax(differs)) if differs.any() else len(piece)  # up to here rows stand at the same places
        count = int(sizes[:same].sum())
        uneven = np.flatnonzero((rows[:count] != other_rows[:count]).any(axis=1))
        differs[np.repeat(np.arange(same), sizes[:same])[uneven]] = True
        if left.texts or right.texts:
            pairs = zip(one[piece].tolist(), other[piece].tolist(), strict=True)
            differs |= [left.texts.get(mine) != right.texts.get(theirs) for mine, theirs in pairs]
        if differs.any():
            return int(piece[np.argmax(differs)])
    return None


def _rows(ledger: Ledger, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows each batch has, and the rows of all of them."""
    begin = ledger.start[places].astype(np.int64)
    sizes = ledger.start[places + 1].astype(np.int64) - begin
    at = np.arange(sizes.sum()) + np.repeat(begin - np.cumsum(sizes) + sizes, sizes)
    return sizes, np.stack([ledger.first[at].astype(np.int64), ledger.run[at].astype(np.int64)], axis=1)


def _items(left: Ledger, right: Ledger, mine: int, theirs: int) -> tuple[Any, Any, float | None]:
    """The first items of a batch that differ; if one has the same and more, how many each has, and the difference."""
    one, other = left.items(mine), right.items(theirs)
    for item, another in zip(one, other, strict=False):
        if item != another:
            return item, another, None
    return len(one), len(other), float(abs(len(other) - len(one)))
