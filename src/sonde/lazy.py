"""Numpy, imported when it is first used: it takes long to load, and most programs that import Sonde do not need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as numpy  # noqa: PLC0414  type checkers see the library itself
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # the next access is a plain attribute
            return value

    numpy = _Numpy()
