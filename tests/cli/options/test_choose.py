"""Which run a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.cli.options.choose import choose
from sonde.errors import RunNotFound
from sonde.testing import WALL_NS, build_run

OLD, NEW, OTHER = "20250101-000000-train-aaaa", "20250102-000000-train-bbbb", "20250103-000000-eval-cccc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs, of which `NEW` has the latest start."""
    for name, start in ((OLD, 1), (NEW, 3), (OTHER, 2)):
        build_run(tmp_path / name, start={"mono_ns": 1, "wall_ns": WALL_NS + start})
    return tmp_path


def refused(given: str | None, folder: Path) -> str:
    with pytest.raises(RunNotFound) as caught:
        choose(given, folder)
    return str(caught.value)


def test_nothing_means_the_newest(folder: Path) -> None:
    """Without a name the run that started last is meant."""
    assert choose(None, folder).name == NEW


def test_a_broken_run_is_not_the_newest(folder: Path) -> None:
    """A folder without run.json is no candidate."""
    (folder / "20990101-000000-x-dddd").mkdir()
    assert choose(None, folder).name == NEW


@pytest.mark.parametrize("content", ['{"na', "", "[]"])
def test_a_run_whose_card_is_damaged_is_still_a_run(tmp_path: Path, content: str) -> None:
    """Its processes tell when it was: it is chosen as `sonde runs` lists it."""
    build_run(tmp_path / OLD)
    (tmp_path / OLD / "run.json").write_text(content)
    assert choose(None, tmp_path).name == OLD


@pytest.mark.parametrize("given", [OTHER, "20250103", "eval", "cccc", "eval-cccc"])
def test_a_part_that_only_one_run_has_is_enough(folder: Path, given: str) -> None:
    """The whole name, its beginning, or any part that is unique."""
    assert choose(given, folder).name == OTHER


def test_a_path_works_from_anywhere(folder: Path, tmp_path: Path) -> None:
    """A path to a run needs no folder of runs."""
    assert choose(str(folder / OLD), tmp_path / "none") == folder / OLD


def test_a_path_that_does_not_exist_is_no_part_of_a_name(folder: Path) -> None:
    """A typing mistake in a path is named as such, not searched among the runs."""
    told = refused("/data/sonde-rusn", folder)
    assert told.startswith("There is no folder /data/sonde-rusn.")
    assert str(folder) in told


def test_an_exact_name_wins_over_longer_ones(folder: Path) -> None:
    """A name that is also the beginning of another one is no doubt."""
    build_run(folder / f"{OLD}-again")
    assert choose(OLD, folder).name == OLD


def test_a_part_of_several_names_them(folder: Path) -> None:
    """What fits several runs is refused with their names."""
    message = refused("train", folder)
    assert "2 runs match" in message
    assert OLD in message
    assert NEW in message


@pytest.mark.parametrize("given", ["evel", OTHER[:-1] + "d", "20250103-000000-evil-cccc"])
def test_a_typo_names_the_nearest(folder: Path, given: str) -> None:
    """The message says which run was probably meant."""
    assert OTHER in refused(given, folder)


def test_an_empty_folder_says_how_to_record(tmp_path: Path) -> None:
    """Without any run the message says how to make one."""
    assert "sonde.init()" in refused(None, tmp_path)
    assert "sonde.init()" in refused("x", tmp_path)


def test_a_folder_of_runs_is_no_run(folder: Path) -> None:
    """Who gives the folder of the runs is told of --dir."""
    assert "--dir" in refused(str(folder), folder)
