"""`sonde.log_items(loss=losses)`: a value for each item of the batch; the reader finds out which items these are.

With the setting `item_losses` the same of every loss module that is called by itself and reduces nothing. The program never waits for
a device: values of one are read when they have arrived.
"""

from __future__ import annotations

import base64
import sys
from array import array
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sonde.events import core, recorder
from sonde.guard import guard, warn
from sonde.hooks.torch import private
from sonde.hooks.torch.module import module_call
from sonde.probes import step
from sonde.probes.disable import probe_guard
from sonde.probes.learning.pending import PendingNumbers
from sonde.probes.learning.tensors import capturing, plain, unseen
from sonde.store.probe import ITEM_VALUES, LEARNING
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

DOING = "logging values of items"
FOLLOWING = "recording losses of items"
LOSS = "loss"
MOST = 1 << 16  # values of one call
LEAST_TEXT = 64  # characters of a record, whatever the limit of arguments


class _State:
    """What this process has logged and not written yet."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a new recording."""
        self.pending = PendingNumbers()
        self.calls = 0
        self.complained: set[str] = set()


_now = _State()
_logging = guard(DOING)


def log_items(**values: object) -> None:
    """Record one value for each item of the current batch, such as `loss=losses` with `reduction="none"`. Never raises.

    A value is a tensor, an array or a list whose first dimension is that of the batch; further dimensions are
    averaged. Call it before the optimizer steps. Values on a device are copied without waiting for them.
    """
    if not step.phases.on or not core.info()["recording"]:
        return
    for name, value in values.items():
        with _logging:
            _log(name, value)


def _log(name: str, value: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        with unseen():
            _take(name, value)
        return
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MOST:
        _refuse(name, f"a {type(value).__name__}")
        return
    _writer(name)([_mean(one) for one in listed])


def _mean(value: Any) -> float:
    """A number; of nested ones the mean."""
    return sum(map(_mean, value)) / len(value) if isinstance(value, list | tuple) else float(value)


def _take(name: str, value: Any) -> None:
    """The values of a tensor, each item's by itself."""
    if private.is_wrapped(value) or capturing():
        return  # a transformation or a graph of the program's: these are no numbers yet
    given = plain(value)
    if given is None or not given.ndim or not 0 < len(given) <= MOST or not given.numel():
        _refuse(name, f"a tensor of shape {tuple(value.shape)}")
        return
    pending = _now.pending
    pending.collect()
    given = given.float()
    pending.add_vector(given.flatten(1).mean(1) if given.ndim > 1 else given, _writer(name))
    pending.order()


def _refuse(name: str, what: str) -> None:
    if name not in _now.complained:
        _now.complained.add(name)
        warn(
            "sonde.log_items(%s=...) got %s and recorded nothing. It takes one value for each item of the batch, at most %d: "
            'use reduction="none". For a single number use sonde.log.',
            name,
            what,
            MOST,
        )


def _writer(name: str) -> Callable[[list[float]], None]:
    """Writes the values of a call that is made now, perhaps later."""
    called, number, at = monotonic_ns(), _now.calls, core.get_context()[0]
    _now.calls += 1

    def write(values: list[float]) -> None:
        serving = recorder.serving()
        limit = max(LEAST_TEXT, LEAST_TEXT if serving is None else serving.settings.args_limit)
        each = limit // 4 * 3 // 4  # of a value four bytes, of three bytes four characters
        ago = monotonic_ns() - called
        for first in range(0, len(values), each):
            text = base64.b64encode(_bytes(values[first : first + each])).decode()
            args = {"call": number, "count": len(values), "first": first, "ago": ago, "values": text}
            core.mark(name, ITEM_VALUES, None, args, DETAIL, at)

    return write


def _bytes(values: list[float]) -> bytes:
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def install(settings: Settings) -> Callable[[], None]:
    """Write what has arrived when the recording ends; and follow loss modules, if the setting says so."""
    _now.renew()
    undo: list[Callable[[], None]] = [recorder.at_end(_finish)]

    def unsubscribe() -> None:
        while len(undo) > 1:
            undo.pop()()

    def leave() -> None:
        unsubscribe()
        undo.pop()()
        _finish()

    if settings.item_losses:
        following = probe_guard("item_losses", FOLLOWING, unsubscribe)
        undo.append(module_call.subscribe(_Losses(following)))
    return leave


@guard(DOING)
def _finish() -> None:
    _now.pending.collect()
    if _now.pending.left_out:
        core.counter("left_out", _now.pending.left_out, LEARNING)
        _now.pending.left_out = 0


class _Losses:
    """Sees outermost calls of modules: of a loss that reduces nothing, the result is that of each item."""

    def __init__(self, following: guard[None]) -> None:
        self._following = following

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
        return getattr(args[0], "reduction", None) == "none" and step.phases.on

    def after(self, unreduced: bool, result: Any, error: BaseException | None) -> None:
        if unreduced and error is None:
            with self._following, unseen():
                if isinstance(result, sys.modules["torch"].Tensor) and result.ndim:
                    _take(LOSS, result)
