"""TraceML's Trainer and callback: their parameters, and what they record."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("lightning")
import lightning  # noqa: E402
from tests.integrations.loops import Words, arguments, bert, lightning_parts, lightning_trainer  # noqa: E402

import sonde  # noqa: E402
from sonde import guard, session  # noqa: E402
from sonde.compat.traceml.integrations.huggingface import TraceMLTrainer  # noqa: E402
from sonde.compat.traceml.integrations.lightning import TraceMLCallback  # noqa: E402
from sonde.events import core  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test records goes into a folder of its own, and ends with it."""
    monkeypatch.chdir(tmp_path)
    yield
    sonde.finish()


def trained(folder: Path, **options: Any) -> TraceMLTrainer:
    """After a training of two epochs with two steps each."""
    trainer = TraceMLTrainer(model=bert(), args=arguments(folder), train_dataset=Words(), **options)
    trainer.train()
    return trainer


def layers(recorded: Recorded) -> set[str]:
    """The names of the recorded layers."""
    return {event["name"] for event in recorded.events if event["cat"] == "layer"}


def test_the_trainers_parameters_and_defaults() -> None:
    """Both by keyword only; everything else is the Trainer's."""
    found = inspect.signature(TraceMLTrainer.__init__).parameters
    assert (found["traceml_enabled"].default, found["traceml_kwargs"].default) == (True, None)
    assert {found[name].kind for name in ("traceml_enabled", "traceml_kwargs")} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_trainer_records_steps(tmp_path: Path) -> None:
    """One for each update; layers only if `traceml_kwargs` are given."""
    with record() as recorded:
        trainer = trained(tmp_path)
        with sonde.open_run(recorded.path) as run:
            assert run.sql("select count(*) from steps").fetchall() == [(4,)]
    assert (trainer.traceml_enabled, trainer.traceml_kwargs) == (True, None)


def test_the_trainer_records_the_layers_that_traceml_kwargs_choose(tmp_path: Path) -> None:
    """In deep mode."""
    with record(deep=True) as recorded:
        trained(tmp_path, traceml_kwargs={"include_names": ["classifier"]})
    assert layers(recorded) == {"classifier"}


def test_a_wrong_name_in_traceml_kwargs_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And training goes on."""
    monkeypatch.setattr(
        guard, "_failures", guard._Failures()
    )  # each place is logged once, and only the first 64 places
    with record(deep=True):
        trained(tmp_path, traceml_kwargs={"only_leaves": True})
    assert "only_leaves" in caplog.text


def test_a_trainer_that_is_not_enabled_starts_no_recording(tmp_path: Path) -> None:
    """By its argument."""
    trained(tmp_path / "out", traceml_enabled=False)
    assert session.current() is None


def test_a_disabled_trainer_starts_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable; what it was given is still there."""
    monkeypatch.setenv("TRACEML_DISABLED", "1")
    assert trained(tmp_path / "out").traceml_enabled
    assert session.current() is None


def fitted(folder: Path) -> None:
    """A Lightning training with the callback."""
    net, training, validation = lightning_parts(lightning)
    lightning_trainer(lightning, folder, callbacks=[TraceMLCallback()]).fit(net, training, validation)


def test_the_callback_takes_nothing() -> None:
    """As `TraceMLCallback()` stands in every example."""
    assert list(inspect.signature(TraceMLCallback.__init__).parameters) == ["self"]


def test_the_callback_records_steps(tmp_path: Path) -> None:
    """One for each update, with its micro-batches."""
    with record() as recorded:
        fitted(tmp_path)
        with sonde.open_run(recorded.path) as run:
            assert run.sql("select micro_batches from steps order by step").fetchall() == [(4,)] * 4


def test_a_disabled_callback_starts_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable."""
    monkeypatch.setenv("TRACEML_DISABLED", "1")
    fitted(tmp_path)
    assert session.current() is None
    assert core.get_context() == (None, None)
