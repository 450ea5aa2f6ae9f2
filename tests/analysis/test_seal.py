"""Sealing: the same answers, fewer bytes, and nothing lost or doubled whenever it is interrupted."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.oldform import seal_in_one
from tests.analysis.sample import everything, records, running, sample
from tests.diagnosis.building import replaced

from sonde.analysis.parts.manifest import manifest_of
from sonde.analysis.run import open_run
from sonde.analysis.seal import RAW_FILES, seal
from sonde.errors import IncompleteRun, RunBusy, RunUnreadable
from sonde.store.folder import host
from sonde.testing import BuiltProcess, BuiltRecord, build_process, build_run, build_training

NAME = f"{host()}-0000"  # of the first part
INCOMPLETE = pytest.mark.filterwarnings("ignore::sonde.errors.IncompleteRun")


def answers(folder: Path) -> tuple[object, ...]:
    with open_run(folder) as run:
        return everything(run)


def leftovers(folder: Path) -> list[str]:
    """Raw files and unfinished ones."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.name in RAW_FILES or "sealing" in path.name
    )


def test_a_sealed_run_gives_the_same_answers(tmp_path: Path) -> None:
    """Events, processes, types, drops, notes, state."""
    folder = sample(tmp_path / "run")
    before = answers(folder)
    done = seal(folder)
    assert answers(folder) == before
    assert (done.events, done.processes) == (len(before[0]), 3)  # type: ignore[arg-type]
    assert done.after < done.before
    assert leftovers(folder) == []
    assert (folder / "testhost-10-0" / "process.json").exists()


