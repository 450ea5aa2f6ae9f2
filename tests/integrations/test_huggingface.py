"""Hugging Face: a step is an update with its micro-batches, evaluation is none, and the results are those of the bare Trainer."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("transformers")
from tests.integration.launching import run, script
from tests.integrations.loops import Words, arguments, bert, digest
from transformers import Trainer, TrainerCallback

import sonde
from sonde.errors import SettingError
from sonde.integrations.huggingface import SondeCallback, SondeTrainer
from sonde.testing import Recorded, record

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

ROOT = Path(__file__).resolve().parents[2]
STEPS = "select step, epoch, micro_batches, samples from steps order by step"
TWO_EPOCHS = [(0, 0, 4, 8), (1, 0, 4, 8), (2, 1, 4, 8), (3, 1, 4, 8)]


def trained(kind: Any, folder: Path, *, more: dict[str, Any] | None = None, **options: Any) -> str:
    """The digest of a model after its training by this kind of Trainer."""
    model = bert()
    kind(
        model=model, args=arguments(folder, **(more or {})), train_dataset=Words(), eval_dataset=Words(), **options
    ).train()
    return digest(model)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest after a training with evaluation that nothing of ours sees."""
    return trained(Trainer, tmp_path_factory.mktemp("bare"), more={"eval_strategy": "epoch"})


def rows(recorded: Recorded, query: str) -> list[tuple[Any, ...]]:
    """The answer to a query, while the run is there."""
    with sonde.open_run(recorded.path) as found:
        return list(found.sql(query).fetchall())


def test_a_step_is_an_update_with_its_micro_batches(bare: str, tmp_path: Path) -> None:
    """Four micro-batches, evaluation apart, the same results to the last bit; layers of the model that is trained."""
    with record() as recorded:
        assert trained(SondeTrainer, tmp_path, more={"eval_strategy": "epoch"}, sonde_kwargs={}) == bare
        assert rows(recorded, STEPS) == TWO_EPOCHS
        assert rows(recorded, "select distinct calls from layers where step = 1") == [(4,)]
        ((layer,),) = rows(recorded, "select distinct type from layers where layer = 'bert.pooler.dense'")
    assert layer == "Linear"
    assert [event["step"] for event in recorded.named("evaluation")] == [2, 4]


@pytest.mark.parametrize("kind", [Trainer, SondeTrainer])
def test_an_evaluation_of_one_batch_is_none_of_the_training(kind: Any, tmp_path: Path) -> None:
    """Also before the last batch of an epoch, which the Trainer has in hand by then."""
    more = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16}
    with record() as recorded:
        trained(kind, tmp_path, more={**more, "gradient_accumulation_steps": 7, "num_train_epochs": 1})
        assert rows(recorded, "select step, micro_batches, samples from steps order by 1") == [(0, 7, 14), (1, 1, 2)]
        assert rows(recorded, "select purpose, size from batches where size > 2") == [("evaluate", 16)] * 2


def test_a_callback_is_enough(tmp_path: Path) -> None:
    """For an ordinary Trainer; epochs are known from it."""
    bare = trained(Trainer, tmp_path)
    with record() as recorded:
        assert trained(Trainer, tmp_path, callbacks=[SondeCallback({"include_names": ["pooler"]})]) == bare
        assert rows(recorded, STEPS) == TWO_EPOCHS
        names = rows(recorded, "select distinct layer from layers order by 1")
    assert names == [("bert.pooler.activation",), ("bert.pooler.dense",)]


def test_switched_off_it_is_an_ordinary_trainer(tmp_path: Path) -> None:
    """It records no layers, and marks no evaluation."""
    with record() as recorded:
        trained(SondeTrainer, tmp_path, sonde_enabled=False, sonde_kwargs={}, more={"eval_strategy": "epoch"})
    assert not [event for event in recorded.events if event["cat"].startswith("layer")]
    assert "evaluation" not in recorded.names


