"""Where the first non-finite value of each process was born: the marks that the watch has written, read as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.postmortem.untrusted import Fields
from sonde.analysis.records.schema import BESIDE, quoted
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run

WHERE = ("data", "forward", "loss", "backward", "gradient")
STAGES = ("dataset", "collate", "loader", "loop")
KINDS = ("nan", "inf", "nan and inf")
MOST_ITEMS = 16
MOST_INPUTS = 8
MOST_MARKS = 10_000  # that are read


@dataclass(frozen=True)
class Carrier:
    """An item of the batch that carries it: its place in the batch, and what the dataset calls it, if that is known."""

    position: int | None
    index: int | None
    id: str | None


@dataclass(frozen=True)
class Input:
    """One input of the place where it was born. Numbers are those of the finite values; None: not known."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str | None
    min: float | None
    max: float | None
    mean: float | None
    finite: bool | None


@dataclass(frozen=True)
class Certificate:
    """Where a non-finite value was seen first. `producer`: its inputs were all finite, so it was made here."""

    where: str  # one of WHERE
    producer: bool
    layer: str | None
    type: str | None
    after: str | None  # made by code between these two layers
    before: str | None
    op: str | None
    code: str | None  # "train.py:41 in forward"
    stage: str | None  # one of STAGES, of the data
    kind: str | None  # one of KINDS
    count: int | None  # values that are not finite
    total: int | None
    shape: tuple[int, ...] | None
    dtype: str | None
    inputs: list[Input]
    inputs_known: bool  # not if the layer changed them in place
    parameters: list[str]  # of the layer, that were not finite already
    items: list[Carrier]  # the first of them; empty: cannot be told
    items_total: int
    batch: int | None  # the key
    step: int | None
    epoch: int | None
    evaluation: bool
    scaled: bool

    @property
    def batch_number(self) -> int | None:
        """The number of the batch in its epoch."""
        return None if self.batch is None else probe.read_batch_key(self.batch).number


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


def read_certificate(value: object) -> Certificate | None:
    """The certificate in a JSON object; None if it says not even where."""
    fields = Fields(value)
    where = fields.word("where", WHERE)
    if where is None:
        return None
    items = [
        Carrier(one.count("position"), one.whole("index"), one.text("id"))
        for one in fields.objects("items", MOST_ITEMS)
    ]
    known = fields.flag("inputs_known")
    return Certificate(
        where=where,
        producer=fields.flag("producer") is True,
        layer=fields.text("layer"),
        type=fields.text("type"),
        after=fields.text("after"),
        before=fields.text("before"),
        op=fields.text("op"),
        code=fields.text("code"),
        stage=fields.word("stage", STAGES),
        kind=fields.word("kind", KINDS),
        count=fields.count("count"),
        total=fields.count("total"),
        shape=fields.shape("shape"),
        dtype=fields.text("dtype"),
        inputs=[_input(one) for one in fields.objects("inputs", MOST_INPUTS)],
        inputs_known=known is not False,
        parameters=fields.texts("parameters", MOST_INPUTS),
        items=items,
        items_total=max(fields.count("items_total") or 0, len(items)),
        batch=fields.count("batch"),
        step=fields.count("step"),
        epoch=fields.count("epoch"),
        evaluation=fields.flag("evaluation") is True and where not in ("backward", "gradient"),
        scaled=fields.flag("scaled") is True,
    )


def _input(fields: Fields) -> Input:
    numbers = (fields.number("min"), fields.number("max"), fields.number("mean"))
    return Input(
        fields.text("name") or "", fields.shape("shape"), fields.text("dtype"), *numbers, fields.flag("finite")
    )


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
    book = run.database.ledgers.book(process) if key is not None else None
    content = book.batch(key) if book is not None and key is not None else None
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
