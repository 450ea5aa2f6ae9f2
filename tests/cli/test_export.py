"""`sonde export`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.exchange.receiver import receiving

from sonde.cli import main
from sonde.testing import BuiltProcess, BuiltRecord, build_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one run; the working folder is another one."""
    build_run(tmp_path / "runs" / "run1", [BuiltProcess([BuiltRecord("a", dur=5), BuiltRecord("b", dur=5)])])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "runs"


def export(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["export", "--dir", str(folder), *args])


@pytest.mark.parametrize(("to", "name"), [("chrome", "run1.json"), ("pfw", "run1.pfw.gz")])
def test_without_a_name_it_writes_into_the_working_folder(folder: Path, to: str, name: str) -> None:
    """The file is called after the run."""
    result = export(folder, "--to", to)
    assert result.exit_code == 0
    assert result.output.startswith(f"Wrote {name}: 2 events, ")
    assert [path.name for path in Path.cwd().iterdir()] == [name]


def test_gzip_ends_in_gz(folder: Path) -> None:
    """And holds the same JSON."""
    export(folder, "--to", "chrome", "--gzip")
    assert json.loads(gzip.decompress(Path("run1.json.gz").read_bytes()))["traceEvents"]


@pytest.mark.parametrize(
    ("name", "option", "packed"), [("a.pfw", [], False), ("a.gz", [], True), ("a.pfw", ["--gzip"], True)]
)
def test_the_name_of_the_file_says_whether_it_is_compressed(
    folder: Path, name: str, option: list[str], packed: bool
) -> None:
    """Unless an option does."""
    assert export(folder, "--to", "pfw", "-o", name, *option).exit_code == 0
    assert (Path(name).read_bytes()[:2] == b"\x1f\x8b") == packed


def test_an_existing_file_is_kept(folder: Path) -> None:
    """Only `--force` replaces it."""
    Path("out").write_text("mine")
    refused = export(folder, "--to", "pfw", "-o", "out")
    assert refused.exit_code == 1
    assert "--force" in refused.output
    assert Path("out").read_text() == "mine"
    assert export(folder, "--to", "pfw", "-o", "out", "--force").exit_code == 0
    assert Path("out").read_text().startswith("{")


def test_a_dash_is_standard_output(folder: Path) -> None:
    """Nothing but the export is written there."""
    result = export(folder, "run1", "--to", "pfw", "--output", "-")
    assert all(json.loads(line) for line in result.stdout.splitlines())


@pytest.mark.parametrize("target", [".", "missing/out"])
def test_a_place_that_cannot_be_written_is_told(folder: Path, target: str) -> None:
    """A folder, or a folder that does not exist: one message."""
    result = export(folder, "--to", "pfw", "-o", target)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


@pytest.mark.parametrize("args", [[], ["--to", "svg"]])
def test_the_format_must_be_named(folder: Path, args: list[str]) -> None:
    """Without one, or with an unknown one, it is a usage error."""
    assert export(folder, *args).exit_code == 2


def test_the_name_of_a_reader_brings_its_format(folder: Path) -> None:
    """DFAnalyzer reads DFTracer's."""
    assert "Unknown format 'dfanalyzer'. Did you mean 'pfw'?" in export(folder, "--to", "dfanalyzer").output


def test_a_run_is_sent_to_a_collector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that OpenTelemetry's variable names, with its headers; the run's spans arrive."""
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b")
        result = export(folder, "--to", "otlp")
    assert result.exit_code == 0
    assert result.output.startswith(
        f"Sent {len(receiver.spans)} spans and {len(receiver.metrics)} values to {receiver.url}"
    )
    assert {"a", "b"} < {span.name for _, span in receiver.spans}
    assert receiver.headers["X-Key"] == "a b"
    assert not list(Path.cwd().iterdir())


def test_a_collector_that_fails_is_one_message(folder: Path) -> None:
    """With its code."""
    with receiving([500]) as receiver:
        result = export(folder, "--to", "otlp", "-o", receiver.url)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {receiver.url} answers 500: no room")
