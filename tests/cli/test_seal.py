"""`sonde seal`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.analysis.run import open_run
from sonde.cli import main
from sonde.store.folder import boot_id, host
from sonde.testing import BuiltProcess, BuiltRecord, build_run


def seal(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["seal", "--dir", str(folder), *args])


def spans(count: int = 3000) -> list[BuiltProcess]:
    return [BuiltProcess([BuiltRecord("a", dur=n) for n in range(count)], host=host())]


def recording() -> list[BuiltProcess]:
    facts = {"end": None, "boot_id": boot_id(), "pid": os.getpid()}
    return [BuiltProcess([BuiltRecord(dur=1)], host=host(), process=facts)]


def test_it_tells_the_sizes(tmp_path: Path) -> None:
    """Before and after, and the answers stay the same."""
    run = build_run(tmp_path / "run1", spans())
    result = seal(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Sealed run1: 3,000 events, ")
    assert "->" in result.output
    with open_run(run) as opened:
        assert opened.sealed
        assert opened.sql("SELECT count(*), sum(dur_ns) FROM events").fetchall() == [(3000, 2999 * 1500)]


def test_a_run_that_is_recording_is_refused(tmp_path: Path) -> None:
    """One message, exit code 1."""
    build_run(tmp_path / "run1", recording())
    result = seal(tmp_path, "run1")
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


def test_all_seals_what_has_ended(tmp_path: Path) -> None:
    """Runs that record, are broken or are sealed already are passed over."""
    build_run(tmp_path / "run1", spans(10))
    build_run(tmp_path / "run2", spans(10))
    build_run(tmp_path / "busy", recording())
    (tmp_path / "broken").mkdir()
    assert seal(tmp_path, "run1").exit_code == 0
    result = seal(tmp_path, "--all")
    assert result.exit_code == 0, result.output
    assert [line.split()[1] for line in result.output.splitlines()] == ["run2:"]
    assert "Nothing to seal" in seal(tmp_path, "--all").output


def test_one_or_all_but_not_both(tmp_path: Path) -> None:
    """Naming a run and `--all` is a usage error."""
    build_run(tmp_path / "run1", spans(1))
    assert seal(tmp_path, "run1", "--all").exit_code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dask", "local:0"], "local:4"),
        (["--dask", "local:2", "--workers", "2"], "--dask local:N"),
        (["--workers-memory", "much"], "'much' is not a size"),
        (["--workers-memory", "1MB"], "at least 256MB"),
    ],
)
def test_workers_that_cannot_be_are_usage_errors(tmp_path: Path, options: list[str], said: str) -> None:
    """Before anything is started or read."""
    result = seal(tmp_path, *options)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_little_memory_is_enough_or_an_error_in_words(tmp_path: Path) -> None:
    """What does not fit lies in temporary files, which are gone in the end."""
    run = build_run(tmp_path / "run1", spans(20_000))
    result = seal(tmp_path, "run1", "--workers-memory", "256MB")
    assert result.exit_code == 0, result.output
    assert not list((run / "parts").glob(".*"))
