"""The last batches of a run from its records alone, for runs that were killed before a dump could be written."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sonde.analysis.postmortem.dumps import DumpedBatch
from sonde.analysis.records.schema import quoted
from sonde.analysis.training.purpose import TRAIN, WORDS
from sonde.store import probe
from sonde.store.alive import DIED
from sonde.store.probe import batch_key

if TYPE_CHECKING:
    from sonde.analysis.postmortem.dumps import Dump
    from sonde.analysis.run import Run

MOST_PROCESSES = 4
MOST_BATCHES = 3  # of a process
MOST_ITEMS = 4096  # of a batch

Place = tuple[str, int, int, int]  # the process, the loader, the round, the number of a batch


def last_batches(run: Run) -> dict[str, list[DumpedBatch]]:
    """The last batches that each process got, the oldest first; processes that died stand before the others."""
    rows = run.sql(
        f"""
        SELECT process, loader, round, batch, worker, step, epoch, size FROM (
            SELECT b.*, row_number() OVER (PARTITION BY process ORDER BY start_ns DESC) AS place
            FROM batches b WHERE wait_ns IS NOT NULL AND loader IS NOT NULL
        ) WHERE place <= {MOST_BATCHES} ORDER BY process, place DESC
        """
    ).fetchall()
    died = {row["process"] for row in run.rows if row["state"] == DIED or row["signal"] or row["exception"]}
    names = sorted({row[0] for row in rows}, key=lambda process: (process not in died, process))[:MOST_PROCESSES]
    rows = [row for row in rows if row[0] in names]
    items, losses = _items(run, [row[:4] for row in rows]), _losses(run, {(row[0], row[5]) for row in rows})
    found: dict[str, list[DumpedBatch]] = {name: [] for name in names}
    for process, *key, worker, step, epoch, size in rows:
        place = (process, *key)
        found[process].append(_batch(key, items.get(place, []), worker, step, epoch, size, losses.get(place)))
    return found


def used(run: Run, dump: Dump) -> list[DumpedBatch]:
    """The batches of a dump, with the steps that used them and their losses.

    The black box knows in which step a batch came. A loop that fetches ahead uses it in a later step, which the records have.
    Only they have losses. Dumps of older versions have losses of their own.
    """
    names = [row["process"] for row in run.rows if (row["host"], row["pid"]) == (dump.host, dump.pid)]
    wanted = [(names[-1], one.loader, one.round, one.number) for one in dump.batches if names]
    if not wanted or any(part is None for place in wanted for part in place):
        return dump.batches
    places = ", ".join(f"({quoted(name)}, {loader}, {turn}, {number})" for name, loader, turn, number in wanted)
    rows = run.sql(
        f"SELECT process, loader, round, batch, step FROM batches WHERE (process, loader, round, batch) IN ({places})"
    ).fetchall()
    steps: dict[Any, int | None] = {tuple(place): step for *place, step in rows}
    ahead = any(
        steps.get(place) is not None and one.step is not None and steps[place] != one.step
        for place, one in zip(wanted, dump.batches, strict=True)
    )
    if not ahead and all(one.loss is not None for one in dump.batches):
        return dump.batches
    open_step = dump.batches[-1].step if steps.get(wanted[-1]) is None and not ahead else None
    losses: dict[Any, float] = _losses(run, {(names[-1], step) for step in (*steps.values(), open_step)}, open_step)
    return [
        dataclasses.replace(
            one,
            step=steps.get(place) if ahead else one.step,
            loss=losses.get(place) if one.loss is None else one.loss,
        )
        for place, one in zip(wanted, dump.batches, strict=True)
    ]


def _batch(
    key: list[int],
    inside: list[tuple[int | None, str | None]],
    worker: int | None,
    step: int | None,
    epoch: int | None,
    size: int | None,
    loss: float | None,
) -> DumpedBatch:
    ids = [id for _, id in inside]
    return DumpedBatch(
        key=batch_key(*key),
        loader=key[0],
        round=key[1],
        number=key[2],
        worker=worker,
        step=step,
        epoch=epoch,
        size=size if size is not None else len(inside) or None,
        indices=[index for index, _ in inside],
        ids=ids if any(id is not None for id in ids) else [],
        loss=loss,
        digest=None,
        digest_of=None,
        changed=None,
        kept=None,
    )


def _items(run: Run, wanted: list[Any]) -> dict[Place, list[tuple[int | None, str | None]]]:
    """The items of some batches, in their order: as the ledger says, or else those that were recorded one by one."""
    if not wanted:
        return {}
    places = ", ".join(f"({quoted(process)}, {loader}, {turn}, {number})" for process, loader, turn, number in wanted)
    rows = run.sql(
        f"""
        SELECT process, loader, round, batch, "index", id FROM items
        WHERE (process, loader, round, batch) IN ({places}) ORDER BY process, loader, round, batch, position
        LIMIT {MOST_ITEMS * len(wanted)}
        """
    ).fetchall()
    found: dict[Place, list[tuple[int | None, str | None]]] = {}
    ledger = run.sql(
        f"SELECT process, loader, round, batch, indices FROM batches WHERE (process, loader, round, batch) IN ({places})"
    ).fetchall()
    for process, loader, turn, number, index, id in rows:
        found.setdefault((process, loader, turn, number), []).append((index, id))
    for *place, indices in ledger:
        if indices and len(found.get(tuple(place), [])) < len(indices):
            found[tuple(place)] = [(index, None) for index in indices[:MOST_ITEMS]]
    return found


def _losses(run: Run, steps: set[tuple[str, int | None]], open_step: int | None = None) -> dict[Place, float]:
    """The losses of the batches of some (process, step). Batches of a step that never ended have none: it is `open_step`.

    Only where a step has as many losses as batches, all of one loader, it is known whose they are: they have the same order.
    """
    places = ", ".join(f"({quoted(process)}, {step})" for process, step in steps if step is not None)
    if not places:
        return {}
    rows = run.sql(
        f"""
        WITH came AS (
            SELECT process, step, list((loader, round, batch) ORDER BY start_ns) AS batches
            FROM (SELECT * REPLACE (coalesce(step, {"NULL" if open_step is None else open_step}) AS step) FROM batches)
            WHERE (process, step) IN ({places}) AND wait_ns IS NOT NULL AND purpose = '{WORDS[TRAIN]}'
            GROUP BY ALL HAVING count(DISTINCT loader) = 1
        ), noted AS (
            SELECT process, step, list(value ORDER BY start_ns, seq) AS losses FROM events
            WHERE (process, step) IN ({places}) AND kind = 'counter' AND cat = '{probe.PROBE}' AND name = '{probe.LOSS}'
            GROUP BY ALL
        )
        SELECT process, batches, losses FROM came JOIN noted USING (process, step) WHERE len(batches) = len(losses)
        """
    ).fetchall()
    return {(process, *key): loss for process, keys, losses in rows for key, loss in zip(keys, losses, strict=True)}
