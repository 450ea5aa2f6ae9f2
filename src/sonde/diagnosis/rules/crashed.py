"""CRASHED: a process was ended by an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.diagnosis.exits import End, FailedSpan
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.rules.killed import signal_of
from sonde.finding import CRITICAL, WARN, Finding
from sonde.store import probe
from sonde.store.alive import TERMINATED

if TYPE_CHECKING:
    from sonde.analysis.postmortem.dumps import FailedItem
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


SOON_NS = 10_000_000_000  # what failed longer before the end was dealt with
NO_FAULT = ("KeyboardInterrupt", "SystemExit")  # intentional


def crashed(facts: Facts, _policy: Policy) -> Finding | None:
    """A process ended with an exception or an exit code. Names the source line and the dataset item."""
    found = [end for end in facts.ends.processes if _ended_so(end)]
    if not found:
        return None
    # Launchers fail because their ranks do: the first exception that is no launcher's is the cause.
    first = min(found, key=lambda end: (end.role == "launcher", end.exception is None, end.when_ns or 0))
    failed = [one for one in facts.ends.failed if _soon(one, first)]
    item = next((one for one in failed if one.name == probe.ITEM), None)
    fetch = next((one for one in failed if one.name == probe.FETCH and (item is None or one.seq == item.parent)), None)
    known = _in_box(facts, first) if item is None else None
    who = first.who[:1].upper() + first.who[1:]
    return finding(
        "CRASHED",
        CRITICAL if first.exception or failed else WARN,
        1.0,
        f"{who} {_how(first)}{_where(failed, item, fetch) if known is None else _boxed(known)}.",
        _next(item, fetch, first, facts) if known is None else _load(_known_name(known)),
        failure=True,
        figures={"exit code": Figure(first.exit_code, first.query)} if first.exit_code is not None else {},
        exception=first.exception,
        message=first.message,
        place=first.place,
        ranks=[] if first.rank is None else [first.rank],
        processes=[first.process],
        steps=[one.step for one in failed if one.step is not None][:1],
        items=[_plain(item, fetch)] if item is not None else [] if known is None else [_plain_known(known)],
    )


def _how(end: End) -> str:
    if end.exception is None:
        return f"ended with exit code {end.exit_code}"
    raised = end.exception if end.message is None else _raised(end.exception, end.message)
    return f"crashed with {raised}" + ("" if end.place is None else f" at {end.place}")


def _raised(exception: str, message: str) -> str:
    """`KeyError: 'image'`; what a loader passes on from its worker begins with the type already."""
    return message.rstrip(".") if message.startswith(exception) else f"{exception}: {message.rstrip('.')}"


def _in_box(facts: Facts, end: End) -> FailedItem | None:
    """The item that raised, as the black box says: of the process that ended, or of a loader worker of the run."""
    for dump in facts.box.dumps:
        named = dump.raised.item if dump.raised is not None else None
        if named is not None and (dump.reason == "worker" or (dump.host, dump.pid) == (end.host, end.pid)):
            return named
    return None


def _known_name(item: FailedItem) -> str:
    if item.index is not None:
        return f"item {item.index}"
    return f"item {item.id!r}" if item.id is not None else f"the item at position {item.position}"


def _boxed(item: FailedItem) -> str:
    batch = "" if item.batch is None else f" of batch {probe.read_batch_key(item.batch).number}"
    loaded = "" if item.worker is None else f", which loader worker {item.worker} loaded"
    return f", raised by {_known_name(item)}{batch}{loaded}"


def _plain_known(item: FailedItem) -> dict[str, object]:
    batch = None if item.batch is None else probe.read_batch_key(item.batch)
    return {
        "index": item.index,
        "id": item.id,
        "worker": item.worker,
        "rank": None,
        "loader": None if batch is None else batch.loader,
        "round": None if batch is None else batch.round,
        "batch": None if batch is None else batch.number,
    }


def _ended_so(end: End) -> bool:
    if end.reason == TERMINATED:
        return False
    if end.exception is not None:
        return end.exception not in NO_FAULT
    return bool(end.exit_code) and signal_of(end) is None and end.worker is None


def _soon(failed: FailedSpan, end: End) -> bool:
    return end.when_ns is None or abs(end.when_ns - failed.end_ns) <= SOON_NS


def _where(failed: list[FailedSpan], item: FailedSpan | None, fetch: FailedSpan | None) -> str:
    if item is not None:
        batch = "" if fetch is None or fetch.key is None else f" of batch {probe.read_batch_key(fetch.key).number}"
        return f", raised by {_item_name(item)}{batch}, which {_maker(item)} loaded"
    if fetch is not None and fetch.key is not None:
        return f", raised while {_maker(fetch)} loaded batch {probe.read_batch_key(fetch.key).number}"
    inner = next(iter(failed), None)
    if inner is None:
        return ""
    step = "" if inner.step is None else f" of step {inner.step}"
    return f", raised in {inner.name.removeprefix(probe.COMMUNICATION)}{step}"


def _item_name(item: FailedSpan) -> str:
    return f"item {item.text!r}" if item.text is not None else f"item {item.key}"


def _maker(failed: FailedSpan) -> str:
    return "the training process" if failed.worker is None else f"loader worker {failed.worker}"


def _next(item: FailedSpan | None, fetch: FailedSpan | None, end: End, facts: Facts) -> str:
    if item is not None:
        return _load(_item_name(item))
    if fetch is not None:
        return "To reproduce it, load that batch with num_workers=0."
    born = next((birth.certificate.step for birth in facts.box.births), None)
    if born is not None:
        return f"First find the source of the non-finite value in step {born}: sonde blackbox {facts.run}"
    if end.exception is None:
        return "Read the last lines of its output: the program chose to exit."
    where = "" if end.place is None else f"Look at {end.place}; "
    return f"{where}{'the' if where else 'The'} traceback is at the end of its output."


def _load(name: str) -> str:
    return f"To reproduce it, load {name} from the dataset directly, without the loader."


def _plain(item: FailedSpan, fetch: FailedSpan | None) -> dict[str, object]:
    batch = None if fetch is None or fetch.key is None else probe.read_batch_key(fetch.key)
    return {
        "index": item.key if item.text is None else None,
        "id": item.text,
        "worker": item.worker,
        "rank": item.rank,
        "loader": None if batch is None else batch.loader,
        "round": None if batch is None else batch.round,
        "batch": None if batch is None else batch.number,
    }
