"""The export to Parquet files."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from sonde.analysis.records.schema import TABLES
from sonde.analysis.run import open_run
from sonde.cli import main
from sonde.testing import build_training


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two ranks."""
    return build_training(tmp_path_factory.mktemp("runs") / "run", ranks=2, steps=6, workers=1)


def export(run: Path, target: Path, *more: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["export", str(run), "--to", "parquet", "-o", str(target), *more])
    return found.exit_code, found.output


def test_each_table_is_a_file_with_the_same_rows(run: Path, tmp_path: Path) -> None:
    """Also those that are empty."""
    assert export(run, tmp_path / "out")[0] == 0
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    with open_run(run) as opened:
        for table in TABLES:
            here = opened.table(table)
            there = duckdb.read_parquet(str(tmp_path / "out" / f"{table}.parquet"))
            assert (there.columns, [*map(str, there.types)]) == (here.columns, [*map(str, here.types)])
            assert sorted(map(repr, there.fetchall())) == sorted(map(repr, here.fetchall()))
            assert about["rows"][table] == len(here)


def test_only_an_earlier_export_is_replaced(run: Path, tmp_path: Path) -> None:
    """And only with --force; a folder of others stays as it is."""
    export(run, tmp_path / "out")
    assert export(run, tmp_path / "out")[0] == 1
    assert export(run, tmp_path / "out", "--force")[0] == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for _ in range(2):
        code, told = export(run, tmp_path / "mine", "--force")
        assert (code, "is not an export of Sonde" in told) == (1, True)
        (tmp_path / "mine" / "export.json").write_text('{"schema": 1}')
    assert (tmp_path / "mine" / "thesis.tex").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mine", "out"]
