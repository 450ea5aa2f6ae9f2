"""The endpoints of the web server: what they answer, and whom they refuse."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.analysis.boxes import batch, write_dump
from tests.diagnosis.lessons import counted, learned, plain
from tests.views.runs import changed
from tests.web.growing import growing

from sonde.analysis.run import Run
from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import MS, BuiltRecord, build_run, build_training, training_processes
from sonde.web.app import OF_RUN, make_app
from sonde.web.asking import INTERRUPT_EVERY
from sonde.web.folder import RunsFolder, interrupt

ROOT = Path(__file__).resolve().parents[2]
HERE = "http://127.0.0.1:8700"
RUN = "/api/runs/one"
SECONDS = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one training of two ranks."""
    folder = tmp_path_factory.mktemp("runs")
    build_training(folder / "one", ranks=2, steps=30, workers=2)
    return folder


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[TestClient]:
    """A browser that has the token."""
    with browser(runs) as found:
        yield found


def browser(folder: Path, **headers: str) -> TestClient:
    return TestClient(
        make_app(RunsFolder(folder), "secret"),
        base_url=HERE,
        headers=headers or {"authorization": "Bearer secret"},
        follow_redirects=False,
    )


def get(client: TestClient, path: str, status: int = 200) -> Any:
    found = client.get(path)
    assert found.status_code == status, found.text
    return found.json()


def test_every_route_is_documented_and_every_documented_route_exists() -> None:
    """docs/reference/web.md lists exactly the addresses that are answered."""
    page = (ROOT / "docs/reference/web.md").read_text()
    documented = {re.sub(r"[A-Z]+", "*", path) for path in re.findall(r"^\| `(/api[^`]*)`", page, re.MULTILINE)}
    there = {"/api/about", "/api/runs", "/api/compare", "/api/runs/*/live"}
    there |= {"/api/runs/*" + re.sub(r"\{[^}]*\}", "*", path) for path, _ in OF_RUN}
    assert documented == there


@pytest.mark.parametrize(
    "path",
    ["", "/head", "/series?name=step,phases,loss,throughput,rss,cpu,gpu,disk", "/series?axis=time", "/counters", "/steps", "/steps/1/3",
     "/batches/0/0/0/3", "/items", "/items/3", "/lanes", "/timeline", "/search?q=forward", "/selection", "/layers", "/samples", "/learning", "/hosts", "/blackbox", "/traces",
     "/schema", "/sql?q=select 1"],
)  # fmt: skip
def test_each_resource_of_a_run_answers(client: TestClient, path: str) -> None:
    """An ordinary run has an answer for each page."""
    assert get(client, RUN + path)


def test_the_list_of_runs_has_the_folder(client: TestClient, runs: Path) -> None:
    """Each run of the folder is listed."""
    found = get(client, "/api/runs")
    assert found["folder"] == str(runs)
    assert [one["id"] for one in found["runs"]] == ["one"]


def test_the_points_of_a_series_keep_the_extremes(client: TestClient) -> None:
    """Thirty steps in five points: each has a least and a most."""
    (line,) = get(client, f"{RUN}/series?name=step&points=5")["series"]
    assert len(line["x"]) == 5
    assert all(low <= middle <= high for low, middle, high in zip(line["min"], line["y"], line["max"], strict=True))


def test_phases_add_up_to_the_mean_step(client: TestClient) -> None:
    """The stacked phases are the step."""
    found = get(client, f"{RUN}/series?name=phases,step&points=2&from=4&to=5")["series"]
    step = next(one for one in found if one["name"] == "step")
    phases = [one["y"][0] or 0 for one in found if one["name"].startswith("phase:")]
    assert sum(phases) == pytest.approx(step["y"][0])


def test_a_step_has_its_batch_and_the_lanes_of_its_workers(client: TestClient) -> None:
    """One click leads from a step to its batch and its item."""
    step = get(client, f"{RUN}/steps/0/5")
    (batch,) = [one for one in step["batches"] if one["rank"] == 0]
    assert (step["previous"], step["next"]) == (4, 6)
    assert any(lane["worker"] is not None for lane in step["lanes"])
    items = get(client, f"{RUN}/batches/0/{batch['loader']}/{batch['round']}/{batch['batch']}")["items"]
    assert any(load["step"] == 5 for load in get(client, f"{RUN}/items/{items[0]['index']}")["loads"])


