"""However a program ends or fails to start recording: it runs as it would without Sonde, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Programs


@pytest.mark.parametrize("writes", ["mapped", "block"])
def test_forgetting_finish_loses_nothing(programs: Programs, writes: str) -> None:
    """Without finish() all is there, what other atexit handlers did included, and the end is noted."""
    programs.run(
        """
        import atexit, sonde
        sonde.init()
        for _ in range(3000):
            with sonde.span("work"):
                pass
        atexit.register(lambda: sonde.mark("late"))
        """,
        env={"SONDE_WRITES": writes},
    )
    assert programs.rows("select name, count(*) from events group by name order by name") == [
        ("late", 1),
        ("work", 3000),
    ]
    (process,) = programs.processes
    assert process["writes"] == writes
    assert process["end"]["reason"] == "exit"


def test_an_early_atexit_handler_is_recorded_in_mapped_rings(programs: Programs) -> None:
    """A handler that runs after ours is still recorded: recording does not stop at our handler."""
    programs.run("""
        import atexit
        atexit.register(lambda: sonde.mark("very late"))
        import sonde
        sonde.init()
        sonde.mark("work")
    """)
    assert programs.rows("select name from events order by start_ns") == [("work",), ("very late",)]


def test_an_uncaught_exception_is_noted_and_shown_as_ever(programs: Programs) -> None:
    """The traceback is the program's own, the exit code 1, and process.json names the exception."""
    done = programs.run(
        """
        import sonde
        sonde.init()
        with sonde.span("work"):
            raise KeyError("mine")
        """,
        code_expected=1,
    )
    assert "KeyError: 'mine'" in done.stderr
    assert "sonde" not in done.stderr.replace("sonde.init", "").replace("sonde.span", "")
    (process,) = programs.processes
    assert (process["end"]["reason"], process["end"]["exception"]) == ("exception", "KeyError")
    assert programs.rows("select error from events") == [(True,)]


def test_a_hook_of_the_program_is_still_called(programs: Programs) -> None:
    """sys.excepthook of the program gets the exception, whether it was set before or after init()."""
    done = programs.run(
        """
        import sys, sonde
        sys.excepthook = lambda kind, error, trace: print("first", kind.__name__)
        sonde.init()
        theirs = sys.excepthook
        def second(kind, error, trace):
            print("second", kind.__name__)
            theirs(kind, error, trace)
        sys.excepthook = second
        sonde.mark("x")
        raise ValueError
        """,
        code_expected=1,
    )
    assert done.stdout.split() == ["second", "ValueError", "first", "ValueError"]


def test_a_killed_process_has_no_end(programs: Programs) -> None:
    """After kill -9 every completed span is there, the open one too, and no end is claimed."""
    programs.run(
        """
        import os, signal, sonde
        sonde.init()
        for _ in range(5000):
            with sonde.span("done"):
                pass
        with sonde.span("running"):
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        code_expected=-signal.SIGKILL,
    )
    assert programs.rows("select name, open, count(*) from events group by all order by name") == [
        ("done", False, 5000),
        ("running", True, 1),
    ]
    assert programs.processes[0]["end"] is None


def test_an_exit_code_is_not_touched(programs: Programs) -> None:
    """sys.exit() inside `with sonde.init()` keeps its code, and counts as a plain end."""
    programs.run("import sys, sonde\nwith sonde.init():\n    sonde.mark('x')\n    sys.exit(7)\n", code_expected=7)
    assert programs.processes[0]["end"]["reason"] == "finish"


def test_a_folder_that_cannot_be_made_is_one_warning(programs: Programs) -> None:
    """Where no run folder can be made, the program runs on, and is told once why and what to do."""
    programs.dir.write_text("a file stands here")
    done = programs.run("import sonde\nwith sonde.init() as s:\n    sonde.mark('x')\n    print(s.path)\n")
    assert done.stdout == "None\n"
    assert done.stderr.count("cannot record") == 1
    assert "SONDE_DIR" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_read_only_folder_is_one_warning(programs: Programs) -> None:
    """A user who may not write there gets a warning with the reason, and the program's own result."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        done = programs.run(
            """
            import logging, os, pathlib, sys  # the interpreter's own files may be closed to the other user
            import sonde
            os.setuid(65534)
            print(sonde.init(dir=sys.argv[1] + "/runs").path)
            """,
            folder,
        )
    assert done.stdout == "None\n"
    assert "Permission denied" in done.stderr