def test_sealed_files_are_private(tmp_path: Path) -> None:
    """Mode 0600, like all others."""
    folder = sample(tmp_path / "run")
    seal(folder)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("parts/**/*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in folder.glob("parts/**/") if path != folder} == {0o700}


def test_damage_is_still_told_after_sealing(tmp_path: Path) -> None:
    """Notes and the reasons of losses are part of the sealed run."""
    folder = sample(tmp_path / "run")
    args = folder / "testhost-10-0" / "args.bin"
    args.write_bytes(args.read_bytes()[:-3])
    with (folder / "testhost-10-0" / "events.seg").open("r+b") as file:
        file.write(bytes(8))
    seal(folder)
    with open_run(folder) as run:
        assert any("events.seg is damaged" in note for note in run.notes)
        assert any("args.bin is damaged" in note for note in run.notes)
        assert run.drops.by_reason["damage"] > 0


def test_sealing_twice_changes_nothing(tmp_path: Path) -> None:
    """The second time there is nothing to do."""
    folder = sample(tmp_path / "run")
    seal(folder)
    before = answers(folder)
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    seal(folder)
    assert answers(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == {
        path: stamp for path, stamp in files.items() if path.is_file()
    }


def test_a_process_that_joins_later_is_read_and_sealed_again(tmp_path: Path) -> None:
    """It lies beside the sealed tables until then, on the same time line."""
    folder = sample(tmp_path / "run")
    seal(folder)
    early = {"start": {"mono_ns": 0, "wall_ns": 0}}
    build_process(folder, BuiltProcess(records(5), pid=99, process=early))
    both = answers(folder)
    assert len(both[1]) == 4  # type: ignore[arg-type]
    seal(folder)
    assert answers(folder) == both
    assert leftovers(folder) == []


def test_an_empty_run_can_be_sealed(tmp_path: Path) -> None:
    """Its tables are empty then too."""
    folder = build_run(tmp_path / "run", [])
    assert seal(folder).events == 0
    assert answers(folder)[0] == []


def test_several_sealed_folders_are_one_run(tmp_path: Path) -> None:
    """Sealed and raw ones together, equal names of processes included."""
    folders = [sample(tmp_path / name) for name in "ab"]
    with open_run(folders) as run:
        before = everything(run)
    seal(folders[0])
    with open_run(folders) as run:
        assert everything(run) == before


def test_a_run_that_is_recording_is_refused(tmp_path: Path) -> None:
    """The message says which process runs."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()], process=running())])
    with pytest.raises(RunBusy, match=f"process {os.getpid()} .* is running"):
        seal(folder)
    assert len(leftovers(folder)) == 4


def test_a_process_on_another_host_needs_force(tmp_path: Path) -> None:
    """Nobody here can say whether it runs."""
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()], process={"end": None})])
    before = answers(folder)
    with pytest.raises(RunBusy, match="on testhost may still be recording"):
        seal(folder)
    seal(folder, force=True)
    assert answers(folder) == before


def test_a_program_that_was_replaced_on_another_host_keeps_nobody_from_sealing(tmp_path: Path) -> None:
    """It records no more: another one does so in its process; and the sealed run says so too."""
    run = build_run(tmp_path / "run", replaced(BuiltProcess(records(3))))
    seal(run)
    with open_run(run) as opened:
        found = opened.sql("SELECT state, reason FROM processes ORDER BY process").fetchall()
    assert found == [("ended", "replaced"), ("ended", "finish")]


def test_two_cannot_seal_at_once(tmp_path: Path) -> None:
    """The second one is told to wait."""
    folder = sample(tmp_path / "run")
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(RunBusy, match="being sealed by another"):
        seal(folder)
    os.close(lock)
    seal(folder)


def test_rings_elsewhere_go_too(tmp_path: Path) -> None:
    """Rings on local disk, of a run on a network file system."""
    place = tmp_path / "scratch-rings"
    process = BuiltProcess([BuiltRecord()], host=host(), process={"rings": str(place)})
    folder = build_run(tmp_path / "run", [process])
    (folder / f"{host()}-1000-0" / "rings").rename(place)
    seal(folder)
    assert not place.exists()


def test_a_file_that_process_json_names_and_that_is_no_rings_file_stays(tmp_path: Path) -> None:
    """A damaged path must not cost the user a file."""
    place = tmp_path / "thesis.txt"
    place.write_text("years of work")
    folder = build_run(tmp_path / "run", [BuiltProcess([BuiltRecord()], host=host(), process={"rings": str(place)})])
    seal(folder)
    assert place.read_text() == "years of work"


def test_a_part_that_is_not_listed_yet_counts_for_nothing(tmp_path: Path) -> None:
    """A sealing was killed before the manifest: the raw files count, and the part is not made again."""
    folder, copy = sample(tmp_path / "run"), tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = answers(folder)
    seal(copy)
    shutil.copytree(copy / "parts", folder / "parts")
    (manifest_of(folder)).write_text('{"version": 1, "run": "run", "parts": {}}')
    (folder / "parts" / ".sealing-0001-x").mkdir()
    assert answers(folder) == before
    stamp = (folder / "parts" / NAME / "summary.json").stat().st_mtime_ns
    seal(folder)
    assert answers(folder) == before
    assert leftovers(folder) == []
    assert (folder / "parts" / NAME / "summary.json").stat().st_mtime_ns == stamp


def test_a_process_of_a_part_that_is_not_listed_is_read_once(tmp_path: Path) -> None:
    """The second part has no line in the manifest yet: its process is read from its raw files."""
    folder = sample(tmp_path / "run")
    seal(folder)
    old = (manifest_of(folder)).read_bytes()
    process = build_process(folder, BuiltProcess(records(5), pid=99))
    raw = {name: (process / name).read_bytes() for name in RAW_FILES if (process / name).exists()}
    both = answers(folder)
    seal(folder)
    (manifest_of(folder)).write_bytes(old)
    for name, content in raw.items():
        (process / name).write_bytes(content)
    assert answers(folder) == both


def test_raw_files_of_a_sealed_process_are_ignored_and_cleared(tmp_path: Path) -> None:
    """Left by a sealing that was killed while it removed them."""
    folder = sample(tmp_path / "run")
    raw = (folder / "testhost-10-0" / "events.seg").read_bytes()
    before = answers(folder)
    seal(folder)
    (folder / "testhost-10-0" / "events.seg").write_bytes(raw)
    assert answers(folder) == before
    seal(folder)
    assert leftovers(folder) == []


def content(folder: Path) -> dict[str, bytes]:
    """All files of a run."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@INCOMPLETE
@pytest.mark.parametrize("missing", ["", "summary.json", "beside.parquet"])
def test_a_copy_that_lacks_a_part_is_left_as_it_is(tmp_path: Path, missing: str) -> None:
    """Sealing again would make an empty part of its processes. Every answer names the part, and what it held."""
    folder = build_training(tmp_path / "run", ranks=2, steps=5)
    seal(folder)
    before = answers(folder)
    (folder / "parts" / NAME / missing).rename(tmp_path / "backup")
    left = content(folder)
    with open_run(folder) as run:
        (note,) = run.notes  # and none about the raw files of each of its processes
        assert note.startswith(f"Part {NAME} cannot be used: it")
        assert "is missing" in note
        assert "It holds ranks 0 to 1, which no query can see." in note
    with pytest.raises(RunUnreadable, match=rf"Part {NAME} .* missing.*Restore .*Nothing was changed"):
        seal(folder)
    assert content(folder) == left
    (tmp_path / "backup").rename(folder / "parts" / NAME / missing)
    seal(folder)
    assert answers(folder) == before


def test_a_copy_that_lacks_the_manifest_reads_with_a_warning(tmp_path: Path) -> None:
    """The parts describe themselves; but nobody knows whether these are all."""
    folder = sample(tmp_path / "run")
    seal(folder)
    (manifest_of(folder)).unlink()
    with open_run(folder) as run:
        with pytest.warns(IncompleteRun, match=r"manifest-\*\.json is missing"):
            run.table("events")
        assert run.sql("SELECT count(*) > 0 FROM events").fetchall() == [(True,)]
        assert any("manifest-*.json is missing" in note for note in run.notes)
    with pytest.raises(RunUnreadable, match=r"manifest-\*\.json is missing. Nothing was changed"):
        seal(folder)


@INCOMPLETE
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"version":1', '"version":9'), "has version 9; this version of Sonde reads"),
        (lambda text: text.replace('"run":"run"', '"run":"other"'), "belongs to another run, other"),
        (lambda text: text.replace('"events":', '"EVENTS":', 1), "summary.json is damaged"),
        (lambda text: text.replace('"exits":[]', '"exits":[ ]'), "does not match the manifest"),
        (lambda text: text[: len(text) // 2], "summary.json is damaged"),
        (lambda text: text.replace("beside.parquet", "../../../x.parquet"), "summary.json is damaged"),
    ],
    ids=["version", "run", "field", "digest", "cut", "path"],
)
def test_a_part_that_does_not_belong_here_is_named(tmp_path: Path, change: Callable[[str], str], said: str) -> None:
    """Of another version, another run, or damaged: one sentence, no traceback."""
    folder = sample(tmp_path / "run")
    seal(folder)
    summary = folder / "parts" / NAME / "summary.json"
    changed = change(summary.read_text())
    assert changed != summary.read_text()
    summary.write_text(changed)
    with open_run(folder) as run:
        assert any(note.startswith(f"Part {NAME} cannot be used") and said in note for note in run.notes)
        assert run.sql("SELECT count(*) FROM events").fetchall() == [(0,)]


@INCOMPLETE
@pytest.mark.parametrize("name", ["beside", "steps"])
def test_a_flipped_bit_in_a_part_is_named(tmp_path: Path, name: str) -> None:
    """Of a run that is small enough to be checked each time."""
    folder = build_training(tmp_path / "run", steps=5)
    seal(folder)
    table = folder / "parts" / NAME / f"{name}.parquet"
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with open_run(folder) as run:
        assert any(f"its {name}.parquet is damaged" in note for note in run.notes)


# ── runs that earlier versions sealed ────────────────────────────────────────────────────────────────────────────────


def test_a_run_sealed_in_one_file_gives_the_same_answers(tmp_path: Path) -> None:
    """Also with a process that joined later, raw, and sealed in a part."""
    folder = sample(tmp_path / "run")
    before = answers(folder)
    seal_in_one(folder)
    assert answers(folder) == before
    build_process(folder, BuiltProcess(records(5), pid=99))
    both = answers(folder)
    seal(folder)
    assert answers(folder) == both
    assert leftovers(folder) == []


@pytest.mark.parametrize("missing", ["events.parquet", "processes.parquet"])
def test_a_copy_that_lacks_a_table_of_the_old_form_is_left_as_it_is(tmp_path: Path, missing: str) -> None:
    """Sealing would make empty tables of its processes."""
    folder = seal_in_one(sample(tmp_path / "run"))
    (folder / missing).unlink()
    left = content(folder)
    with pytest.raises(RunUnreadable, match=rf"incomplete: {missing}.* missing.*Restore"):
        seal(folder)
    assert content(folder) == left


def test_a_run_that_lacks_its_sealed_events_says_so(tmp_path: Path) -> None:
    """What is left is shown, with a note."""
    folder = seal_in_one(sample(tmp_path / "run"))
    (folder / "events.parquet").unlink()
    with open_run(folder) as run:
        assert any("events.parquet is missing" in note for note in run.notes)


@pytest.mark.parametrize(("share", "what"), [(0.5, r"truncated or damaged \(No magic bytes.*\)"), (0, "empty")])
@pytest.mark.parametrize("name", ["events.parquet", "processes.parquet"])
def test_damaged_sealed_tables_are_a_clear_error(tmp_path: Path, name: str, share: float, what: str) -> None:
    """A file that was cut short is told by its name, in one line."""
    folder = seal_in_one(sample(tmp_path / "run"))
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * share)])
    told = rf"Cannot read the sealed tables of .*: {name} is {what}\. Restore the folder from a backup\.$"
    with open_run(folder) as run, pytest.raises(RunUnreadable, match=told) as raised:
        run.table("events")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("processes.parquet", b"host", b"h\xffst"), ("events.parquet", b"start_ns", b"start_Ns")],
    ids=["no text", "another case"],
)
def test_a_column_with_another_name_is_damage(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    """One flipped bit in the footer of a table: one sentence, whatever is asked."""
    path = seal_in_one(sample(tmp_path / "run"))
    table = path / name
    table.write_bytes(table.read_bytes().replace(old, new))
    with pytest.raises(RunUnreadable, match=rf"{name} is .*damaged.*Restore the folder"):
        open_run(path).table("steps")


# ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────────────


SEAL = "import sys; from sonde.analysis.seal import seal; print('go', flush=True); seal(sys.argv[1])"


def kill_while_sealing(tmp_path: Path, rounds: int) -> int:
    """Kill sealing at random moments; how often it was still at work."""
    folder = build_run(tmp_path / "run", [BuiltProcess(records(300), pid=pid, spilled=200) for pid in range(1, 9)])
    before = answers(folder)
    killed = 0
    for _ in range(rounds):
        process = subprocess.Popen([sys.executable, "-c", SEAL, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() != 0
        process.stdout.close()
        assert answers(folder) == before
    seal(folder)
    assert answers(folder) == before
    assert leftovers(folder) == []
    return killed


def test_a_kill_at_any_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Whatever is there gives the same answers, and sealing can be done again."""
    kill_while_sealing(tmp_path, 8)


@pytest.mark.soak
def test_many_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """The same, many times, on fresh runs."""
    for number in range(20):
        kill_while_sealing(tmp_path / str(number), 5)


def test_tables_for_which_there_is_no_room_are_not_left_half(tmp_path: Path) -> None:
    """The message says so, and the records are as they were."""
    run = build_training(tmp_path / "run", steps=2000)
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from sonde.analysis.seal import seal; seal(sys.argv[1])", str(run)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Cannot write the tables of" in done.stderr.splitlines()[-1]
    assert "Its records are unchanged." in done.stderr.splitlines()[-1]
    after = sorted(path.relative_to(run) for path in run.rglob("*"))
    assert [path for path in after if "parts" not in path.parts] == before
    assert [path.name for path in (run / "parts").iterdir()] == [f"manifest-{host()}.json"]
