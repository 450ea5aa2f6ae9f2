"""`wrap_dataloader`, `wrap_forward`, `wrap_backward`, `wrap_optimizer`, `wrap_h2d`: for loops that no probe recognises.

Each takes an object of the program and gives it back: the object itself, with methods that are recorded, so that a scheduler takes
the optimizer, a container the model, and arithmetic the loss. Only functions, iterables and objects that take no attributes get
something else in their place. What Sonde sees without an edit is not recorded twice.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from types import MethodType
from typing import Any

from sonde.errors import WrapRefused
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import loader
from sonde.probes import step
from sonde.probes.phases import loss as losses
from sonde.store import probe as names
from sonde.store.probe import PROBE, batch_key

_watching = guard("watching a wrapped object")
_sizing = guard("counting the samples of a batch")


def wrap_dataloader(loader: Any, size: int | Callable[[Any], int] | None = None) -> Any:
    """Record how long the program waits for each batch of any iterable; returns an iterable with the same batches.

    `size` is the number of samples in a batch, or a function that returns it, such as `len`; without it, samples are
    unknown. A torch `DataLoader` is recorded without edits and returned as it is.
    """
    if not hasattr(loader, "__iter__"):
        raise _refusal("wrap_dataloader", "an iterable", loader)
    if "loader" in step.now.patched and hasattr(loader, "batch_sampler"):
        return loader
    wrapped = (_Iterator if hasattr(loader, "__next__") else _WrappedLoader)(loader, {})
    object.__setattr__(wrapped, "_size", size)
    return wrapped


def wrap_forward(model: Any) -> Any:
    """Record `forward` of a model, or calls of a function; returns the model, or the wrapped function."""
    if not callable(model):
        raise _refusal("wrap_forward", "a model or a function", model)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _recording(model, {"forward": _call("forward", lambda: _module_span(model))})
    return _function(model, _call("forward", lambda: _module_span(model)))


def wrap_backward(loss: Any) -> Any:
    """Record `backward()` of a loss, or wrap a function that does the backward pass.

    Use it for `torch.autograd.grad` and the result of `torch.func.grad`, which are not recorded otherwise. In mode auto
    such a function counts as the backward pass if the program has no other.
    """
    if not hasattr(loss, "backward"):
        if not callable(loss):
            raise _refusal("wrap_backward", "an object with a method `backward`, or a function", loss)
        return _function(loss, _call("backward", lambda: _span(names.BACKWARD), _unseen_backward))
    timed = _call("backward", lambda: _span(names.BACKWARD))

    def backward(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _watching:
            if _records("backward") and step.phases.on:
                _note_loss(getattr(method, "__self__", None))
        return timed(method, *args, **kwargs)

    return _recording(loss, {"backward": backward})


def wrap_optimizer(optimizer: Any) -> Any:
    """Record `step()` of an optimizer, which ends a training step; returns the optimizer."""
    if not hasattr(optimizer, "step"):
        raise _refusal("wrap_optimizer", "an optimizer with a method `step`", optimizer)
    timed = _call("optimizer", lambda: _span(names.OPTIMIZER))

    def stepped(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = timed(method, *args, **kwargs)
        with _watching:
            if "optimizer" not in step.now.patched and step.now.installed and not step.now.explicit:
                step.end(0)
        return result

    return _recording(optimizer, {"step": stepped})


def wrap_h2d(batch: Any) -> Any:
    """Record the next `to()` or `cuda()` of a tensor or batch as a copy to a device, or wrap a function that copies."""
    size = getattr(batch, "nbytes", 0)
    timed = _call("h2d", lambda: _span(names.H2D, size))
    methods = {name: timed for name in ("to", "cuda") if hasattr(batch, name)}
    if not methods and not callable(batch):
        raise _refusal("wrap_h2d", "an object with a method `to`, or a function", batch)
    return _recording(batch, methods, once=True) if methods else _function(batch, timed)


def _refusal(name: str, wanted: str, given: Any) -> WrapRefused:
    return WrapRefused(f"{name}() cannot wrap {type(given).__name__}. Give it {wanted}.")


def _note_loss(loss: Any) -> None:
    """Write the loss, if it is a number of torch's. A product cannot be distinguished from what a gradient scaler made of a loss."""
    made_by = getattr(loss, "grad_fn", None)
    if made_by is not None and not type(made_by).__name__.startswith("Mul"):
        step.begin()
        losses.note(loss)


def _unseen_backward() -> core.Span:
    """A span of the vocabulary: it counts in a process in which no backward pass was seen without an edit."""
    step.begin()
    return core.Span(names.BACKWARD, "compute", base=step.phases)


def _span(name: str, key: int = 0) -> core.Span:
    step.begin()
    return core.Span(name, PROBE, key=key, base=step.phases)


def _module_span(model: Any) -> core.Span:
    step.begin()
    torch = sys.modules.get("torch")
    bits = names.FORWARD_TRAINING if getattr(model, "training", False) else 0
    bits |= names.FORWARD_GRAD if torch is not None and torch.is_grad_enabled() else 0
    return core.Span(names.FORWARD, PROBE, key=bits, base=step.phases)


def _records(probe: str) -> bool:
    """Is this recorded here? Else the probe of that name sees it by itself, or nothing is recorded at all."""
    return step.now.installed and probe not in step.now.patched


Call = Callable[..., Any]  # takes a function and its arguments, and calls it


