"""The probe of training frameworks: the epoch that a trainer is at, and by what it divides its losses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.frameworks import huggingface_step, lightning_steps
from sonde.probes.phases import loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

_following = guard("following a training framework")


class _Epoch:
    """The last one that a framework has said; whatever the program sets itself stays."""

    said: int | None = None


def install(_settings: Settings) -> Callable[[], None]:
    """Follow trainers until the returned function is called."""
    _Epoch.said = None
    undo = [huggingface_step.fast_path(partial(_fast_path, _huggingface))]
    undo += [point.fast_path(partial(_fast_path, _lightning)) for point in lightning_steps]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def _fast_path(begins: Callable[[Any], None], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(trainer: Any, /, *args: Any, **kwargs: Any) -> Any:
        with _following:
            begins(trainer)
        try:
            return original(trainer, *args, **kwargs)
        finally:
            loss.divided_by(0)

    return call


def _huggingface(trainer: Any) -> None:
    _set_epoch(int((trainer.state.epoch or 0) + 1e-6))  # it is a fraction, and rounded
    usual = trainer.args.gradient_accumulation_steps
    loss.divided_by(getattr(trainer, "current_gradient_accumulation_steps", usual))


def _lightning(strategy: Any) -> None:
    _set_epoch(int(strategy.lightning_module.trainer.current_epoch))


def _set_epoch(epoch: int) -> None:
    if core.get_context()[1] in (None, _Epoch.said):
        core.set_context(None, epoch)
        _Epoch.said = epoch
