"""Settings: where a value comes from, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sonde import config
from sonde.errors import SettingError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare_environment: None) -> Path:
    """An empty working folder."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def test_table_and_settings_have_the_same_names() -> None:
    """Each row of the table is a field of Settings, in the same order."""
    assert tuple(config.NAMES) == config.Settings._fields


def test_defaults(folder: Path) -> None:
    """Without any source the defaults hold, and paths are absolute."""
    settings = config.load()
    assert settings.enabled is None
    assert settings.run is None
    assert settings.dir == str(folder / "sonde-runs")
    assert settings.core == "auto"
    assert settings.cap == 4_000_000_000
    assert settings.args_limit == 4096
    assert settings.writes == "auto"
    assert os.path.isabs(settings.scratch)


def test_settings_are_frozen() -> None:
    """Settings cannot be changed once they are read."""
    with pytest.raises(AttributeError):
        config.load().cap = 1  # type: ignore[misc]


def test_argument_beats_environment_beats_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first source that has a value wins."""
    (folder / "sonde.toml").write_text('cap = "1MB"\n')
    assert config.load().cap == 10**6
    monkeypatch.setenv("SONDE_CAP", "2MB")
    assert config.load().cap == 2 * 10**6
    assert config.load(cap="3MB").cap == 3 * 10**6


def test_none_and_an_empty_variable_count_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument None and a variable set to nothing leave the default."""
    monkeypatch.setenv("SONDE_CAP", "")
    assert config.load(cap=None).cap == 4_000_000_000


