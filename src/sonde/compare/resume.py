"""Did a training continue where it stopped? Items skipped or repeated after a checkpoint was read, steps repeated, and jumps.

The ledger knows which items went into which step. Before a restart, only what came before the last checkpoint counts: the rest is
lost with it. After it, the first round over the data should have the items that the round before had not reached.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import units
from sonde.analysis.records.schema import quoted
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.probe import batch_key, key_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sonde.analysis.run import Run

MOST_NAMED = 5
NEAR = 10  # losses before and after
JUMP = 4.0  # so many times what losses scatter by


@dataclass(frozen=True)
class Resume:
    """One restart of one rank. Counts are of items, of all ranks together; None: not known."""

    rank: int
    checkpoint_step: int | None  # the last step before the last checkpoint
    lost_steps: int  # made after it, and lost
    repeated: int | None  # items of this round that were trained on before the checkpoint, and again after it
    skipped: int | None  # items of this round that were trained on neither before nor after
    examples: list[str]
    rate_before: float | None
    rate_after: float | None
    loss_before: float | None
    loss_after: float | None
    loss_jump: bool
    text: list[str] = field(default_factory=list)


class TrainingProcess(NamedTuple):
    """The training of one process."""

    run: Run
    process: str
    rank: int


def training_processes(run: Run) -> list[list[TrainingProcess]]:
    """The processes that trained, by rank, in the order of time: more than one is a restart."""
    rows = run.sql("SELECT coalesce(rank, 0), process FROM steps GROUP BY ALL ORDER BY 1, min(start_ns)").fetchall()
    found: dict[int, list[TrainingProcess]] = {}
    for rank, process in rows:
        found.setdefault(rank, []).append(TrainingProcess(run, process, rank))
    return list(found.values())


def restarts(run: Run) -> list[Resume]:
    """The restarts inside one run: one process of a rank trained after another, and read a checkpoint before."""
    attempts = zip_longest(*(pairwise(ranks) for ranks in training_processes(run)))
    return [one for pairs in attempts for one in check(filter(None, pairs))]


def resumes(a: Run, b: Run) -> list[Resume]:
    """B as the continuation of A, rank by rank, if it is one."""
    before = {ranks[0].rank: ranks[-1] for ranks in training_processes(a)}
    after = {ranks[0].rank: ranks[0] for ranks in training_processes(b)}
    pairs = [(before[rank], after[rank]) for rank in sorted(before.keys() & after.keys())]
    return check(pairs) if a.path != b.path else []


def resumed(one: TrainingProcess, other: TrainingProcess) -> bool:
    """Whether the second goes on from the first: the first saved a checkpoint, and the second read one before its first step."""
    begun = _rows(other, f"SELECT min(start_ns + dur_ns) FROM steps WHERE process = {quoted(other.process)}")[0][0] or 0
    read = _rows(other, f"SELECT 1 FROM {_events(other, probe.LOADED)} AND start_ns < {begun} LIMIT 1")
    earlier = _rows(one, f"SELECT min(start_ns) FROM steps WHERE process = {quoted(one.process)}")[0][0]
    return bool(read) and (earlier or 0) < begun and _checkpoint(one, begun)[0] is not None


def check(pairs: Iterable[tuple[TrainingProcess, TrainingProcess]]) -> list[Resume]:
    """What a restart did to the data, the learning rate and the loss of each rank that goes on.

    Items are counted over all ranks: samplers give each rank another part of the data in each epoch.
    """
    going = [pair for pair in pairs if resumed(*pair)]
    places = [_checkpoint(one, _begun(other)) for one, other in going]
    items = _items([(one, other, moment) for (one, other), (_, moment) in zip(going, places, strict=True)])
    found = [_rank(one, other, place, items) for (one, other), place in zip(going, places, strict=True)]
    return [replace(one, text=_text(one, with_items=number == 0)) for number, one in enumerate(found)]


def _begun(part: TrainingProcess) -> int:
    return _rows(part, f"SELECT min(start_ns) FROM steps WHERE process = {quoted(part.process)}")[0][0] or 0


def _rank(
    one: TrainingProcess, other: TrainingProcess, place: tuple[int | None, int], items: _ItemCounts | None
) -> Resume:
    step, moment = place
    last = _rows(one, f"SELECT max(step) FROM steps WHERE process = {quoted(one.process)}")[0][0]
    rates = [_rate(one, f"start_ns <= {moment} ORDER BY start_ns DESC"), _rate(other, "true ORDER BY start_ns")]
    before, after = _losses(one, f"start_ns <= {moment}", "DESC"), _losses(other, "true", "ASC")
    return Resume(
        rank=one.rank,
        checkpoint_step=step,
        lost_steps=max(0, (last or 0) - step) if step is not None else 0,
        repeated=None if items is None else sum(items.repeated.values()),
        skipped=None if items is None or items.skipped is None else sum(items.skipped.values()),
        examples=[] if items is None else _named(items.repeated or items.skipped or Counter()),
        rate_before=rates[0],
        rate_after=rates[1],
        loss_before=float(np.median(before)) if before else None,
        loss_after=float(np.median(after)) if after else None,
        loss_jump=_jumps(before, after),
    )


def _text(one: Resume, *, with_items: bool) -> list[str]:
    who = f"Rank {one.rank}: " if one.rank else ""
    lines = []
    if one.checkpoint_step is not None:
        repeated = f"; {units.plural(one.lost_steps, 'step')} after it had to be repeated" if one.lost_steps else ""
        lines.append(f"{who}The last checkpoint came after step {one.checkpoint_step}{repeated}.")
    lines += _about_items(one) if with_items else []
    if one.rate_before is not None and one.rate_after is not None and one.rate_before != one.rate_after:
        lines.append(f"{who}The learning rate was {one.rate_before:g} before and is {one.rate_after:g} after.")
    if one.loss_jump:
        lines.append(f"{who}The loss jumped from {one.loss_before:.4g} to {one.loss_after:.4g}.")
    return lines


def _about_items(one: Resume) -> list[str]:
    lines = []
    examples = f" ({', '.join(one.examples)})" if one.examples else ""
    if one.repeated is None:
        lines.append("The loaded items are unknown: one of the runs has no ledger.")
    elif one.repeated:
        lines.append(
            f"{units.plural(one.repeated, 'item')} of this epoch were trained on before the checkpoint and again after it{examples}."
        )
    if one.skipped:
        lines.append(
            f"{units.plural(one.skipped, 'item')} of this epoch were skipped{'' if one.repeated else examples}."
        )
    if one.repeated == 0 and one.skipped == 0:
        lines.append("No item was skipped or repeated.")
    elif one.repeated == 0 and one.skipped is None:
        lines.append("No item was repeated. Whether some were skipped is known once the epoch has ended.")
    return lines


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _ItemCounts(NamedTuple):
    repeated: Counter[Any]
    skipped: Counter[Any] | None


class _RankRound(NamedTuple):
    """Of one rank: items before the checkpoint, and after the restart; those of a complete round; whether another one followed."""

    done: Counter[Any]
    again: Counter[Any]
    whole: Counter[Any] | None
    ended: bool


class _Batch(NamedTuple):
    loader: int
    round: int
    batch: int
    start: int

    @property
    def turn(self) -> tuple[int, int]:
        """Which round over the data it is of. Many programs make a new loader for each."""
        return self.loader, self.round


def _items(parts: Sequence[tuple[TrainingProcess, TrainingProcess, int]]) -> _ItemCounts | None:
    """What the round in which it stopped had before the checkpoint, and what the first round after the restart had, of all ranks."""
    rounds = [_round(*part) for part in parts]
    known = [one for one in rounds if one is not None]
    if not known or len(known) < len(rounds):
        return None
    done, again = _joined(one.done for one in known), _joined(one.again for one in known)
    wholes = [one.whole for one in known if one.whole is not None]
    whole = _joined(wholes) if len(wholes) == len(known) else None
    if whole is not None and sum(done.values()) >= sum(whole.values()):
        done = Counter()  # that round was complete: the next one begins anew
    ended = all(one.ended for one in known)
    return _ItemCounts(done & again, whole - done - again if whole is not None and ended else None)


def _joined(parts: Iterable[Counter[Any]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for one in parts:
        found.update(one)
    return found


def _round(one: TrainingProcess, other: TrainingProcess, moment: int) -> _RankRound | None:
    """The items of one rank; None: they are not known."""
    before, after = _batches(one), _batches(other)
    known = [batch for batch in before if batch.start <= moment]
    if not known or not after:
        return None
    done = _content(one, [batch for batch in known if batch.turn == known[-1].turn])
    first = [batch for batch in after if batch.turn == after[0].turn]
    again = _content(other, first)
    if done is None or again is None:
        return None
    return _RankRound(done, again, _whole(one, before) or _whole(other, after), len(first) < len(after))


def _whole(part: TrainingProcess, batches: Sequence[_Batch]) -> Counter[Any] | None:
    """The items of a complete round: the first, if another one followed."""
    first = [batch for batch in batches if batch.turn == batches[0].turn]
    return _content(part, first) if len(first) < len(batches) else None


def _batches(part: TrainingProcess) -> list[_Batch]:
    """The training batches of the dataset that gave the most, in their order."""
    rows = _rows(
        part,
        "SELECT b.loader, b.round, b.batch, b.start_ns, i.dataset FROM batches b LEFT JOIN (SELECT "
        f"{key_columns('key')['loader']} AS loader, any_value(args->>'$.dataset') AS dataset FROM {_events(part, probe.ITER)} GROUP BY 1) i "
        f"USING (loader) WHERE b.process = {quoted(part.process)} AND b.step IS NOT NULL AND b.purpose <> 'evaluate' "
        "AND b.loader IS NOT NULL ORDER BY b.start_ns",
    )
    usual = Counter(row[4] for row in rows).most_common(1)
    return [_Batch._make(row[:4]) for row in rows if row[4] == usual[0][0]]


def _content(part: TrainingProcess, batches: Sequence[_Batch]) -> Counter[Any] | None:
    ledger = part.run.database.ledgers.of(part.process)
    if ledger is None:
        return None
    found: Counter[Any] = Counter()
    for one in batches:
        batch = ledger.batch(batch_key(one.loader, one.round, one.batch))
        if batch is None or (batch.indices is None and batch.keys is None):
            return None
        found.update(batch.indices if batch.indices is not None else map(str, batch.keys or []))
    return found


def _named(items: Counter[Any]) -> list[str]:
    names = [f"item {name}" for name in sorted(items, key=str)[:MOST_NAMED]]
    return [*names, f"{len(items) - MOST_NAMED} more"] if len(items) > MOST_NAMED else names


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checkpoint(part: TrainingProcess, until: int) -> tuple[int | None, int]:
    """The last step that ended before the last checkpoint was saved, and when that was.

    A rank that saves none, as most do, has that of the rank that saved one meanwhile: the same step, when it ended here.
    """
    ((moment,),) = _rows(part, f"SELECT max(start_ns) FROM {_events(part, probe.CHECKPOINT)}")
    if moment is not None:
        return _last_step(part, part.process, moment), moment
    ((begun,),) = _rows(part, f"SELECT min(start_ns) FROM steps WHERE process = {quoted(part.process)}")
    others = _rows(
        part,
        f"SELECT process, start_ns FROM events WHERE cat = '{probe.PROBE}' AND name = '{probe.CHECKPOINT}' "
        f"AND start_ns BETWEEN {begun or 0} AND {until} ORDER BY start_ns DESC LIMIT 1",
    )
    step = _last_step(part, *others[0]) if others else None
    if step is None:
        return None, 2**62
    ((ended,),) = _rows(
        part, f"SELECT max(start_ns + dur_ns) FROM steps WHERE process = {quoted(part.process)} AND step = {step}"
    )
    return step, 2**62 if ended is None else ended


def _last_step(part: TrainingProcess, process: str, moment: int) -> int | None:
    """The last step of a process that ended before a moment."""
    query = f"SELECT max(step) FROM steps WHERE process = {quoted(process)} AND start_ns + dur_ns <= {moment}"
    step: int | None = _rows(part, query)[0][0]
    return step


def _rate(part: TrainingProcess, where: str) -> float | None:
    rows = _rows(part, f"SELECT value FROM {_events(part, probe.RATE)} AND key = 0 AND {where} LIMIT 1")
    return rows[0][0] if rows else None


def _losses(part: TrainingProcess, where: str, order: str) -> list[float]:
    rows = _rows(
        part,
        f"SELECT loss FROM steps WHERE process = {quoted(part.process)} AND isfinite(loss) AND {where} "
        f"ORDER BY start_ns {order} LIMIT {NEAR}",
    )
    return [loss for (loss,) in rows]


def _jumps(before: list[float], after: list[float]) -> bool:
    """Whether the losses after it lie above those before by much more than these scatter."""
    if len(before) < NEAR or len(after) < NEAR:
        return False
    scatter = float(np.median(np.abs(np.array(before) - np.median(before)))) * 1.5
    return float(np.median(after) - np.median(before)) > JUMP * max(scatter, 1e-9 * abs(float(np.median(before))))


def _events(part: TrainingProcess, name: str) -> str:
    return f"events WHERE process = {quoted(part.process)} AND cat = '{probe.PROBE}' AND name = '{name}'"


def _rows(part: TrainingProcess, query: str) -> list[tuple[Any, ...]]:
    return part.run.sql(query).fetchall()
