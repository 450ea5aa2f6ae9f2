"""`sonde mcp` over stdio with the client of the official SDK: tools, limits, and what is no question."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client
from tests.mcp.agent import calls_in, server, text_of

from sonde.cli import main
from sonde.errors import SondeError
from sonde.mcp.answer import MOST_BYTES, fit, hint
from sonde.mcp.server import NAMES
from sonde.mcp.tools import Tools
from sonde.testing import build_training


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs of four ranks, with layers and a slow item."""
    for name in ("20260101-000000-a-0000", "20260102-000000-b-0000"):
        build_training(
            tmp_path / name, ranks=2, steps=30, workers=1, layers=[f"layers.{number}" for number in range(40)],
            item_ns=lambda rank, index: 9_000_000 if index == 42 else 1_000_000, loss=lambda step: 1.0 / (step + 1),
        )  # fmt: skip
    return tmp_path


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("runs", {}),
    ("report", {}),
    ("steps", {"order": "last", "limit": 500}),
    ("step", {"step": 7}),
    ("items", {"limit": 500}),
    ("layers", {"limit": 500}),
    ("first_nan", {}),
    ("compare", {"a": "a-0000", "b": "b-0000"}),
    ("query", {"sql": "from events", "limit": 500}),
    ("stacks", {}),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("report", {"run": "nope"}),
    ("step", {"step": 10**6}),
    ("step", {"step": "seven"}),
    ("steps", {"order": "sideways"}),
    ("query", {"sql": "drop table steps"}),
    ("query", {"sql": "select * from read_csv('/etc/passwd')"}),
    ("query", {"sql": "select nothing from steps"}),
    ("compare", {"a": "a-0000"}),
]


def test_every_tool_answers_a_client_within_the_limit_and_wrong_calls_get_a_sentence(folder: Path) -> None:
    """One session: all tools, then wrong arguments, then a good call again."""

    async def session() -> None:
        async with Client(server(folder)) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == list(NAMES)
            assert all(tool.description for tool in listed.tools)
            for tool, arguments in ASKED:
                text, failed = await text_of(client, tool, **arguments)
                assert not failed, text
                assert 0 < len(text.encode()) <= MOST_BYTES
                for _, given in calls_in(text):
                    assert given.get("run", "a-0000").endswith("0000")
            for tool, arguments in WRONG:
                text, failed = await text_of(client, tool, **arguments)
                assert failed, (tool, arguments, text)
                assert "Traceback" not in text
            assert not (await text_of(client, "runs"))[1]

    asyncio.run(session())


def test_lines_that_are_no_protocol_do_not_end_the_server(folder: Path) -> None:
    """It still answers the request behind them, and ends with its input."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    lines = ["not json", "[" * 10_000, '{"jsonrpc": "1.0"}', json.dumps(request)]
    done = subprocess.run(
        [sys.executable, "-m", "sonde", "mcp", "--dir", str(folder)],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert any(json.loads(line).get("id") == 1 for line in done.stdout.splitlines())
    assert done.returncode == 0


def test_a_line_without_an_end_costs_little_memory(folder: Path) -> None:
    """The request behind it is answered."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    peaks = []
    for megabytes in (1, 200):
        command = [sys.executable, "-m", "sonde", "mcp", "--dir", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            for _ in range(megabytes):
                program.stdin.write(b"x" * 2**20)
            program.stdin.write(f"\n{json.dumps(request)}\n".encode())
            program.stdin.flush()
            lines = iter(program.stdout.readline, b"")
            assert any(json.loads(line).get("id") == 1 for line in lines)
            status = Path(f"/proc/{program.pid}/status").read_text("utf-8")
            peaks.append(int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]))
            program.stdin.close()
            assert program.wait(60) == 0
    assert peaks[1] < peaks[0] + 20_000


def test_a_long_answer_is_cut_and_says_so() -> None:
    """The calls that show more stay."""
    text = fit([f"line {number}" for number in range(5000)], [hint("steps", "the rest", run="r")])
    assert len(text.encode()) <= MOST_BYTES
    assert "more lines left out" in text
    assert text.endswith('more: steps(run="r")  # the rest')


def test_a_query_says_that_there_are_more_rows(folder: Path) -> None:
    """Rows beyond the limit are not shown."""
    text = Tools(folder).query("select step from steps", limit=3)
    assert len(text.splitlines()) == 5
    assert "more rows" in text


def test_a_limit_of_a_billion_rows_is_cut(folder: Path) -> None:
    """Such an answer would not fit into memory, nor into the agent's context."""
    tools = Tools(folder)
    text = tools.query("select range from range(100000)", limit=10**9)
    assert "more rows" in text
    assert len(text.encode()) <= MOST_BYTES


def test_an_empty_folder_says_how_to_record(tmp_path: Path) -> None:
    """A newcomer's agent learns what to do."""
    with pytest.raises(SondeError, match=r"sonde run train\.py"):
        Tools(tmp_path).runs()


def test_layers_come_first_where_computation_takes_the_time(tmp_path: Path) -> None:
    """Items that load in no time lead nowhere."""
    build_training(tmp_path / "run", steps=30, workers=1, layers=["encoder", "head"])
    text = Tools(tmp_path).report()
    assert "verdict: COMPUTE_BOUND" in text
    assert calls_in(text)[0][0] == "layers"


def test_the_digest_in_a_shell_names_commands(folder: Path) -> None:
    """`sonde report --brief` is the same text, with commands for the next look."""
    done = CliRunner().invoke(main, ["report", "b-0000", "--dir", str(folder), "--brief"])
    assert done.exit_code == 0
    assert len(done.output.encode()) <= MOST_BYTES
    told = Tools(folder).report("b-0000")
    assert done.output.splitlines()[:5] == told.splitlines()[:5]
    assert "more: sonde " in done.output


def test_the_skill_is_a_page_with_commands_that_exist() -> None:
    """Every command it names has help."""
    page = CliRunner().invoke(main, ["skill"]).output
    named = set(re.findall(r"`sonde (\w+)", page))
    assert {"report", "query", "blackbox", "stacks"} <= named
    for command in named:
        assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
