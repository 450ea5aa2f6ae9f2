"""The probe of forward passes: outermost calls of models and losses. The key says in which state the module was."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import loader, private
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.hooks.torch.status import native
from sonde.probes import step
from sonde.probes.phases import manual
from sonde.store.probe import FORWARD, FORWARD_GRAD, FORWARD_LEARNED, FORWARD_LOSS, FORWARD_TRAINING, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

_watching = guard("watching a forward pass")


def install(_settings: Settings) -> Callable[[], None]:
    """Record forward passes until the returned function is called."""
    loader.fetch.hold()  # its keeper knows of modules that are transforms of the data
    undo = [loader.fetch.release, module_call.fast_path(_fast_path), loader.start_in_workers(rest)]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def rest() -> None:
    """Leave forward passes alone: this is a loader worker, and modules that are called in it are transforms."""
    module_call.fast_path(lambda original: original)


def _fast_path(original: Callable[..., Any]) -> Callable[..., Any]:
    torch = sys.modules["torch"]
    grad, loss = torch.is_grad_enabled, private.loss_class()
    timed = tuple(core.Span(FORWARD, PROBE, key=bits, base=step.phases).wrap(original) for bits in range(10))
    now, fetching, stepping = step.now, loader.fetching, optimizer_step.stepping
    learned: dict[
        int, None
    ] = {}  # addresses of modules, which may be others' by now: then a teacher looks like a student

    def forward(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        call = original
        with _watching:
            if not now.begun:
                step.begin()
            if stepping():  # a closure; or a step that was left by an exception
                optimizer_step.end_due()
            if fetching() is None:  # else it is a transform of the data
                bits = (FORWARD_TRAINING if module.training else 0) | (FORWARD_GRAD if grad() else 0)
                bits |= FORWARD_LOSS if isinstance(module, loss) else 0
                if bits == FORWARD_TRAINING | FORWARD_GRAD:
                    learned[id(module)] = None
                elif bits in (0, FORWARD_TRAINING) and id(module) in learned:
                    bits |= FORWARD_LEARNED
                if now.manual and not bits & FORWARD_LOSS:
                    manual.forward_begins(trains=bits == FORWARD_TRAINING | FORWARD_GRAD)
                call = timed[bits]
        return call(module, *args, **kwargs)

    if native is None:
        return forward
    return cast(
        "Callable[..., Any]", native.forward(forward, timed=timed, gradients=grad, losses=loss, learned=learned)
    )
