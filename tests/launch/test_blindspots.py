"""Which Pythons do not hear of Sonde."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.launch.blindspots import cleaned, ignored, interpreter, is_python, nothing, path_of, without_folder
from sonde.store.folder import create_run, host


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python -I train.py", "I"),
        ("/usr/bin/python3.12 -uE train.py", "E"),
        ("python -X dev -S train.py", "S"),
        ("python -Xdev -W error -bI -m x", "I"),
        ("python -W ignore train.py -I", None),
        ("python train.py -I", None),
        ("python -m train -I", None),
        ("python -c pass -E", None),
        ("python -cI", None),
        ("python -u -s -P train.py", None),
        ("python --check-hash-based-pycs always -I x.py", "I"),
        ("python - -I", None),
        ("python", None),
        ("bash -E", None),
        ("", None),
    ],
)
def test_options_of_python_that_shut_sonde_out(command: str, option: str | None) -> None:
    """Only those in front of the program count, also among others in one word."""
    reported = ignored(command.split())
    assert (reported is None) == (option is None)
    assert option is None or f"python -{option} " in str(reported)


@pytest.mark.parametrize("name", ["python", "python3", "/usr/bin/python3.12", "pypy3", "Python"])
def test_names_of_interpreters(name: str) -> None:
    """With a version, with a path."""
    assert is_python(name)
    assert not is_python("/home/python/bin/bash")


def test_a_process_with_a_cleaned_environment_is_found(tmp_path: Path) -> None:
    """One that has the variable of this run is not among them, and one that is gone cannot be told."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    for env, expected in (({"SONDE_RUN": str(tmp_path)}, False), ({"SONDE_RUN": "other"}, True)):
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert (cleaned(child.pid, str(tmp_path)) is not None) is expected
            child.communicate(b"\n")
        assert cleaned(child.pid, str(tmp_path)) is None


def test_a_process_without_any_environment_is_found(tmp_path: Path) -> None:
    """As `env -i` makes it; of one that has ended, the kernel shows none either."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    child = subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdout.readline()
        assert cleaned(child.pid, str(tmp_path)) is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays as it is: ended, and not waited for
        assert cleaned(child.pid, str(tmp_path)) is None
    child.wait(timeout=60)


def test_another_venv_of_the_same_python_is_another_python(tmp_path: Path) -> None:
    """Its file is the same; its packages are not. A second name for the Python of one venv is none."""
    run = Path(create_run(str(tmp_path), "x", {}, "0"))
    venv = tmp_path / "bare"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (reported,) = nothing(str(run), [str(venv / "bin" / "python")])
    assert f"It ran with {venv}/bin/python, " in reported
    (reported,) = nothing(str(run), [os.path.join(os.path.dirname(sys.executable), "python3")])
    assert "no Python process that Sonde could record" in reported


def test_the_path_that_a_python_was_started_by(tmp_path: Path) -> None:
    """From its folder, or found on the path; its file if it is none of these, as of one that has another name."""
    file = os.path.realpath(sys.executable)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(file)
    expected = str(tmp_path / "bin" / "python")
    assert interpreter("bin/python", file, str(tmp_path), None) == expected
    assert interpreter("python", file, "/", str(tmp_path / "bin")) == expected
    assert interpreter("python: my title", file, str(tmp_path), "/nothing") == file
    assert interpreter("/bin/sh", file, "/", None) == file


def test_a_run_without_a_record_of_the_program_is_told_with_the_other_python(tmp_path: Path) -> None:
    """The folder of the launcher itself does not count, that of any other process does."""
    run = Path(create_run(str(tmp_path), "x", {}, "0"))
    (run / f"{host()}-{os.getpid()}-0").mkdir()
    (other,) = nothing(str(run), ["/opt/other/python"])
    assert "/opt/other/python" in other
    (same,) = nothing(str(run), [sys.executable])
    assert sys.executable not in same
    assert "no Python process that Sonde could record" in same
    assert nothing(str(run), ["/opt/other/python"], reported=True) == ["The program itself was not recorded."]
    (run / f"{host()}-1-0").mkdir()
    assert nothing(str(run), []) == []


@pytest.mark.parametrize(("variables", "path"), [({"PATH": "/a:/b", "X": "1"}, "/a:/b"), ({}, None)])
def test_the_path_of_another_process_is_told(variables: dict[str, str], path: str | None) -> None:
    """As it was started with."""
    # The kernel closes the pipe that Popen waits for before it shows the new environment: wait for the program itself.
    with subprocess.Popen(
        ["/bin/sh", "-c", "echo; read line"], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert path_of(child.pid) == path
        child.communicate(b"\n")


def test_records_of_processes_without_a_folder_are_told(tmp_path: Path) -> None:
    """How many, and what to look at."""
    assert without_folder(str(tmp_path)) == []
    (tmp_path / "usage").write_bytes(bytes(8) + (1234).to_bytes(8, "little"))
    (reported,) = without_folder(str(tmp_path))
    assert reported.startswith("1,234 records were lost: their processes could not create a folder in ")
