"""The recorder: files of a process, where the rings go, names of threads."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sonde import config, ranks, system
from sonde.events import core, recorder as module
from sonde.events.recorder import Recorder, thread_name
from sonde.store import filesystem, folder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def run(tmp_path: Path) -> str:
    return folder.create_run(str(tmp_path / "runs"), "try", {}, "0.1.0")


@pytest.fixture(autouse=True)
def _close_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a recorder opens in these tests is closed after them: no core takes it."""
    opened: list[core.Files] = []
    plain = Recorder._open

    def remember(self: Recorder, made: folder.ProcessFolder) -> core.Files:
        opened.append(plain(self, made))
        return opened[-1]

    monkeypatch.setattr(Recorder, "_open", remember)
    yield
    folder.close_all(fd for files in opened for fd in files if fd >= 0)


def recorder(run: str, **settings: object) -> Recorder:
    return Recorder(run, config.load(**settings))


def facts(run: str) -> dict[str, Any]:
    (path,) = Path(run).glob("*/process.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_opening_makes_the_folder_and_its_files(run: str) -> None:
    """A process folder has all five files from the start, and args.bin its magic."""
    assert recorder(run).open() is not None
    (made,) = (path for path in Path(run).iterdir() if path.is_dir())
    assert {path.name for path in made.iterdir()} == {"process.json", "rings", "events.seg", "names.jsonl", "args.bin"}
    assert (made / "args.bin").read_bytes() == b"SONDEARG"


def test_process_json_says_who_records(run: str) -> None:
    """The facts of this process stand in the file before its first record."""
    recorder(run).open()
    found = facts(run)
    assert (found["pid"], found["parent_pid"], found["n"]) == (os.getpid(), os.getppid(), 0)
    assert found["core"] == core.KIND
    assert found["end"] is None
    assert found["start_ticks"] == system.start_ticks(os.getpid())


def test_block_writes_have_no_rings(run: str) -> None:
    """With writes=block there is no rings file, and the core is told so."""
    files = recorder(run, writes="block").open()
    assert files is not None
    assert files.rings == -1
    assert facts(run)["writes"] == "block"
    assert not list(Path(run).glob("*/rings"))


def test_rings_go_to_the_local_disk_when_the_run_is_on_a_network(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rings lie in a private folder in scratch, process.json says where, and bytes are counted per process."""
    monkeypatch.setattr(filesystem, "may_map", lambda path: str(path) == str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    host = recorder(run, scratch=tmp_path / "scratch")
    assert host.open() is not None
    rings = Path(facts(run)["rings"])
    assert rings.parent.parent == tmp_path / "scratch"
    assert rings.exists()
    assert host.usage() == -1


def test_without_any_local_disk_blocks_are_written(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be mapped, records are written in blocks."""
    monkeypatch.setattr(filesystem, "may_map", lambda path: False)
    files = recorder(run).open()
    assert files is not None
    assert files.rings == -1


def test_a_usage_file_that_is_gone_or_no_file_is_not_opened(run: str) -> None:
    """Then this process counts for itself."""
    os.unlink(os.path.join(run, "usage"))
    assert recorder(run).usage() == -1
    os.mkfifo(os.path.join(run, "usage"))
    assert recorder(run).usage() == -1


def test_a_failed_opening_leaves_nothing_behind(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file cannot be made, the folder goes, the descriptors are closed, and the answer is None."""
    before = len(os.listdir("/proc/self/fd"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_json", fail)
    assert recorder(run).open() is None
    assert [path for path in Path(run).iterdir() if path.is_dir()] == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_run_that_is_gone_gives_no_files(tmp_path: Path) -> None:
    """Opening in a folder that does not exist is None, not an error."""
    assert recorder(str(tmp_path / "none")).open() is None


def test_the_end_is_written_once_there_is_a_folder(run: str) -> None:
    """note_end() before the first record does nothing; after it, the reason is there."""
    one = recorder(run)
    one.note_end("finish")
    one.open()
    one.note_end("finish")
    assert facts(run)["end"]["reason"] == "finish"


def test_a_rank_that_was_learned_is_written(run: str) -> None:
    """Into process.json, at once, and what else stands there stays."""
    here = recorder(run)
    here.open()
    before = facts(run)
    ranks.learn(3, 4)
    try:
        here.become_rank()
    finally:
        ranks.forget()
    assert facts(run) == before | {"rank": 3, "local_rank": None, "world_size": 4, "role": "trainer"}


def test_a_worker_that_is_told_its_rank_stays_a_worker(run: str) -> None:
    """It belongs to that rank, and does not train itself."""
    here = recorder(run)
    here.open()
    here.become_worker(5)
    ranks.learn(3, 4)
    try:
        here.become_rank()
    finally:
        ranks.forget()
    assert [facts(run)[name] for name in ("role", "worker", "rank")] == ["worker", 5, 3]


def test_lines_of_names_are_valid_whatever_the_name_is(run: str) -> None:
    """Newlines, quotes, lone surrogates and long names make one line of valid JSON."""
    line = recorder(run).name_line(7, "c\n", '"\udc80' + "x" * 10_000)
    assert line.count(b"\n") == 1
    found = json.loads(line.decode())
    assert (found["id"], found["cat"]) == (7, "c\n")
    assert found["name"].startswith('"\\udc80x')
    assert len(found["name"]) < 600


def test_the_name_of_a_thread_is_its_own(run: str) -> None:
    """A line for a thread holds its ordinal, its native id and its name."""
    lines: list[bytes] = []
    one = recorder(run)
    thread = threading.Thread(target=lambda: lines.append(one.thread_line(3, threading.get_native_id())), name="mine")
    thread.start()
    thread.join()
    assert json.loads(lines[0]) == {"thread": 3, "tid": thread.native_id, "name": "mine"}


def test_a_thread_is_found_by_others() -> None:
    """The name of the main thread can be asked for by its native id, from another thread too."""
    found: list[str] = []
    main = threading.get_native_id()
    thread = threading.Thread(target=lambda: found.append(thread_name(main)))
    thread.start()
    thread.join()
    assert found == [threading.main_thread().name]


def test_a_thread_that_is_gone_still_has_a_name() -> None:
    """An id that nobody has is no trouble."""
    assert thread_name(2**30) == f"thread {2**30}"


def test_looking_for_a_thread_invents_none() -> None:
    """Asking for a name adds no thread to those that Python knows."""
    before = threading.active_count()
    thread_name(1)
    assert threading.active_count() == before


def test_hooks_are_restored(run: str) -> None:
    """After unwatch() the program's excepthook is its own again."""
    import sys

    before = sys.excepthook
    one = recorder(run)
    one.watch()
    assert sys.excepthook != before
    one.unwatch()
    assert sys.excepthook is before


def test_this_process_is_no_loader_worker() -> None:
    """Outside of torch's workers there is no worker number."""
    assert module.loader_worker() is None
    assert not module.is_multiprocessing_child()
