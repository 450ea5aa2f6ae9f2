"""Statistics of contiguous memory, in one pass; the C extension may be absent, then NumPy does it."""

def stats(memory: object, code: str, /) -> tuple[float | None, float | None, float | None, float | None, int]:
    """(low, high, mean, std, nonfinite): the first four of what is finite, None where nothing is.

    `memory` has the buffer protocol, and is native, aligned and contiguous; `code` is one of `struct`'s letters
    f d b B h H i I q Q ?.
    """
