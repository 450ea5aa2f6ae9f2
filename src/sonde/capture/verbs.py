"""`trace=N` for a program's own verbs: functions such as `train` or `infer` that run a whole pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

from sonde.capture.trace import Tracing, trace as start_trace


def trace_verb_data(verb_run_func: Callable[..., Any]) -> Callable[..., Any]:
    """Add the keyword `trace=N` to a function: it then runs on N items and returns the TraceResult instead of its
    value.

    Without `trace`, or with None, False or 0, the function runs normally.
    """

    @wraps(verb_run_func)
    def verb(*args: Any, trace: int | None = None, **kwargs: Any) -> Any:
        with TraceContext(trace) as context:
            value = verb_run_func(*args, **kwargs)
        return value if context is None else context

    return verb


class TraceContext:
    """A block for a verb that handles `trace` itself: `with TraceContext(trace) as result:`.

    If `trace` is None, False or 0, nothing is traced and the result is None. A second argument, the program's
    configuration, is returned unchanged instead of the result; get the result with `get_trace()`.
    """

    def __init__(self, trace_arg: int | None, config: Any = None) -> None:
        self.trace_arg = trace_arg
        self.config = config
        off = trace_arg is None or trace_arg is False or (type(trace_arg) is int and trace_arg == 0)
        self._tracing: Tracing | None = None if off else start_trace(items=trace_arg)

    def __enter__(self) -> Any:
        result = None if self._tracing is None else self._tracing.__enter__()
        return result if self.config is None else self.config

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._tracing is not None:
            self._tracing.__exit__(kind, error, trace)
