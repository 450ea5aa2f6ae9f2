"""The result of a trace: stages, their calls, and the path of one item through them.

    print(trace)                                      everything, as text
    trace.collate, trace["collate"]                   a stage
    trace.collate[0], trace.collate[-1]               a call, by number
    trace.collate[:2], trace.collate["A__collate"]    a stage of fewer calls, by slice or function name
    trace.collate[0].batch_dict                       a captured value
    trace.item(index=0), trace.item(id="23")          all calls that were about this item

`load(path)` reads back what `trace.save(path)` wrote.
"""

from __future__ import annotations

from copy import copy
from threading import RLock
from typing import TYPE_CHECKING, Any, overload

from sonde.capture import diff as compare, file, rules
from sonde.capture.call import About, TraceCall
from sonde.capture.context import masked
from sonde.capture.show import html, text
from sonde.capture.stages import RESERVED, stage_names
from sonde.errors import UnknownName
from sonde.guard import guard
from sonde.values.row import row_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sonde.finding import Finding
    from sonde.values.note import Item

__all__ = ["About", "TraceCall", "TraceItem", "TraceResult", "TraceStage", "load"]

MAX_LISTED = 20  # known items that an error message lists


class TraceStage:
    """The calls of one stage, in call order."""

    def __init__(self, name: str = "", calls: Iterable[TraceCall] = ()) -> None:
        self.name = name
        self.calls = list(calls)

    @overload
    def __getitem__(self, key: int) -> TraceCall: ...
    @overload
    def __getitem__(self, key: str | slice) -> TraceStage: ...
    def __getitem__(self, key: int | str | slice) -> TraceCall | TraceStage:
        """A call by number; the calls of a function by its name; some calls by a slice."""
        if isinstance(key, str):
            return self._named(key)
        if isinstance(key, slice):
            return TraceStage(self.name, self.calls[key])
        try:
            return self.calls[key]
        except IndexError:
            raise IndexError(f"No call number {key} in {self._words()}: it has {len(self.calls)}.") from None

    def append(self, call: TraceCall) -> None:
        """Add a call at the end."""
        self.calls.append(call)

    @property
    def func_dict(self) -> dict[str, list[TraceCall]]:
        """The calls by the name of their function."""
        found: dict[str, list[TraceCall]] = {}
        for call in self.calls:
            found.setdefault(call.disp_name, []).append(call)
        return found

    def names(self) -> list[str]:
        """The names of the called functions, without repetition."""
        return list(self.func_dict)

    def _named(self, name: str) -> TraceStage:
        found = self._calls_of(name)
        if not found:
            raise KeyError(f"No call of {name!r} in {self._words()}. {text.known(name, self.names())}")
        return TraceStage(self.name, found)

    def _calls_of(self, name: str) -> list[TraceCall]:
        """By the name that is shown, or else by that of the function alone."""
        shown = [call for call in self.calls if call.disp_name == name]
        return shown or [call for call in self.calls if call.func_name == name]

    def _words(self) -> str:
        return f"the stage {self.name}" if self.name else "these calls"

    def __getattr__(self, name: str) -> TraceStage:
        # Also asked on an empty object, by copy and pickle: then there is nothing to look into.
        if name.startswith("__") or "calls" not in self.__dict__:
            raise AttributeError(name)
        found = self._calls_of(name)
        if not found:
            raise AttributeError(f"No call of {name!r} in {self._words()}. {text.known(name, self.names())}")
        return TraceStage(self.name, found)

    def __dir__(self) -> list[str]:
        return sorted({*self.names(), "append", "calls", "func_dict", "name", "names"})

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[TraceCall]:
        return iter(self.calls)

    def _repr_html_(self) -> str:
        return html.fragment(html.Content({self.name: self.calls}, (), ()))

    def __str__(self) -> str:
        return text.stage_text([text.call_text(call.about) for call in self.calls])

    def __repr__(self) -> str:
        return str(self)


