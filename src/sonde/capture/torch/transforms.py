"""Follows the transforms of datasets: objects by their class, plain functions by replacing them on the dataset during a fetch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sonde.capture import tape as tapes
from sonde.capture.decorate import Noted, is_traced
from sonde.capture.definition import TraceDef
from sonde.capture.torch.patched import followed, is_module, note_calls, patch_class, patchable
from sonde.capture.traceable import traceable

TRANSFORMS = ("transform", "target_transform", "transforms")


class _Shared:
    """Functions that are replaced on datasets, and how many fetches (of several threads) need that now."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.held: dict[tuple[int, str], list[Any]] = {}

    def take(self, dataset: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
        key = (id(dataset), name)
        with self.lock:
            held = self.held.get(key)
            if held is None:
                held = self.held[key] = [0, vars(dataset)[name]]
                vars(dataset)[name] = make(held[1])
            held[0] += 1
        return lambda: self.give(dataset, key)

    def give(self, dataset: Any, key: tuple[int, str]) -> None:
        with self.lock:
            held = self.held[key]
            held[0] -= 1
            if not held[0]:
                vars(dataset)[key[1]] = self.held.pop(key)[1]


_shared = _Shared()


def follow_transforms(dataset: Any) -> list[Callable[[], None]]:
    """Note the calls of what a dataset transforms its items with; returns what puts back what was replaced for this fetch."""
    undo: list[Callable[[], None]] = []
    attributes = getattr(dataset, "__dict__", {})
    for name in TRANSFORMS:
        transform = attributes.get(name)
        if not callable(transform) or is_traced(transform) or is_module(transform):
            continue
        if patchable(type(transform)):
            _follow_calls(transform)
        else:
            shown = tapes.name_of(dataset, name)
            undo.append(_shared.take(dataset, name, lambda one, shown=shown: _function_transform(one, shown)))  # type: ignore[misc]
    return undo


def _follow_calls(transform: Any) -> None:
    """Note the calls of a transform that is an object of some class, and of those that it is made of."""
    inside = getattr(transform, "__dict__", {}).get("transforms")
    for one in [transform, *(inside if isinstance(inside, list | tuple) else [])]:
        kind = type(one)
        if kind not in followed and patchable(kind) and not is_module(one) and callable(one):
            followed.append(kind)
            patch_class(kind, "__call__", _object_transform)


def _object_transform(function: Callable[..., Any]) -> Callable[..., Any]:
    noted = Noted(function, TraceDef(func_name="__call__", result_name="output", stage_name="dataset_getter"))
    return traceable(function, note_calls(function, noted))


def _function_transform(function: Callable[..., Any], shown: str) -> Callable[..., Any]:
    name = str(getattr(function, "__name__", type(function).__name__))
    disp = shown if name == "<lambda>" else name
    noted = Noted(function, TraceDef(disp, name, None, "output", "dataset_getter"))
    return traceable(function, note_calls(function, noted))
