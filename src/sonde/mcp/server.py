"""Serves the tools over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import functools
import inspect
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from sonde.errors import MissingExtra, SondeError
from sonde.mcp.tools import Tools
from sonde.version import __version__

NAMES = ("runs", "report", "steps", "step", "items", "layers", "first_nan", "compare", "query", "stacks")
MOST_REQUEST = 1 << 20  # bytes
INSTRUCTIONS = (
    "Sonde records machine-learning training runs. To find out why training is slow or failing: call `runs`, then `report` "
    "with an id, then what its lines `more:` name. Every answer is short; `more:` lines give the exact next calls."
)


def serve(folder: Path) -> None:
    """Answer one client until it leaves. Raises MissingExtra without the SDK."""
    made = server(folder)
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_ShortLines(before.buffer)))
    try:
        made.run("stdio")
    finally:
        sys.stdin = before


def server(folder: Path) -> Any:
    """The server with all tools."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        raise MissingExtra.of("the MCP SDK (version 2 or later)", "mcp", "`sonde mcp`") from None
    made = MCPServer("sonde", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    tools = Tools(folder)
    for name in NAMES:
        ask = getattr(tools, name)
        made.add_tool(
            _sentences(ask, ToolError),
            name=name,
            description=inspect.getdoc(ask),
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
            structured_output=False,
        )
    return made


class _ShortLines(io.RawIOBase):
    """Standard input line by line; of a line that is too long for a request, only that there was one."""

    def __init__(self, source: io.BufferedReader | BinaryIO) -> None:
        super().__init__()
        self._source = source
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._rest = self._rest or self._line()
        count = min(len(into), len(self._rest))
        into[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def _line(self) -> bytes:
        line = self._source.readline(MOST_REQUEST)
        if len(line) < MOST_REQUEST or line.endswith(b"\n"):
            return line
        while line and not line.endswith(b"\n"):
            line = self._source.readline(MOST_REQUEST)
        return b"[too long]\n"


def _sentences(ask: Callable[..., str], error: type[Exception]) -> Callable[..., str]:
    """An expected failure becomes its sentence, which the SDK passes on."""

    @functools.wraps(ask)
    def asked(**arguments: Any) -> str:
        try:
            return ask(**arguments)
        except (SondeError, OSError) as reason:
            raise error(str(reason)) from None

    return asked
