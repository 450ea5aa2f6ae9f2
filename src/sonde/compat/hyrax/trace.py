"""Hyrax's `hyrax.trace`: its decorators, its context, and the result of a trace as its users know it.

Everything is captured by Sonde; the classes here only show it. `trace_result` is the result of the active trace, or None.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any

from sonde.capture import tape, verbs
from sonde.capture.decorate import trace_dataset_func, trace_func, trace_model_func
from sonde.capture.definition import TraceDef
from sonde.capture.tape import reset_trace
from sonde.compat.hyrax.result import TraceCall, TracePrintable, TraceResult, TraceStage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "TraceCall",
    "TraceContext",
    "TraceDef",
    "TracePrintable",
    "TraceResult",
    "TraceStage",
    "get_trace",
    "logger",
    "reset_trace",
    "trace_dataset_func",
    "trace_func",
    "trace_model_func",
    "trace_result",
    "trace_verb_data",
]

logger = logging.getLogger(__name__)
LIMITS = (("train", "epochs"), ("data_loader", "batch_size"), ("data_set", "use_cache"))
trace_result: TraceResult | None


def __getattr__(name: str) -> Any:
    if name == "trace_result":
        return get_trace()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has: {', '.join(__all__)}")


class _State:
    shown: TraceResult | None = None  # the newest result that was given out


def get_trace() -> TraceResult | None:
    """The result of the active trace; None if no trace is active."""
    captured = tape.get_trace()
    if captured is None:
        return None
    if _State.shown is None or _State.shown.captured is not captured:
        _State.shown = TraceResult.of(captured)
    return _State.shown


class TraceContext(verbs.TraceContext):
    """A block for a verb that handles `trace` itself: `with TraceContext(trace, self.config) as modified_config:`.

    The modified config is a copy. If `trace_arg` is None, False or 0, it is the config itself, and nothing is traced.
    """

    def __init__(self, trace_arg: Any, config: Any) -> None:
        super().__init__(trace_arg, config)

    def __enter__(self) -> Any:
        super().__enter__()
        if not self.trace_arg:
            return self.config
        logger.warning("Starting a trace: only one batch of %s items is processed.", self.trace_arg)
        return _limited(self.config, self.trace_arg)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        result = get_trace() if self.trace_arg else None
        if result is not None:
            result.remove_class_level_shims()
        super().__exit__(kind, error, trace)


def _limited(config: Any, items: int) -> Any:
    """A copy for one batch of `items` items, as far as it has the keys for that."""
    limited = deepcopy(config)
    for (table, key), value in zip(LIMITS, (1, items, False), strict=True):
        if limited is not None and table in limited and key in limited[table]:
            limited[table][key] = value
    return limited


def trace_verb_data(verb_run_func: Callable[..., Any]) -> Callable[..., Any]:
    """Add the keyword `trace=N` to a verb: it then runs on N items, with a config made for that, and returns the trace."""

    @wraps(verb_run_func)
    def verb(*args: Any, trace: int | None = None, **kwargs: Any) -> Any:
        if not trace:
            return verb_run_func(*args, **kwargs)
        owner = next((one for one in args[:1] if hasattr(one, "config")), None)
        before = None if owner is None else owner.config
        with TraceContext(trace, before) as limited:
            try:
                if owner is not None:
                    owner.config = limited
                verb_run_func(*args, **kwargs)
                return get_trace()
            finally:
                if owner is not None:
                    owner.config = before

    return verb
