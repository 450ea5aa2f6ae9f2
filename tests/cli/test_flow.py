"""`sonde flow`: show and diff, on files and on runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from sonde.capture.result import TraceCall, TraceResult
from sonde.cli import main
from sonde.cli.flow import command
from sonde.testing import BuiltProcess, BuiltRecord, build_run
from sonde.values.note import Item
from sonde.values.snapshot import freeze

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"


def flow(*args: object) -> Result:
    return CliRunner().invoke(main, ["flow", *map(str, args)])


def trace(scale: float = 1.0) -> TraceResult:
    """Two items and their batch; the second item has a NaN."""
    images = [np.linspace(0, scale, 4, dtype=np.float32), np.array([1, 2, np.nan, 3], np.float32)]
    calls = [
        TraceCall(
            "data__get_image",
            stage_name="dataset_getter",
            seq=index,
            inputs=[freeze(index, name="index")],
            output=freeze(image, name="image"),
            items=[Item(0, index, f"id{index}")],
        )
        for index, image in enumerate(images)
    ]
    batch = freeze(np.stack(images), name="batch")
    calls.append(
        TraceCall("collate", stage_name="collate", seq=2, output=batch, items=[Item(0, 0, "id0"), Item(1, 1, "id1")])
    )
    return TraceResult(items=2, calls=calls)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved trace."""
    trace().save(tmp_path / "t.sonde")
    return tmp_path / "t.sonde"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run, without any trace."""
    build_run(tmp_path / "runs" / "20250101-000000-train-3f2a", [BuiltProcess([BuiltRecord(dur=1)])], name="train")
    return tmp_path / "runs"


def values(runs: Path) -> Path:
    """The folder for traces of the run's process."""
    (process,) = (path.parent for path in runs.glob("*/*/process.json"))
    (process / "values").mkdir(exist_ok=True)
    return process / "values"


def test_show_prints_the_trace_as_it_prints_itself(file: Path) -> None:
    """The same text as print(trace)."""
    result = flow("show", file)
    assert result.exit_code == 0
    assert result.output == f"{trace()}\n"


def test_show_tells_the_findings(file: Path) -> None:
    """They are part of the text."""
    assert "The first NaN or infinity is in the output `image`" in flow("show", file).output


def test_show_finds_the_traces_of_a_run(runs: Path) -> None:
    """By a part of its name, or the newest one."""
    trace().save(values(runs) / "0.sonde")
    assert "data__get_image" in flow("show", "3f2a", "--dir", runs).output
    assert "data__get_image" in flow("show", "--dir", runs).output


def test_show_tells_several_traces_apart(runs: Path) -> None:
    """Each one under its file."""
    for number in range(2):
        trace().save(values(runs) / f"{number}.sonde")
    assert flow("show", "--dir", runs).output.count(".sonde:\n") == 2


@pytest.mark.parametrize("name", ["1", "id1"])
def test_show_follows_one_item(file: Path, name: str) -> None:
    """By index or by id."""
    output = flow("show", file, "--item", name).output
    assert "nonfinite=1" in output
    assert "index = 0" not in output


def test_an_unknown_item_is_an_error_that_lists_the_known_ones(file: Path) -> None:
    """One message, exit code 1."""
    result = flow("show", file, "--item", "77")
    assert result.exit_code == 1
    assert "id0" in result.output


def test_json_has_descriptions_and_findings(file: Path) -> None:
    """And is JSON: no NaN in it."""
    (told,) = json.loads(flow("show", file, "--json").output)["traces"]
    getter = told["stages"]["dataset_getter"][1]
    assert getter["output"]["image"]["nonfinite"] == 1
    assert getter["items"] == [{"position": 0, "index": 1, "id": "id1"}]
    assert told["findings"][0]["kind"] == "nonfinite"
    assert told["findings"][0]["evidence"]["items"] == [1]


def test_html_writes_a_page(file: Path, tmp_path: Path) -> None:
    """It is not written over something else by accident."""
    page = tmp_path / "t.html"
    assert flow("show", file, "--html", page).exit_code == 0
    assert "data.get_image" in page.read_text()
    assert flow("show", file, "--html", page).exit_code == 1
    assert flow("show", file, "--html", page, "--force").exit_code == 0