def test_gather_names_the_source_of_each_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gather` says where a value came from."""
    (folder / "sonde.toml").write_text("args_limit = 10\n")
    monkeypatch.setenv("SONDE_CAP", "1GB")
    found = config.gather(name="mine")
    assert found["name"] == ("mine", "the argument name")
    assert found["cap"] == (10**9, "the environment variable SONDE_CAP")
    assert found["args_limit"] == (10, str(folder / "sonde.toml"))
    assert found["writes"] == ("auto", "default")


def test_unknown_argument_names_the_nearest_one() -> None:
    """A misspelt argument is refused, with the one that was meant."""
    with pytest.raises(SettingError, match=r"no setting 'arg_limit'. Did you mean 'args_limit'\? Valid: enabled, run"):
        config.load(arg_limit=3)


def test_unknown_key_in_a_file_names_the_nearest_one(folder: Path) -> None:
    """A misspelt key of a file is refused, with the file and the one that was meant."""
    (folder / "sonde.toml").write_text("capp = 3\n")
    with pytest.raises(SettingError, match=r"sonde.toml has an unknown setting 'capp'. Did you mean 'cap'\?"):
        config.load()


def test_wrong_value_names_source_value_and_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message for a wrong value holds all that is needed to correct it."""
    monkeypatch.setenv("SONDE_WRITES", "fast")
    with pytest.raises(SettingError) as caught:
        config.load()
    assert str(caught.value) == (
        "The setting writes is 'fast' (from the environment variable SONDE_WRITES), which is not valid. "
        "Use auto, mapped or block."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", "maybe"),
        ("enabled", 2),
        ("enabled", []),
        ("run", ""),
        ("run", b"bytes"),
        ("dir", "a\0b"),
        ("dir", 3),
        ("name", "  "),
        ("name", 3),
        ("cap", 0),
        ("cap", -1),
        ("cap", True),
        ("cap", "4XB"),
        ("cap", "-1bb"),
        ("cap", "inf"),
        ("cap", float("nan")),
        ("cap", 10**400),
        ("cap", []),
        ("args_limit", 0),
        ("args_limit", 1.5),
        ("args_limit", True),
        ("args_limit", "many"),
        ("args_limit", 2**40),
        ("writes", 1),
    ],
)
def test_wrong_values_are_refused(name: str, value: object) -> None:
    """What a setting does not allow is a SettingError, never another exception."""
    with pytest.raises(SettingError, match=f"The setting {name} is "):
        config.load(**{name: value})


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("4GB", 4 * 10**9),
        ("500 MB", 500 * 10**6),
        ("1e9", 10**9),
        (1e9, 10**9),
        (12345, 12345),
        ("2GiB", 2 * 2**30),
        ("0.5k", 500),
        ("1_000", 1000),
        (" 7b ", 7),
        ("1TB", 10**12),
    ],
)
def test_sizes(given: object, size: int) -> None:
    """A size is a number of bytes, with or without a unit."""
    assert config.load(cap=given).cap == size


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none()))
def test_a_size_is_accepted_or_refused(value: object) -> None:
    """Whatever is given for a size, it is a positive number afterwards or a SettingError."""
    try:
        assert config.load(cap=value).cap >= 1
    except SettingError:
        pass


@pytest.mark.parametrize("word", ["1", "true", "Yes", "ON", True, 1])
def test_switch_on(word: object) -> None:
    """The usual words switch on."""
    assert config.load(enabled=word).enabled is True


@pytest.mark.parametrize("word", ["0", "false", "No", "OFF", False, 0])
def test_switch_off(word: object) -> None:
    """The usual words switch off."""
    assert config.load(enabled=word).enabled is False


def test_paths_take_path_objects_and_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be a Path, and may begin with a tilde."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.load(dir=tmp_path / "here").dir == str(tmp_path / "here")
    assert config.load(dir="~/there").dir == str(tmp_path / "there")


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nearest_file_wins(folder: Path) -> None:
    """A file in the working folder hides the one of a parent."""
    (folder.parent / "sonde.toml").write_text('name = "far"\n')
    assert config.load().name == "far"
    (folder / "pyproject.toml").write_text('[tool.sonde]\nname = "near"\n')
    assert config.load().name == "near"
    (folder / "sonde.toml").write_text('name = "nearer"\n')
    assert config.load().name == "nearer"


def test_project_file_without_our_table_is_passed_over(folder: Path) -> None:
    """A pyproject.toml that says nothing to Sonde does not end the search, even if it is broken."""
    (folder.parent / "sonde.toml").write_text('name = "far"\n')
    (folder / "pyproject.toml").write_text("this is [[[ no TOML")
    assert config.load().name == "far"
    (folder / "pyproject.toml").write_text('[project]\ndependencies = ["sonde"]\n')
    assert config.load().name == "far"


def test_relative_path_in_a_file_starts_at_the_file(folder: Path) -> None:
    """A path in a settings file means the same wherever below it the program is started."""
    (folder.parent / "sonde.toml").write_text('dir = "runs"\n')
    assert config.load().dir == str(folder.parent / "runs")


@pytest.mark.parametrize("content", [b"cap = ", b"\xff\xfe", b"a = " + b"[" * 100_000])
def test_broken_file_is_a_setting_error(folder: Path, content: bytes) -> None:
    """A settings file that cannot be parsed is named."""
    (folder / "sonde.toml").write_bytes(content)
    with pytest.raises(SettingError, match=r"sonde\.toml is not valid TOML"):
        config.load()


def test_run_cannot_stand_in_a_file(folder: Path) -> None:
    """A file cannot send every program into the same run."""
    (folder / "sonde.toml").write_text('run = "one"\n')
    with pytest.raises(SettingError, match=r"The setting run cannot come from .*sonde\.toml: every program"):
        config.load()


def test_core_cannot_be_an_argument() -> None:
    """The core is chosen at import, so an argument would come too late."""
    with pytest.raises(SettingError, match="The setting core cannot come from the argument core"):
        config.load(core="python")


def test_a_deleted_working_folder_is_no_error(folder: Path) -> None:
    """Settings can be read where the working folder is gone."""
    folder.rmdir()
    assert config.load().dir.endswith("sonde-runs")


def test_lenient_loading_passes_over_what_is_wrong_in_the_surroundings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable or key is told and counts as not given: the next source holds."""
    (folder / "sonde.toml").write_text('cap = "1MB"\nwrites = 3\nother = 1\n')
    monkeypatch.setenv("SONDE_CAP", "much")
    settings, complaints = config.load_leniently(name="mine")
    assert (settings.name, settings.cap, settings.writes) == ("mine", 10**6, "auto")
    assert [complaint.partition("'")[0] for complaint in complaints] == [
        f"{folder / 'sonde.toml'} has an unknown setting ",
        "The setting cap is ",
        f"The setting writes is 3 (from {folder / 'sonde.toml'}), which is not valid. Use auto, mapped or block.",
    ]


def test_lenient_loading_does_without_a_broken_file(folder: Path) -> None:
    """A file that cannot be parsed is told, and the rest holds."""
    (folder / "sonde.toml").write_text("cap = ")
    settings, [complaint] = config.load_leniently()
    assert settings.cap == 4_000_000_000
    assert "is not valid TOML" in complaint


def test_lenient_loading_refuses_a_wrong_argument() -> None:
    """A mistake in the call itself is raised."""
    with pytest.raises(SettingError):
        config.load_leniently(cap="much")
    with pytest.raises(SettingError):
        config.load_leniently(capp=1)


def test_peek_never_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`peek` takes a wrong value for none, and reads the environment even beside a broken file."""
    (folder / "sonde.toml").write_text("cap = ")
    assert config.peek("core") == "auto"
    monkeypatch.setenv("SONDE_CORE", "python")
    assert config.peek("core") == "python"
    monkeypatch.setenv("SONDE_CORE", "fortran")
    assert config.peek("core") == "auto"


# ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_temporary_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default for scratch is the folder that the environment names for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert config.load().scratch == str(tmp_path)


def test_no_parser_is_loaded_without_a_file(folder: Path) -> None:
    """Reading settings where there is no file costs no import of tomllib, and never one of dataclasses or inspect."""
    code = "import sys, sonde.config as c; c.load(); print([m for m in ('tomllib', 'dataclasses', 'inspect') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