class TraceItem(TraceStage):
    """The path of one item: every call that involved it, in order.

    Printing shows only this item's part of each call. The calls themselves (`path[0]`, `path.collate[0]`) hold the
    whole batch; `rows` has the item's row in each.
    """

    def __init__(
        self, index: int | str | None, id: str | None, calls: Iterable[TraceCall], rows: Iterable[int]
    ) -> None:
        super().__init__("", calls)
        self.index = index
        self.id = id
        self.rows = list(rows)

    @property
    def stages(self) -> dict[str, TraceStage]:
        """The calls by stage."""
        names = dict.fromkeys(call.stage_name for call in self.calls)
        return {name: TraceStage(name, [call for call in self.calls if call.stage_name == name]) for name in names}

    def values(self, number: int) -> TraceCall:
        """The call with that number, reduced to this item."""
        call, row = self[number], self.rows[number]
        count = len(call.about.items)
        mine = copy(call.about)
        if count > 1:
            mine.inputs = [row_of(kept, row, count) for kept in mine.inputs]
            mine.output = None if mine.output is None else row_of(mine.output, row, count)
        return TraceCall.of(mine)

    def __getattr__(self, name: str) -> TraceStage:
        if not name.startswith("__") and "calls" in self.__dict__ and name in self.stages:
            return self.stages[name]
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.stages, "id", "index", "rows", "stages", "values"})

    def _words(self) -> str:
        return f"the path of {text.item_words(self.index, self.id)}"

    def _repr_html_(self) -> str:
        stages: dict[str, list[TraceCall]] = {}
        for number, call in enumerate(self.calls):
            stages.setdefault(call.stage_name, []).append(self.values(number))
        return html.fragment(html.Content(stages, (), ()))

    def __str__(self) -> str:
        stages: dict[str, list[str]] = {}
        for number, call in enumerate(self.calls):
            written = text.step_text(self.values(number).about, _place(call.about, self.rows[number]))
            stages.setdefault(call.stage_name, []).append(written)
        return text.item_text(self.index, self.id, stages)


def _place(about: About, row: int) -> str:
    """Where the item stood in a call, in words."""
    count = len(about.items)
    known = {
        "phase": about.phase,
        "epoch": about.epoch,
        "step": about.step,
        "batch": about.batch,
        "worker": about.worker,
        "pid": about.pid or None,
    }
    words = [f"row {row} of {count}"] if count > 1 else []
    words += [f"{name} {value}" for name, value in known.items() if value is not None]
    return f"at {', '.join(words)}" if words else ""


def _order(call: TraceCall) -> int:
    return call.about.seq


class TraceResult:
    """The captured values: stages in pipeline order, and notes on what was cut, dropped or missed."""

    def __init__(self, items: int | None = None, calls: Iterable[TraceCall] = (), notes: Iterable[str] = ()) -> None:
        self.items = items  # how many were asked for; None: not limited
        self.notes = list(notes)
        # Gives calls that were captured elsewhere (loader workers) and have arrived since; asked at every look.
        self.source: Callable[[], Iterable[TraceCall]] | None = None
        self._stages = {name: TraceStage(name) for name in stage_names()}
        self._lock = RLock()
        self.extend(calls)

    def add(self, call: TraceCall) -> None:
        """Add a call to its stage when the function is entered, so that parents come before children."""
        name = call.stage_name
        with self._lock:
            if name not in self._stages:
                self._stages[name] = TraceStage(name)
            self._stages[name].append(call)

    def reset(self) -> None:
        """Delete all calls, including those from loader workers."""
        with self._lock:
            for stage in self.stages.values():
                stage.calls.clear()

    @property
    def trace_batch_size(self) -> int | None:
        """Number of items that the trace was limited to; another name for `items`."""
        return self.items

    def extend(self, calls: Iterable[TraceCall]) -> None:
        """Add several calls and sort each stage by `seq`."""
        with self._lock:
            more = list(calls)
            for call in more:
                self.add(call)
            for name in {call.stage_name for call in more}:
                self._stages[name].calls.sort(key=_order)

    @property
    def stages(self) -> dict[str, TraceStage]:
        """The stages by name, in order, including those without calls."""
        if self.source is not None:
            with guard("collecting calls captured in other processes"), self._lock:
                self.extend(self.source())
        return self._stages

    @overload
    def __getitem__(self, key: int | str) -> TraceStage: ...
    @overload
    def __getitem__(self, key: slice) -> list[TraceStage]: ...
    def __getitem__(self, key: int | str | slice) -> TraceStage | list[TraceStage]:
        """A stage by name or number, or several by a slice."""
        stages = self.stages
        if isinstance(key, str):
            if key not in stages:
                raise KeyError(f"No stage {key!r}. {text.known(key, list(stages))}")
            return stages[key]
        try:
            return list(stages.values())[key]
        except IndexError:
            raise IndexError(f"No stage number {key}: there are {len(stages)} ({', '.join(stages)}).") from None

    def __getattr__(self, name: str) -> TraceStage:
        # Also asked on an empty object, by copy and pickle: then there is nothing to look into.
        if name.startswith("__") or "_stages" not in self.__dict__:
            raise AttributeError(name)
        stages = self.stages
        if name not in stages:
            raise AttributeError(f"No stage {name!r}. {text.known(name, list(stages))}")
        return stages[name]

    def __dir__(self) -> list[str]:
        return sorted({*self.stages, *RESERVED})

    def __len__(self) -> int:
        return len(self.stages)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TraceStage]:
        return iter(list(self.stages.values()))

    def __contains__(self, name: object) -> bool:
        return name in self.stages

    def __getstate__(self) -> dict[str, Any]:
        stages = {name: TraceStage(name, stage.calls) for name, stage in self.stages.items()}
        return {"items": self.items, "notes": list(self.notes), "_stages": stages}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, source=None, _lock=RLock())

    def calls(self) -> list[TraceCall]:
        """All calls of all stages, in call order."""
        return sorted((call for stage in self for call in stage), key=_order)

    def item(self, index: int | str | None = None, *, id: object = None) -> TraceItem:
        """The path of one item through the stages, by its index in the dataset or its id."""
        wanted = _Selection(index, None if id is None else str(id), self.calls())
        if not wanted.calls:
            raise UnknownName(f"No captured call involved {text.item_words(index, wanted.id)}. {self._known()}")
        return TraceItem(*wanted.names(), wanted.calls, wanted.rows)

    def known_items(self) -> list[Item]:
        """Each item with a captured call, without repetition."""
        found: dict[tuple[int | str | None, str | None], Item] = {}
        for call in self.calls():
            for item in call.about.items:
                found.setdefault((item.index, item.id), item)
        named = {item.index for item in found.values() if item.id is not None}
        return [item for item in found.values() if item.id is not None or item.index not in named]

    def _known(self) -> str:
        known = self.known_items()
        if not known:
            return "No call of this trace names its items."
        words = "; ".join(text.item_words(item.index, item.id) for item in known[:MAX_LISTED])
        more = f"; and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
        return f"Known: {words}{more}."

    def findings(self) -> list[Finding]:
        """Suspicious values, each with stage, function, field and item."""
        return rules.find(self)

    def diff(self, other: TraceResult, *, rtol: float = 0.0) -> compare.Diff:
        """The first difference between two traces; false if there is none: `assert not a.diff(b)`."""
        return compare.compare(self, other, rtol=rtol)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; read it with `sonde.flow.load(path)`."""
        file.write(path, file.Saved(self.calls(), list(self.stages), self.items, self.notes))

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a standalone HTML page."""
        html.write(path, self._content())

    def _content(self) -> html.Content:
        return html.Content(self.stages, self.notes, _found(self))

    def _repr_html_(self) -> str:
        return html.fragment(self._content())

    def __str__(self) -> str:
        stages = {name: str(stage) for name, stage in self.stages.items()}
        return text.result_text(stages, self.notes, _found(self))

    def __repr__(self) -> str:
        return str(self)


