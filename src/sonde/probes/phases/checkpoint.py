"""The probe of checkpoints: how long the program writes them, and when it reads one."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.save import LOADS, SAVES
from sonde.probes import step
from sonde.store.probe import CHECKPOINT, LOADED, PROBE
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings


class _Thread(threading.local):
    saving = False
    loading = False


_thread = _Thread()
_span = core.Span(CHECKPOINT, PROBE, key=0, base=step.phases)


def install(_settings: Settings) -> Callable[[], None]:
    """Record checkpoints until the returned function is called."""
    undo = [*(point.fast_path(_fast_path) for point in SAVES), *(point.fast_path(_load_fast_path) for point in LOADS)]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def _fast_path(original: Callable[..., Any]) -> Callable[..., Any]:
    timed = _span.wrap(original)

    def save(*args: Any, **kwargs: Any) -> Any:
        if _thread.saving:  # a part of a larger one
            return original(*args, **kwargs)
        _thread.saving = True
        try:
            return timed(*args, **kwargs)
        finally:
            _thread.saving = False

    return save


def _load_fast_path(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(*args: Any, **kwargs: Any) -> Any:
        if _thread.loading:  # a part of a larger one
            return original(*args, **kwargs)
        _thread.loading = True
        try:
            result = original(*args, **kwargs)
        finally:
            _thread.loading = False
        with _noting:
            core.mark(LOADED, PROBE, None, {"file": _name(args, kwargs)}, ESSENTIAL)
        return result

    return load


_noting = guard("noting that a checkpoint was read")


def _name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The name of the file, without its folder; None of what is no file."""
    given = args[0] if args else kwargs.get("f", kwargs.get("filename", kwargs.get("checkpoint_id")))
    return os.path.basename(os.fspath(given)) if isinstance(given, str | os.PathLike) else None
