"""Sums over the elements of tensors on the host, in one pass; the C extension may be absent, then torch does it.

None: this tensor cannot be read here. It is on a device, has gaps or other numbers than float32, float64 and bfloat16, or is very large.
"""

from typing import Any

def moments(tensor: Any, middle: float, far: float, /) -> tuple[float, float, int, int, int] | None:
    """(sum, squares, nonzero, nonfinite, beyond): `beyond` counts elements that are `far` or further from `middle`."""

def distance(one: Any, other: Any, /) -> float | None:
    """The sum of the squares of what two tensors of one shape differ by; not of bfloat16."""

def active(tensor: Any, unit: int, /) -> int | None:
    """How many units are not zero everywhere; the dimension `unit` counts them. Only of float32."""