def _call(probe: str, span: Callable[[], core.Span], unseen: Callable[[], core.Span] | None = None) -> Call:
    """Calls something, recorded unless the probe of that name sees it by itself. `unseen`: what is recorded if it may not see it."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        entered = None
        with _watching:
            if _records(probe):
                entered = span()
            elif unseen is not None and step.now.installed:
                entered = unseen()
        if entered is None:
            return function(*args, **kwargs)
        with entered:
            return function(*args, **kwargs)

    return call


# ── the object itself ────────────────────────────────────────────────────────────────────────────────────────────────


def _recording(target: Any, methods: dict[str, Call], *, once: bool = False) -> Any:
    """The object, with these methods of its own; something that stands for it if it takes none. `once`: until one is called."""
    torch = sys.modules.get("torch")
    try:
        own = vars(target)
    except TypeError:  # it has no attributes of its own
        return _WrapProxy(target, {name: partial(call, getattr(target, name)) for name, call in methods.items()})
    for name, call in methods.items():
        if isinstance(own.get(name), _Once) or hasattr(getattr(target, name), _MARK):
            continue  # it is wrapped already
        if torch is not None and isinstance(target, torch.Tensor):
            own[name] = _Once(target, name, call)
        else:
            own[name] = _method(target, name, call, [*methods] if once else [])
    return target


_MARK = "_recorded_by_sonde"


def _method(target: Any, name: str, call: Call, then_gone: list[str]) -> Callable[..., Any]:
    """A method that is recorded, bound to the object: in a copy of that it is bound to the copy."""
    found = getattr(target, name)
    own = getattr(found, "__self__", None) is target
    inner = found.__func__ if own else found
    compiling = _is_compiling()

    @functools.wraps(inner)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return inner(self, *args, **kwargs) if own else inner(*args, **kwargs)
        for one in then_gone:
            vars(self).pop(one, None)
        return call(inner.__get__(self) if own else inner, *args, **kwargs)

    setattr(recorded, _MARK, True)
    return MethodType(recorded, target)


class _Once:
    """A method of a tensor that is recorded, and gone when it was called: tensors are saved and copied with what they have.

    Until then it holds on to the tensor, which may have no other name: `wrap_backward(model(x).sum()).backward()`.
    """

    def __init__(self, owner: Any, name: str, call: Call) -> None:
        self._owner: Callable[[], Any] = lambda: owner
        self._name, self._made = name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner = self._owner()
        vars(owner).pop(self._name, None)
        return self._made(getattr(owner, self._name), *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Once:
        """The copy of the tensor is not there yet: it is looked up when it is asked for."""
        owner = self._owner()
        copied = _Once(owner, self._name, self._made)
        copied._owner = lambda: memo[id(owner)]
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """Nothing of it is saved; a kind of object that `torch.load(weights_only=True)` takes."""
        return OrderedDict, ()


def _is_compiling() -> Callable[[], bool]:
    torch = sys.modules.get("torch")
    found: Callable[[], bool] = bool if torch is None else torch.compiler.is_compiling
    return found


def _function(function: Any, call: Call) -> Any:
    """A function in place of one of the program; something that stands for it if it is another kind of object."""
    if not inspect.isroutine(function):
        return _Called(function, call)

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        return call(function, *args, **kwargs)

    return recorded


# ── something in its place ───────────────────────────────────────────────────────────────────────────────────────────


class _WrapProxy:
    """Stands for an object of the program: some methods are replaced, everything else is the object's own."""

    def __init__(self, target: Any, methods: dict[str, Callable[..., Any]]) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_methods", methods)

    def __getattr__(self, name: str) -> Any:
        return self._methods[name] if name in self._methods else getattr(self._target, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._target, name, value)

    def __repr__(self) -> str:
        return repr(self._target)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __len__(self) -> int:
        return len(self._target)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._target)

    def __contains__(self, item: object) -> bool:
        return item in self._target

    def __getitem__(self, key: Any) -> Any:
        return self._target[key]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled, it is the object of the program."""
        return _itself, (self._target,)


class _Called(_WrapProxy):
    """The same for something that is called."""

    def __init__(self, target: Any, call: Call) -> None:
        super().__init__(target, {})
        object.__setattr__(self, "_call", partial(call, target))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


class _WrappedLoader(_WrapProxy):
    """The same for something that is iterated over."""

    def __init__(self, target: Any, methods: dict[str, Callable[..., Any]]) -> None:
        super().__init__(target, methods)
        object.__setattr__(self, "_rounds", count())
        object.__setattr__(self, "_size", None)

    def __iter__(self) -> Iterator[Any]:
        return _WrappedBatches(iter(self._target), loader.loader_number(self), next(self._rounds), lambda: self._size)


class _Iterator(_WrappedLoader):
    """The same for an iterator, which is asked for one batch after the other."""

    def __init__(self, target: Any, methods: dict[str, Callable[..., Any]]) -> None:
        super().__init__(target, methods)
        object.__setattr__(self, "_batches", super().__iter__())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)


class _WrappedBatches:
    """Takes the batches of one round, and records the wait for each."""

    def __init__(self, iterator: Iterator[Any], number: int, round: int, size: Callable[[], Any]) -> None:
        self._iterator = iterator
        self._size = size
        self._keys = (batch_key(number, round, position) for position in count())
        self._wait = core.Span(names.INPUT_WAIT, PROBE, base=step.phases)
        self._ending = core.Span(names.ITER_END, PROBE, key=batch_key(number, round, 0), base=step.phases)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        key = next(self._keys)
        with _watching:
            step.begin()
            core.enter(self._wait, key)
        try:
            batch = next(self._iterator)
        except StopIteration:
            core.turn(self._wait, self._ending)
            raise
        except BaseException as error:
            core.leave(self._wait, None, type(error))
            raise
        core.leave(self._wait)
        with _sizing:
            size = self._size()
            if size is not None and step.phases.on:
                core.counter(names.SAMPLES, float(size(batch) if callable(size) else size), PROBE, key)
        return batch


def _itself(target: Any) -> Any:
    return target
