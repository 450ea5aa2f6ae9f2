"""Traces made by hand: functions are called as the loader would call them, and each call is put down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sonde.capture.result import TraceCall, TraceResult
from sonde.finding import Finding
from sonde.values.note import Item
from sonde.values.snapshot import FULL, Keep, freeze


class Making:
    """A trace in the making."""

    def __init__(self, keep: Keep = FULL) -> None:
        self.keep = keep
        self.result = TraceResult()
        self.batch: int | None = 0
        self.loader: int | None = 0
        self.open: list[int] = []
        self.calls = 0

    def call(
        self, name: str, function: Callable[..., Any], *args: Any, stage: str = "evaluation", items: Sequence[Any] = ()
    ) -> Any:
        """Call a function, and put down what went in and came out; items are indices, or (index, id)."""
        names = function.__code__.co_varnames if hasattr(function, "__code__") else ()
        known = [Item(row, *(one if isinstance(one, tuple) else (one,))) for row, one in enumerate(items)]
        made = TraceCall(
            name,
            stage_name=stage,
            seq=self.calls,
            parent=self.open[-1] if self.open else None,
            inputs=[freeze(one, self.keep, names[n] if n < len(names) else f"arg{n}") for n, one in enumerate(args)],
            items=known,
            batch=self.batch,
            loader=self.loader,
            pid=1,
        )
        self.open.append(self.calls)
        self.calls += 1
        self.result.add(made)
        try:
            value = function(*args)
        except (ValueError, TypeError, RuntimeError) as error:
            made.error = type(error).__name__
            return None
        finally:
            self.open.pop()
        made.output = freeze(value, self.keep, name.rpartition("__")[2].removeprefix("get_"))
        return value

    def get(self, name: str, function: Callable[..., Any], index: Any, *more: Any) -> Any:
        """A call about one item: `index` is its index, or (index, id)."""
        plain = index[0] if isinstance(index, tuple) else index
        return self.call(name, function, plain, *more, stage="dataset_getter", items=[index])

    def collate(self, function: Callable[..., Any], samples: list[Any], items: Sequence[Any]) -> Any:
        """Put items together."""
        return self.call("collate", function, samples, stage="collate", items=items)

    def findings(self) -> list[Finding]:
        """What is found in it."""
        return self.result.findings()
