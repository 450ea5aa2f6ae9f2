"""`/metrics` for Prometheus."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from sonde.testing import build_training
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder


def test_a_scraper_with_the_token_gets_the_newest_run(tmp_path: Path) -> None:
    """Without the token it gets nothing, without a run an empty page."""
    client = TestClient(make_app(RunsFolder(tmp_path), "secret"), base_url="http://127.0.0.1:8700")
    token = {"authorization": "Bearer secret"}
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/metrics", headers=token).text == ""
    build_training(tmp_path / "one", ranks=2, steps=7)
    answer = client.get("/metrics", headers=token)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {one.name: one for family in text_string_to_metric_families(answer.text) for one in family.samples}
    assert found["sonde_steps_total"].value == 7
    assert found["sonde_steps_total"].labels["run"] == "one"
