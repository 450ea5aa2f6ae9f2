"""What `sonde blackbox` shows of the end of a run, as plain data: the first NaN or the exception, and the last batches."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.analysis.postmortem.batches import last_batches, used
from sonde.analysis.postmortem.dumps import Dump, DumpedBatch, FailedItem
from sonde.analysis.postmortem.stacks import OURS, ThreadStack
from sonde.analysis.questions.spans import OpenSpan, open_spans
from sonde.analysis.records import label
from sonde.diagnosis.advice import what_to_do
from sonde.errors import UnknownName
from sonde.store.alive import ENDED, RUNNING
from sonde.store.certificate import amount, spot
from sonde.store.probe import IO, read_batch_key

if TYPE_CHECKING:
    from sonde.analysis.postmortem.blackbox import BlackBox
    from sonde.analysis.postmortem.dumps import Raised
    from sonde.analysis.postmortem.firstnan import Birth
    from sonde.analysis.run import Run

REASONS = {
    "nonfinite": "a value was not finite",
    "worker": "a loader worker raised an exception or ended",
    "memory": "memory ran out",
    "exception": "an exception was not caught",
    "sigterm": "the process received SIGTERM",
    "demand": "it was requested",
}
LONGER = 1.5  # times the bytes of the median item: else no item is named
MOST_NAMED = 8  # items of a batch that never came
CAUGHT = "Caught "  # how torch begins what it raises again for a loader worker
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)\n\s*([^\n]*)')
WITH_BOX = "sonde run --blackbox --watch-nonfinite train.py"


@dataclass(frozen=True)
class BirthLine:
    """The first non-finite value of one process, in words, and as it was written."""

    sentence: str
    amount: str
    code: str | None  # "before train.py:41 in forward"
    next: str
    rank: int | None
    worker: int | None
    host: str | None
    pid: int | None
    when_ns: int | None
    dump: str | None
    certificate: dict[str, Any]


@dataclass(frozen=True)
class RaisedLine:
    """An exception, and the item that raised it."""

    who: str
    type: str
    message: str
    item: str | None  # "item 77, at position 13 of batch 4"
    index: int | None
    id: str | None
    step: int | None
    frames: list[str]  # the innermost first
    next: str


@dataclass(frozen=True)
class DumpLine:
    """One dump of the run. `number` is what `--dump` takes."""

    number: int
    folder: str
    reason: str
    why: str
    when_ns: int | None
    who: str
    step: int | None
    batches: int
    shown: bool


@dataclass(frozen=True)
class BatchLine:
    """One of the last batches, the newest last. `culprits`: places in it of items that carry what went wrong."""

    who: str
    step: int | None
    epoch: int | None
    loader: int | None
    batch: int | None
    size: int | None
    worker: int | None
    indices: list[int | None]
    ids: list[str | None]
    culprits: list[int]
    loss: float | None
    digest: str | None
    sampled: bool  # the digest is of a part of the bytes: not all of the batch was read
    changed: bool | None
    kept: str | None
    values: list[dict[str, Any]]


@dataclass(frozen=True)
class OpenLine:
    """A span that was entered and not left."""

    who: str
    label: str
    for_ns: int | None
    thread: str | None


@dataclass(frozen=True)
class Page:
    """The whole page. `empty`: there is nothing to show, and `made_of` says what to do."""

    id: str
    name: str
    path: str
    state: str
    ended: str  # running, finished, crashed, interrupted, killed or unknown, and by what
    made_of: str
    empty: bool
    headline: str | None  # what happened, if neither a certificate nor an exception says it
    births: list[BirthLine]
    later: int  # losses that were not finite, after the births
    raised: RaisedLine | None
    memory: list[str]  # what is known of a lack of memory
    dump: str | None
    dumps: list[DumpLine]
    batches: list[BatchLine]
    open: list[OpenLine]
    threads: list[ThreadStack]
    left_out: list[str]
    notes: list[str]


def blackbox(run: Run, box: BlackBox, number: int | None = None) -> Page:
    """The page of a run. `number`: which dump, from 1; without it the one that says most. Raises UnknownName."""
    dump = chosen(box, number)
    raised = _raised_in(box, dump, number)
    stored = {} if dump is not None and dump.batches else last_batches(run)
    batches = _batch_lines(dump, box, stored, run)
    spans = _spans(dump, run)
    return Page(
        id=run.id,
        name=run.name,
        path=str(run.path),
        state=run.state,
        ended=str(run.ending),
        made_of=_made_of(dump, bool(stored), box, run),
        empty=not (box.dumps or box.births or box.unused or batches or spans),
        headline=None if dump is None or box.births or raised is not None else _headline(dump, batches),
        births=[_birth(one) for one in box.births],
        later=box.later,
        raised=None if raised is None else _raised(raised, run.id),
        memory=_memory(dump, run, batches),
        dump=None if dump is None else dump.name,
        dumps=[_dump(place, one, one is dump) for place, one in enumerate(box.dumps, 1)],
        batches=batches,
        open=spans,
        threads=[] if dump is None else dump.threads,
        left_out=[*([] if dump is None else dump.left_out), *map(_compiled, box.unseen)],
        notes=[
            *map(_unused, box.unused),
            *box.notes,
            *(f"{one.name}: {note}" for one in box.dumps for note in one.notes),
        ],
    )


def chosen(box: BlackBox, number: int | None) -> Dump | None:
    """The dump that is meant. Raises UnknownName if there is no such one."""
    if number is None:
        return box.main_dump
    if not 1 <= number <= len(box.dumps):
        there = {0: "none", 1: "1"}.get(len(box.dumps), f"1 to {len(box.dumps)}")
        raise UnknownName(f"This run has no dump {number}. Choose {there} with --dump.")
    return box.dumps[number - 1]


def who(rank: int | None, worker: int | None, pid: int | None) -> str:
    """`rank 1, worker 2 (process 4711)`."""
    words = [] if rank is None else [f"rank {rank}"]
    words += [] if worker is None else [f"worker {worker}"]
    process = "" if pid is None else f"process {pid}"
    return f"{', '.join(words)} ({process})" if words and process else ", ".join(words) or process or "a process"


def _made_of(dump: Dump | None, stored: bool, box: BlackBox, run: Run) -> str:
    if dump is not None:
        of = who(dump.rank, dump.worker, dump.pid)
        when = f" at {units.when(dump.wall_ns)}" if dump.wall_ns is not None else ""
        text = f"Black box dump by {of}{when}: {REASONS.get(dump.reason, dump.reason)}."
        return text + (" It holds no batches; those below are from the run's records." if stored else "")
    if box.births:
        return f"From the first NaN and the run's records; no batches were saved. To save them: {WITH_BOX}"
    if not stored:
        return f"Nothing was saved: this run has no dump, no NaN and no batches. Record with: {WITH_BOX}"
    settings = run.meta.get("settings")
    on = isinstance(settings, dict) and settings.get("blackbox")
    why = "the black box had nothing to write, or was killed before it could" if on else "the black box was off"
    text = f"No dump ({why}). This page is from the run's records: item numbers without values."
    return text if on else f"{text} To save batches: {WITH_BOX}"


# ── what went wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


def _unused(birth: Birth) -> str:
    return f"{amount(birth.certificate)} that never reached the loss or a gradient: {birth.sentence}"


def _birth(birth: Birth) -> BirthLine:
    one = birth.certificate
    return BirthLine(
        sentence=birth.sentence,
        amount=amount(one),
        code=spot(one),
        next=what_to_do(one),
        rank=birth.rank,
        worker=birth.worker,
        host=birth.host,
        pid=birth.pid,
        when_ns=birth.when_ns,
        dump=birth.dump,
        certificate=asdict(one),
    )


def _raised_in(box: BlackBox, dump: Dump | None, number: int | None) -> Dump | None:
    """The dump whose exception is shown: of the one that was asked for its own, if it has one."""
    found = box.raised if number is None else dump
    if found is None or found.raised is None:
        return None
    # The watch itself ends a program that wants it: the certificate says it all.
    return None if found.raised.type == "NonFinite" and box.births else found


def _compiled(layer: str) -> str:
    return f"Inside `{layer}`: it was compiled by torch.compile, so only its output is watched."


def _headline(dump: Dump, batches: list[BatchLine]) -> str:
    step = "" if dump.step is None else f" in step {dump.step}"
    if dump.reason != "nonfinite":
        return f"{REASONS.get(dump.reason, dump.reason)}{step}"
    bad = next((one for one in batches if one.loss is not None and not math.isfinite(one.loss)), None)
    where = step if bad is None or bad.step is None else f" in step {bad.step}"
    batch = "" if bad is None or bad.batch is None else f", batch {bad.batch}"
    return f"the loss was NaN or infinite{where}{batch}; to find its source, use `sonde run --watch-nonfinite`"


def _raised(dump: Dump, run: str) -> RaisedLine:
    raised = dump.raised
    assert raised is not None
    item = raised.item
    newest = next((batch.step for batch in reversed(dump.batches) if batch.step is not None), None)
    return RaisedLine(
        who=who(dump.rank, dump.worker, dump.pid),
        type=raised.type,
        message=message_of(raised),
        item=_item(raised),
        index=None if item is None else item.index,
        id=None if item is None else item.id,
        step=dump.step,
        frames=frames_of(raised),
        next=f"To reproduce it, load {_short(raised)} from the dataset{_together(item)}, without the loader."
        if item is not None
        else f"Check the last batches below; `sonde flow replay {run} --step {newest}` rebuilds the newest."
        if newest is not None
        else "Check the traceback and the last batches below.",
    )


def message_of(raised: Raised) -> str:
    """The message itself: what came through a loader worker has its traceback around it."""
    lines = [line.strip() for line in raised.message.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(CAUGHT):
        return f"{lines[-1].removeprefix(f'{raised.type}: ')} ({lines[0].rstrip('.')})"
    return raised.message.strip()


def frames_of(raised: Raised) -> list[str]:
    """The frames, the innermost first, without our own; of what came through a loader worker those in the worker."""
    frames = raised.traceback
    if raised.message.startswith(CAUGHT):
        inside = [f"{file}:{line} in {name}: {code}" for file, line, name, code in _FRAME.findall(raised.message)]
        frames = inside or frames
    return [_shortened(frame) for frame in reversed(frames) if not OURS.search(frame)]


def _shortened(frame: str) -> str:
    """`data/dataloader.py:725 in __next__: ...`: of a path the last two parts."""
    path, colon, rest = frame.partition(":")
    return "/".join(path.split("/")[-2:]) + colon + rest


def _short(raised: Raised) -> str:
    item = raised.item
    assert item is not None
    if item.index is not None:
        return f"item {item.index}"
    if item.items:
        return f"items {_first(item.items)}"
    return f"item '{item.id}'" if item.id is not None else f"the item at position {item.position}"


def _first(items: list[int | None]) -> str:
    more = f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return ", ".join("?" if one is None else str(one) for one in items[:MOST_NAMED]) + more


def _together(item: FailedItem) -> str:
    return " and collate them" if item.items else " alone"


def _item(raised: Raised) -> str | None:
    item = raised.item
    if item is None:
        return None
    id = f" (id {item.id})" if item.id is not None and item.index is not None else ""
    position = (
        "" if item.position is None or (item.index is None and item.id is None) else f", at position {item.position}"
    )
    batch = "" if item.batch is None else f" of batch {read_batch_key(item.batch).number}"
    worker = "" if item.worker is None else f", loaded by worker {item.worker}"
    return f"{_short(raised)}{id}{position}{batch}{worker}"


def _memory(dump: Dump | None, run: Run, batches: list[BatchLine]) -> list[str]:
    """The batch beside the median one, its largest item, and what devices held."""
    if dump is None or dump.memory is None:
        return []
    known, newest = dump.memory, dump.batches[-1] if dump.batches else None
    found = []
    if known.batch_bytes is not None and known.median_bytes:
        ratio = known.batch_bytes / known.median_bytes
        found.append(
            f"The newest batch has {units.size(known.batch_bytes)}, {units.times(ratio)} the median of "
            f"{units.plural(known.batches or 0, 'batch', 'batches')} before it."
        )
    if known.item is not None and batches:
        one, names = known.item, item_names(batches[-1])
        name = names[one.position] if one.position < len(names) else f"#{one.position}"
        size, middle = (
            (units.size(one.size), units.size(one.median))
            if one.unit == "bytes"
            else (units.count(one.size), units.number(one.median))
        )
        what = "" if one.unit == "bytes" else " long without padding"
        found.append(f"Its largest item is {name}, at position {one.position}: {size}{what}; the median item {middle}.")
    elif newest is not None and (told := _most_read(run, dump, newest)) is not None:
        found.append(told)
    found += [
        f"Device {one.device}: {units.size(one.allocated)} allocated, {units.size(one.reserved)} reserved of "
        f"{units.size(one.total)}; the largest free block has {units.size(one.largest_free)}."
        for one in known.devices
    ]
    if known.snapshot is not None:
        found.append(f"All blocks of the allocator are in {known.snapshot}.")
    return found


def _most_read(run: Run, dump: Dump, batch: DumpedBatch) -> str | None:
    """The item of a batch for which far more bytes were read than for the others, where files were watched."""
    if batch.key is None or not any(
        one.cat == IO for named in run.database.source.name_counts.values() for one in named
    ):
        return None
    key = read_batch_key(batch.key)
    rows = run.sql(
        f"""
        SELECT coalesce(id, index::VARCHAR), position, bytes, median(bytes) OVER () FROM items
        WHERE loader = {key.loader} AND round = {key.round} AND batch = {key.number} AND bytes IS NOT NULL
        AND rank IS NOT DISTINCT FROM {"NULL" if dump.rank is None else dump.rank} ORDER BY bytes DESC LIMIT 1
        """  # noqa: S608  numbers of ours
    ).fetchall()
    if not rows or rows[0][2] < LONGER * rows[0][3]:
        return None
    name, position, size, middle = rows[0]
    return f"Item {name}, at position {position}, read {units.size(size)} from files; the median item {units.size(middle)}."


# ── what was kept ────────────────────────────────────────────────────────────────────────────────────────────────────


def _dump(number: int, dump: Dump, shown: bool) -> DumpLine:
    why = REASONS.get(dump.reason, dump.reason)
    if dump.raised is not None and dump.reason != "nonfinite":
        why = dump.raised.type
    people = who(dump.rank, dump.worker, dump.pid)
    return DumpLine(number, dump.name, dump.reason, why, dump.wall_ns, people, dump.step, len(dump.batches), shown)


def _batch_lines(dump: Dump | None, box: BlackBox, stored: dict[str, list[DumpedBatch]], run: Run) -> list[BatchLine]:
    if dump is not None and dump.batches:
        return [_batch(one, "", culprits(one, dump, box)) for one in used(run, dump)]
    people = {row["process"]: label.process(row["role"], row["rank"], row["worker"]) for row in run.rows}
    several = len(stored) > 1
    return [
        _batch(one, people.get(process, process) if several else "", [])
        for process, batches in stored.items()
        for one in batches
    ]


def culprits(batch: DumpedBatch, dump: Dump, box: BlackBox) -> list[int]:
    """The places in a batch of the items that carry what went wrong, as far as that is known."""
    same = (birth.certificate for birth in box.births if (birth.host, birth.pid) == (dump.host, dump.pid))
    certificate = dump.nonfinite or next(same, None)
    found = []
    if certificate is not None and batch.key is not None and certificate.batch == batch.key:
        found = [item.position for item in certificate.items if item.position is not None]
    item = dump.raised.item if dump.raised is not None else None
    if item is not None and item.position is not None and item.batch is not None and item.batch == batch.key:
        found.append(item.position)
    if dump.memory is not None and dump.memory.item is not None and batch.key == dump.batches[-1].key:
        found.append(dump.memory.item.position)
    most = batch.size if batch.size is not None else len(batch.indices)
    return sorted({place for place in found if place < max(most, len(batch.indices))})


def _batch(one: DumpedBatch, who: str, guilty: list[int]) -> BatchLine:
    number = one.number if one.number is not None or one.key is None else read_batch_key(one.key).number
    return BatchLine(
        who=who,
        step=one.step,
        epoch=one.epoch,
        loader=one.loader,
        batch=number,
        size=one.size,
        worker=one.worker,
        indices=one.indices,
        ids=one.ids,
        culprits=guilty,
        loss=one.loss,
        digest=None if one.digest is None else f"{one.digest % 2**64:016x}",
        sampled=one.digest_of == "sample",
        changed=one.changed,
        kept=one.kept,
        values=[asdict(value) for value in one.values],
    )


def _spans(dump: Dump | None, run: Run) -> list[OpenLine]:
    """What was open: as the dump says; without one, in processes that did not end."""
    if dump is not None and dump.open_spans:
        return [OpenLine("", label.event(one.cat, one.name), one.for_ns, one.thread) for one in dump.open_spans]
    if dump is not None:
        return []
    return [_open(one) for one in open_spans(run) if one.innermost and one.state not in (ENDED, RUNNING)]


def _open(span: OpenSpan) -> OpenLine:
    people = label.process(span.role, span.rank, span.worker)
    return OpenLine(people, label.event(span.cat or "", span.name or ""), span.for_ns, span.thread)


def item_names(batch: BatchLine) -> list[str]:
    """What the items of a batch are called, in their order."""
    length = max(len(batch.indices), len(batch.ids))
    names = []
    for place in range(length):
        index = batch.indices[place] if place < len(batch.indices) else None
        id = batch.ids[place] if place < len(batch.ids) else None
        names.append(str(index) if index is not None else id if id is not None else f"#{place}")
    return names
