"""Are two runs the same training? Losses, learning rates and batches, step by step: where they diverge, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.records.schema import quoted
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.probe import read_batch_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sonde.analysis.ledger.ledger import Ledger
    from sonde.analysis.run import Run

LOSS, RATE, BATCH, FINGERPRINT = "loss", "learning rate", "batch", "fingerprint"
ALIKE = 3  # losses in a row that are equal to the bit are no chance
MOST_TRIED = 1000  # batches that differ and belong to no step, before the search ends


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ in one respect. `a` and `b`: the values, or the items."""

    step: int
    what: str
    rank: int
    a: Any
    b: Any
    difference: float | None = None  # of numbers: |b - a|
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
        return f"the batches{who} differ from step {one.step} on: B loaded item {one.b} where A loaded {one.a}"
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
    return "NaN" if isinstance(value, float) and value != value else str(value)  # noqa: PLR0124  that is how NaN is told


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
        compared += min(len(left), len(right))
        found = _parting(a, mine[rank], rank, left, right)
        if found is not None:
            parted.append(found)
    return (
        Stream(BATCH, compared, None, min(parted, key=lambda one: (one.step, one.rank), default=None))
        if known
        else None
    )


def _trainers(run: Run) -> dict[int, str]:
    """The process of each rank that trained; of several, the first."""
    rows = run.sql(
        "SELECT coalesce(rank, 0), arg_min(process, start_ns) FROM steps GROUP BY coalesce(rank, 0), process ORDER BY min(start_ns)"
    ).fetchall()
    found: dict[int, str] = {}
    for rank, process in rows:
        found.setdefault(rank, process)
    return found


def _parting(run: Run, process: str, rank: int, left: Ledger, right: Ledger) -> Divergence | None:
    """The first batch of a training step whose items differ."""
    for tried, place in enumerate(_differing(left, right)):
        if tried >= MOST_TRIED:
            break
        loader, round, number = read_batch_key(int(left.key[place]))
        rows = run.sql(
            f"SELECT step FROM batches WHERE process = {quoted(process)} AND loader = {loader} AND round = {round} "
            f"AND batch = {number} AND step IS NOT NULL AND purpose <> 'evaluate' LIMIT 1"
        ).fetchall()
        if rows:
            return Divergence(rows[0][0], BATCH, rank, *_items(left, right, place))
    return None


def _differing(left: Ledger, right: Ledger) -> list[int]:
    """The places of the batches that differ, in the order in which they were delivered."""
    count = min(len(left), len(right))
    sizes = [np.diff(ledger.start[: count + 1].astype(np.int64)) for ledger in (left, right)]
    differs = (left.key[:count] != right.key[:count]) | (sizes[0] != sizes[1])
    whole = int(np.argmax(differs)) if differs.any() else count  # up to here rows stand at the same places
    rows = int(left.start[whole]) if whole < len(left.start) else len(left.first)
    uneven = (left.first[:rows] != right.first[:rows]) | (left.run[:rows] != right.run[:rows])
    at = np.searchsorted(left.start[: whole + 1], np.flatnonzero(uneven), side="right") - 1
    texts = [
        place
        for place in {*left.texts, *right.texts}
        if place < count and left.texts.get(place) != right.texts.get(place)
    ]
    return sorted({*at.tolist(), *np.flatnonzero(differs).tolist(), *texts})


def _items(left: Ledger, right: Ledger, place: int) -> tuple[Any, Any]:
    """The first items of a batch that differ."""
    one, other = (_content(ledger, place) for ledger in (left, right))
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return mine, theirs
    return (one[len(other)] if len(one) > len(other) else "none"), (
        other[len(one)] if len(other) > len(one) else "none"
    )


def _content(ledger: Ledger, place: int) -> list[Any]:
    batch = ledger.batch(int(ledger.key[place]))
    return [] if batch is None else batch.indices or batch.keys or []
