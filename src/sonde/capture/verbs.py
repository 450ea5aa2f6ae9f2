"""`trace=N` for a program's own verbs: functions such as `train` or `infer` that run a whole pipeline."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from sonde.capture.trace import Tracing, trace as start_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


def trace_verb_data(verb_run_func: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the keyword `trace=N`: it then runs on N items, and returns the TraceResult, not its value.

    With `trace` left out, None, False or 0 it runs as always.
    """

    @wraps(verb_run_func)
    def verb(*args: Any, trace: int | None = None, **kwargs: Any) -> Any:
        with TraceContext(trace) as context:
            value = verb_run_func(*args, **kwargs)
        return value if context is None else context

    return verb


class TraceContext:
    """The same as a block, for a verb that takes `trace` itself: `with TraceContext(trace) as result:`.

    The result is None, and nothing is traced, if `trace` is None, False or 0. With a second argument, the configuration
    of the program, the block gets that instead, as it is: loaders are limited without it. `get_trace()` gives the result.
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
