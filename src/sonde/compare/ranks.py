"""Do the ranks of one run hold the same model? Parameters, and gradients once they are averaged, rank against rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sonde import units
from sonde.compare.divergence import Divergence, describe_divergence
from sonde.compare.fingerprint import compare_prints, read_fingerprints
from sonde.errors import SondeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.analysis.run import Run
    from sonde.compare.fingerprint import Print

SHARED = ("before", "backward", "update")  # each rank has its own batches, so its outputs differ


@dataclass(frozen=True)
class RankCheck:
    """The ranks of a run against the first of them. `identical` is None if they have no step in common."""

    run: str
    ranks: list[int]
    identical: bool | None
    steps: int
    first_difference: Divergence | None  # `a` is of the first rank, `b` of the rank that it names
    text: str
    schema_version: int = 1


def compare_ranks(run: Run, ranks: Sequence[int] = ()) -> RankCheck:
    """Compare ranks with the first of them; without `ranks`, all that have fingerprints."""
    prints: dict[int, list[Print]] = {}
    for one in read_fingerprints(run):
        prints.setdefault(one.rank, [])
        if one.direction in SHARED:
            prints[one.rank].append(one)
    chosen = list(dict.fromkeys(ranks)) or sorted(prints)
    _refuse(run, chosen, prints)
    first, *others = chosen
    streams = {rank: compare_prints(prints[first], _as_rank(first, prints[rank])) for rank in others}
    parted = [
        replace(one.first_difference, rank=rank) for rank, one in streams.items() if one.first_difference is not None
    ]
    steps = min((one.compared for one in streams.values()), default=0)
    difference = min(parted, key=lambda one: (one.step, one.rank), default=None)
    identical = None if not steps else difference is None
    return RankCheck(run.id, chosen, identical, steps, difference, _text(chosen, steps, difference))


def _as_rank(rank: int, prints: Sequence[Print]) -> list[Print]:
    return [one._replace(rank=rank) for one in prints]


def _refuse(run: Run, chosen: Sequence[int], prints: dict[int, list[Print]]) -> None:
    if not prints:
        raise SondeError(f"{run.id} has no fingerprints. Record with: sonde run --fingerprint 100 ...")
    missing = [rank for rank in chosen if rank not in prints]
    if missing:
        known = ", ".join(map(str, sorted(prints)))
        raise SondeError(f"Rank {missing[0]} of {run.id} has no fingerprints. Ranks with fingerprints: {known}.")
    if len(chosen) < 2:
        raise SondeError(f"{run.id} has fingerprints of rank {chosen[0]} only, so there is nothing to compare.")


def _text(ranks: Sequence[int], steps: int, difference: Divergence | None) -> str:
    names = f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
    if not steps:
        return f"Nothing to compare: {names} have no fingerprints of the same step."
    if difference is None:
        return f"Identical: parameters and gradients of {names}, in {units.plural(steps, 'common step')}."
    return (
        f"Different: {describe_divergence(difference)} from rank {ranks[0]}. Ranks that train together hold the same "
        "model; sharded ones (FSDP, tensor parallel) do not."
    )
