"""What is trained and in which precision: the class of each model and autocast, looked up in the second step and noted once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.status import compile_test, functions_of, unread
from sonde.probes import step
from sonde.probes.layers import names as naming
from sonde.store.probe import MODEL, SETUP
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

MOST_MODELS = 4
PATIENCE = 8  # updates without a model in between, before this gives up
NONE = "none"


def install(_settings: Settings) -> Callable[[], None]:
    """Note it between the first update and the second: what is compiled has been compiled by then, and inference never pays."""
    return _Models().start()


class _Models:
    """Those that are called while this looks. Autocast may begin around a model or, as some frameworks do it, inside."""

    def __init__(self) -> None:
        self._leave: list[Callable[[], None]] = []
        self._looking = False
        self._patience = PATIENCE
        self._facts: dict[int, dict[str, object]] = {}  # by the address of the model
        self._inside: dict[str, object] | None = None  # the facts of the model that is being called

    def start(self) -> Callable[[], None]:
        self._leave += [
            unread(guard.__enter__, guard.__exit__, *functions_of(sys.modules[__name__], naming, private)),
            step.at_update(self._updated),
        ]
        return self._end

    def _end(self) -> None:
        while self._leave:
            self._leave.pop()()

    def _updated(self) -> None:
        if not self._looking:
            self._looking = True
            self._leave.append(module_call.replace_all(self._look))
        self._patience -= 1
        if self._facts or not self._patience:
            self._write()

    def _write(self) -> None:
        self._end()
        for number, facts in enumerate(self._facts.values()):
            core.mark(MODEL, SETUP, number, facts, ESSENTIAL)
        self._facts.clear()

    def _look(self, original: Callable[..., Any]) -> Callable[..., Any]:
        compiling = compile_test()

        def call(*args: Any, **kwargs: Any) -> Any:
            if compiling() or not self._looking:
                return original(*args, **kwargs)
            outer = self._inside
            with _noting:
                self._inside = self._noted(args[0]) if outer is None else outer
                _note_autocast(self._inside)
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = outer

        return call

    def _noted(self, module: Any) -> dict[str, object] | None:
        """The facts of a model, if it trains."""
        known = self._facts.get(id(module))
        if known is not None or len(self._facts) == MOST_MODELS:
            return known
        parameters = list(module.parameters())
        if not parameters or not module.training or not sys.modules["torch"].is_grad_enabled():
            return None
        found = self._facts[id(module)] = {
            "type": naming.kind(module),
            "frozen": sum(one.numel() for one in parameters if not one.requires_grad),
            "compiled": any(one.compiled for one in naming.layers(module)),
            "device": parameters[0].device.type,
            "autocast": NONE,
        }
        return found


_noting = guard("noting what is trained")


def _note_autocast(facts: dict[str, object] | None) -> None:
    """Note the precision that torch chooses for operations here, if it does."""
    if facts is not None and facts["autocast"] == NONE:
        torch, device = sys.modules["torch"], facts["device"]
        if torch.is_autocast_enabled(device):
            facts["autocast"] = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
