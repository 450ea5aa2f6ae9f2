"""The page in a real browser: it asks nobody for anything, and no name in it is obeyed."""

from __future__ import annotations

import dataclasses
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.html.test_blackbox import faulty, page_of
from tests.views.runs import with_slow_item

from sonde.analysis.run import open_run
from sonde.html import interactive, page
from sonde.html.interactive import STATIC
from sonde.views.charts import charts
from sonde.views.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 120
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here; install Debian's package `chromium` to run this test"
)


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """The address of a server on this machine, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def shown(path: Path, profile: Path) -> str:
    """What the browser made of a page, as HTML."""
    assert CHROMIUM is not None
    line = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    ]
    done = subprocess.run(
        [*line, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout


def test_hostile_names_do_not_run_and_nothing_is_requested(tmp_path: Path, listener: tuple[str, list[str]]) -> None:
    """Not even where a name would have been HTML: a script, a picture, a frame, a style."""
    address, asked = listener
    evil = (
        f"<script src='{address}/script'></script><script>document.title='owned'</script><img src='{address}/img' "
        f"onerror=\"document.title='owned'\"><iframe src='{address}/frame'></iframe><link rel=stylesheet href='{address}/css'>"
        f"<style>body{{background:url({address}/style)}}</style></title></style>"
    )
    with open_run(with_slow_item(tmp_path / "run")) as run:
        view, drawn, live = report(run), charts(run), interactive(run)
    about = dataclasses.replace(view.run, name=evil, command=evil, notes=[evil])
    layers = [dataclasses.replace(one, layer=evil, type=evil) for one in view.layers]
    view = dataclasses.replace(view, run=about, layers=layers, verdict=dataclasses.replace(view.verdict, why=evil))
    path = tmp_path / "report.html"
    path.write_text(page(view, drawn, live))
    document = shown(path, tmp_path / "profile")
    assert "<title>owned" not in document
    assert view.verdict.kind in document
    assert asked == []


def test_the_page_of_the_black_box_obeys_nobody_either(tmp_path: Path, listener: tuple[str, list[str]]) -> None:
    """Names of layers, values, items and exceptions, and what a picture is called."""
    address, asked = listener
    evil = (
        f"\" onerror=\"document.title='owned'\" x=\"</style></title><script>document.title='owned'</script>"
        f"<img src='{address}/img' onerror=\"document.title='owned'\"><iframe src='{address}/frame'></iframe>"
    )
    path = tmp_path / "box.html"
    path.write_text(page_of(faulty(tmp_path / "run", evil)))
    document = shown(path, tmp_path / "profile")
    assert "<title>owned" not in document
    assert "First NaN" in document
    assert asked == []


def test_the_listener_would_have_heard_it(tmp_path: Path, listener: tuple[str, list[str]]) -> None:
    """A page without escaping and without a policy does ask: the test above can fail."""
    address, asked = listener
    path = tmp_path / "plain.html"
    path.write_text(f"<!DOCTYPE html><img src='{address}/img'><script>document.title='owned'</script>")
    assert "<title>owned" in shown(path, tmp_path / "profile")
    assert asked == ["/img"]


@pytest.mark.skipif(not (STATIC / "charts.js").exists(), reason="the front end is not built: make setup")
def test_the_charts_of_a_report_are_drawn_by_its_script(tmp_path: Path) -> None:
    """The same lines as in the browser's pages; without a script, or where it may not run, the drawn ones are there."""
    with open_run(with_slow_item(tmp_path / "run")) as run:
        view, drawn, live = report(run), charts(run), interactive(run)
    for name, script in (("live", live), ("static", None)):
        path = tmp_path / f"{name}.html"
        path.write_text(page(view, drawn, script))
        document = shown(path, tmp_path / "profile")
        assert ("<canvas" in document) == (name == "live")
        assert ("Hover over a column" in document) == (name == "static")
    changed = (tmp_path / "live.html").read_text().replace("<script>", "<script>;", 1)
    (tmp_path / "changed.html").write_text(changed)
    assert "<canvas" not in shown(tmp_path / "changed.html", tmp_path / "profile")