def test_a_process_without_descriptors_runs_on(programs: Programs) -> None:
    """When no file can be opened any more, not even a module imported, init() still returns."""
    done = programs.run("""
        import resource, sonde
        import sonde.events.span
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        session = sonde.init()
        sonde.mark("x")
        session.finish()
        print("done")
    """)
    assert done.stdout == "done\n"
    assert programs.runs == []


def test_a_full_disk_at_the_start_is_one_warning(programs: Programs) -> None:
    """With a file-size limit of zero no run can be described, and the program runs on."""
    done = programs.run("""
        import resource, signal, sonde
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        session = sonde.init()
        sonde.mark("x")
        assert session.path is None
    """)
    assert done.stderr.count("cannot record") == 1
    assert list(programs.dir.iterdir()) == []


@pytest.mark.parametrize("stale", ["gone", "link", "file"])
def test_a_wrong_run_in_the_environment_is_one_warning(programs: Programs, stale: str) -> None:
    """SONDE_RUN that points to nothing, to a link or to a file: a warning, no recording, the program's own exit code."""
    target = programs.folder / stale
    if stale == "link":
        target.symlink_to(programs.folder)
    if stale == "file":
        target.write_text("")
    code = "import sys, sonde; sonde.mark('x'); sys.exit(3)"
    done = programs.run(code, env={"SONDE_RUN": str(target)}, code_expected=3)
    assert done.stderr.count("cannot record") == 1
    assert "unset SONDE_RUN" in done.stderr
    assert programs.runs == []


def test_the_environment_starts_a_recording(programs: Programs) -> None:
    """SONDE=1 records a program that never calls init()."""
    programs.run("import sonde; sonde.mark('x')", env={"SONDE": "1"})
    assert programs.rows("select count(*) from events") == [(1,)]


def test_the_command_itself_is_not_recorded(programs: Programs) -> None:
    """With SONDE=1 in the shell, `sonde` makes no run of its own."""
    command = [sys.executable, "-m", "sonde", "--version"]
    subprocess.run(command, env=programs.environment({"SONDE": "1"}), check=True, capture_output=True, timeout=60)
    assert not programs.dir.exists()


def test_the_environment_forbids_a_recording(programs: Programs) -> None:
    """SONDE=0 turns init() into nothing: no folder, no message."""
    done = programs.run("import sonde\nwith sonde.init('x'):\n    sonde.mark('x')\n", env={"SONDE": "0"})
    assert (done.stdout, done.stderr) == ("", "")
    assert not programs.dir.exists()


def test_a_wrong_value_in_the_environment_is_a_warning(programs: Programs) -> None:
    """A bad SONDE_CAP is told, and the default holds."""
    done = programs.run("import sonde\nwith sonde.init():\n    sonde.mark('x')\n", env={"SONDE_CAP": "lots"})
    assert "SONDE_CAP" in done.stderr
    assert programs.rows("select count(*) from events") == [(1,)]


def test_without_a_call_nothing_is_recorded(programs: Programs) -> None:
    """Importing sonde and using spans records nothing until init() is called."""
    programs.run("import sonde\nwith sonde.span('x'):\n    sonde.mark('y')\nsonde.log(a=1)\nsonde.finish()\n")
    assert not programs.dir.exists()


def test_a_run_folder_that_is_removed_hurts_nobody(programs: Programs) -> None:
    """A program whose run is deleted under its feet goes on and ends as ever."""
    done = programs.run("""
        import shutil, sonde
        session = sonde.init()
        sonde.mark("x")
        shutil.rmtree(session.path)
        for _ in range(5000):
            sonde.mark("y")
        sonde.finish()
        print("done")
    """)
    assert done.stdout == "done\n"