def test_training_that_goes_on_keeps_its_step(tmp_path: Path) -> None:
    """After a checkpoint steps are counted on from there."""
    more = {"save_strategy": "steps", "save_steps": 3}
    trained(Trainer, tmp_path, more=more)
    with record() as recorded:
        model = bert()
        trainer = SondeTrainer(model=model, args=arguments(tmp_path, **more), train_dataset=Words())
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert [event["step"] for event in recorded.named("update")] == [3]


def test_another_model_object_is_attached_again(tmp_path: Path) -> None:
    """The layers of the second one are recorded too, under names of their own while the first one lives."""
    first = bert()
    with record() as recorded:
        trainer = SondeTrainer(
            model=first, args=arguments(tmp_path, num_train_epochs=1), train_dataset=Words(),
            sonde_kwargs={"include_names": ["classifier"]},
        )  # fmt: skip
        trainer.train()
        trainer.model = trainer.model_wrapped = bert()
        trainer.train()
    calls = [event["name"] for event in recorded.events if event["cat"] == "layer"]
    assert calls == ["classifier"] * 8 + ["BertForSequenceClassification#2.classifier"] * 8


def test_an_argument_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    """Not in the first step."""
    with pytest.raises(SettingError, match="Did you mean 'leaf_only'"):
        SondeTrainer(model=bert(), args=arguments(tmp_path), sonde_kwargs={"leaf_onyl": True})


def test_a_callback_is_copied_and_pickled() -> None:
    """Frameworks do that."""
    callback = SondeCallback({"leaf_only": False})
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert other._progress._layers == {"leaf_only": False}


def test_without_the_library_the_extra_is_named() -> None:
    """An ImportError, with what to install."""
    code = "import sys; sys.modules['transformers'] = None\nimport sonde.integrations.huggingface"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'sonde-ml[huggingface]'" in done.stderr
    assert "MissingExtra" in done.stderr


def test_a_script_needs_no_edit_under_sonde_run(bare: str, programs: Programs) -> None:
    """With layers: steps, micro-batches and results are the same."""
    code = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        import torch
        torch.set_num_threads(1)
        from transformers import Trainer
        from tests.integrations.loops import Words, arguments, bert, digest
        model = bert()
        Trainer(
            model=model, args=arguments("out", eval_strategy="epoch"), train_dataset=Words(), eval_dataset=Words()
        ).train()
        print("digest", digest(model))
    """
    done = run(programs, "-q", "--deep", str(script(programs.folder, code)))
    assert done.stdout.splitlines()[-1] == f"digest {bare}"
    assert programs.rows("select step, micro_batches, samples from steps order by step") == [
        (step, 4, 8) for step in range(4)
    ]
    assert programs.rows("select count(*) > 20, min(calls), max(calls) from layers where step = 1") == [(True, 4, 4)]


# ── without an edit ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("counts_items", [True, False])
def test_a_bare_trainer_has_epochs_and_the_loss_that_it_logs(tmp_path: Path, counts_items: bool) -> None:
    """However the Trainer scales the losses of its micro-batches."""
    logged: list[float] = []

    class Logging(TrainerCallback):
        def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            logged.extend([logs["loss"]] if "loss" in logs else [])

    trainer = Trainer(
        model=bert(),
        args=arguments(tmp_path, logging_strategy="steps", logging_steps=1),
        train_dataset=Words(),
        callbacks=[Logging()],
    )
    trainer.model_accepts_loss_kwargs = counts_items
    with record() as recorded:
        trainer.train()
        assert rows(recorded, STEPS) == TWO_EPOCHS
        losses = [loss for (loss,) in rows(recorded, "select loss from steps order by step")]
    assert losses == pytest.approx(logged, abs=1e-3)  # it rounds them


def test_what_the_program_says_of_its_epoch_stays(tmp_path: Path) -> None:
    """The Trainer is only asked where the program says nothing."""
    with record() as recorded:
        sonde.ai.update(epoch=7)
        trained(Trainer, tmp_path)
        assert rows(recorded, "select distinct epoch from steps") == [(7,)]
