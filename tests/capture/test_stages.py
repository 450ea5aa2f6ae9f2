"""The stages of a pipeline: their order, new ones, and what cannot be one."""

from __future__ import annotations

import pytest

from sonde.capture import stages
from sonde.capture.result import TraceResult
from sonde.errors import SettingError


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that a test declares are gone after it."""
    monkeypatch.setattr(stages, "_declared", list(stages.DEFAULT_STAGES))


def test_the_default_stages_stand_in_the_order_of_the_pipeline() -> None:
    """Five stages, from the dataset to the model."""
    assert stages.stage_names() == ("dataset_getter", "resolve_data", "collate", "prepare_inputs", "evaluation")


def test_a_stage_is_declared_behind_another() -> None:
    """`after` gives its place; without it, it is the last one."""
    stages.declare_stage("augment", after="resolve_data")
    stages.declare_stage("report")
    assert stages.stage_names()[2] == "augment"
    assert stages.stage_names()[-1] == "report"


def test_declaring_a_stage_again_changes_nothing() -> None:
    """A module that declares a stage may be reloaded."""
    stages.declare_stage("augment")
    stages.declare_stage("augment", after="collate")
    assert stages.stage_names()[-1] == "augment"
    assert len(stages.stage_names()) == 6


def test_a_new_result_has_the_declared_stages() -> None:
    """They are there, empty, before anything is captured."""
    stages.declare_stage("augment", after="dataset_getter")
    assert [stage.name for stage in TraceResult()][:2] == ["dataset_getter", "augment"]
    assert len(TraceResult().augment) == 0


@pytest.mark.parametrize("name", ["collat", "", None, 3, "save"])
def test_an_unknown_stage_is_refused_with_the_valid_ones(name: object) -> None:
    """The message lists them, and says how to declare one."""
    with pytest.raises(SettingError, match=r"dataset_getter, resolve_data, collate.*declare_stage"):
        stages.check_stage(name)


def test_a_near_miss_is_recognised() -> None:
    """A typing mistake is answered with the name that was meant."""
    with pytest.raises(SettingError, match="Did you mean 'collate'"):
        stages.check_stage("colate")


@pytest.mark.parametrize("name", ["", "two words", "_hidden", "1st", None, 7])
def test_a_stage_needs_a_python_name(name: object) -> None:
    """It is to be reached as an attribute."""
    with pytest.raises(SettingError, match="is not a valid stage name"):
        stages.declare_stage(name)  # type: ignore[arg-type]


def test_an_unknown_place_is_refused() -> None:
    """`after` must be a stage."""
    with pytest.raises(SettingError, match="No stage 'nowhere'"):
        stages.declare_stage("augment", after="nowhere")


@pytest.mark.parametrize("name", [name for name in vars(TraceResult) if not name.startswith("_")])
def test_what_a_result_has_of_its_own_cannot_be_a_stage(name: str) -> None:
    """A stage named `save` could not be reached as an attribute."""
    with pytest.raises(SettingError, match="already has an attribute with that name"):
        stages.declare_stage(name)
