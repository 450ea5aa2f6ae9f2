"""docs/reference/web.md beside the server: the names in each answer are those of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.web.browser.runs import BAD_ITEM, BAD_STEP, add_traces, with_learning, with_nan

from sonde.capture.show.data import TraceFiles
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/web.md"
ROW = re.compile(r"^\| `(/api[^`]*)` \| [^{|]*`(\{.*)", re.MULTILINE)
TOKEN = re.compile(r'(?:(?<=\{)|(?<=, ))"(?P<name>\w+)"|(?P<open>\{)|\}')
Names = dict[str, Any]  # each name, and the names inside of it

# The path of a question, and how it is asked of the runs below.
ASKED = {
    "/api/runs": "/api/runs",
    "/api/runs/ID/head": "/api/runs/nan/head",
    "/api/runs/ID/series": "/api/runs/nan/series?name=step",
    "/api/runs/ID/steps": "/api/runs/nan/steps",
    "/api/runs/ID/steps/RANK/STEP": f"/api/runs/nan/steps/0/{BAD_STEP}",
    "/api/runs/ID/batches/RANK/LOADER/ROUND/BATCH": f"/api/runs/nan/batches/0/0/0/{BAD_STEP}",
    "/api/runs/ID/items": "/api/runs/nan/items",
    "/api/runs/ID/items/INDEX": f"/api/runs/nan/items/{BAD_ITEM}",
    "/api/runs/ID/lanes": "/api/runs/nan/lanes",
    "/api/runs/ID/timeline": "/api/runs/nan/timeline",
    "/api/runs/ID/search": "/api/runs/nan/search?q=forward",
    "/api/runs/ID/selection": "/api/runs/nan/selection",
    "/api/runs/ID/layers": "/api/runs/learned/layers",
    "/api/runs/ID/layers/NAME": "/api/runs/nan/layers/head",
    "/api/runs/ID/samples": "/api/runs/learned/samples?phase=forward",
    "/api/runs/ID/learning": "/api/runs/learned/learning",
    "/api/runs/ID/traces": "/api/runs/nan/traces",
    "/api/runs/ID/traces/NAME": "/api/runs/nan/traces/trace-b",
    "/api/runs/ID/traces/NAME/diff/OTHER": "/api/runs/nan/traces/trace-a/diff/trace-b",
    "/api/runs/ID/schema": "/api/runs/nan/schema",
    "/api/runs/ID/sql": "/api/runs/nan/sql?q=SELECT 1 AS one",
    "/api/about": "/api/about",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server over two runs that have nearly everything."""
    folder = tmp_path_factory.mktemp("runs")
    add_traces(with_nan(folder / "nan"))
    with_learning(folder / "learned")
    app = make_app(RunsFolder(folder, None, TraceFiles()), "secret")
    headers = {"authorization": "Bearer secret"}
    with TestClient(app, base_url="http://127.0.0.1:8700", headers=headers) as found:
        yield found


def documented() -> dict[str, Names]:
    """For each path of the page, the names in its answer."""
    return {path: _names([*TOKEN.finditer(answer)][1:]) for path, answer in ROW.findall(PAGE.read_text())}


def _names(tokens: list[re.Match[str]]) -> Names:
    """The names of an object, whose bracket was the last token."""
    found: Names = {}
    last = ""
    while tokens:
        token = tokens.pop(0)
        if token["name"]:
            last = token["name"]
            found[last] = {}
        elif token["open"]:
            found[last] = _names(tokens)
        else:
            break
    return found


def differing(names: Names, answer: Any, where: str = "") -> Iterator[str]:
    """Names that only one of both has. Of a list, its elements count; what is null says nothing."""
    if isinstance(answer, list):
        for one in answer[:20]:
            yield from differing(names, one, where)
    elif isinstance(answer, dict) and names:
        yield from (f"{where}{name}: only documented" for name in names.keys() - answer.keys())
        yield from (f"{where}{name}: not documented" for name in answer.keys() - names.keys())
        for name in names.keys() & answer.keys():
            yield from differing(names[name], answer[name], f"{where}{name}.")


@pytest.mark.parametrize("path", sorted(ASKED))
def test_an_answer_has_the_documented_names(client: TestClient, path: str) -> None:
    """Whoever writes a script after the page finds what it says, and no more."""
    answer = client.get(ASKED[path])
    assert answer.status_code == 200, answer.text
    assert sorted(set(differing(documented()[path], answer.json()))) == []
