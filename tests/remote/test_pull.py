"""What is wrong at a place is said in a sentence that names the host and its ranks; nothing is left out in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.remote.hosts import FaultyStore, content, push_as, ranks_on

import sonde
from sonde.analysis.seal import seal
from sonde.errors import FolderRefused, MissingExtra, RemoteError, RunNotFound
from sonde.remote.pull import pull
from sonde.remote.push import push
from sonde.testing import build_training
from sonde.views.report import report


@pytest.fixture
def job(tmp_path: Path, faulty: type[FaultyStore], monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of two hosts and four ranks, at a URL."""
    for host, ranks in (("node-0", (0, 1)), ("node-1", (2, 3))):
        push_as(monkeypatch, host, ranks_on(tmp_path / host, host, ranks), "faulty://runs", id="job")
    return "faulty://runs/job"


def paths(faulty: type[FaultyStore], host: str, end: str) -> list[str]:
    return sorted(path for path in faulty.store if f"/{host}-" in path and path.endswith(end))


def test_a_host_that_has_not_pushed_is_missed(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """The ranks that no host has pushed are named, by the pull and by every report of the copy."""
    for path in paths(faulty, "node-1", ""):
        del faulty.store[path]
    back = pull(job, tmp_path / "back")
    assert back.notes == ["ranks 2 and 3 of 4: no host has pushed them yet, or the store does not list their host yet"]
    with sonde.open_run(back.path) as run:
        view = report(run)
        assert f"job: {back.notes[0]}" in view.run.notes
        assert "ranks 2 and 3 of 4: not recorded" in [one.what for one in view.blind_spots]


def test_an_upload_without_its_manifest_has_not_finished(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """Packs alone do not count, and the host is named."""
    (manifest,) = paths(faulty, "node-1", "manifest.json")
    del faulty.store[manifest]
    notes = pull(job, tmp_path / "back").notes
    assert notes[0].startswith("node-1-")
    assert "has no manifest.json: its upload has not finished. Its ranks are missing here." in notes[0]
    assert notes[1].startswith("ranks 2 and 3 of 4")


def test_a_missing_pack_is_named_with_its_host_and_ranks(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """The other host is read all the same."""
    (pack,) = paths(faulty, "node-1", ".pack")
    del faulty.store[pack]
    back = pull(job, tmp_path / "back")
    assert "000001.pack is missing at" in back.notes[0]
    assert "What node-1 (ranks 2 and 3) recorded after that is missing here." in back.notes[0]
    with sonde.open_run(back.path) as run:
        assert run.sql("SELECT DISTINCT rank FROM steps ORDER BY 1").fetchall() == [(0,), (1,)]


def test_a_half_uploaded_pack_is_not_used(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """A pack that is shorter than the manifest says is named, and nothing of it is read."""
    (pack,) = paths(faulty, "node-1", ".pack")
    whole = faulty.store[pack].getvalue()
    faulty.store[pack].truncate(len(whole) // 2)
    notes = pull(job, tmp_path / "back").notes
    assert "000001.pack is damaged" in notes[0]
    assert "ranks 2 and 3" in notes[0]


def test_what_was_missing_is_fetched_when_it_is_there(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """A store that lists late, or an upload that is still under way, costs a second pull."""
    (pack,) = paths(faulty, "node-1", ".pack")
    kept = faulty.store.pop(pack)
    pull(job, tmp_path / "back")
    faulty.store[pack] = kept
    back = pull(job, tmp_path / "back")
    assert back.notes == []
    with sonde.open_run(back.path) as run:
        assert run.sql("SELECT count(DISTINCT rank) FROM steps").fetchall() == [(4,)]


def test_a_manifest_of_another_version_is_named(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """A newer Sonde has pushed: the sentence says which one is needed, and whose ranks are missing."""
    (manifest,) = paths(faulty, "node-1", "manifest.json")
    fields = json.loads(faulty.store[manifest].getvalue())
    faulty().pipe_file(manifest, json.dumps(fields | {"format": 2}).encode())
    notes = pull(job, tmp_path / "back").notes
    assert (
        "was pushed in format 2; this version of Sonde reads format 1. Install a newer version. Its ranks are missing"
        in notes[0]
    )


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "token": "0", "packs": 3}', b"\xff"]
)
def test_a_damaged_manifest_is_no_traceback(tmp_path: Path, job: str, faulty: type[FaultyStore], text: bytes) -> None:
    """Whatever stands there, it is a sentence about that host."""
    (manifest,) = paths(faulty, "node-1", "manifest.json")
    faulty().pipe_file(manifest, text)
    assert "manifest.json" in pull(job, tmp_path / "back").notes[0]


def test_two_runs_at_one_place_are_told_apart(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """Nothing is mixed: the sentence names both, and each host can be read by itself."""
    (manifest,) = paths(faulty, "node-1", "manifest.json")
    fields = json.loads(faulty.store[manifest].getvalue())
    faulty().pipe_file(manifest, json.dumps(fields | {"job": "another"}).encode())
    with pytest.raises(RemoteError, match=r"holds 2 runs .*\(job another\): node-1-.*node-0: node-0-.*--id"):
        pull(job, tmp_path / "back")
    one = pull(f"{job}/{manifest.split('/')[-2]}", tmp_path / "one")
    with sonde.open_run(one.path) as run:
        assert run.sql("SELECT DISTINCT rank FROM steps ORDER BY 1").fetchall() == [(2,), (3,)]


def test_a_place_that_denies_is_one_sentence(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """It says so, and what to check."""

    def deny(operation: str, path: str) -> None:
        raise PermissionError("AccessDenied: 403")

    faulty.fault = staticmethod(deny)
    with pytest.raises(RemoteError, match=r"access denied \(AccessDenied: 403\)\. Check the credentials"):
        pull(job, tmp_path / "back")


def test_a_place_that_does_not_answer_is_one_sentence(tmp_path: Path, job: str, faulty: type[FaultyStore]) -> None:
    """It is tried three times."""
    asked: list[str] = []

    def hang(operation: str, path: str) -> None:
        asked.append(path)
        raise TimeoutError

    faulty.fault = staticmethod(hang)
    with pytest.raises(RemoteError, match="does not answer in time"):
        pull(job, tmp_path / "back")
    assert len(asked) == 3


def test_a_host_that_pushes_meanwhile_is_read_again(tmp_path: Path, faulty: type[FaultyStore]) -> None:
    """The pack that the manifest named was replaced between two reads."""
    run = build_training(tmp_path / "run", steps=5, killed=True)
    push(run, "faulty://runs")
    (moving,) = [path for path in faulty.store if path.endswith(".now.pack")]
    done: list[str] = []

    def push_again(operation: str, path: str) -> None:
        if operation == "read" and path == moving and not done:
            done.append(path)
            info = next(run.glob("*/process.json"))
            info.write_text(json.dumps(json.loads(info.read_text()) | {"python": "3.99"}))
            push(run, "faulty://runs")

    faulty.fault = staticmethod(push_again)
    back = pull("faulty://runs/run", tmp_path / "back")
    assert done
    assert '"3.99"' in next(back.path.glob("*/process.json")).read_text()
    assert content(back.path) == content(run)


def test_a_place_without_a_run_lists_what_is_there(tmp_path: Path, job: str) -> None:
    """A folder of runs is not a run, and an empty place is none."""
    with pytest.raises(RunNotFound, match=r"is a folder of runs, not a run.*faulty://runs/job \(job\)\.$"):
        pull("faulty://runs", tmp_path / "back")
    with pytest.raises(
        RunNotFound, match=r"No run at faulty://runs/jib. List what is there with: sonde runs faulty://runs"
    ):
        pull("faulty://runs/jib", tmp_path / "back")


def test_a_folder_of_something_else_is_not_filled(tmp_path: Path, job: str) -> None:
    """A run of that name that was not pulled from there stays as it is."""
    build_training(tmp_path / "back" / "job", steps=3)
    with pytest.raises(FolderRefused, match="was not pulled from faulty://runs/job"):
        pull(job, tmp_path / "back")


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", ".push-x", "a/./b", "a\\b", "a//b", "é"])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, faulty: type[FaultyStore], path: str) -> None:
    """A pack is hostile input: nothing is written outside of the run folder."""
    from sonde.remote.pack import FRESH, Builder, entry_of, unpacked

    pack = Builder()
    pack.add(path, 0, b"content", FRESH)
    content = pack.content()
    with pytest.raises(RemoteError, match="no run has"):
        list(unpacked(entry_of("000001.pack", content), content))


def test_a_run_of_many_processes_is_one_object(tmp_path: Path, faulty: type[FaultyStore]) -> None:
    """Many process folders are neither as many writes nor as many reads."""
    from sonde.testing import BuiltProcess, BuiltRecord, build_run

    run = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()], pid=pid) for pid in range(1, 201)])
    assert push(run, "faulty://runs").objects == 1
    back = pull("faulty://runs/run", tmp_path / "back")
    with sonde.open_run(back.path) as opened:
        assert opened.sql("SELECT count(*) FROM processes").fetchall() == [(200,)]


def test_the_base_install_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without fsspec, the sentence says exactly what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sonde-ml\[cluster\]'"):
        pull("s3://bucket/run", tmp_path)


def test_a_protocol_without_its_library_says_what_to_install(tmp_path: Path) -> None:
    """fsspec knows which library a protocol needs."""
    with pytest.raises(RemoteError, match="Install that library with pip"):
        pull("box://bucket/run", tmp_path)
    with pytest.raises(RemoteError, match="Cannot open nonsense://bucket/run"):
        pull("nonsense://bucket/run", tmp_path)


def test_a_rank_that_two_hosts_say_they_are_is_named(
    tmp_path: Path, faulty: type[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs under one id, both with a rank 0: the note says so."""
    for host in ("node-0", "node-1"):
        push_as(monkeypatch, host, ranks_on(tmp_path / host, host, (0, 1, 2, 3)), "faulty://runs", id="job")
    notes = pull("faulty://runs/job", tmp_path / "back").notes
    assert notes == ["rank 0 was pushed by node-0 and node-1: two runs may have been pushed to one place"]


def test_hosts_that_sealed_apart_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has parts of a run folder of its own; all ranks are there."""
    url = f"file://{tmp_path}/store"
    for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
        run = ranks_on(tmp_path / host, host, ranks)
        with monkeypatch.context() as here:
            here.setattr("sonde.analysis.parts.manifest.host", lambda name=host: name)
            here.setattr("sonde.analysis.parts.partition.host", lambda name=host: name)
            seal(run, force=True)
        push_as(monkeypatch, host, run, url, id="job")
    pulled = pull(f"{url}/job", tmp_path / "here").path
    with sonde.open_run(pulled) as opened:
        assert opened.sql("SELECT rank, count(*) FROM steps GROUP BY 1 ORDER BY 1").fetchall() == [
            (0, 12),
            (1, 12),
            (2, 12),
            (3, 12),
        ]
        assert opened.notes == []
