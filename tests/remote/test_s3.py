"""A real server that speaks S3, on loopback, and s3fs: push while a program runs, read by URL, and what a bucket denies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remote.hosts import content, push_as, ranks_on

import sonde
from sonde.errors import RemoteError
from sonde.remote.cache import fetch
from sonde.remote.push import push
from sonde.testing import BuiltProcess, BuiltRecord, build_run, build_training

pytestmark = pytest.mark.soak

PATIENCE = 300
TRAIN = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(400):
    model(torch.ones(8, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad(); time.sleep(0.01)
raise SystemExit(3)
"""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket; fsspec finds server and credentials in the environment, as it would for a user."""
    pytest.importorskip("s3fs", reason="needs s3fs, which speaks S3")
    moto = pytest.importorskip("moto.server", reason="needs moto's server, which answers as S3 does")
    import boto3
    import fsspec

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret-of-the-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.config.conf.setdefault("s3", {})["endpoint_url"] = endpoint
    name = f"runs-{os.urandom(4).hex()}"  # what moto keeps, it keeps for the whole process
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    try:
        yield f"s3://{name}/team"
    finally:
        fsspec.config.conf.pop("s3", None)
        server.stop()


def sonde_command(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sonde", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_runs_of_two_hosts_are_read_by_their_url(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushed by two hosts, sealed or not, listed and reported by URL; a second fetch is of nothing."""
    for host, ranks in (("node-0", (0, 1)), ("node-1", (2, 3))):
        push_as(monkeypatch, host, ranks_on(tmp_path / host, host, ranks, steps=200), bucket, id="job")
    assert fetch(f"{bucket}/job").bytes > 0
    assert fetch(f"{bucket}/job").bytes == 0
    listed = json.loads(sonde_command("runs", bucket, "--json").stdout)
    assert [(one["id"], one["processes"]) for one in listed["runs"]] == [("job", 8)]
    view = json.loads(sonde_command("report", f"{bucket}/job", "--json").stdout)
    assert view["run"]["ranks"] == 4
    assert view["run"]["hosts"] == ["node-0", "node-1"]


def test_a_program_is_pushed_while_it_runs_and_after_it_failed(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is the program's, and the bucket has all that it recorded."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    words = ("run", "--push", bucket, "--push-every", "1", "--id", "job", "train.py")
    done = sonde_command(*words, code=3)
    assert f"sonde: pushed to {bucket}/job" in done.stderr
    (run,) = (tmp_path / "sonde-runs").iterdir()
    assert content(fetch(f"{bucket}/job").path) == content(run)
    kept = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"secret-of-the-test" not in kept


def test_a_bucket_that_is_not_there_is_one_sentence(tmp_path: Path, bucket: str) -> None:
    """No bucket is made behind the user's back."""
    run = build_training(tmp_path / "run", steps=3)
    with pytest.raises(RemoteError, match="nowhere"):
        push(run, "s3://nowhere/runs")
    done = sonde_command("report", "s3://nowhere/runs/x", code=1)
    assert "Traceback" not in done.stderr


def test_a_server_that_is_away_is_one_sentence(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local run stays, and can be pushed later."""
    import fsspec

    run = build_training(tmp_path / "run", steps=3)
    fsspec.config.conf["s3"]["endpoint_url"] = "http://127.0.0.1:9"
    with pytest.raises(RemoteError, match="Cannot"):
        push(run, bucket)
    assert content(run)


def test_ten_thousand_process_folders(tmp_path: Path, bucket: str) -> None:
    """They are a few objects, and come back all."""
    run = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()], pid=pid) for pid in range(1, 10_001)])
    assert push(run, bucket).objects < 10
    assert push(run, bucket).objects == 0
    with sonde.open_run(f"{bucket}/run") as opened:
        assert opened.sql("SELECT count(*), sum(events) FROM processes").fetchall() == [(10_000, 10_000)]
