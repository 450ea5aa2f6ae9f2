"""Run folders: new each time, told how they ended, and found again only if they may be built on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sonde.pipeline import Config, folder


def test_name_says_when_and_what(tmp_path: Path) -> None:
    """`<utc>-<verb>-<4 hex>`, and two of a second differ."""
    made = [folder.create(tmp_path, "train", Config()).path for _ in range(5)]
    assert len(set(made)) == 5
    assert all(re.fullmatch(r"\d{8}-\d{6}-train-[0-9a-f]{4}", path.name) for path in made)


def test_newest_is_the_completed_run_that_started_last(tmp_path: Path) -> None:
    """Neither one that still runs, nor one that failed, nor one of another verb."""
    config = Config()
    assert folder.newest(tmp_path) is None
    old, new = (folder.create(tmp_path, "train", config) for _ in range(2))
    other = folder.create(tmp_path, "infer", config)
    folder.create(tmp_path, "train", config)
    for one in (new, old, other):
        folder.finish(one)
    assert folder.newest(tmp_path) == new.path


@pytest.mark.parametrize(("error", "status"), [(ValueError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_end_by_an_exception_is_written_down(tmp_path: Path, error: type[BaseException], status: str) -> None:
    """And the exception goes on."""
    with pytest.raises(error), folder.running(tmp_path, "train", Config()) as made:
        raise error("why")
    assert made.record()["status"] == status
    assert "why" in made.record()["error"]
    assert folder.newest(tmp_path) is None


def test_records_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    """Foreign and broken folders do not stand in the way."""
    for name, text in (("a", "{"), ("b", "[]"), ("c", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    assert folder.newest(tmp_path) is None


def test_config_is_saved_and_can_be_used_again(tmp_path: Path) -> None:
    """The effective one, with the defaults."""
    config = Config({"train": {"epochs": 7}})
    made = folder.create(tmp_path, "train", config)
    assert Config.load(made.path / "config.toml").as_dict() == config.as_dict()


def test_a_full_disk_does_not_hide_what_ended_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception is the first one; a note tells of the second."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def fail() -> None:
        with folder.running(tmp_path, "train", Config()):
            monkeypatch.setattr(folder, "_write", full)
            raise ValueError("why")

    with pytest.raises(ValueError, match="why") as caught:
        fail()
    assert "No space left" in caught.value.__notes__[0]