def test_a_page_goes_into_a_folder_that_exists(file: Path, tmp_path: Path) -> None:
    """And is a file."""
    assert "There is no folder" in flow("show", file, "--html", tmp_path / "no" / "t.html").output
    assert "is a folder" in flow("show", file, "--html", tmp_path).output


def test_a_page_is_of_one_trace(runs: Path, tmp_path: Path) -> None:
    """A run with several: the files are listed."""
    for number in range(2):
        trace().save(values(runs) / f"{number}.sonde")
    result = flow("show", "--dir", runs, "--html", tmp_path / "t.html")
    assert result.exit_code == 1
    assert "has 2 traces" in result.output
    assert "1.sonde" in result.output


def test_what_is_shown_is_one_thing(file: Path) -> None:
    """Two forms at once are a usage error."""
    assert flow("show", file, "--json", "--item", "1").exit_code == 2


def test_equal_traces_exit_with_0(file: Path) -> None:
    """As the program diff does."""
    result = flow("diff", file, file)
    assert result.exit_code == 0
    assert result.output == "No difference in 3 calls.\n"


def test_different_traces_exit_with_1(file: Path, tmp_path: Path) -> None:
    """And the first difference is shown with both values."""
    trace(2.0).save(tmp_path / "other.sonde")
    result = flow("diff", file, tmp_path / "other.sonde")
    assert result.exit_code == 1
    assert "First difference: dataset_getter · data__get_image · item id0 · image" in result.output
    assert re.search(r"A = <numpy.*max=1 .*\n\tB = <numpy.*max=2 ", result.output)


def test_small_differences_may_be_allowed(file: Path, tmp_path: Path) -> None:
    """With --rtol."""
    trace(1.00001).save(tmp_path / "other.sonde")
    assert flow("diff", file, tmp_path / "other.sonde").exit_code == 1
    assert flow("diff", file, tmp_path / "other.sonde", "--rtol", "0.001").exit_code == 0


@pytest.mark.parametrize("args", [["diff"], ["diff", "one"], ["shwo"], ["diff", "a", "b", "--rtol", "-1"]])
def test_wrong_calls_are_usage_errors(args: list[str]) -> None:
    """Exit code 2."""
    assert flow(*args).exit_code == 2


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """Exit code 1 of show; 2 of diff, where 1 means something else."""
    missing = tmp_path / "no.sonde"
    for result, code in ((flow("show", missing), 1), (flow("diff", missing, missing), 2)):
        assert result.exit_code == code
        assert f"No such file: {missing}" in result.output


def test_a_file_that_is_no_trace_is_told(tmp_path: Path) -> None:
    """With its name, and without a traceback."""
    (tmp_path / "t.txt").write_text("hello")
    result = flow("show", tmp_path / "t.txt")
    assert result.exit_code == 1
    assert "is not a readable trace file" in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_run_without_traces_is_told(runs: Path) -> None:
    """And how to make one."""
    result = flow("show", "3f2a", "--dir", runs)
    assert result.exit_code == 1
    assert "The run 20250101-000000-train-3f2a has no traces" in result.output
    assert "sonde.flow.trace" in result.output


def test_links_in_a_run_are_not_followed(runs: Path, file: Path) -> None:
    """A link is no trace of this run."""
    (values(runs) / "0.sonde").symlink_to(file)
    assert flow("show", "--dir", runs).exit_code == 1


@pytest.mark.parametrize("name", ["show", "diff"])
def test_both_have_examples_and_documented_options(name: str) -> None:
    """In their help and in the page of commands."""
    section = PAGE.read_text().partition("## sonde flow\n")[2].partition("\n## ")[0]
    part = section.partition(f"**sonde flow {name}")[2].partition("**sonde flow")[0]
    found = command.commands[name]
    assert f"Example: sonde flow {name}" in (found.epilog or "")
    for option in found.params:
        if isinstance(option, click.Option):
            assert option.help
            assert all(f"`{word}" in part for word in option.opts), option.opts
