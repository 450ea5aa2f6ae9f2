"""The first non-finite value of each process: the marks written by the watch, read as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.schema import BESIDE, quoted
from sonde.store import probe
from sonde.store.certificate import Certificate, read_certificate, sentence

if TYPE_CHECKING:
    from sonde.analysis.run import Run

MOST_MARKS = 10_000  # that are read


@dataclass(frozen=True)
class Birth:
    """The first non-finite value of one process. `when_ns`: on the clock that all processes of the run share."""

    certificate: Certificate
    host: str | None
    pid: int | None
    rank: int | None
    worker: int | None
    when_ns: int | None
    dump: str | None = None  # the folder that was written for it
    query: str | None = None  # what gives the step again
    counter: int | None = None  # the loader worker that numbers the items, where each of several has numbers of its own

    @property
    def process(self) -> list[str]:
        """Its rank and worker in words."""
        known = [] if self.rank is None else [f"rank {self.rank}"]
        return known if self.worker is None else [*known, f"loader worker {self.worker}"]

    @property
    def sentence(self) -> str:
        """The certificate in words, with the process."""
        return sentence(self.certificate, self.process, self.counter)


class Births(NamedTuple):
    """The first birth of each process, the first of all first; those that came to nothing; how many non-finite losses were marked after
    births; and parts of models that the watch could not look into.
    """

    first: list[Birth]
    unused: list[Birth]
    later: int
    unseen: list[str]


def births(run: Run) -> Births:
    """What the watch has written."""
    rows = run.sql(
        f"""
        SELECT cat, name, process, seq, host, pid, rank, start_ns, args, key, step, epoch FROM {BESIDE}
        WHERE kind = 'mark' AND cat IN ('{probe.NONFINITE}', '{probe.NONFINITE_UNSEEN}', '{probe.NONFINITE_UNUSED}')
        ORDER BY start_ns, process, seq LIMIT {MOST_MARKS}
        """
    ).fetchall()
    workers = {row["process"]: row["worker"] for row in run.rows}
    found: dict[str, Birth] = {}
    unused: list[Birth] = []
    later = 0
    for cat, _, process, seq, host, pid, rank, when, args, *context in rows:
        certificate = read_certificate(_completed(args, *context)) if cat == probe.NONFINITE else None
        if cat == probe.NONFINITE_UNUSED and process in found:
            unused.append(found.pop(process))
        elif certificate is not None and process not in found:
            query = _STEP.format(quoted(process), seq)
            counter = _counter(run, process, certificate.batch)
            found[process] = Birth(certificate, host, pid, rank, workers.get(process), when, None, query, counter)
        else:
            later += cat == probe.NONFINITE
    unseen = sorted({str(row[1]) for row in rows if row[0] == probe.NONFINITE_UNSEEN})
    return Births(list(found.values()), unused, later, unseen)


def _counter(run: Run, process: str, key: int | None) -> int | None:
    """The worker that read a batch of an iterable dataset, if there are several: each counts its items from 0."""
    ledger = run.database.ledgers.of(process) if key is not None else None
    content = ledger.batch(key) if ledger is not None and key is not None else None
    if content is None or not content.stream or content.worker is None or key is None:
        return None
    place = probe.read_batch_key(key)
    ((last,),) = run.sql(
        f"SELECT max(worker) FROM batches WHERE process = {quoted(process)} AND loader = {place.loader} AND round = {place.round}"
    ).fetchall()
    return content.worker if last else None


_STEP = (
    "SELECT coalesce(try_cast(args->>'$.step' AS BIGINT), step) FROM events WHERE process = {} AND seq = {} "
    f"AND cat = '{probe.NONFINITE}'"
)


def _completed(args: str | None, key: int | None, step: int | None, epoch: int | None) -> object:
    """The arguments of a mark; where they do not say when it was, the mark itself does."""
    try:
        said = json.loads(args) if args else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    known = {"batch": key, "step": step, "epoch": epoch}
    return said | {name: value for name, value in known.items() if said.get(name) is None}
