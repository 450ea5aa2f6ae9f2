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
from pathlib import Path

import pytest
from tests.analysis.sample import everything, records, running, sample
from tests.diagnosis.building import replaced

from sonde.analysis.run import open_run
from sonde.analysis.seal import RAW_FILES, seal
from sonde.errors import RunBusy, RunUnreadable
from sonde.store.folder import host
from sonde.testing import BuiltProcess, BuiltRecord, build_process, build_run, build_training


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
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.parquet")} == {0o600}


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


def test_an_interrupted_sealing_before_the_list_counts_for_nothing(tmp_path: Path) -> None:
    """Events without the list of processes are ignored and written anew."""
    folder = sample(tmp_path / "run")
    before = answers(folder)
    (folder / "events.parquet").write_bytes(b"half a file")
    (folder / ".sealing-processes.parquet").write_bytes(b"x")
    assert answers(folder) == before
    seal(folder)
    assert answers(folder) == before
    assert leftovers(folder) == []


def test_an_interrupted_second_sealing_doubles_nothing(tmp_path: Path) -> None:
    """New events with the old list: the new process is read from its raw files."""
    folder = sample(tmp_path / "run")
    seal(folder)
    old = (folder / "processes.parquet").read_bytes()
    process = build_process(folder, BuiltProcess(records(5), pid=99))
    raw = {name: (process / name).read_bytes() for name in RAW_FILES if (process / name).exists()}
    both = answers(folder)
    seal(folder)
    (folder / "processes.parquet").write_bytes(old)
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


@pytest.mark.parametrize(
    "missing",
    [
        ["events.parquet"],
        ["processes.parquet"],
        ["processes.parquet", "steps.json", "steps.parquet"],
        ["events.parquet", "processes.parquet"],
    ],
)
def test_a_copy_that_lacks_a_sealed_table_is_left_as_it_is(tmp_path: Path, missing: list[str]) -> None:
    """Sealing again would put empty tables in the place of those that are there."""
    folder = sample(tmp_path / "run")
    seal(folder)
    before = answers(folder)
    kept = {name: (folder / name).read_bytes() for name in missing}
    for name in missing:
        (folder / name).unlink()
    left = content(folder)
    with pytest.raises(RunUnreadable, match=rf"incomplete: {missing[0]}.* missing.*Restore"):
        seal(folder)
    assert content(folder) == left
    for name, inside in kept.items():
        (folder / name).write_bytes(inside)
    seal(folder)
    assert answers(folder) == before


def test_a_copy_that_lacks_the_list_and_a_process_is_left_as_it_is(tmp_path: Path) -> None:
    """The events are there of a process of which there is nothing else."""
    folder = sample(tmp_path / "run")
    seal(folder)
    (folder / "processes.parquet").unlink()
    for path in (folder / "testhost-10-0").iterdir():
        path.unlink()
    (folder / "testhost-10-0").rmdir()
    left = content(folder)
    with pytest.raises(RunUnreadable, match=r"incomplete: processes.parquet is missing"):
        seal(folder)
    assert content(folder) == left


def test_a_run_that_lacks_its_sealed_events_says_so(tmp_path: Path) -> None:
    """What is left is shown, with a note."""
    folder = sample(tmp_path / "run")
    seal(folder)
    (folder / "events.parquet").unlink()
    with open_run(folder) as run:
        assert any("events.parquet is missing" in note for note in run.notes)


def test_sealing_that_was_killed_between_the_tables_can_be_done_again(tmp_path: Path) -> None:
    """The events are in place, the list is not, and the raw files are all there: also those of a process without any."""
    folder = sample(tmp_path / "run")
    early = folder / "testhost-77-0"
    early.mkdir()
    (early / "process.json").write_text((folder / "testhost-10-0" / "process.json").read_text().replace("10", "77"))
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = answers(folder)
    seal(copy)
    for name in ("events.parquet", "ledger.parquet"):
        if (copy / name).exists():
            shutil.copy(copy / name, folder / name)
    assert answers(folder) == before
    seal(folder)
    assert answers(folder) == before
    assert leftovers(folder) == []


@pytest.mark.parametrize(("share", "what"), [(0.5, r"truncated or damaged \(No magic bytes.*\)"), (0, "empty")])
@pytest.mark.parametrize("name", ["events.parquet", "processes.parquet"])
def test_damaged_sealed_tables_are_a_clear_error(tmp_path: Path, name: str, share: float, what: str) -> None:
    """A file that was cut short is told by its name, in one line."""
    folder = sample(tmp_path / "run")
    seal(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * share)])
    told = rf"Cannot read the sealed tables of .*: {name} is {what}\. Restore the folder from a backup\.$"
    with open_run(folder) as run, pytest.raises(RunUnreadable, match=told) as raised:
        run.table("events")
    assert "\n" not in str(raised.value)


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
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("processes.parquet", b"host", b"h\xffst"), ("events.parquet", b"start_ns", b"start_Ns")],
    ids=["no text", "another case"],
)
def test_a_column_with_another_name_is_damage(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    """One flipped bit in the footer of a table: one sentence, whatever is asked."""
    path = sample(tmp_path / "run")
    seal(path)
    table = path / name
    table.write_bytes(table.read_bytes().replace(old, new))
    with pytest.raises(RunUnreadable, match=rf"{name} is .*damaged.*Restore the folder"):
        open_run(path).table("steps")
