"""Makes a wrapper look like the function inside it, as `functools.wraps` does, without that import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_W = TypeVar("_W", bound="Callable[..., Any]")

COPIED = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__")
_MISSING = object()


def dress(wrapper: _W, function: Callable[..., Any]) -> _W:
    """Give the wrapper the name, the text, the signature and the attributes of the function."""
    for name in COPIED:
        value = getattr(function, name, _MISSING)
        if value is _MISSING:
            continue
        try:
            setattr(wrapper, name, value)
        except TypeError:  # a callable object may have a name that is no text
            continue
    wrapper.__dict__.update(getattr(function, "__dict__", {}))
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper
