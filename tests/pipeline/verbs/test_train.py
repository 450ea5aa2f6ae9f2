"""train: what it visits, how it learns, what it leaves in its folder, and how it fails."""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pipeline import models
from tests.pipeline.models import PATH, equal, pipeline, request, weights

from sonde.errors import ConfigError, DataError, FolderRefused, ModelError
from sonde.events import get_context, set_context
from sonde.pipeline import Job, Pipeline, register_model
from sonde.pipeline.data.loading import batches
from sonde.pipeline.training.build import build_model


def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The batches that the model is trained with, in order."""
    found: list[Any] = []
    original = models.Line.train_batch

    def train_batch(self: Any, batch: Any) -> Any:
        found.append(batch)
        return original(self, batch)

    monkeypatch.setattr(models.Line, "train_batch", train_batch)
    return found


def test_a_run_leaves_config_record_weights_and_checkpoints(tmp_path: Path) -> None:
    """In a folder that says what ran and how it ended."""
    folder = pipeline(tmp_path).train()
    assert folder.parent == tmp_path
    assert {path.name for path in folder.iterdir()} == {"config.toml", "run.json", "weights.pt", "latest.pt", "best.pt"}
    record = json.loads((folder / "run.json").read_text())
    assert (record["verb"], record["status"], record["epochs"]) == ("train", "completed", 2)
    assert record["metrics"]["loss"] > 0
    assert "batch_size = 4" in (folder / "config.toml").read_text()


def test_each_epoch_visits_every_item_once_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without replacement, whatever the size of the last batch."""
    found = seen(monkeypatch)
    pipeline(tmp_path).train()
    firsts = [float(row[0]) for batch in found for row in batch[0]]
    wanted = sorted(float(models.point(number)[0]) for number in range(10))
    assert [len(batch[0]) for batch in found] == [4, 4, 2] * 2
    assert sorted(firsts[:10]) == sorted(firsts[10:]) == wanted
    assert firsts[:10] != firsts[10:]


def test_items_are_drawn_by_weight_if_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the weight 0 never come."""
    found = seen(monkeypatch)
    made = pipeline(tmp_path)
    made.config["data_loader"]["weight_field"] = "data.side"
    made.train()
    assert {int(side) for batch in found for side in batch[1]} == {1}


def test_classes_are_drawn_equally_often_if_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many items each has."""
    found = seen(monkeypatch)
    made = pipeline(tmp_path, dataset="Rare")
    made.config["data_loader"]["balance_field"] = "side"
    made.config["train"]["epochs"] = 20
    made.train()
    sides = [int(side) for batch in found for side in batch[1]]
    assert len(sides) == 200
    assert 70 < sum(sides) < 130


def test_weight_and_balance_are_not_both_possible(tmp_path: Path) -> None:
    """Before a folder is made."""
    made = pipeline(tmp_path)
    made.config["data_loader"]["weight_field"] = made.config["data_loader"]["balance_field"] = "data.side"
    with pytest.raises(ConfigError, match="both weight_field and balance_field"):
        made.train()
    assert not list(tmp_path.iterdir())


def test_training_starts_from_given_weights(tmp_path: Path) -> None:
    """Of a run folder or a file; with a fresh optimizer and from the first epoch."""
    first = pipeline(tmp_path, "Plain").train()
    made = pipeline(tmp_path, "Plain")
    made.config["torch.optim.SGD"]["lr"] = 0.0
    for given in (first, first / "best.pt"):
        made.config["train"]["model_weights_file"] = str(given)
        run = made.train()
        assert json.loads((run / "run.json").read_text())["epochs"] == 2
        if given == first:
            assert equal(weights(run), weights(first))
    made.config["train"]["resume"] = str(first)
    with pytest.raises(ConfigError, match="both resume and model_weights_file"):
        made.train()


def test_weight_field_that_does_not_exist_is_told(tmp_path: Path) -> None:
    """With its name, before a folder is made."""
    made = pipeline(tmp_path)
    made.config["data_loader"]["weight_field"] = "data.wight"
    with pytest.raises(ConfigError, match=r"data\.wight"):
        made.train()
    assert not list(tmp_path.iterdir())


