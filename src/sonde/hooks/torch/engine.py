"""What state torch is in, in this thread: inside a backward pass, or being compiled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def backward_test() -> Callable[[], bool]:
    """A function that tells whether the calling thread is at work inside a backward pass, also as torch's own thread."""
    current = sys.modules["torch"]._C._current_graph_task_id
    return lambda: bool(current() != -1)


def compile_test() -> Callable[[], bool]:
    """The function that tells whether torch.compile is reading the calling code; the compiler knows it, and folds it."""
    test: Callable[[], bool] = sys.modules["torch"].compiler.is_compiling
    return test
