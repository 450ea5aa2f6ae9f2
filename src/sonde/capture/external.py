"""`capture(...)`: adds functions to traces that you cannot edit: methods of a library, an object or a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, Self

from sonde.capture import tape
from sonde.capture.decorate import Noted, traced
from sonde.capture.definition import TraceDef
from sonde.capture.stages import declare_stage
from sonde.errors import SettingError, nearest
from sonde.guard import guard
from sonde.hooks import patches
from sonde.hooks.torch import loader

REASON = "to capture its calls in traces"


class Capture:
    """A captured function, until the block or trace ends or `undo()` is called."""

    def __init__(self, site: _PatchedAttribute, definition: TraceDef, target: object) -> None:
        """Use `capture()` instead."""
        self.definition = definition
        self.target = target  # only calls on this object; ANY: all calls
        self._site = site
        self._on = True
        self._travel: Callable[[], None] = lambda: None

    def undo(self) -> None:
        """Stop capturing and restore the original function. Does nothing the second time."""
        if self._on:
            self._on = False
            self._travel()
            self._site.leave(self)

    def __enter__(self) -> Self:
        tape.disown(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<capture of {self._site.words()}: {'on' if self._on else 'undone'}>"


ANY = object()


class _PatchedAttribute:
    """A patched attribute, and who wants its calls."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name
        self.captures: list[Capture] = []
        self.noted: dict[int, Noted] = {}
        self.patch: patches.Patch | None = None
        self.function: Callable[..., Any] | None = None

    def words(self) -> str:
        return f"{getattr(self.owner, '__name__', type(self.owner).__name__)}.{self.name}"

    def join(self, definition: TraceDef, target: object) -> Capture:
        if self.patch is None:
            self._open()
        capture = Capture(self, definition, target)
        assert self.function is not None
        try:
            self.noted[id(capture)] = Noted(self.function, definition)
        except SettingError:  # it has no such parameter
            self._close()
            raise
        self.captures.append(capture)
        return capture

    def leave(self, capture: Capture) -> None:
        self.captures.remove(capture)
        self.noted.pop(id(capture), None)
        self._close()

    def _close(self) -> None:
        if not self.captures and self.patch is not None:
            _sites.remove(self)
            with guard("restoring a captured function"):
                patches.restore(self.patch)

    def _open(self) -> None:
        try:
            self.patch = patches.replace(self.owner, self.name, self._made, REASON)
        except (TypeError, AttributeError) as error:
            raise SettingError(
                f"Cannot capture {self.words()}: {error}. Capture a Python function that calls it instead."
            ) from None
        if self.patch is None:
            raise SettingError(f"Sonde already captures {self.words()}: its calls appear in traces automatically.")
        _sites.append(self)

    def _made(self, function: Callable[..., Any]) -> Any:
        self.function = function
        return traced(function, TraceDef(), choose=self._choose)

    def _choose(self, args: tuple[Any, ...]) -> Noted | None:
        """Under which definition a call appears: the newest capture that it belongs to."""
        for capture in reversed(self.captures):
            if capture.target is ANY or (args and args[0] is capture.target):
                return self.noted.get(id(capture))
        return None


_sites: list[_PatchedAttribute] = []


def capture(
    target: Any,
    name: str,
    *,
    stage_name: str = "evaluation",
    params_to_capture: Mapping[str, int] | Iterable[str] | None = None,
    result_name: str | None = None,
    disp_name: str = "",
) -> Capture:
    """Capture the calls of `target.name`; `target` is a class, a module or an object.

    With `with sonde.flow.capture(...):` it ends with the block, otherwise with the active or next trace. For an object,
    only calls on that object are captured; its class is patched, not the object.
    """
    definition = TraceDef(disp_name, disp_name and name, params_to_capture, result_name, stage_name)
    owner, only = _owner(target, name)
    site = next((one for one in _sites if one.owner is owner and one.name == name), None) or _PatchedAttribute(
        owner, name
    )
    made = site.join(definition, only)
    tape.own(made)
    if only is ANY and isinstance(owner, type | ModuleType):
        made._travel = loader.start_in_workers(again, *_address(owner), name, _facts(definition))
    return made


def _address(owner: type | ModuleType) -> tuple[str, str]:
    return (owner.__module__, owner.__qualname__) if isinstance(owner, type) else (owner.__name__, "")


def _facts(definition: TraceDef) -> dict[str, Any]:
    return {field: getattr(definition, field) for field in TraceDef.__slots__ if field != "func_name"}


def again(module: str, path: str, name: str, facts: dict[str, Any]) -> None:
    """In a loader worker: capture what the main process captures. A forked one does so already."""
    owner: Any = import_module(module)
    for part in path.split(".") if path else ():
        owner = getattr(owner, part)
    if not any(site.owner is owner and site.name == name for site in _sites):
        declare_stage(facts["stage_name"])
        capture(owner, name, **facts)


def _owner(target: Any, name: str) -> tuple[Any, object]:
    """What has to be patched, and whose calls are wanted."""
    if not hasattr(target, str(name)):
        kind = (target if isinstance(target, type) else type(target)).__name__
        raise SettingError(f"{kind} has no attribute {name!r} to capture. {nearest(str(name), _callables(target))}")
    if not callable(getattr(target, name)):
        raise SettingError(
            f"{name!r} of {target!r:.100} is not a function, but {type(getattr(target, name)).__name__}."
        )
    if isinstance(target, type) or name in getattr(target, "__dict__", {}):
        return target, ANY  # a class, a module, or a function that the object itself holds
    for holder in type(target).__mro__:
        if name in vars(holder):
            plain = not isinstance(vars(holder)[name], staticmethod | classmethod)
            return type(target), target if plain else ANY
    raise SettingError(f"{name!r} of {target!r:.100} is created on access. Capture what it calls instead.")


def _callables(target: Any) -> list[str]:
    return [name for name in dir(target) if not name.startswith("_")][:200]
