"""Run folders and process folders: private, exclusive, and never through a symbolic link."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from sonde.errors import FolderRefused
from sonde.store import folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def new_run(parent: Path, name: str = "try") -> str:
    return folder.create_run(str(parent), name, {"cap": 1}, "0.1.0")


def test_a_run_folder_is_named_after_time_name_and_chance(tmp_path: Path) -> None:
    """The folder's name is the UTC time, the run's name and four hex digits."""
    assert re.fullmatch(r"\d{8}-\d{6}-try-[0-9a-f]{4}", os.path.basename(new_run(tmp_path)))


def test_run_json_says_what_ran(tmp_path: Path) -> None:
    """run.json holds all the fields that readers rely on."""
    path = new_run(tmp_path)
    with open(os.path.join(path, "run.json"), encoding="utf-8") as file:
        content = json.load(file)
    assert content["id"] == os.path.basename(path)
    assert content["name"] == "try"
    assert content["settings"] == {"cap": 1}
    assert content["cwd"] == os.getcwd()
    assert set(content["start"]) == {"mono_ns", "wall_ns"}
    assert {"schema", "command", "python", "platform", "sonde", "host", "git"} <= set(content)


def test_the_usage_file_is_sixteen_zero_bytes(tmp_path: Path) -> None:
    """The counts that processes share start at zero."""
    with open(os.path.join(new_run(tmp_path), "usage"), "rb") as file:
        assert file.read() == bytes(16)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    """Folders are 0700 and files 0600, whatever the umask says."""
    with umask(mask):
        run = new_run(tmp_path / "runs")
        process = folder.create_process(run).path
    assert [mode(tmp_path / "runs"), mode(run), mode(process)] == [0o700] * 3
    assert {mode(os.path.join(run, name)) for name in ("run.json", "usage")} == {0o600}


def test_two_runs_of_the_same_second_get_two_folders(tmp_path: Path) -> None:
    """A run never goes into a folder that exists."""
    assert len({new_run(tmp_path) for _ in range(20)}) == 20


def test_each_process_folder_takes_the_next_free_number(tmp_path: Path) -> None:
    """exec keeps the pid: the second program with it gets a folder of its own."""
    run = new_run(tmp_path)
    assert [folder.create_process(run).n for _ in range(3)] == [0, 1, 2]


def test_the_process_folder_is_named_after_host_and_pid(tmp_path: Path) -> None:
    """The folder's name is <host>-<pid>-<n>."""
    made = folder.create_process(new_run(tmp_path))
    assert os.path.basename(made.path) == f"{folder.host()}-{os.getpid()}-0"


def test_a_link_in_place_of_a_run_folder_is_refused(tmp_path: Path) -> None:
    """A symbolic link to a good run folder is not followed, and the message says what it is."""
    link = tmp_path / "link"
    link.symlink_to(new_run(tmp_path))
    with pytest.raises(FolderRefused, match="symbolic link"):
        folder.join_run(str(link))