def test_narrow_spans_become_one_slice(client: TestClient) -> None:
    """No more slices than pixels at each depth of a lane, and no span is lost."""
    wide, narrow = (get(client, f"{RUN}/timeline?pixels={pixels}")["lanes"] for pixels in (10_000, 10))
    assert sum(len(lane["slices"]) for lane in narrow) < sum(len(lane["slices"]) for lane in wide)
    counts = [sum(part[4] for lane in lanes for part in lane["slices"]) for lanes in (wide, narrow)]
    assert counts[0] == counts[1]


def test_an_unchanged_run_is_sent_once(client: TestClient) -> None:
    """The browser asks with the version that it has."""
    tag = client.get(f"{RUN}/head").headers["etag"]
    assert client.get(f"{RUN}/head", headers={"if-none-match": tag}).status_code == 304


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/runs/none/head", 404), ("/api/runs/%2e%2e/head", 404), ("/api/none", 404), (f"{RUN}/steps/0/999", 404), (f"{RUN}/steps/x/1", 400),
     (f"{RUN}/steps?limit=ten", 400), (f"{RUN}/steps?sort=nope", 404), (f"{RUN}/series?name=nope", 400), (f"{RUN}/sql?q=selec", 400),
     (f"{RUN}/sql?q=copy steps to '/tmp/x'", 400), (f"{RUN}/sql?q=from read_csv('/etc/passwd')", 400), (f"{RUN}/sql", 400),
     (f"{RUN}/items/nope", 400), (f"{RUN}/arrays/..%2f..%2f/0/0/0", 404), (f"{RUN}/arrays/x/0/0/0", 404), ("/api/compare?a=one", 400)],
)  # fmt: skip
def test_a_wrong_question_gets_a_sentence(client: TestClient, path: str, status: int) -> None:
    """Never a traceback: a status and one sentence."""
    assert set(get(client, path, status)) == {"error"}


@pytest.mark.parametrize("path", ["/", "/api/runs", "/runs/one", "/assets/x.js"])
def test_nothing_is_answered_without_the_token(runs: Path, path: str) -> None:
    """Pages and data need it alike."""
    with browser(runs, authorization="Bearer wrong") as stranger:
        get(stranger, path, 401)


