"""The probe of layers: forward and backward time of each, and its memory. For deep mode, and `trace_model_instance`.

Calls are seen at the gate in `torch.nn.Module.__call__`, backward passes on the graph (`backward.py`); nothing is put on a
module. `models.py` knows which modules are layers.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from sonde import config
from sonde.errors import WrapRefused, nearest
from sonde.events import core
from sonde.guard import guard, warn
from sonde.hooks.torch import loader, private
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.status import unread
from sonde.probes import step
from sonde.probes.disable import probe_guard
from sonde.probes.layers import backward as graph, names
from sonde.probes.layers.backward import nbytes, tensors_of
from sonde.probes.layers.models import LayerOptions, Models, RecordedLayer
from sonde.store.probe import LAYER_INFO
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.config import Settings

DOING = "watching layers"
TRIES = 3  # backward passes after which gradients of a model are looked for


def trace_model_instance(
    model: Any,
    sample_layer_memory: bool = True,
    trace_layer_forward_memory: bool = True,
    trace_layer_backward_memory: bool = True,
    trace_layer_forward_time: bool = True,
    trace_layer_backward_time: bool = True,
    trace_execution: bool = True,
    include_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
    leaf_only: bool = True,
) -> None:
    """Record each layer of this model from now on, with or without deep mode. Calling it again changes the settings.

    Memory covers parameters (`sample_layer_memory`), layer outputs (forward) and incoming gradients (backward). Forward
    calls are recorded if you want any of time, memory and execution; backward calls if you want time or memory. After a
    crash, the records show the last layer that was entered. Select layers by parts of their names. `leaf_only=False`
    also records modules that call others. Logs a message once if nothing is being recorded.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise WrapRefused(f"trace_model_instance() needs a torch.nn.Module, not {type(model).__name__}.")
    if not step.now.installed:
        _say_nothing_records()
        return
    options = LayerOptions(
        parameters=sample_layer_memory,
        forward=trace_layer_forward_time or trace_layer_forward_memory or trace_execution,
        activations=trace_layer_forward_memory,
        backward=trace_layer_backward_time or trace_layer_backward_memory,
        gradients=trace_layer_backward_memory,
        include=_parts("include_names", include_names),
        exclude=_parts("exclude_names", exclude_names),
        leaf_only=leaf_only,
    )
    with _following:
        _layers.watch()
        _layers.models.forget(model)
        if not _layers.models.attach(model, options):
            _say_no_match(model, options)


def install(settings: Settings) -> Callable[[], None]:
    """Record the layers of all models, if the setting `deep` says so, until the returned function is called."""
    _layers.deep = settings.deep
    if settings.deep:
        _layers.watch()
    return _layers.leave


def deepen() -> Callable[[], None] | None:
    """Record the layers of all models from now on, until the returned function is called. None: layers are recorded already."""
    if _layers.deep or any(True for _ in _layers.models.layers()):
        return None
    _layers.deep = True
    _layers.watch()
    return _layers.leave


def is_deep() -> bool:
    """Does deep mode record the layers of all models now?"""
    return _layers.deep


class _Thread(threading.local):
    off = False  # what the outermost module that runs now calls is not recorded


_thread = _Thread()


class _Layers:
    """The layers that are recorded in this process."""

    def __init__(self) -> None:
        self.models = Models(self._replace)
        self._undo: list[Callable[[], None]] = []
        self.leave()

    def leave(self) -> None:
        """Record none any more."""
        while self._undo:
            self._undo.pop()()
        self.models.clear()
        self.deep = False
        self.tries = 0  # backward passes after which gradients were looked for
        self.trained = False  # there was a backward pass
        self._original: Callable[..., Any] | None = None
        self._described: dict[str, dict[str, Any]] = {}  # what was recorded about layers

    def watch(self) -> None:
        """Begin to look at calls."""
        if not self._undo:
            self._undo.append(unread(*FRAMES, *graph.FRAMES))
            self._undo.append(module_call.replace_some(self._follow))
            self._undo.append(module_call.subscribe(_ModelCalls()))
            self._undo.append(backward.subscribe(_Backwards()))

    def _follow(self, original: Callable[..., Any]) -> dict[int, Callable[..., Any]]:
        self._original = original
        if graph.native is not None:
            torch = sys.modules["torch"]
            graph.native.prepare(
                enter=core.enter, leave=core.leave, cancel=core.cancel, phases=step.phases, tensor=torch.Tensor,
                number=private.sequence_number(), task=private.graph_task(), queue=private.queue_callback(),
                found=_tensors, search=graph.search, demote=self.demote, describe=self.describe, blame=_blame,
            )  # fmt: skip
        return self.models.calls

    def look(self, model: Any) -> None:
        """An outermost call: look at this model if it is new, or if parts of it are."""
        if not self.deep:
            self.models.update(names.bare(model), None)  # what was chosen may have been wrapped since
        else:
            self.models.update(model, None if names.is_parametrization(model) else LayerOptions())

    def _replace(self, layer: RecordedLayer, wanted: bool) -> Callable[..., Any] | None:
        if self._original is None:
            return None
        if not wanted:
            return graph.native.shadow(self._original) if graph.native is not None else self._original
        if not layer.tentative:
            self.describe(layer)
        return _recorded(layer, self._original)

    def describe(self, layer: RecordedLayer) -> None:
        """Say what a layer is, unless that was said."""
        facts = layer.facts()
        if self._described.get(layer.name) != facts:
            self._described[layer.name] = facts
            if facts["gradients"] is None:
                self.tries = 0
            core.mark(layer.name, LAYER_INFO, key=facts["parameters"], args=facts, level=ESSENTIAL)

    def grade(self) -> None:
        """A backward pass has ended: say how large the gradients are, where there are any."""
        self.tries += 1
        for layer in self.models.layers():
            if layer.name in self._described:
                self.describe(layer)

    def demote(self, layer: RecordedLayer) -> None:
        """A module that was taken for a layer has called one."""
        if layer.forward is not None:
            core.cancel(layer.forward)
        self.models.remove(layer)