def test_a_file_in_place_of_a_run_folder_is_refused(tmp_path: Path) -> None:
    """A plain file is no run folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match="not a folder"):
        folder.join_run(str(tmp_path / "file"))


def test_a_folder_without_run_json_is_refused(tmp_path: Path) -> None:
    """Sonde does not write into a folder that is no run, and says how to get rid of the setting."""
    with pytest.raises(FolderRefused, match="SONDE_RUN"):
        folder.join_run(str(tmp_path))


def test_a_link_in_place_of_run_json_is_refused(tmp_path: Path) -> None:
    """A run folder whose run.json is a link is refused."""
    (tmp_path / "run.json").symlink_to("/etc/passwd")
    with pytest.raises(FolderRefused, match="not a regular file"):
        folder.join_run(str(tmp_path))


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """A folder that belongs to somebody else is not written to."""
    foreign = str(tmp_path)
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    else:
        foreign = "/"
    with pytest.raises(FolderRefused, match="belongs to user"):
        folder.join_run(foreign)


def test_a_link_in_place_of_a_new_file_is_refused(tmp_path: Path) -> None:
    """Creating a file does not follow a link that waits in its place."""
    (tmp_path / "events.seg").symlink_to(tmp_path / "elsewhere")
    with folder.opened(str(tmp_path)) as here, pytest.raises(FolderRefused, match=r"events\.seg"):
        folder.open_new(here, "events.seg")
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_place_of_a_json_file_is_refused(tmp_path: Path) -> None:
    """Rewriting process.json neither follows nor replaces a link."""
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "process.json").symlink_to(target)
    with folder.opened(str(tmp_path)) as here, pytest.raises(FolderRefused, match=r"process\.json"):
        folder.write_json(here, "process.json", {})
    assert target.read_text() == "precious"


def test_a_rewritten_json_file_leaves_nothing_else_behind(tmp_path: Path) -> None:
    """The file is replaced in one step, and the temporary one is gone."""
    with folder.opened(str(tmp_path)) as here:
        folder.write_json(here, "process.json", {"end": None})
        folder.write_json(here, "process.json", {"end": 1})
    assert os.listdir(tmp_path) == ["process.json"]
    assert json.loads((tmp_path / "process.json").read_text()) == {"end": 1}


def test_new_files_are_not_passed_on_to_programs(tmp_path: Path) -> None:
    """A program that is started by exec does not inherit the descriptors."""
    with folder.opened(str(tmp_path)) as here:
        files = folder.create_event_files(here)
        try:
            assert not any(os.get_inheritable(fd) for fd in files.values())
        finally:
            folder.close_all(files.values())


def test_the_scratch_folder_is_private(tmp_path: Path) -> None:
    """The folder for rings on the local disk is 0700, and the same one at the second time."""
    first = folder.private_folder(str(tmp_path))
    assert folder.private_folder(str(tmp_path)) == first
    assert mode(first) == 0o700


def test_an_open_scratch_folder_is_refused(tmp_path: Path) -> None:
    """A folder that others may read is not used, even if it is ours."""
    os.chmod(folder.private_folder(str(tmp_path)), 0o755)
    with pytest.raises(FolderRefused, match="other users"):
        folder.private_folder(str(tmp_path))


def test_an_unused_run_can_be_discarded(tmp_path: Path) -> None:
    """Nothing is left of a run folder that lost its claim."""
    folder.discard_run(new_run(tmp_path))
    assert os.listdir(tmp_path) == []


def test_secrets_of_the_command_are_not_written_down(tmp_path: Path) -> None:
    """A token on the command line appears nowhere in run.json."""
    code = "import sys; from sonde.store.folder import create_run; print(create_run(sys.argv[1], 'x', {}, '0'))"
    command = [sys.executable, "-c", code, str(tmp_path), "--token=hunter2", "--password", "hunter2", "API_KEY=hunter2"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with open(os.path.join(made, "run.json"), encoding="utf-8") as file:
        text = file.read()
    assert "hunter2" not in text
    assert "--token=***" in text


def test_a_deleted_working_folder_is_no_trouble(tmp_path: Path) -> None:
    """A run can be made by a program whose working folder is gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    before = os.getcwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        run = new_run(tmp_path / "runs")
    finally:
        os.chdir(before)
    with open(os.path.join(run, "run.json"), encoding="utf-8") as file:
        assert json.load(file)["cwd"] is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train", "train"),
        ("a/b\\c d", "a-b-c-d"),
        ("../../etc", "etc"),
        ("-.-", "run"),
        ("训练", "run"),
        ("x" * 200, "x" * 40),
        ("run_1.py", "run_1.py"),
    ],
)
def test_names_become_parts_of_file_names(name: str, expected: str) -> None:
    """Slashes, spaces and foreign letters become dashes; long names are cut."""
    assert folder.slug(name) == expected


@given(st.text())
def test_any_name_makes_a_file_name(name: str) -> None:
    """Whatever the name is, its slug is short, plain and not empty."""
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,39}", folder.slug(name))


def test_the_clock_pair_is_of_now() -> None:
    """Both clocks move forward between two readings."""
    first, second = folder.clock(), folder.clock()
    assert first.mono_ns < second.mono_ns
    assert first.wall_ns <= second.wall_ns
