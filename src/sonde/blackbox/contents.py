"""What `dump.json` of the black box says: the process, the exception, the batches, the open spans."""

from __future__ import annotations

import linecache
import math
import os
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from sonde import ranks
from sonde.events import args as arguments, core
from sonde.guard import guard
from sonde.store import folder
from sonde.store.probe import read_batch_key
from sonde.store.reading.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sonde.blackbox.batches import DeliveredBatch
    from sonde.blackbox.dump import DumpWriter
    from sonde.events.recorder import Recorder

VERSION = 1
MOST_INDICES = 32_768  # in all batches together, and of one of them at most MOST_OF_BATCH
MOST_OF_BATCH = 4096
MOST_FRAMES = 50
MOST_MESSAGE = 2000
MOST_SPANS = 200
MOST_CODE = 200  # characters of a line of code


def process_facts(dump: DumpWriter, recorder: Recorder) -> dict[str, Any]:
    here = ranks.current()
    ours = recorder.facts if recorder.pid == os.getpid() else {}
    step, epoch = core.get_context()
    return {
        "version": VERSION,
        "reason": dump.cause.reason,
        "wall_ns": time_ns(),
        "monotonic_ns": monotonic_ns(),
        "host": folder.host(),
        "pid": os.getpid(),
        "rank": here.rank,
        "world_size": here.world_size,
        "worker": None,
        "role": ours.get("role"),
        "step": step,
        "epoch": epoch,
        "exception": None,
        "nonfinite": dump.cause.certificate,
        "batches": [],
        "open_spans": [],
        "stacks": None,
        "left_out": dump.left_out,
        "limit_bytes": recorder.settings.values_limit,
    }


def exception_facts(dump: DumpWriter, values: str) -> dict[str, Any] | None:
    """Its type, text and place. With `values = "off"` without the text, which may quote data."""
    cause, error = dump.cause, dump.cause.error
    if error is None:
        return None
    message = ""
    if values == "off":
        dump.leave_out('The message of the exception: `values` is "off".')
    else:
        with guard("turning an exception into text"):
            message = arguments.clean(str(error))
    if len(message) > MOST_MESSAGE:  # what came through a worker has its reason at the end
        message = f"{message[:200]} ... {message[-(MOST_MESSAGE - 205) :]}"
    return {
        "type": type(error).__name__,
        "message": message if cause.ended is None else f"{message} ({cause.ended})".strip(),
        "traceback": list(_frames(error.__traceback__))[-MOST_FRAMES:],
        "item": cause.item,
    }


def _frames(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        code = trace.tb_frame.f_code
        text = linecache.getline(code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals).strip()[:MOST_CODE]
        place = arguments.clean(f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        yield f"{place}: {arguments.clean(text)}" if text else place
        trace = trace.tb_next


def open_spans(recorder: Recorder) -> list[dict[str, Any]]:
    if recorder.pid != os.getpid():
        return []
    return [
        {"cat": span.cat, "name": span.name, "since_ns": span.for_ns, "thread": span.thread}
        for span in running(Path(recorder.folder))[:MOST_SPANS]
    ]


def batch_facts(kept: DeliveredBatch, among: int) -> dict[str, Any]:
    batch, most = kept.batch, min(MOST_OF_BATCH, MOST_INDICES // among)
    indices = None if kept.indices is None else [_index(one) for one in kept.indices[:most]]
    return {
        "key": kept.key,
        "loader": batch and batch.loader,
        "round": batch and batch.round,
        "number": batch and batch.number,
        "worker": batch and batch.worker,
        "step": kept.step,
        "epoch": kept.epoch,
        "size": None if kept.indices is None else len(kept.indices),
        "indices": indices or [],
        "ids": None,
        "digest": kept.seen.digest,
        "digest_of": "all" if kept.seen.whole else "sample",
        "changed": None,
        "kept": kept.state,
        "values": [],
    }


def batch_name(kept: DeliveredBatch, place: int) -> str:
    """A batch by its number in the round of its loader, as in the table of the page; by its place here if it has none."""
    if kept.batch is not None:
        return f"batch {kept.batch.number}"
    return f"batch {place if kept.key is None else read_batch_key(kept.key).number}"


def _index(index: Any) -> int | str | None:
    if isinstance(index, int) and not isinstance(index, bool):
        return index
    return None if index is None else arguments.clean(str(index)[:MOST_CODE])


def number(value: float | None) -> float | str | None:
    """A number as JSON has it; what is not finite is a word."""
    if value is None or isinstance(value, int) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
