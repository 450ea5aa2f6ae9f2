"""Settings: where a value comes from, what is refused, and what the environment says about the job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sonde import config
from sonde.errors import SettingError

JOB_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DFTRACER_ENABLE")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and an environment that says nothing to Sonde."""
    for name in list(os.environ):
        if name.startswith(("SONDE", "SLURM", "TORCHELASTIC")) or name in JOB_VARIABLES:
            monkeypatch.delenv(name)
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


def test_settle_passes_over_what_is_wrong_in_the_surroundings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variable or key is told and counts as not given: the next source holds."""
    (folder / "sonde.toml").write_text('cap = "1MB"\nwrites = 3\nother = 1\n')
    monkeypatch.setenv("SONDE_CAP", "much")
    settings, complaints = config.settle(name="mine")
    assert (settings.name, settings.cap, settings.writes) == ("mine", 10**6, "auto")
    assert [complaint.partition("'")[0] for complaint in complaints] == [
        f"{folder / 'sonde.toml'} has an unknown setting ",
        "The setting cap is ",
        f"The setting writes is 3 (from {folder / 'sonde.toml'}), which is not valid. Use auto, mapped or block.",
    ]


def test_settle_does_without_a_broken_file(folder: Path) -> None:
    """A file that cannot be parsed is told, and the rest holds."""
    (folder / "sonde.toml").write_text("cap = ")
    settings, [complaint] = config.settle()
    assert settings.cap == 4_000_000_000
    assert "is not valid TOML" in complaint


def test_settle_refuses_a_wrong_argument() -> None:
    """A mistake in the call itself is raised."""
    with pytest.raises(SettingError):
        config.settle(cap="much")
    with pytest.raises(SettingError):
        config.settle(capp=1)


def test_peek_never_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`peek` takes a wrong value for none, and reads the environment even beside a broken file."""
    (folder / "sonde.toml").write_text("cap = ")
    assert config.peek("core") == "auto"
    monkeypatch.setenv("SONDE_CORE", "python")
    assert config.peek("core") == "python"
    monkeypatch.setenv("SONDE_CORE", "fortran")
    assert config.peek("core") == "auto"


# ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("switch", "run", "wanted"),
    [("", "", False), ("1", "", True), ("0", "", False), ("", "/r", True), ("0", "/r", False), ("off", "/r", False)],
)
def test_wanted_at_import(monkeypatch: pytest.MonkeyPatch, switch: str, run: str, wanted: bool) -> None:
    """SONDE=1 or a run to join starts recording at import, and SONDE=0 forbids it."""
    monkeypatch.setenv("SONDE", switch)
    monkeypatch.setenv("SONDE_RUN", run)
    assert config.wanted_at_import() is wanted


def test_publish_run_reaches_child_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process sees the published run, until it is taken back."""
    monkeypatch.setenv("SONDE_RUN", "before")
    command = [sys.executable, "-c", "import os; print(os.environ.get('SONDE_RUN'))"]
    config.publish_run("some-run")
    assert subprocess.check_output(command, text=True).strip() == str(folder / "some-run")
    config.publish_run(None)
    assert subprocess.check_output(command, text=True).strip() == "None"
    config.publish_run(None)


@pytest.mark.parametrize(("value", "enabled"), [("1", True), ("0", False), ("", False), ("no", False)])
def test_dftracer_switch(monkeypatch: pytest.MonkeyPatch, value: str, enabled: bool) -> None:
    """DFTracer's own variable is on with 1 only."""
    monkeypatch.setenv("DFTRACER_ENABLE", value)
    assert config.dftracer_enabled() is enabled


def test_ranks_outside_of_a_job() -> None:
    """Without a launcher nothing is known."""
    assert config.ranks() == (None, None, None)


def test_ranks_of_torchrun_come_before_those_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun inside of a Slurm job has the last word."""
    for name, value in {"SLURM_PROCID": "7", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}.items():
        monkeypatch.setenv(name, value)
    assert config.ranks() == (7, 1, 8)
    for name, value in {"RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert config.ranks() == (3, 0, 4)


@pytest.mark.parametrize("value", ["-1", "x", "1.0", "9" * 30, "٣"])
def test_a_rank_that_is_no_number_is_not_known(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Odd values of the launchers' variables never raise."""
    monkeypatch.setenv("RANK", value)
    assert config.ranks() == (None, None, None)


LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "123"}


