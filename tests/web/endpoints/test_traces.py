"""Traces in the browser: one, one item of it, two of them, whole arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.web.browser.runs import BAD_ITEM, PIXEL, add_traces, pictures
from tests.web.test_app import HERE, get

from sonde.capture.show.data import TraceFiles
from sonde.testing import build_training
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder

TRACES = "/api/runs/one/traces"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A run with two traces."""
    folder = tmp_path_factory.mktemp("runs")
    add_traces(build_training(folder / "one", steps=32, workers=1))
    app = make_app(RunsFolder(folder, traces=TraceFiles()), "secret")
    with TestClient(app, base_url=HERE, headers={"authorization": "Bearer secret"}) as found:
        yield found


def values(trace: Any) -> list[Any]:
    """All arrays of a trace, and those inside of others."""
    waiting = [value for stage in trace["stages"] for call in stage["calls"] for value in call["values"]]
    found = []
    while waiting:
        one = waiting.pop()
        waiting += one.get("children", [])
        found += [one] if one["kind"] == "array" else []
    return found


def test_the_finding_of_a_trace_names_the_call_of_its_item(client: TestClient) -> None:
    """One click leads from what is wrong to the item."""
    trace = get(client, f"{TRACES}/trace-b")
    targets = [one["item"] for finding in trace["findings"] for one in finding["targets"]]
    assert BAD_ITEM in targets
    assert get(client, f"{TRACES}/trace-a")["findings"] == []


def test_all_items_have_one_scale(client: TestClient) -> None:
    """A dark picture is dark beside the others."""
    getters = get(client, f"{TRACES}/trace-a")["stages"][0]["calls"]
    scales = [call["values"][-1]["children"][0]["scale"] for call in getters]
    assert len({tuple(one) for one in scales}) == 1


def test_the_path_of_an_item_has_its_rows(client: TestClient) -> None:
    """Also of calls that were about a batch."""
    trace = get(client, f"{TRACES}/trace-a?item={BAD_ITEM}")
    shapes = [one["shape"] for one in values(trace) if one["name"] in ("image", "x")]
    assert shapes == [[3, 16, 16]] * 3
    assert len(trace["stages"][0]["calls"]) == 1


def test_an_array_has_every_number(client: TestClient) -> None:
    """That of an item, and that of one row of a batch."""
    (bad,) = [
        call
        for call in get(client, f"{TRACES}/trace-b?item={BAD_ITEM}")["stages"][0]["calls"]
        if call["items"][0]["index"] == BAD_ITEM
    ]
    image = bad["values"][-1]["children"][0]
    for address in (f"{bad['seq']}/{image['array']}?item={BAD_ITEM}", "5/0?row=2"):
        head, _, content = client.get(f"{TRACES}/trace-b/arrays/{address}").content.partition(b"\n")
        numbers = np.frombuffer(content, "<f8").reshape(json.loads(head)["image"])
        assert np.array_equal(numbers, np.moveaxis(pictures()[2], 0, -1), equal_nan=True)
        assert np.isnan(numbers[(*PIXEL, 1)])


def test_two_traces_say_where_they_first_differ(client: TestClient) -> None:
    """As `sonde flow diff`."""
    found = get(client, f"{TRACES}/trace-a/diff/trace-b")
    assert not found["same"]
    assert found["differences"][0]["items"] == f"item {BAD_ITEM}"
    assert get(client, f"{TRACES}/trace-a/diff/trace-a")["same"]


def test_an_item_has_its_values_from_traces(client: TestClient) -> None:
    """Stage by stage, beside those of the black box."""
    assert get(client, "/api/runs/one/items/2")["values"] == []
    found = get(client, f"/api/runs/one/items/{BAD_ITEM}")["values"]
    assert [one["stage"] for one in found[:3]] == ["dataset getter", "collate", "evaluation"]
    address = f"/api/runs/one{found[0]['array']}"
    assert client.get(address).content.startswith(b'{"shape": [3, 16, 16]')


@pytest.mark.parametrize(
    ("path", "status"),
    [("/none", 404), ("/..%2ftrace-a", 404), ("/trace-a?item=nobody", 404), ("/trace-a/arrays/0/9", 404), ("/trace-a/arrays/x/0", 400),
     ("/trace-a/arrays/0/-1.x", 404), ("/trace-a/arrays/5/0?row=9", 404), ("/trace-a/diff/none", 404)],
)  # fmt: skip
def test_a_wrong_question_about_a_trace_gets_a_sentence(client: TestClient, path: str, status: int) -> None:
    """Never a traceback."""
    assert set(get(client, TRACES + path, status)) == {"error"}


def test_a_broken_trace_says_so(tmp_path: Path) -> None:
    """422, and the rest of the run can be read."""
    folder = next(add_traces(build_training(tmp_path / "one", steps=12)).glob("*/values"))
    (folder / "trace-a.sonde").write_bytes(b"no trace")
    app = make_app(RunsFolder(tmp_path, traces=TraceFiles()), "secret")
    with TestClient(app, base_url=HERE, headers={"authorization": "Bearer secret"}) as client:
        get(client, f"{TRACES}/trace-a", 422)
        assert get(client, f"{TRACES}/trace-b")
