"""The names of a model's layers: the same wherever layers are recorded, without those of wrappers around the model."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from sonde.hooks.torch import private

PARAMETRIZED = "parametrizations"  # the child of a module with those of torch.nn.utils.parametrize
PARALLEL = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"}


class Module(NamedTuple):
    """A module of a model: its name without those of wrappers, and whether it is part of what torch.compile took."""

    name: str
    module: Any
    compiled: bool


def modules(model: Any) -> Iterator[Module]:
    """The modules of a model, from the outside in."""
    compiled: list[str] = []
    names: set[str] = set()
    for path, module in bare(model).named_modules():
        if private.is_compiled(module):
            compiled.append(f"{path}." if path else "")
        name = ".".join(part for part in path.split(".") if part not in private.WRAPPERS)
        if name not in names:  # else it is what a wrapper wraps
            names.add(name)
            yield Module(name, module, f"{path}.".startswith(tuple(compiled)))


def parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """The parameters of a model, with names without those of wrappers."""
    for path, parameter in bare(model).named_parameters():
        yield ".".join(part for part in path.split(".") if part not in private.WRAPPERS), parameter


def layers(model: Any) -> Iterator[Module]:
    """The modules of a model that may be layers: what computes a parameter of one (`parametrizations`) is a part of it."""
    inner: tuple[str, ...] = ()
    for one in modules(model):
        if is_parametrization(one.module):
            inner = (*inner, f"{one.name}.")
        elif not one.name.startswith(inner):
            yield one


def is_parametrization(module: Any) -> bool:
    """Does this module compute a parameter of another one? It is called wherever that parameter is read."""
    return type(module).__name__ == "ParametrizationList"


def shape(model: Any) -> tuple[int, ...]:
    """The addresses of a model's modules: others, or in another order, if one was put in, taken out or moved."""
    found, waiting = {id(model)}, [model]
    for one in waiting:  # it grows meanwhile
        children = private.children(one)
        if children:
            for child in children.values():
                if child is not None and id(child) not in found:
                    found.add(id(child))
                    waiting.append(child)
    return tuple(map(id, waiting))


def prefix(model: Any, found: list[Module], taken: Container[str]) -> str:
    """What distinguishes the names of this model from those of another one, where they would be the same."""
    word = kind(model)
    start, number = "" if len(found) > 1 else word, 1
    while any(joined(start, one.name) in taken for one in found):
        number += bool(start)
        start = word if number == 1 else f"{word}#{number}"
    return start


def joined(start: str, name: str) -> str:
    """One name of two parts."""
    return f"{start}.{name}" if start and name else name or start


def bare(model: Any) -> Any:
    """The model in a wrapper for several devices."""
    while type(model).__name__ in PARALLEL and hasattr(model, "module"):
        model = model.module
    return model


def inside(module: Any) -> Any:
    """The module that torch.compile wrapped, or else the module itself: there are its class, and its own parameters."""
    return getattr(module, private.COMPILED, module)


def kind(model: Any) -> str:
    """The class of a model."""
    return type(inside(bare(model))).__name__