def test_the_model_gets_tensors_on_the_device_in_a_tuple(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels last, with their own type."""
    found = seen(monkeypatch)
    pipeline(tmp_path).train()
    x, side = found[0]
    assert isinstance(found[0], tuple)
    assert (x.dtype, side.dtype, x.device.type) == (torch.float32, torch.int64, "cpu")


def test_same_seed_gives_the_same_weights_and_another_one_others(tmp_path: Path) -> None:
    """Weights, order and dropout follow from it."""
    made = pipeline(tmp_path)
    first, second = made.train(), made.train()
    made.config["general"]["seed"] = 5
    assert equal(weights(first), weights(second))
    assert not equal(weights(first), weights(made.train()))


def test_a_verb_leaves_random_numbers_config_and_modules_of_the_program_alone(tmp_path: Path) -> None:
    """What the program draws next is what it would have drawn."""
    made = pipeline(tmp_path)
    before = copy.deepcopy(made.config.as_dict())
    for draw in (random.random, np.random.random, lambda: float(torch.rand(()))):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  what is set globally is what this is about
        torch.manual_seed(1)
        wanted = draw()
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  what is set globally is what this is about
        torch.manual_seed(1)
        made.train()
        assert draw() == wanted
    assert made.config.as_dict() == before


def test_a_verb_leaves_no_step_and_epoch_behind(tmp_path: Path) -> None:
    """What the program records afterwards belongs to none of its steps."""
    set_context(-1, -1)
    pipeline(tmp_path).train()
    assert get_context() == (None, None)


def test_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    """The gradient of an update is that of all its items, also where batches differ in size."""
    made = pipeline(tmp_path, "Classifier", train=_images())
    made.config["data_loader"]["shuffle"] = False
    made.config["data_loader"]["batch_size"] = 10
    whole = weights(made.train())
    made.config["data_loader"]["batch_size"] = 4
    made.config["train"]["accumulate"] = 3
    parts = weights(made.train())
    assert all(torch.allclose(whole[name], parts[name], atol=1e-6) for name in whole)


def _images() -> dict[str, Any]:
    config = {"shape": [1, 8, 8], "size": 10}
    fields = {"fields": ["image", "label"], "primary_id_field": "object_id", "dataset_config": config}
    return {"data": {"dataset_class": "RandomDataset", **fields}}


@pytest.mark.parametrize("model", ["Autoencoder", "Classifier"])
def test_built_in_models_learn(tmp_path: Path, model: str) -> None:
    """The loss after some epochs is less than after the first, also for images with odd sides."""
    group = _images()
    group["data"]["dataset_config"] = {"shape": [3, 17, 21], "size": 8}
    made = pipeline(tmp_path, model, train=group)
    made.config["train"]["epochs"] = 8
    made.config["optimizer"]["name"] = "torch.optim.Adam"
    made.config["torch.optim.Adam"] = {"lr": 0.01}
    folder = made.train()
    epochs = [json.loads((folder / "run.json").read_text())["metrics"]["loss"]]
    made.config["train"]["epochs"] = 1
    first = json.loads((made.train() / "run.json").read_text())["metrics"]["loss"]
    assert epochs[0] < first


def test_validation_chooses_the_best_epoch(tmp_path: Path) -> None:
    """By the number that the config names; it stands in the record with a prefix."""
    made = pipeline(tmp_path, validate=request())
    made.config["train"]["epochs"] = 3
    folder = made.train()
    latest = torch.load(folder / "latest.pt", weights_only=True)
    best = torch.load(folder / "best.pt", weights_only=True)
    assert latest["epoch"] == 3
    assert best["epoch"] == latest["best_epoch"]
    assert "validate_loss" in json.loads((folder / "run.json").read_text())["metrics"]


def test_unknown_best_metric_is_told_with_those_there_are(tmp_path: Path) -> None:
    """A typo does not silently choose nothing."""
    made = pipeline(tmp_path)
    made.config["train"]["best_metric"] = "acuracy"
    with pytest.raises(ConfigError, match=r"acuracy.*loss"):
        made.train()


def test_scheduler_and_optimizer_come_from_the_config(tmp_path: Path) -> None:
    """With their arguments; the learning rate falls each epoch."""
    made = pipeline(tmp_path)
    made.config["scheduler"]["name"] = "torch.optim.lr_scheduler.ExponentialLR"
    made.config["torch.optim.lr_scheduler.ExponentialLR"] = {"gamma": 0.5}
    folder = made.train()
    saved = torch.load(folder / "latest.pt", weights_only=True)
    assert saved["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.01 * 0.25)
    assert saved["optimizer"]["param_groups"][0]["momentum"] == 0.9


def test_wrong_argument_of_an_optimizer_is_told(tmp_path: Path) -> None:
    """With the optimizer and the arguments."""
    made = pipeline(tmp_path)
    made.config["torch.optim.SGD"]["learning_rate"] = 0.1
    with pytest.raises(ConfigError, match=r"torch\.optim\.SGD.*learning_rate"):
        made.train()


def test_model_may_set_its_own_optimizer(tmp_path: Path) -> None:
    """Then the config's is not made."""

    @register_model
    class Own(models.Line):
        def __init__(self, config: Any, sample: Any) -> None:
            super().__init__(config, sample)
            self.optimizer = torch.optim.AdamW(self.parameters(), lr=0.5)

    made = pipeline(tmp_path)
    made.config["model"]["name"] = "Own"
    saved = torch.load(made.train() / "latest.pt", weights_only=True)
    assert saved["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_model_may_do_its_updates_itself(tmp_path: Path) -> None:
    """With automatic_optimization switched off, a loss may be a plain number."""

    @register_model
    class Manual(models.Line):
        automatic_optimization = False
        optimizer: Any  # made from the config

        def train_batch(self, batch: Any) -> dict[str, Any]:
            self.optimizer.zero_grad()
            loss = super().train_batch(batch)["loss"]
            loss.backward()
            self.optimizer.step()
            return {"loss": loss.item()}

    made = pipeline(tmp_path)
    ours = weights(made.train())
    made.config["model"]["name"] = "Manual"
    assert equal(weights(made.train()), ours)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda loss: {"los": loss}, 'without "loss"'),
        (lambda loss: loss, "returned Tensor"),
        (lambda loss: {"loss": loss.expand(3)}, r"not a single number, but Tensor of shape \(3,\)"),
        (lambda loss: {"loss": None}, "not a single number, but NoneType"),
        (lambda loss: {"loss": loss.item()}, "does not depend on the weights"),
        (lambda loss: {"loss": loss.detach()}, "does not depend on the weights"),
    ],
)
def test_wrong_loss_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, words: str) -> None:
    """With the model, the method, and what it gave."""
    original = models.Line.train_batch
    monkeypatch.setattr(models.Line, "train_batch", lambda self, batch: given(original(self, batch)["loss"]))
    with pytest.raises(ModelError, match=words) as caught:
        pipeline(tmp_path).train()
    assert "Line.train_batch" in str(caught.value)


