"""init() and finish(): once, twice, nested, forgotten, refused."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import sonde
from sonde import config
from sonde.errors import SettingError
from sonde.events import core
from sonde.session import joined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _nothing_else_records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts and ends with nothing being recorded."""
    for name in [name for name in os.environ if name.startswith(("SONDE", "RANK", "WORLD", "SLURM", "TORCHELASTIC"))]:
        if name != "SONDE_CORE":
            monkeypatch.delenv(name)
    sonde.finish()
    yield
    sonde.finish()


def process_facts(run: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(run.glob("*/process.json"))]


def names_in(run: Path | None) -> list[str]:
    assert run is not None
    with sonde.open_run(run) as found:
        return [str(row[0]) for row in found.sql("select name from events order by seq").fetchall()]


def test_init_starts_a_run_and_finish_ends_it(tmp_path: Path) -> None:
    """Between the two calls events are recorded, before and after them not."""
    sonde.mark("before")
    session = sonde.init("mine", dir=tmp_path)
    sonde.mark("during")
    sonde.finish()
    sonde.mark("after")
    assert names_in(session.path) == ["during"]
    assert session.name == "mine"


def test_an_exception_in_the_block_is_recorded(tmp_path: Path) -> None:
    """Also if nothing else was: the run says that it crashed, and by what."""
    with pytest.raises(NameError), sonde.init(dir=tmp_path) as session:
        raise NameError("loader")
    (facts,) = process_facts(tmp_path / str(session.path))
    assert facts["end"]["exception"] == "NameError"  # type: ignore[index]
    assert str(sonde.open_run(str(session.path)).ending) == "crashed (NameError)"