_layers = _Layers()
_following = probe_guard("layers", DOING, _layers.leave)


class _ModelCalls:
    """Subscribes to outermost calls of modules: finds models, and decides whether what they call is recorded."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        with _following:
            off = _unwanted()
            _mute(off)
            if not off:
                _layers.look(args[0])

    def after(self, _token: None, _result: Any, _error: BaseException | None) -> None:
        _mute(False)


class _Backwards:
    """Subscribes to backward passes."""

    def before(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        _layers.trained = True

    def after(self, _token: None, _result: Any, error: BaseException | None) -> None:
        with _following:
            if graph.native is not None:
                graph.native.finish(None if error is None else type(error))
            if _layers.tries < TRIES and step.phases.on:
                _layers.grade()


def _mute(on: bool) -> None:
    _thread.off = on
    if graph.native is not None:
        graph.native.mute(on)


def _blame(error: BaseException) -> None:
    """Take the blame for a failure of the C part."""
    with _following:
        raise error


def _unwanted() -> bool:
    """Is the call that begins an evaluation of a program that trains, a transform of data, or read by a compiler?"""
    torch = sys.modules["torch"]
    if loader.fetching() is not None or private.tracing_state()() is not None:
        return True
    return _layers.trained and not torch.is_grad_enabled()


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _recorded(layer: RecordedLayer, original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of `nn.Module.__call__` for this layer."""
    if graph.native is not None:
        wanted = (layer.options.activations, layer.options.gradients, layer.tentative)
        return cast(
            "Callable[..., Any]", graph.native.recorded(layer, original, layer.forward, layer.backward, *wanted)
        )
    return original if layer.forward is None or layer.tentative else _timed(layer, layer.forward, original)


def _timed(layer: RecordedLayer, span: core.Span, original: Callable[..., Any]) -> Callable[..., Any]:
    """Where C was not built: the time of the forward, and what it gives; nothing of backward passes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if _thread.off or not step.phases.on:
            return original(*args, **kwargs)
        core.enter(span)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            core.leave(span, None, type(error))
            raise
        size = None
        if layer.options.activations:
            with _following:
                size = _new_bytes(_tensors(result), args)
        core.leave(span, size)
        return result

    return call


def _tensors(result: Any) -> tuple[Any, ...]:
    return tuple(tensors_of(result, sys.modules["torch"].Tensor))


def _new_bytes(tensors: tuple[Any, ...], args: tuple[Any, ...]) -> int | None:
    """The bytes of these tensors, without those that are the input itself, or a view of it; None: not known."""
    total: int | None = None
    given = args[1] if len(args) > 1 else None
    for one in tensors:
        size = 0 if one is given or private.is_view(one, given) else nbytes(one)
        if size is not None:
            total = (total or 0) + size
    return total


# All that runs between the modules of a program.
FRAMES = (
    guard.__enter__, guard.__exit__, _timed, _tensors, _new_bytes, private.is_view,
    _Layers.describe, _Layers.demote, _Layers.look, RecordedLayer.facts, Models.update, names.shape,
)  # fmt: skip


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Said:
    nothing = False


def _say_nothing_records() -> None:
    if _Said.nothing or config.peek("enabled") is False:
        return
    _Said.nothing = True
    warn(
        "trace_model_instance() has no effect: nothing is being recorded. Call sonde.init() first, or start the "
        "program with `sonde run`. This message appears once."
    )


def _say_no_match(model: Any, options: LayerOptions) -> None:
    known = [one.name for one in names.layers(model) if one.name]
    hint = nearest(options.include[0], known[:20]) if options.include else "exclude_names excludes every layer."
    warn(f"trace_model_instance() records no layer of {names.kind(model)}: no name matches. {hint}")


def _parts(argument: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise WrapRefused(f"{argument} of trace_model_instance() must be a list of name parts, not {given!r}.")
    return tuple(given)
