"""A recording for each test of the vocabulary: a real run, read back from its folder while it is still written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sonde import ai, session
from sonde.ai.node import Node
from sonde.events import core
from sonde.store import record
from sonde.store.reading.reader import read_process

KINDS = {record.SPAN: "span", record.COUNTER: "counter", record.MARK: "mark"}


class Event(NamedTuple):
    """One record, as a test wants to see it."""

    seq: int
    kind: str
    cat: str
    name: str
    start_ns: int
    dur_ns: int
    key: int | None
    parent: int | None
    depth: int
    step: int | None
    epoch: int | None
    open: bool
    error: bool
    args: dict[str, Any]
    tid: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns


class Recording:
    """What has been recorded so far, in the order of entry."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @property
    def events(self) -> list[Event]:
        folders = [path for path in self.run.iterdir() if (path / "names.jsonl").exists()]
        return [event for folder in folders for event in _events(folder)]

    def named(self, name: str) -> list[Event]:
        """The events of this name."""
        return [event for event in self.events if event.name == name]

    def one(self, name: str) -> Event:
        """The only event of this name."""
        (event,) = self.named(name)
        return event

    def counts(self) -> dict[str, int]:
        """How many events each name has."""
        return dict(Counter(event.name for event in self.events))

    def shape(self) -> list[tuple[str, str, str | None]]:
        """Category, name and name of the parent, event by event."""
        events = self.events
        names = {event.seq: event.name for event in events}
        return [(event.cat, event.name, names[event.parent] if event.parent else None) for event in events]

    def parents(self, name: str) -> set[str | None]:
        """The names of the parents of these events."""
        return {parent for _, own, parent in self.shape() if own == name}


def _events(folder: Path) -> Iterator[Event]:
    found = read_process(folder)
    for raw, thread in zip(found.records, found.thread, strict=True):
        cat, name = found.names[int(raw["name"])]
        encoded = found.args(int(raw["args"]))
        yield Event(
            seq=int(raw["seq"]),
            kind=KINDS[int(raw["kind"]) & record.KIND_MASK],
            cat=cat,
            name=name,
            start_ns=int(raw["start"]),
            dur_ns=int(raw["dur"]),
            key=None if raw["key"] == record.NO_KEY else int(raw["key"]),
            parent=int(raw["parent"]) or None,
            depth=int(raw["depth"]),
            step=None if raw["step"] == record.NO_STEP else int(raw["step"]),
            epoch=None if raw["epoch"] == record.NO_EPOCH else int(raw["epoch"]),
            open=bool(raw["kind"] & record.OPEN),
            error=bool(raw["kind"] & record.ERROR),
            args=json.loads(encoded) if encoded else {},
            tid=int(thread),
        )
    found.close()


def _forget(node: Node) -> None:
    """Take back what `update` and `disable` did, here and below."""
    node.on = True
    node._own = {}
    node.shared = None
    for child in node._below.values():
        _forget(child)


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """Record this test, with a vocabulary in its first state."""
    _forget(ai)
    core.set_context(-1, -1)
    with session.init(dir=tmp_path / "runs") as started:
        assert started.path is not None
        yield Recording(started.path)
    _forget(ai)
    core.set_context(-1, -1)
