"""`sonde query`, `sonde ask` and `sonde tables`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

from sonde.cli import main
from sonde.testing import build_training, synthetic_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with one run of ten steps."""
    build_training(
        tmp_path / "20250101-000000-train-3f2a",
        steps=10,
        workers=1,
        loss=lambda step: 1 / step if step else float("nan"),
    )
    return tmp_path


def sonde(folder: Path, *args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, [args[0], "--dir", str(folder), *args[1:]], input=text, env={"COLUMNS": "100"})


def test_a_table_that_is_not_there_is_answered_with_the_nearest(folder: Path) -> None:
    """Of those that a run has."""
    found = sonde(folder, "query", "select * from stepz")
    assert found.exit_code == 2
    assert "There is no table 'stepz'. Did you mean 'steps'?" in found.output


def test_a_query_prints_a_table(folder: Path) -> None:
    """Times have units, and the newest run is meant."""
    found = sonde(folder, "query", "select step, dur_ns from steps order by step limit 2")
    assert found.exit_code == 0
    assert found.output.split("\n")[0].split() == ["step", "dur"]
    assert "ms" in found.output


def test_moments_of_hosts_are_counted_from_the_start_of_the_run(tmp_path: Path) -> None:
    """And not in days since 1970."""
    synthetic_run(tmp_path / "run", ranks=2, hosts=2, steps=20)
    text = sonde(tmp_path, "query", "run", "select from_ns, until_ns from hosts limit 1").output
    assert text.splitlines()[1].startswith("+0 ns  +")


def test_json_is_a_list_of_objects_without_nan(folder: Path) -> None:
    """Every reader takes it."""
    found = sonde(folder, "query", "3f2a", "select step, loss from steps order by step limit 2", "--json")
    assert json.loads(found.stdout) == [{"step": 0, "loss": "NaN"}, {"step": 1, "loss": 1.0}]


def test_json_of_no_rows_is_an_empty_list(folder: Path) -> None:
    """Nothing found is no error."""
    assert json.loads(sonde(folder, "query", "from steps where step > 99", "--json").stdout) == []


def test_csv_has_a_line_of_names_and_all_rows(folder: Path) -> None:
    """A missing value is empty."""
    rows = list(csv.reader(io.StringIO(sonde(folder, "query", "select step, h2d_ns from steps", "--csv").stdout)))
    assert rows[0] == ["step", "h2d_ns"]
    assert len(rows) == 11


def test_parquet_holds_the_types_of_the_table(folder: Path) -> None:
    """Lists stay lists."""
    target = folder / "batches.parquet"
    assert sonde(folder, "query", "select batch, indices from batches", "--parquet", str(target)).exit_code == 0
    found = duckdb.read_parquet(str(target))
    assert dict(zip(found.columns, map(str, found.types), strict=True)) == {"batch": "BIGINT", "indices": "BIGINT[]"}
    assert not list(folder.glob(".*part"))


def test_parquet_does_not_replace_another_file(folder: Path) -> None:
    """What is not a table of ours stays."""
    (folder / "notes.txt").write_text("mine")
    found = sonde(folder, "query", "from steps", "--parquet", str(folder / "notes.txt"))
    assert found.exit_code == 1
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_dash_reads_the_query_from_standard_input(folder: Path) -> None:
    """For long ones."""
    assert json.loads(sonde(folder, "query", "-", "--json", text="select count(*) as n\nfrom steps\n").stdout) == [
        {"n": 10}
    ]


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("select nothing_such from steps", 2, "nothing_such"),
        ("selec * from steps", 2, "syntax error"),
        ("from stepps", 2, "stepps"),
        ("copy steps to 'x.csv'", 1, "Only SELECT"),
        ("from read_csv('/etc/hostname')", 1, "SQL may only read"),
        ("3f2a", 2, "not a query"),
        ("  ", 2, "empty"),
    ],
)
def test_a_wrong_query_is_one_message(folder: Path, query: str, code: int, said: str) -> None:
    """And the right exit code."""
    found = sonde(folder, "query", query)
    assert found.exit_code == code
    assert said in found.output
    assert "Traceback" not in found.output


def test_two_formats_at_once_are_refused(folder: Path) -> None:
    """One must be chosen."""
    assert sonde(folder, "query", "from steps", "--json", "--csv").exit_code == 2


def test_the_schema_lists_every_table_and_column(folder: Path) -> None:
    """Without a run."""
    assert {"steps", "  input_wait_ns", "items"} <= {
        line.partition("  BIGINT")[0].rstrip() for line in sonde(folder, "query", "--schema").output.split("\n")
    }


def test_tables_counts_rows(folder: Path) -> None:
    """Of each table."""
    found = {one["table"]: one["rows"] for one in json.loads(sonde(folder, "tables", "--json").stdout)}
    assert (found["steps"], found["batches"], found["layers"]) == (10, 10, 0)


def test_ask_answers_a_ready_question(folder: Path) -> None:
    """As JSON, of the run that is named."""
    (row,) = json.loads(sonde(folder, "ask", "3f2a", "time-per-rank", "--json").stdout)
    assert row["steps"] == 7


def test_ask_lists_its_questions(folder: Path) -> None:
    """One a line."""
    assert "item-cost" in sonde(folder, "ask", "--list").output


def test_ask_shows_the_query_behind_a_question(folder: Path) -> None:
    """To change it and ask it with `sonde query`."""
    sql = sonde(folder, "ask", "time-per-worker", "--sql").output
    assert len(json.loads(sonde(folder, "query", "-", "--json", text=sql).stdout)) == 1


def test_ask_answers_a_typo_with_the_nearest_question(folder: Path) -> None:
    """As every command does."""
    assert "Did you mean 'idle-gaps'" in sonde(folder, "ask", "idle-gap").output


def test_a_question_before_its_run_is_told_the_right_order(folder: Path) -> None:
    """With the command that works."""
    assert "sonde ask 3f2a item-cost" in sonde(folder, "ask", "item-cost", "3f2a").output