def test_an_exception_of_the_model_is_raised_and_the_run_marked_failed(tmp_path: Path) -> None:
    """The checkpoint of the finished epoch stays; also with a validate group, which must not swallow it."""
    made = pipeline(tmp_path, "Crashing", validate=request())
    with pytest.raises(ZeroDivisionError, match="in the model"):
        made.train()
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert (record["status"], record["error"], record["epochs"]) == ("failed", "ZeroDivisionError: in the model", 1)
    assert torch.load(folder / "latest.pt", weights_only=True)["epoch"] == 1
    assert not (folder / "weights.pt").exists()


def test_an_interrupt_is_raised_and_the_checkpoint_kept(tmp_path: Path) -> None:
    """The run is marked as interrupted, and can be resumed."""
    with pytest.raises(KeyboardInterrupt):
        pipeline(tmp_path, "Interrupted").train()
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = "latest"
    assert equal(weights(made.train()), weights(pipeline(tmp_path).train()))


def test_a_getter_that_fails_says_where(tmp_path: Path) -> None:
    """In a worker too."""
    made = pipeline(tmp_path, dataset="Failing")
    for workers in (0, 1):
        made.config["data_loader"]["num_workers"] = workers
        with pytest.raises(DataError, match=r"(?s)x.*p7.*the disk is gone"):
            made.train()


def test_workers_change_nothing_of_the_result(tmp_path: Path) -> None:
    """Weights are those of a run in which the main process reads."""
    made = pipeline(tmp_path, train=request("Augmented", augment=True))
    alone = weights(made.train())
    made.config["data_loader"]["num_workers"] = 2
    assert equal(weights(made.train()), alone)


