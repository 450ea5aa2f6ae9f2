"""Events: spans, counters and marks, and the core that records them (`core`: in C, or its Python twin)."""

from __future__ import annotations

from sonde.events.cores import CORE_NOTE, MAIN, core
from sonde.events.decorate import decorate
from sonde.events.span import Span

Life = core.Life
counter = core.counter
mark = core.mark
set_context = core.set_context
get_context = core.get_context

__all__ = ["CORE_NOTE", "MAIN", "Life", "Span", "core", "counter", "decorate", "get_context", "mark", "set_context"]
