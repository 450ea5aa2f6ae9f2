"""Stacks as numbers: each is a node of a tree, and is written once, with the node of its caller.

A node is a line of a function that was called from another node. So long stacks need no long records, and none is cut.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import TYPE_CHECKING

from sonde.events import core
from sonde.store.probe import SAMPLE, SAMPLE_FRAME
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from types import CodeType, FrameType

MOST_NODES = 20_000  # further stacks are taken for those of their callers
MOST_FRAMES = 256  # of a stack, the innermost ones
LIBRARY = os.path.dirname(os.__file__) + os.sep
PACKAGES = ("/site-packages/", "/dist-packages/")
OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep + "sonde" + os.sep


_numbers = count(1)  # of this process: sampling may start more than once in a recording


class Tree:
    """The nodes of one sampling. Node 0 is no stack."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, CodeType, int], int] = {}  # (node of the caller, code, instruction)
        self._lines: dict[tuple[int, CodeType, int], int] = {}  # (node of the caller, code, line)
        self._own: dict[str, bool] = {}

    def node(self, innermost: FrameType) -> int:
        """The node of a stack, which is written if it is new."""
        stack: list[tuple[CodeType, int]] = []
        frame: FrameType | None = innermost
        while frame is not None and len(stack) < MOST_FRAMES:
            stack.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        node, known = 0, self._known
        for code, instruction in reversed(stack):
            found = known.get((node, code, instruction))
            if found is None:
                if len(known) >= MOST_NODES:
                    return node
                found = known[node, code, instruction] = self._line(node, code, instruction)
            node = found
        return node

    def _line(self, caller: int, code: CodeType, instruction: int) -> int:
        line = _line_of(code, instruction)
        node = self._lines.get((caller, code, line))
        if node is None:
            node = self._lines[caller, code, line] = next(_numbers)
            file = code.co_filename
            facts = {
                "caller": caller,
                "function": getattr(code, "co_qualname", code.co_name),
                "file": file,
                "line": line,
                "own": self._is_own(file),
            }
            core.mark(SAMPLE_FRAME, SAMPLE, node, facts, ESSENTIAL)
        return node

    def _is_own(self, file: str) -> bool:
        """Is this a file of the program, and not of Python, of an installed package or of Sonde?"""
        own = self._own.get(file)
        if own is None:
            foreign = file.startswith(("<frozen", LIBRARY, sys.base_prefix + "/lib/python", OURS))
            own = self._own[file] = not foreign and not any(part in file for part in PACKAGES)
        return own


def _line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction; that of the function if it has none."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