def test_old_name_of_prepare_inputs_is_accepted_with_a_warning(tmp_path: Path) -> None:
    """The class is left as it is."""
    before = dict(vars(models.Old))
    with pytest.warns(DeprecationWarning, match="prepare_inputs"):
        folder = pipeline(tmp_path, "Old").train()
    assert (folder / "weights.pt").exists()
    assert dict(vars(models.Old)) == before


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda p: p.set_config("model.name", ""), ConfigError, "No model chosen"),
        (lambda p: p.set_config("model.name", "Autoencodr"), ConfigError, "Autoencoder"),
        (lambda p: p.set_config("model.name", f"{PATH}.Points"), ModelError, "not a model"),
        (lambda p: p.set_config("train.epochs", 0), ConfigError, r"train\.epochs is 0"),
        (lambda p: p.set_config("train.accumulate", 0), ConfigError, r"train\.accumulate is 0"),
        (lambda p: p.set_config("train.device", "cuda:99"), ModelError, "cuda:99"),
        (lambda p: p.set_config("data_request", {"infer": request()}), ConfigError, "train"),
        (lambda p: p.set_config("data_loader.batch_size", 0), ConfigError, r"batch_size is 0"),
    ],
)
def test_wrong_settings_are_told_before_a_folder_is_made(tmp_path: Path, change: Any, error: Any, words: str) -> None:
    """Each with the key or the value."""
    made = pipeline(tmp_path)
    change(made)
    with pytest.raises(error, match=words):
        made.train()
    assert not list(tmp_path.iterdir())


def test_model_without_a_method_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    """With the method that it lacks."""

    @register_model
    class Partial(models.Old):
        @staticmethod
        def prepare_inputs(batch_dict: Any) -> Any:
            return batch_dict["data"]["x"]

    made = pipeline(tmp_path, validate=request())
    made.config["model"]["name"] = "Partial"
    with pytest.raises(ModelError, match="validate_batch"):
        made.train()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_told(tmp_path: Path) -> None:
    """With the folder and what to set."""
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(FolderRefused, match="results_dir"):
        pipeline(tmp_path / "closed").train()


def test_results_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    """The same way."""
    (tmp_path / "file").touch()
    with pytest.raises(FolderRefused, match="results_dir"):
        pipeline(tmp_path / "file").train()


def test_a_verb_of_the_user_gets_job_and_arguments(tmp_path: Path) -> None:
    """And can be traced like ours."""

    def count(job: Job, factor: int) -> int:
        provider = job.provider("infer")
        build_model(job.config, provider)
        job.begin()
        return factor * sum(len(batch["object_id"]) for batch in batches(job, provider) if batch)

    made = pipeline(tmp_path)
    assert made.run(count, factor=3) == 30
    trace = made.run(count, trace=2, factor=3)
    assert len(trace.resolve_data) == 2
    assert len(trace.collate[0].batch_dict["object_id"]) == 2


def test_a_new_seed_is_drawn_and_written_down_if_none_is_given(tmp_path: Path) -> None:
    """The saved config repeats the run."""
    made = pipeline(tmp_path)
    made.config["general"]["seed"] = -1
    first, second = made.train(), made.train()
    assert not equal(weights(first), weights(second))
    assert made.config["general"]["seed"] == -1
    assert equal(weights(Pipeline(first / "config.toml").train()), weights(first))


def test_no_optimizer_is_told(tmp_path: Path) -> None:
    """Before a folder is made."""
    made = pipeline(tmp_path)
    made.config["optimizer"]["name"] = ""
    with pytest.raises(ConfigError, match="There is no optimizer"):
        made.train()
    assert not list(tmp_path.iterdir())


def test_a_loss_that_is_no_number_any_more_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in the record, which stays valid JSON; such an epoch is never the best one."""
    made = pipeline(tmp_path)
    made.config["torch.optim.SGD"]["lr"] = 1e30
    folder = made.train()
    assert "the model no longer learns" in caplog.text
    record = json.loads((folder / "run.json").read_text(), parse_constant=pytest.fail)
    assert record["metrics"]["loss"] in ("nan", "inf")
    assert torch.load(folder / "latest.pt", weights_only=True)["best_epoch"] is None