def test_a_second_init_returns_the_running_session(tmp_path: Path) -> None:
    """A notebook cell that is run twice goes on in the same run."""
    assert sonde.init(dir=tmp_path) is sonde.init(dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_second_init_with_other_arguments_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Arguments that have no effect are told, at the level info."""
    caplog.set_level(logging.INFO, "sonde")
    sonde.init("one", dir=tmp_path)
    sonde.init("two", dir=tmp_path)
    assert [record.levelname for record in caplog.records if "arguments are ignored" in record.getMessage()] == ["INFO"]


def test_the_start_tells_where_the_run_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line of the log holds the path of the run folder."""
    caplog.set_level(logging.INFO, "sonde")
    session = sonde.init(dir=tmp_path)
    assert [str(session.path) in record.getMessage() for record in caplog.records] == [True]


def test_after_finish_init_starts_a_new_run(tmp_path: Path) -> None:
    """Two runs of one process are two folders."""
    first = sonde.init(dir=tmp_path)
    sonde.mark("one")
    sonde.finish()
    second = sonde.init(dir=tmp_path)
    sonde.mark("two")
    sonde.finish()
    assert names_in(first.path) == ["one"]
    assert names_in(second.path) == ["two"]


def test_finish_without_init_is_harmless() -> None:
    """finish() may be called at any time, any number of times."""
    sonde.finish()
    sonde.finish()


def test_finish_of_an_old_session_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """A session that has ended cannot end another one."""
    first = sonde.init(dir=tmp_path)
    first.finish()
    second = sonde.init(dir=tmp_path)
    first.finish()
    assert second.active


def test_a_with_block_ends_the_recording(tmp_path: Path) -> None:
    """`with sonde.init():` records the block only."""
    with sonde.init(dir=tmp_path) as session:
        sonde.mark("inside")
    assert not session.active
    assert names_in(session.path) == ["inside"]


def test_blocks_inside_each_other_end_with_the_outermost(tmp_path: Path) -> None:
    """A function that records itself does not end the recording of its caller."""
    with sonde.init(dir=tmp_path) as session:
        with sonde.init():
            sonde.mark("inner")
        sonde.mark("outer")
    assert names_in(session.path) == ["inner", "outer"]


def test_an_exception_passes_through_and_is_noted(tmp_path: Path) -> None:
    """The exception of a block is the program's, and process.json names it."""
    session = sonde.init(dir=tmp_path)
    sonde.mark("x")
    with pytest.raises(KeyError, match="mine"), session:
        raise KeyError("mine")
    assert session.path is not None
    (facts,) = process_facts(session.path)
    assert facts["end"] is not None
    assert {"reason": "exception", "exception": "KeyError"}.items() <= dict(facts["end"]).items()  # type: ignore[call-overload]


@pytest.mark.parametrize(("values", "kept"), [("full", True), ("summary", False), ("off", False)])
def test_the_message_of_an_exception_is_kept_only_where_values_are(tmp_path: Path, values: str, kept: bool) -> None:
    """It may hold what the program read."""
    session = sonde.init(dir=tmp_path, values=values)
    sonde.mark("x")
    with pytest.raises(ValueError, match="patient"), session:
        raise ValueError("patient 4711")
    assert session.path is not None
    assert any("4711" in path.read_text(errors="replace") for path in session.path.glob("*/*")) is kept


@pytest.mark.parametrize(
    ("settings", "hint"),
    [({"capp": 1}, "cap"), ({"cap": "lots"}, "4GB"), ({"writes": "maybe"}, "block"), ({"core": "c"}, "imported")],
)
def test_a_wrong_argument_is_an_error(tmp_path: Path, settings: dict[str, object], hint: str) -> None:
    """A typo in the call raises before anything starts, and the message helps."""
    with pytest.raises(SettingError, match=hint):
        sonde.init(None, tmp_path, **settings)
    assert list(tmp_path.iterdir()) == []
    assert not core.info()["recording"]


def test_a_wrong_settings_file_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A settings file that somebody else broke does not stop the program; its good part holds."""
    (tmp_path / "sonde.toml").write_text('cap = "lots"\nname = "from file"\n')
    monkeypatch.chdir(tmp_path)
    with sonde.init(dir=tmp_path / "runs") as session:
        assert session.name == "from file"
    assert [record.levelname for record in caplog.records if "cap" in record.getMessage()] == ["WARNING"]


def test_a_session_that_is_switched_off_records_nothing(tmp_path: Path) -> None:
    """With enabled=False init() gives a session without a folder, and all of it works."""
    with sonde.init(dir=tmp_path / "runs", enabled=False) as session:
        sonde.mark("x")
    assert session.path is None
    assert "off" in repr(session)
    assert not (tmp_path / "runs").exists()


def test_a_session_shows_what_it_is(tmp_path: Path) -> None:
    """repr() tells the name, the state and the folder."""
    session = sonde.init("mine", dir=tmp_path)
    assert repr(session) == f"<sonde.Session 'mine': recording in {session.path}>"
    sonde.finish()
    assert "finished" in repr(session)


def test_children_are_told_of_the_run_while_it_lasts(tmp_path: Path) -> None:
    """SONDE_RUN stands in the environment between init() and finish()."""
    session = sonde.init(dir=tmp_path)
    assert config.peek("run") == str(session.path)
    sonde.finish()
    assert config.peek("run") is None


def test_an_outer_run_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that joined leaves SONDE_RUN as it found it."""
    outer = sonde.init(dir=tmp_path)
    sonde.finish()
    monkeypatch.setenv("SONDE_RUN", str(outer.path))
    with sonde.init("other", dir=tmp_path / "ignored") as session:
        assert session.path == outer.path
        assert joined()
    assert config.peek("run") == str(outer.path)


def test_results_of_a_pipeline_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They have a run.json too: a warning says so, and the recording goes into a new run."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "run.json").write_text('{"verb": "train"}')
    monkeypatch.setenv("SONDE_RUN", str(results))
    with sonde.init(dir=tmp_path / "runs") as session:
        assert session.path is not None
        assert session.path.parent == tmp_path / "runs"
        assert not joined()
    assert [path.name for path in results.iterdir()] == ["run.json"]
    assert f"SONDE_RUN={results} is not a recording" in caplog.text
    assert config.peek("run") == str(results)


def test_a_refused_folder_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A link in place of the run is refused with a clear reason, and init() does not raise."""
    real = sonde.init(dir=tmp_path)
    sonde.finish()
    (tmp_path / "link").symlink_to(str(real.path))
    caplog.clear()
    session = sonde.init(run=tmp_path / "link")
    assert session.path is None
    assert not session.active
    (record,) = caplog.records
    assert "symbolic link" in record.getMessage()


def test_two_threads_that_start_together_share_a_session(tmp_path: Path) -> None:
    """init() in many threads at once makes one run."""
    gate = threading.Barrier(8)
    sessions: list[sonde.Session] = []

    def start() -> None:
        gate.wait()
        sessions.append(sonde.init(dir=tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(session) for session in sessions}) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A finished session has closed all its files."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with sonde.init(dir=tmp_path):
            sonde.mark("x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_public_names_are_found_and_others_are_not() -> None:
    """Every name of __all__ is there; a wrong one lists the right ones."""
    for name in sonde.__all__:
        assert getattr(sonde, name) is not None
    assert set(sonde.__all__) <= set(dir(sonde))
    with pytest.raises(AttributeError, match=r"spam.*open_run"):
        sonde.spam  # noqa: B018


def test_children_share_what_init_was_given_about_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their environment, as long as the recording lasts; what stood there before comes back."""
    monkeypatch.setenv("SONDE_EVERY", "3")
    names = ("SONDE_MODE", "SONDE_STEPS", "SONDE_EVERY", "SONDE_RANKS", "SONDE_DEEP")
    with sonde.init(dir=tmp_path, mode="manual", steps="10:", every=2, ranks=[0, 3], deep=True):
        assert [os.environ.get(name) for name in names] == ["manual", "10:", "2", "0,3", "1"]
    assert [os.environ.get(name) for name in names] == [None, None, "3", None, None]


SUBINTERPRETER = """
import sys, sonde
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
session = sonde.init(dir=sys.argv[1])
with sonde.span("around"):
    for _ in range(3):
        one = interpreters.create()
        interpreters.run_string(one, "import sonde; sonde.init(); sonde.mark('inside'); sonde.finish()")
        interpreters.destroy(one)
sonde.mark("after")
"""


def test_a_subinterpreter_leaves_the_recording_of_the_main_one_alone(tmp_path: Path) -> None:
    """It records nothing and says so; with the Python core, it records into a folder of its own."""
    program = [sys.executable, "-c", SUBINTERPRETER, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    (path,) = tmp_path.iterdir()
    with sonde.open_run(path) as run:
        first = run.sql(
            "SELECT name FROM events WHERE process LIKE '%-0' AND cat = 'user' ORDER BY start_ns"
        ).fetchall()
        assert first == [("around",), ("after",)]
        assert run.sql("SELECT count(*) FROM events WHERE open").fetchall() == [(0,)]
        assert run.drops.total == 0
    if core.KIND == "c" and sys.version_info < (3, 12):
        assert "this subinterpreter is not recorded" in done.stderr