def test_the_token_becomes_a_cookie_and_leaves_the_address(runs: Path) -> None:
    """What stays in the history of the browser has no token."""
    with browser(runs, accept="*/*") as stranger:
        found = stranger.get("/runs/one?token=secret&tab=2")
        assert (found.status_code, found.headers["location"]) == (303, "/runs/one?tab=2")
        assert {"HttpOnly", "SameSite=Strict"} <= set(found.headers["set-cookie"].split("; "))
        cookie = found.headers["set-cookie"].partition(";")[0]
        assert stranger.get("/api/runs", headers={"cookie": cookie}).status_code == 200


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
def test_another_host_or_origin_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    """A page elsewhere cannot use the browser of the user."""
    assert client.get("/api/runs", headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(client: TestClient, method: str) -> None:
    """Only reading methods."""
    assert client.request(method, "/api/runs").status_code == 405


def test_every_answer_has_the_strict_policy(client: TestClient) -> None:
    """No script but our own."""
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_run_that_disappears_while_it_is_open_says_so(tmp_path: Path) -> None:
    """410, not a traceback."""
    build_training(tmp_path / "two", steps=12)
    with browser(tmp_path) as client:
        get(client, "/api/runs/two/head")
        shutil.rmtree(tmp_path / "two")
        get(client, "/api/runs/two/head", 410)


def test_a_run_without_steps_and_an_empty_folder_have_answers(tmp_path: Path) -> None:
    """Empty is not an error."""
    with browser(tmp_path) as client:
        assert get(client, "/api/runs")["runs"] == []
        build_run(tmp_path / "bare")
        assert get(client, "/api/runs/bare/head")["as_of_step"] is None
        assert get(client, "/api/runs/bare/series?name=step,loss")["series"] == []


def test_the_live_stream_of_a_finished_run_ends(client: TestClient) -> None:
    """One look, and the end."""
    found = client.get(f"{RUN}/live").text
    assert re.findall(r"^event: (\w+)$", found, re.MULTILINE) == ["grown", "ended"]


def test_an_answer_that_takes_long_is_given_again_while_a_run_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version stays the same; whoever asks for it now gets a new one."""
    monkeypatch.setattr("sonde.web.folder.SELDOM", 1e-6)  # however long the host takes for the steps
    with growing(tmp_path, 20) as program, browser(tmp_path) as client:
        path = f"/api/runs/{program.id}"
        first = client.get(path)
        program.grow(20)
        assert client.get(path).headers["etag"] == first.headers["etag"]
        assert client.get(f"{path}?now=1").json()["as_of_step"] > first.json()["as_of_step"]


def test_steps_can_be_asked_for_by_several_conditions(client: TestClient) -> None:
    """Words of `where` all have to fit, and so do the limits of the step."""
    found = get(client, f"{RUN}/steps?where=warmup,all&from=1&to=2&rank=0")
    assert [row[found["columns"].index("step")] for row in found["rows"]] == [1, 2]
    assert set(get(client, f"{RUN}/steps?where=odd", 400)) == {"error"}


def test_a_point_of_step_time_names_its_longest_step(client: TestClient) -> None:
    """One click leads from a point to the step to look at."""
    (line,) = get(client, f"{RUN}/series?name=step&points=5")["series"]
    for at, (step, rank) in enumerate(line["slowest"]):
        own = get(client, f"{RUN}/steps/{rank}/{step}")["step"]
        assert own["dur_ns"] == line["max"][at]


def test_the_way_leads_from_a_step_to_the_numbers_of_an_item(tmp_path: Path) -> None:
    """Step, batch, item, array: each names the next."""
    path = build_training(tmp_path / "one", steps=12, workers=1)
    kept = batch(5, {"image": np.zeros((4, 3, 16, 16), np.float32)}, indices=[20, 21, 22, 23])
    write_dump(path, "demand", [kept], rank=0)
    with browser(tmp_path) as client:
        step = get(client, f"{RUN}/steps/0/5")
        slices = [one for lane in step["lanes"] for one in lane["slices"]]
        assert [0, 0, 5] in [one["batch"] for one in slices]
        assert {20, 21, 22, 23} <= {one["index"] for one in slices}
        found = get(client, f"{RUN}/batches/0/0/0/5")
        assert all(item["thumbnail"].startswith("data:image/png;base64,") for item in found["items"])
        (value,) = get(client, f"{RUN}/items/{found['items'][1]['index']}")["values"]
        answer = client.get(RUN + value["array"]).content
        head, _, numbers = answer.partition(b"\n")
        assert json.loads(head)["image"] == [16, 16, 3]
        assert len(numbers) == 16 * 16 * 3 * 8


def test_a_step_of_many_ranks_shows_those_that_took_longest(tmp_path: Path) -> None:
    """This rank, then the others by their time without communication; and how many there are."""

    def phases(rank: int, _step: int) -> dict[str, int]:
        return {"forward": (2 + 3 * rank) * MS, "backward": 9 * MS, "communication": (7 - 3 * rank) * MS}

    build_run(tmp_path / "one", training_processes(ranks=3, steps=12, phases=phases))
    with browser(tmp_path) as client:
        step = get(client, f"{RUN}/steps/0/5?ranks=2")
        assert {lane["rank"] for lane in step["lanes"]} == {0, 2}
        assert step["ranks"] == 3
        assert set(get(client, f"{RUN}/steps/0/5?ranks=0", 400)) == {"error"}


def test_a_step_that_was_repeated_has_the_ranks_of_its_own_attempt(tmp_path: Path) -> None:
    """What the job did before it was started again is another time."""
    first, second = training_processes(ranks=2, steps=12)
    again = changed(second, rank=0, local_rank=0, attempt=1)
    build_run(tmp_path / "one", [changed(first, attempt=0), again])
    with browser(tmp_path) as client:
        step = get(client, f"{RUN}/steps/0/5")
        assert step["ranks"] == 1
        assert len({one["process"] for one in step["phases"]}) == 1


def test_two_runs_are_compared_as_by_the_command(client: TestClient, runs: Path) -> None:
    """The same document, whatever the order."""
    build_training(runs / "two", ranks=2, steps=30, workers=2)
    found = get(client, "/api/compare?a=one&b=two")
    assert (found["a"]["id"], found["b"]["id"]) == ("one", "two")
    assert found["distribution"]["edges_ns"]
    shutil.rmtree(runs / "two")


def test_a_person_without_the_token_gets_a_page_that_says_what_to_do(runs: Path) -> None:
    """Whoever opens an address in a browser sees a sentence, and a script sees JSON."""
    with browser(runs, accept="text/html,application/xhtml+xml") as stranger:
        answer = stranger.get("/runs/one")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "Open the whole address that `sonde ui` printed" in answer.text


def test_a_flame_graph_of_deep_stacks_is_whole(tmp_path: Path) -> None:
    """Real stacks are deeper than what a damaged file may nest."""
    calls = 60
    frames = [
        BuiltRecord(probe.SAMPLE_FRAME, probe.SAMPLE, MARK, key=node, args={"caller": node - 1, "function": f"f{node}", "file": "a.py", "line": node, "own": True})
        for node in range(1, calls + 1)
    ]  # fmt: skip
    thread = BuiltRecord(probe.SAMPLE_THREAD, probe.SAMPLE, MARK, key=1, args={"tid": 1000, "name": "MainThread"})
    seen = counted(probe.SAMPLE_STACK, probe.SAMPLE, 5 * MS, 3, 1 << probe.SAMPLE_THREAD_BITS | calls)
    build_run(tmp_path / "one", learned(plain(), [*frames, thread, seen]))
    with browser(tmp_path) as client:
        (call,) = get(client, f"{RUN}/samples")["flame"]["calls"]
        for node in range(1, calls + 1):
            (call,) = call["calls"]
            assert call["name"].startswith(f"f{node} ")


def test_a_query_that_takes_long_ends_when_the_browser_goes(runs: Path) -> None:
    """What was asked is interrupted, and the next question is answered."""
    folder = RunsFolder(runs)
    opened = folder.get("one")
    opened.bring_up_to_date()
    worker = threading.Thread(target=_count_for_ever, args=(opened.run,), daemon=True)
    worker.start()
    until = time.monotonic() + SECONDS
    while worker.is_alive() and time.monotonic() < until:
        opened.interrupt()  # again and again, as the server does: the query may not have begun
        worker.join(INTERRUPT_EVERY)
    assert not worker.is_alive()
    assert folder.get("one") is not opened
    folder.close()


def test_pages_do_not_wait_for_a_query(runs: Path) -> None:
    """While one query of the user's own is computed, the pages of the run are answered."""
    folder = RunsFolder(runs)
    with TestClient(make_app(folder, "secret"), base_url=HERE, headers={"authorization": "Bearer secret"}) as client:
        query = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
        asking = threading.Thread(target=client.get, args=(f"{RUN}/sql?q={query}",), daemon=True)
        asking.start()
        until = time.monotonic() + SECONDS
        while not folder.get("one").aside().lock.locked() and time.monotonic() < until:
            time.sleep(0.01)
        assert get(client, f"{RUN}/head")
        assert asking.is_alive()
        while asking.is_alive() and time.monotonic() < until:
            folder.get("one").aside().interrupt()
            asking.join(INTERRUPT_EVERY)
        assert get(client, f"{RUN}/sql?q=select 1")["rows"] == [[1]]


def test_what_is_closed_already_can_be_stopped(runs: Path) -> None:
    """A comparison may end between the two moments."""
    with Run([runs / "one"]) as run:
        run.database.connection.close()
        interrupt(run)


def _count_for_ever(run: Run) -> None:
    import duckdb

    with suppress(duckdb.InterruptException):
        run.sql("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b").fetchall()


def test_a_process_without_a_rank_is_rank_0(tmp_path: Path) -> None:
    """Links that know of no rank and links that know one lead to the same step."""
    trainer, *workers = training_processes(steps=12)
    build_run(tmp_path / "one", [changed(trainer, rank=None, local_rank=None, world_size=None), *workers])
    with browser(tmp_path) as client:
        assert get(client, f"{RUN}/steps/-/5") == get(client, f"{RUN}/steps/0/5")
        get(client, f"{RUN}/steps/1/5", 404)
