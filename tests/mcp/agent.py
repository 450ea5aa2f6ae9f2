"""An agent without a model: it knows the tools only from the answers, and follows the first hints it finds."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

MOST_CALLS = 4
MORE = re.compile(r"^more: (\w+\(.*\))  # ", re.MULTILINE)


def server(folder: Path) -> StdioServerParameters:
    """How an agent starts `sonde mcp`."""
    return StdioServerParameters(command=sys.executable, args=["-m", "sonde", "mcp", "--dir", str(folder)])


async def text_of(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """The answer of a tool, and whether it is an error."""
    found = await client.call_tool(tool, arguments)
    (content,) = found.content
    assert isinstance(content, TextContent)
    return content.text, bool(found.is_error)


def calls_in(answer: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls that an answer names."""
    found = []
    for line in MORE.findall(answer):
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        found.append((call.func.id, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}))
    return found


async def investigate(folder: Path) -> list[str]:
    """Why is training slow or failing? The answers of at most four calls: list, report, and its first two hints."""
    async with Client(server(folder)) as client:
        listed, _ = await text_of(client, "runs")
        ((tool, arguments), *_) = calls_in(listed)
        answers = [listed]
        told, failed = await text_of(client, tool, **arguments)
        assert not failed, told
        answers.append(told)
        for next_tool, given in calls_in(told)[: MOST_CALLS - len(answers)]:
            more, _ = await text_of(client, next_tool, **given)
            answers.append(more)
    return answers