def setenv(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set all of them."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_ranks_of_lightning_come_before_those_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts its ranks itself, also where Slurm has started one task only."""
    setenv(monkeypatch, LIGHTNING | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    assert config.ranks() == (1, 1, 4)


@pytest.mark.parametrize("odd", [{"NODE_RANK": "1"}, {"NODE_RANK": ""}, {"WORLD_SIZE": ""}, {"LOCAL_RANK": "4"}])
def test_ranks_of_lightning_are_not_guessed(monkeypatch: pytest.MonkeyPatch, odd: dict[str, str]) -> None:
    """On other nodes the rank depends on how many ranks a node has, which no variable says."""
    setenv(monkeypatch, LIGHTNING | odd)
    assert config.ranks() == (None, None, None)


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What was learned is forgotten."""
    yield
    config.forget_ranks()


@pytest.mark.usefixtures("_forgotten")
def test_a_rank_is_learned_once() -> None:
    """Until it is forgotten."""
    assert config.learn_ranks(1, 2)
    assert not config.learn_ranks(1, 2)
    assert config.ranks() == (1, None, 2)
    config.forget_ranks()
    assert config.ranks() == (None, None, None)


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(
    ("variables", "told", "known"),
    [
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, (3, 4), (3, None, 4)),  # they count nodes
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, (3, 4), (3, None, 4)),  # inherited
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (5, 8), (5, 1, 8)),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (1, 2), (5, 1, 8)),  # a group of some of the ranks
        (LIGHTNING | {"NODE_RANK": "1"}, (3, 4), (3, 1, 4)),
    ],
)
def test_what_was_learned_beside_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: tuple[int, int], known: tuple[int | None, ...]
) -> None:
    """Torch is right, unless its world is only a part of the one that is known."""
    setenv(monkeypatch, variables)
    config.learn_ranks(*told)
    assert config.ranks() == known


def test_ranks_that_lightning_has_started_share_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank is the parent of the others; other programs that are started alike are other jobs."""
    setenv(monkeypatch, LIGHTNING | {"LOCAL_RANK": "0"})
    command = [sys.executable, "-c", "from sonde import config; print(config.job())"]
    child = subprocess.check_output(command, text=True, env=os.environ | {"LOCAL_RANK": "2"}).strip()
    other = subprocess.check_output(command, text=True).strip()
    assert config.job() == child
    assert config.job() != other


def test_no_job() -> None:
    """A program started by hand belongs to no job."""
    assert config.job() is None


def test_job_of_torchrun_tells_attempts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart is another job; ranks of one attempt share the text."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "train-7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = config.job()
    assert first == config.job()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert config.job() != first


@pytest.mark.parametrize("name", ["none", ""])
def test_job_of_torchrun_without_an_id_names_its_launcher(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """torchrun's default id is the same for every job, so the launching process is added."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
    job = config.job()
    assert job is not None
    assert job.endswith(f"{os.getppid()}-{config.start_ticks(os.getppid())}")


def test_job_of_slurm_needs_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a step has ranks that share a job; a restarted step is another one."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert config.job() is None
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    first = config.job()
    assert first is not None
    assert first.startswith("slurm 12 3 0 ")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert config.job() != first


def test_start_ticks_of_a_process_do_not_change() -> None:
    """A living process has its start time, and one that is not there has none."""
    assert config.start_ticks(os.getpid()) == config.start_ticks(os.getpid())
    assert config.start_ticks(2**30) is None


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["train.py"], "train"),
        (["/a/b/my.model.py"], "my.model"),
        (["/site/torchtool/__main__.py"], "torchtool"),
        (["/x/ipykernel_launcher.py"], "notebook"),
        (["-c"], "python"),
        (["-m"], "python"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_script_name(monkeypatch: pytest.MonkeyPatch, argv: list[str], name: str) -> None:
    """A run is named after the program that is recorded."""
    monkeypatch.setattr(sys, "argv", argv)
    assert config.script_name() == name


def test_temporary_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default for scratch is the folder that the environment names for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert config.load().scratch == str(tmp_path)


def test_no_parser_is_loaded_without_a_file(folder: Path) -> None:
    """Reading settings where there is no file costs no import of tomllib, and never one of dataclasses or inspect."""
    code = "import sys, sonde.config as c; c.load(); print([m for m in ('tomllib', 'dataclasses', 'inspect') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
