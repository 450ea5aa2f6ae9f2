"""The probe of layers: forward and backward time of each, and its memory. For deep mode, and `trace_model_instance`.

Calls are seen at the gate in `torch.nn.Module.__call__`, backward passes on the graph (`probes.graph`); nothing is put on a
module. A layer is a module that calls no other one: most have no children, but attention of torch has some, and computes all
itself. So a module with children counts as a layer until it calls one of them. A module may change at any time: at each
outermost call its parts are compared with those that it had. Names are those of the outermost model that was called.
"""

from __future__ import annotations

import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sonde import config
from sonde.errors import WrapRefused, nearest
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import loader, private
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.engine import unread
from sonde.hooks.torch.module import module_call
from sonde.probes import step
from sonde.probes.layers import backward as graph, names as naming
from sonde.probes.layers.backward import nbytes, tensors_of
from sonde.probes.off import switch_off
from sonde.store.probe import LAYER, LAYER_BACKWARD, LAYER_INFO
from sonde.store.record import DETAIL, ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from sonde.config import Settings

DOING = "watching layers"
MOST_LAYERS = 20_000
TRIES = 3  # backward passes after which gradients of a model are looked for


class Options(NamedTuple):
    """What of a model is recorded; the parameters of `trace_model_instance`."""

    parameters: bool = True
    forward: bool = True
    activations: bool = True
    backward: bool = True
    gradients: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    leaf_only: bool = True

    def wants(self, name: str) -> bool:
        """Is the layer of this name recorded?"""
        included = not self.include or any(part in name for part in self.include)
        return included and not any(part in name for part in self.exclude)


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
    options = Options(
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
        _layers.forget(model)
        if not _layers.attach(model, options):
            _say_no_match(model, options)


def install(settings: Settings) -> Callable[[], None]:
    """Record the layers of all models, if the setting `deep` says so, until the returned function is called."""
    _layers.deep = settings.deep
    if settings.deep:
        _layers.watch()
    return _layers.leave


class _Following(guard[None]):
    """The guard of this probe: a failure switches it off, and a mark in the run says so."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if error is None or not super().__exit__(kind, error, trace):
            return False
        _layers.leave()
        switch_off("layers", DOING)
        return True


_following = _Following(DOING)


class Layer:
    """One module of a model, as it is recorded."""

    __slots__ = ("backward", "compiled", "forward", "model", "module", "name", "options", "tentative", "type")

    def __init__(self, name: str, module: Any, options: Options, compiled: bool, model: str) -> None:
        self.backward = core.Span(name, LAYER_BACKWARD, level=DETAIL, base=step.phases) if options.backward else None
        self.forward = core.Span(name, LAYER, level=DETAIL, base=step.phases) if options.forward else None
        self.name = name
        self.model = model  # what that is called
        self.type = type(naming.inside(module)).__name__
        self.module: weakref.ref[Any] = weakref.ref(module)
        self.options = options
        self.compiled = compiled
        self.tentative = _is_tentative(module, options)

    def fits(self, name: str, compiled: bool) -> bool:
        """Is it still recorded as it should be, if this is its name now?"""
        module = self.module()
        same = (name, compiled) == (self.name, self.compiled)
        return same and module is not None and _is_tentative(module, self.options) == self.tentative

    def facts(self) -> dict[str, Any]:
        """What is said of it: once, and again when its gradients are known."""
        found: dict[str, Any] = {"type": self.type, "parameters": None, "gradients": None, "compiled": self.compiled}
        found["model"] = self.model
        module = self.module()
        if module is not None and self.options.parameters:
            own = _parameters(naming.inside(module))
            grads = [one.grad for one in own if one.grad is not None]
            found["parameters"] = _total(own)
            if grads or not any(one.requires_grad for one in own):
                found["gradients"] = _total(grads)
        return found


def _is_tentative(module: Any, options: Options) -> bool:
    """It has children, and only leaves are wanted: it is a layer unless it calls one of them."""
    return options.leaf_only and next(module.children(), None) is not None


class _Known:
    """A module of a model that was looked at."""

    __slots__ = ("called", "model", "module", "name")

    def __init__(self, module: weakref.ref[Any], called: weakref.ref[Any], name: str, model: int) -> None:
        self.module = module
        self.called = called  # ends the calls for it when it is gone
        self.name = name
        self.model = model  # the address of the one that it has its name from


class _Root:
    """A module that was called by no other one, or chosen, as it was when it was looked at."""

    __slots__ = ("name", "options", "prefix", "shape")

    def __init__(self, options: Options, prefix: str, shape: tuple[int, ...], name: str) -> None:
        self.options = options
        self.prefix = prefix
        self.name = name  # of the model that it is, or a part of
        self.shape = shape


class _Thread(threading.local):
    off = False  # what the outermost module that runs now calls is not recorded


_thread = _Thread()


class Layers:
    """All that are recorded in this process."""

    def __init__(self) -> None:
        self.calls: dict[int, Callable[..., Any]] = {}  # what the gate calls, by the address of the module
        self._undo: list[Callable[[], None]] = []
        self.leave()

    def leave(self) -> None:
        """Record none any more."""
        while self._undo:
            self._undo.pop()()
        self.calls.clear()
        self.deep = False
        self.tries = 0  # backward passes after which gradients were looked for
        self.trained = False  # there was a backward pass
        self._original: Callable[..., Any] | None = None
        self._known: dict[int, _Known] = {}  # modules of models that were looked at, by their addresses
        self._gone: dict[int, weakref.ref[Any]] = {}  # those that are, and were not dropped yet
        self._roots: dict[int, _Root] = {}  # those models
        self._layers: dict[int, Layer] = {}
        self._names: dict[str, int] = {}  # who has a name, by address
        self._told: dict[str, dict[str, Any]] = {}  # what was said of layers

    def watch(self) -> None:
        """Begin to look at calls."""
        if not self._undo:
            self._undo.append(unread(*FRAMES, *graph.FRAMES))
            self._undo.append(module_call.follow(self._follow))
            self._undo.append(module_call.subscribe(_Models()))
            self._undo.append(backward.subscribe(_Backwards()))

    def _follow(self, original: Callable[..., Any]) -> dict[int, Callable[..., Any]]:
        self._original = original
        if graph.native is not None:
            torch = sys.modules["torch"]
            engine = (
                private.sequence_number(),
                private.graph_task(),
                private.queue_callback(),
            )
            asked = (_tensors, graph.search, self.demote, self.describe, _blame)
            graph.native.prepare((core.enter, core.leave, core.cancel, *engine, step.phases, torch.Tensor, *asked))
        return self.calls

    # ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, model: Any) -> None:
        """This one is called by no other: look at it if it is new, or if parts of it are. It runs at each step."""
        if not self.deep:
            model = naming.bare(model)  # what was chosen may have been wrapped since
        self._drop_gone()
        root = self._roots.get(id(model))
        if root is None:
            if self.deep and not naming.is_parametrization(model):
                self.attach(model, Options())
        elif root.shape != naming.shape(model):
            self.attach(model, root.options)

    def attach(self, model: Any, options: Options) -> int:
        """Record the layers of a model, those that are new or have another name now; returns how many these are."""
        self._drop_gone()
        shape = naming.shape(model)
        inside = frozenset(shape)
        self._drop_removed(model, inside)
        whole = self._whole(model, inside)
        found = [one for one in naming.layers(model) if self._is_unnamed(one.module, inside)]
        for one in found:
            self._free_name(id(one.module))
        owner = id(model) if whole is None else whole.model
        outer = self._roots.get(owner)
        if whole is None or outer is None:  # the latter if it went just now
            prefix = self._prefix(model, found)
            whose = prefix or naming.kind(model)
        else:
            only_wrapped = whole.name == (outer.prefix or naming.kind(model))
            prefix, options, whose = outer.prefix if only_wrapped else whole.name, outer.options, outer.name
        self._roots[id(model)] = _Root(options, prefix, shape, whose)
        count = 0
        for one in found:
            name = naming.joined(prefix, one.name) or naming.kind(model)
            count += self._take(one, name, owner, options, whose)
        if not self._knows(model):  # it only wraps the model
            self._know(model, naming.kind(model), owner)
        return count

    def forget(self, model: Any) -> None:
        """Look at this model as if for the first time."""
        for module in model.modules():
            if self._knows(module):
                self._drop(id(module))

    def _knows(self, module: Any) -> bool:
        known = self._known.get(id(module))
        return known is not None and known.module() is module

    def _whole(self, model: Any, inside: frozenset[int]) -> _Known | None:
        """What is known of this model if it is a part of a larger one, which names it."""
        return None if self._is_unnamed(model, inside) else self._known.get(id(model))

    def _is_unnamed(self, module: Any, inside: frozenset[int]) -> bool:
        """Is a name needed? One that a part of this model gave, or a model that is gone, does not count."""
        known = self._known.get(id(module))
        return known is None or known.model in inside or known.model not in self._roots

    def _prefix(self, model: Any, found: list[naming.Module]) -> str:
        """What stands before the names: what did before, as long as that tells them from those of others."""
        root = self._roots.get(id(model))
        if root is not None and not any(naming.joined(root.prefix, one.name) in self._names for one in found):
            return root.prefix
        return naming.prefix(model, found, self._names)

    def _take(self, one: naming.Module, name: str, model: int, options: Options, whose: str) -> bool:
        """Give this module a name, and record it; returns whether it is a layer that was not recorded under this name."""
        address = id(one.module)
        if not self._knows(one.module):
            if len(self._layers) >= MOST_LAYERS:
                return False
            self._know(one.module, name, model)
            return self._add(Layer(name, one.module, options, one.compiled, whose), options.wants(name))
        known, layer = self._known[address], self._layers.get(address)
        known.name, known.model = name, model
        self._names.setdefault(name, address)
        if layer is None or layer.fits(name, one.compiled):
            return False
        return self._add(Layer(name, one.module, layer.options, one.compiled, whose), True)

    def _add(self, layer: Layer, wanted: bool) -> bool:
        """Follow this layer; returns whether it is recorded."""
        module = layer.module()
        if module is None or self._original is None:
            return False
        if not wanted:
            self.calls[id(module)] = graph.native.shadow(self._original) if graph.native is not None else self._original
            return False
        self._layers[id(module)] = layer
        self.calls[id(module)] = _recorded(layer, self._original)
        if not layer.tentative:
            self.describe(layer)
        return True

    def _know(self, module: Any, name: str, model: int) -> None:
        address = id(module)

        # No Python code runs when it goes, in which a signal handler could raise in vain: `_drop_gone` does the rest.
        gone = weakref.ref(module, partial(self._gone.__setitem__, address))
        self._known[address] = _Known(gone, weakref.ref(module, partial(self.calls.pop, address)), name, model)
        self._names.setdefault(name, address)

    def _drop_gone(self) -> None:
        while self._gone:
            address, reference = self._gone.popitem()
            known = self._known.get(address)
            if known is not None and known.module is reference:
                self._drop(address)

    def _drop_removed(self, model: Any, inside: frozenset[int]) -> None:
        """What was taken out of a model is none of its layers any more, though it may live on."""
        for address in list(self._known):  # a module may go meanwhile
            known = self._known.get(address)
            if known is not None and known.model == id(model) and address not in inside:
                self._drop(address)

    def _drop(self, address: int) -> None:
        self._free_name(address)
        for one in (self._known, self.calls, self._roots, self._layers):
            one.pop(address, None)
        for root in list(self._roots.values()):
            if address in root.shape:
                root.shape = ()  # another module may get this address

    def _free_name(self, address: int) -> None:
        known = self._known.get(address)
        if known is not None and self._names.get(known.name) == address:
            del self._names[known.name]

    # ── what is said of layers ───────────────────────────────────────────────────────────────────────────────────────

    def describe(self, layer: Layer) -> None:
        """Say what a layer is, unless that was said."""
        facts = layer.facts()
        if self._told.get(layer.name) != facts:
            self._told[layer.name] = facts
            if facts["gradients"] is None:
                self.tries = 0
            core.mark(layer.name, LAYER_INFO, key=facts["parameters"], args=facts, level=ESSENTIAL)

    def grade(self) -> None:
        """A backward pass has ended: say how large the gradients are, where there are any."""
        self.tries += 1
        for layer in list(self._layers.values()):  # a module may go meanwhile
            if layer.name in self._told:
                self.describe(layer)

    def demote(self, layer: Layer) -> None:
        """A module that was taken for a layer has called one."""
        if layer.forward is not None:
            core.cancel(layer.forward)
        module = layer.module()
        if module is not None and self._layers.get(id(module)) is layer:
            self.calls.pop(id(module), None)
            self._layers.pop(id(module), None)


_layers = Layers()


class _Models:
    """Is told of outermost calls of modules: finds models, and decides whether what they call is recorded."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        with _following:
            off = _unwanted()
            _mute(off)
            if not off:
                _layers.look(args[0])

    def after(self, _token: None, _result: Any, _error: BaseException | None) -> None:
        _mute(False)


class _Backwards:
    """Is told of backward passes."""

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


def _recorded(layer: Layer, original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of `nn.Module.__call__` for this layer."""
    if graph.native is not None:
        wanted = (layer.options.activations, layer.options.gradients, layer.tentative)
        return cast(
            "Callable[..., Any]", graph.native.recorded(layer, original, layer.forward, layer.backward, *wanted)
        )
    return original if layer.forward is None or layer.tentative else _timed(layer, layer.forward, original)


def _timed(layer: Layer, span: core.Span, original: Callable[..., Any]) -> Callable[..., Any]:
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
    guard.__enter__, _Following.__exit__, _timed, _tensors, _new_bytes, private.is_view,
    Layers.describe, Layers.demote, Layer.facts, Layers.look, naming.shape,
)  # fmt: skip


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _total(tensors: list[Any]) -> int | None:
    sizes = [nbytes(one) for one in tensors]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _parameters(module: Any) -> list[Any]:
    """A module's own parameters, also those that its parametrizations are made of."""
    own = list(module.parameters(recurse=False))
    for name, child in module.named_children():
        if name == naming.PARAMETRIZED:
            own.extend(child.parameters())
    return own


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Said:
    nothing = False


def _say_nothing_records() -> None:
    if _Said.nothing or config.peek("enabled") is False:
        return
    _Said.nothing = True
    _warn(
        "trace_model_instance() has no effect: nothing is being recorded. Call sonde.init() first, or start the "
        "program with `sonde run`. This message appears once."
    )


def _say_no_match(model: Any, options: Options) -> None:
    names = [one.name for one in naming.layers(model) if one.name]
    hint = nearest(options.include[0], names[:20]) if options.include else "exclude_names excludes every layer."
    _warn(f"trace_model_instance() records no layer of {naming.kind(model)}: no name matches. {hint}")


def _warn(message: str) -> None:
    import logging

    logging.getLogger("sonde").warning(message)


def _parts(argument: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise WrapRefused(f"{argument} of trace_model_instance() must be a list of name parts, not {given!r}.")
    return tuple(given)
