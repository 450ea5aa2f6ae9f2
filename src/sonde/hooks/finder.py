"""Calls back when the program imports a library, so that nothing is patched, or loaded, that it does not use."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Callback = Callable[[ModuleType], None]

_wanted: dict[str, list[Callback]] = {}
_importing: list[str] = []  # libraries, inside each other
import_ns: dict[str, int] = {}  # how long the import of a library took; of those that another one imports, nothing


def when_imported(name: str, callback: Callback) -> Callable[[], None]:
    """Call `callback(module)` once the module is there: now, if it is, else right after its import.

    Returns a function that ends the wait.
    """
    module = sys.modules.get(name)
    if module is not None:
        _notify(callback, module)
        return lambda: None
    _wanted.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    return lambda: _drop(name, callback)


def _drop(name: str, callback: Callback) -> None:
    waiting = _wanted.get(name, [])
    if callback in waiting:
        waiting.remove(callback)
    if not waiting:
        _wanted.pop(name, None)
    if not _wanted:
        forget()


def forget() -> None:
    """Wait for no import any more."""
    _wanted.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


@guard("preparing a library that was just imported")
def _notify(callback: Callback, module: ModuleType) -> None:
    callback(module)


class _Finder:
    """Finds nothing itself: it lets the others find the wanted module, and puts itself around its loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _wanted:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # a loader by what it can do
                return spec
        return None


class _Loader:
    """Runs the original loader, gives it its place back, and then calls back."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self.original, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self.original
        module.__loader__ = self.original
        begun = monotonic_ns()
        _importing.append(module.__name__)
        try:
            self.original.exec_module(module)
        finally:
            _importing.pop()
            if not _importing:
                import_ns[module.__name__] = monotonic_ns() - begun
        for callback in _wanted.pop(module.__name__, ()):
            _notify(callback, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_finder: Any = _Finder()
