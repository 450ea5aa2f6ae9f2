"""The watch for NaN and infinity: outputs of every layer, the loss, gradients; and the origin of the first one.

    sonde.flow.watch_nonfinite(model)                  record where the first one was born
    sonde.flow.watch_nonfinite(model, action="stop")   and raise NonFinite there

C code (`native/finite.c`) reads each result once, and each gradient that belongs to one. Only what it finds comes here, and
goes to the alarm (`alarm.py`). The producer is the first place in the order of execution whose inputs were all finite and
whose output was not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from sonde.errors import SettingError, WrapRefused, nearest
from sonde.guard import guard
from sonde.hooks.torch import dlpack, loader, private
from sonde.hooks.torch.backward import backward as backward_point
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import scaler_scale
from sonde.hooks.torch.outermost import replaced
from sonde.hooks.torch.status import functions_of, unread
from sonde.nonfinite import (
    alarm,
    backward,
    batches,
    certificate,
    check,
    fallback,
    forward,
    items,
    models,
    operation,
)
from sonde.nonfinite.alarm import Alarm
from sonde.nonfinite.forward import CallEnd
from sonde.nonfinite.models import WatchedModels
from sonde.probes.disable import probe_guard
from sonde.probes.layers.backward import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.errors import NonFinite
    from sonde.nonfinite.models import WatchedLayer

DOING = "watching for non-finite values"
ACTIONS = ("record", "warn", "stop")


def watch_nonfinite(model: Any = None, action: str = "record") -> NonFiniteWatch:
    """Watch this model, or all models, for NaN and infinity from now on.

    `action`: "record" writes the origin of the first one to the run. "warn" also logs it once, with the logger "sonde".
    "stop" raises NonFinite there. The result has `birth` (None while all values are finite) and `close()`, and is a
    context manager.
    """
    if action not in ACTIONS:
        raise SettingError(f"watch_nonfinite() has no action {action!r}. {nearest(str(action), list(ACTIONS))}")
    torch = sys.modules.get("torch")
    if model is not None and (torch is None or not isinstance(model, torch.nn.Module)):
        raise WrapRefused(f"watch_nonfinite() needs a torch.nn.Module, not {type(model).__name__}.")
    with _watching:
        _watch.begin(model, action)
    return NonFiniteWatch()


class NonFiniteWatch:
    """The active watch for NaN and infinity."""

    @property
    def birth(self) -> dict[str, Any] | None:
        """Facts about the first NaN or infinity; None if there is none."""
        return None if _watch.alarm.first is None else dict(_watch.alarm.first)

    @property
    def forgiven(self) -> int:
        """Number of harmless non-finite values: infinities in a mask, steps skipped by a GradScaler."""
        return _watch.alarm.forgiven

    @property
    def unused(self) -> dict[str, Any] | None:
        """Facts about the first NaN of a layer that never reached the loss or a gradient; None if there is none."""
        return None if _watch.alarm.unused is None else dict(_watch.alarm.unused)

    @property
    def later(self) -> int:
        """Number of non-finite losses after the first NaN."""
        return _watch.alarm.later

    def close(self) -> None:
        """Stop watching."""
        _watch.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<NonFiniteWatch: {certificate.sentence(_watch.alarm.first) if _watch.alarm.first else 'all values finite'}>"


class Watch:
    """The watch of this process."""

    def __init__(self) -> None:
        self.models = WatchedModels()
        self.alarm = Alarm(self.models)
        self.all = False  # models, also those to come
        self._surrounded: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # a call of modules, and ours
        self._undo: list[Callable[[], None]] = []

    def begin(self, model: Any, action: str) -> None:
        """Watch this model too, or all; an earlier alarm does not count."""
        if not self._undo:
            self.all = False
            self.models.clear()
            self.alarm.forget()
            self._undo += [unread(*_frames()), batches.install()]
            self._undo.append(loader.start_in_workers(rest))
            self._undo.append(scaler_scale.subscribe(_ScalerSteps()))
            self._undo.append(backward_point.replace_all(self._passing))
            self._undo.append(module_call.replace_all(self._surround))
        self.alarm.action = action
        self.all = self.all or model is None
        self.alarm.first = None
        self.alarm.reset()
        if model is not None:
            self.attach(model)
        if "torch" in sys.modules:
            fallback.engine().turn(fallback.ON)

    def leave(self) -> None:
        """Watch nothing any more. The certificate can still be read."""
        fallback.engine().turn(fallback.OFF)
        fallback.engine().weigh([])
        while self._undo:
            self._undo.pop()()
        self._surrounded = None
        self.models.clear()
        self.alarm.reset()

    def _prepare(self) -> None:
        torch = sys.modules["torch"]
        if check.native is not None:
            check.native.prepare(
                tensor=torch.Tensor, parameter=torch.nn.Parameter, exchange=private.exchange(), copied_late=private.copy_on_write(),
                number=private.sequence_number(), tracing=private.tracing_state(), found=forward.tensors, look=check.look_slowly,
                output=self.output, gradient=self.gradient, loss=self.loss, ended=self.ended, later=self.passed, blame=_blame,
                calm=backward.CALM_NODES,
            )  # fmt: skip
        else:
            fallback.prepare(self, _watching)
        fallback.engine().weigh(self.models.weights)
        fallback.engine().turn(fallback.ON)

    def _passing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = fallback.engine().passing(original)
        return made

    def _surround(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Called again whenever another probe replaces the call, too: what has been found stays found."""
        if self._surrounded is not None and self._surrounded[0] is original:
            return self._surrounded[1]
        self.models.original = original
        if self._surrounded is None:
            self._prepare()

        def stranger(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            call = original
            if self.all:
                with _watching:
                    call = self.meet(module) or original
            return call(module, *args, **kwargs)

        self._undo.append(unread(stranger))
        self._surrounded = original, replaced(stranger, self.models.calls)
        return self._surrounded[1]

    def meet(self, module: Any) -> Callable[..., Any] | None:
        """An unknown module is called: watch it, unless it loads data."""
        if loader.fetching() is not None or private.tracing_state()() is not None:
            return None
        self.attach(module)
        return self.models.calls.get(id(module))

    def attach(self, model: Any) -> None:
        """Watch the layers of a model."""
        if self.models.attach(model):
            self.alarm.meet_model()

    # ── called by `native/finite.c`, or by `fallback.py` ─────────────────────────────────────────────────────────────

    def output(
        self, layer: WatchedLayer, result: Any, args: tuple[Any, ...], names: tuple[str, ...] | None, bits: int, at: Any
    ) -> NonFinite | None:
        """The result of a layer is not finite. Returns what is raised in the program, if anything."""
        with _watching:
            if loader.fetching() is None:
                return self.alarm.output(layer, result, forward.given(args, names), bits, CallEnd(*at))
        return None

    def loss(self, loss: Any, bits: int) -> NonFinite | None:
        """A loss that goes into a backward pass is not finite."""
        with _watching:
            return self.alarm.loss(loss, bits)
        return None

    def gradient(
        self, layer: WatchedLayer, side: int, gradient: Any, bits: int, good: WatchedLayer | None, good_side: int
    ) -> None:
        """A gradient is not finite. `good`: the last layer whose gradient was finite."""
        with _watching:
            self.alarm.gradient(layer, side, gradient, bits, good, good_side)

    def ended(self, index: int, bits: int, seen: int) -> NonFinite | None:
        """A backward pass has ended. `index`: of a parameter whose gradient is not finite; `seen`: how many have one."""
        with _watching:
            return self.alarm.ended(index, bits, seen)
        return None

    def passed(self, bits: int) -> None:
        """A backward pass begins after the alarm; `bits`: of its loss."""
        with _watching:
            self.alarm.passed(bits)


_watch = Watch()
_watching = probe_guard("nonfinite", DOING, _watch.leave)


class _ScalerSteps:
    """Follows gradient scalers."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scaler = args[0]
        loss = args[1] if len(args) > 1 else kwargs.get("outputs")
        return (scaler, loss) if loss is not None and scaler.is_enabled() else None

    def after(self, given: Any, result: Any, _error: BaseException | None) -> None:
        if given is not None:
            scaler, loss = given
            _watch.alarm.scaled(result, loss, scaler)


def rest() -> None:
    """Leave modules alone: this is a loader worker, and modules that are called in it are transforms."""
    fallback.engine().turn(fallback.OFF)


def _blame(error: BaseException) -> None:
    """Take the blame for a failure of the C part."""
    with _watching:
        raise error


def _frames() -> list[Any]:
    """All functions that run between the modules of a program."""
    ours = (alarm, backward, batches, certificate, check, dlpack, fallback, forward, items, models, operation, private)
    return [guard.__enter__, tensors_of, *functions_of(sys.modules[__name__], *ours)]