@guard("checking a trace for problems", default=())
def _found(result: TraceResult) -> Sequence[Finding]:
    """What is printed below a result: a rule that fails must not keep the result from being seen."""
    return result.findings()


class _Selection:
    """The calls that were about one item, and the rows it had in them."""

    def __init__(self, index: int | str | None, id: str | None, calls: list[TraceCall]) -> None:
        self.index = index
        self.id = id
        # A getter often knows only the index; the id of the same item stands in a later call of the same loader.
        self.keys = {
            (call.about.loader, item.index)
            for call in calls
            for item in call.about.items
            if id is not None and item.id in (id, masked(id)) and item.index is not None
        }
        found = [(call, item) for call in calls for item in call.about.items if self.matches(call, item)]
        self.calls = [call for call, _ in found]
        self.rows = [item.position for _, item in found]
        self.items = [item for _, item in found]

    def matches(self, call: TraceCall, item: Item) -> bool:
        """Is `item`, of `call`, the one that is wanted?"""
        names = (self.index, masked(self.index)) if isinstance(self.index, str) else (self.index,)
        if self.id is None:
            return self.index is not None and item.index in names
        if self.index is not None and item.index not in names:
            return False
        return item.id in (self.id, masked(self.id)) or (
            item.id is None and (call.about.loader, item.index) in self.keys
        )

    def names(self) -> tuple[int | str | None, str | None]:
        """Index and id of the item, as far as any call knows them."""
        indexes = [item.index for item in self.items if item.index is not None]
        ids = [item.id for item in self.items if item.id is not None]
        return (indexes[0] if indexes else self.index), (ids[0] if ids else self.id)


def load(path: str | os.PathLike[str]) -> TraceResult:
    """Load a result written by `TraceResult.save`. Arrays and tensors become NumPy arrays."""
    saved = file.read(path)
    result = TraceResult(saved.items, notes=saved.notes)
    result._stages = {name: TraceStage(name) for name in saved.stages}
    result.extend(saved.calls)
    return result
