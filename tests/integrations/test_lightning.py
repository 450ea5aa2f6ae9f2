"""Lightning, under both of its names: a step is an update with its micro-batches; sanity checks and validation are evaluation."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.launching import run, script
from tests.integrations.loops import digest, lightning_pair, lightning_parts, lightning_trainer

import sonde
from sonde.testing import Recorded, record

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of Lightning: few workers, no logger
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ROOT = Path(__file__).resolve().parents[2]
TWO_EPOCHS = [(0, 0, 4, 8), (1, 0, 4, 8), (2, 1, 4, 8), (3, 1, 4, 8)]


def callback(library: Any, sonde_kwargs: dict[str, Any] | None = None) -> Any:
    """One for this library, as a program gets it that has imported it before."""
    module = importlib.import_module("sonde.integrations.lightning")
    found = module.SondeCallback
    if not issubclass(found, library.Callback):
        found = importlib.reload(module).SondeCallback
    return found(sonde_kwargs)


def fitted(library: Any, folder: Path, callbacks: list[Any], **more: Any) -> str:
    """The digest of a module after its training."""
    net, training, validation = lightning_parts(library)
    lightning_trainer(library, folder, callbacks=callbacks, **more).fit(net, training, validation)
    return digest(net)


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_a_step_is_an_update_with_its_micro_batches(name: str, tmp_path: Path) -> None:
    """Four micro-batches, evaluation and sanity check apart, the same results to the last bit, and layers."""
    library = pytest.importorskip(name)
    bare = fitted(library, tmp_path, [])
    with record() as recorded:
        assert fitted(library, tmp_path, [callback(library, {})]) == bare
        with sonde.open_run(recorded.path) as found:
            steps = found.sql("select step, epoch, micro_batches, samples from steps order by step").fetchall()
            layers = found.sql("select layer, min(calls), max(calls) from layers group by 1 order by 1").fetchall()
    assert steps == TWO_EPOCHS
    assert layers == [("net.0", 4, 4), ("net.1", 4, 4), ("net.2", 4, 4)]
    assert [event["step"] for event in recorded.named("evaluation")] == [0, 2, 4]  # the first is the sanity check


def test_an_exception_in_validation_ends_the_evaluation(tmp_path: Path) -> None:
    """It passes, and what is recorded after it does not lie in the evaluation."""
    library = pytest.importorskip("lightning")
    net, training, validation = lightning_parts(library)

    def fail(*_: Any) -> None:
        raise ValueError("no validation today")

    net.validation_step = fail
    with record() as recorded:
        with pytest.raises(ValueError, match="no validation today"):
            lightning_trainer(library, tmp_path, callbacks=[callback(library)]).fit(net, training, validation)
        sonde.mark("after")
    assert [event["error"] for event in recorded.named("evaluation")] == [True]
    assert recorded.named("after")[0]["depth"] == 0


def test_a_callback_is_copied_and_pickled() -> None:
    """Lightning sends it to the processes that it spawns."""
    found = callback(pytest.importorskip("lightning"), {"leaf_only": False})
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other._progress._layers == {"leaf_only": False}


def test_without_the_library_the_extra_is_named() -> None:
    """An ImportError, with what to install."""
    code = (
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if 'lightning' in name and '.' not in name else find(name, *more)\n"
        "import sonde.integrations.lightning"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'sonde-ml[lightning]'" in done.stderr
    assert "MissingExtra" in done.stderr


def test_a_script_needs_no_edit_under_sonde_run(programs: Programs, tmp_path: Path) -> None:
    """Steps, micro-batches, layers and results are the same."""
    code = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        import torch
        torch.set_num_threads(1)
        import lightning
        from tests.integrations.loops import digest, lightning_parts, lightning_trainer
        net, training, validation = lightning_parts(lightning)
        lightning_trainer(lightning, "out").fit(net, training, validation)
        print("digest", digest(net))
    """
    done = run(programs, "-q", "--deep", str(script(programs.folder, code)))
    assert done.stdout.splitlines()[-1] == f"digest {fitted(pytest.importorskip('lightning'), tmp_path, [])}"
    assert programs.rows("select step, micro_batches, samples from steps order by step") == [
        (step, 4, 8) for step in range(4)
    ]
    assert programs.rows("select layer, min(calls), max(calls) from layers where step = 1 group by 1 order by 1") == [
        (name, 4, 4) for name in "012"
    ]


def test_a_bare_trainer_has_epochs_and_the_loss_of_the_program(tmp_path: Path) -> None:
    """Lightning divides it by the number of micro-batches."""
    library = pytest.importorskip("lightning")
    net, training, _ = lightning_parts(library)
    printed: list[float] = []
    step = net.training_step

    def noted(batch: Any, batch_idx: int) -> Any:
        loss = step(batch, batch_idx)
        printed.append(loss.item())
        return loss

    net.training_step = noted
    with record() as recorded:
        lightning_trainer(library, tmp_path).fit(net, training)
        with sonde.open_run(recorded.path) as found:
            rows = found.sql("select epoch, loss from steps order by step").fetchall()
    means = [sum(printed[at : at + 4]) / 4 for at in range(0, 16, 4)]
    assert rows == [(number // 2, pytest.approx(mean)) for number, mean in enumerate(means)]


# ── where a training goes on ─────────────────────────────────────────────────────────────────────────────────────────

# The first optimizer updates in every so many of eight batches, the other in each; how many steps an epoch has then.
PAIRS = [(1, 8), (4, 9)]


def numbers(recorded: Recorded) -> list[int]:
    """The numbers of the steps, in their order."""
    return [event["step"] for event in recorded.named("update")]


def pair_trainer(library: Any, folder: Path, *callbacks: Any, epochs: int = 1) -> Any:
    """One for a module with two optimizers: eight batches in an epoch."""
    return lightning_trainer(library, folder, callbacks=list(callbacks), accumulate_grad_batches=1, max_epochs=epochs)


@pytest.mark.parametrize(("every", "steps"), PAIRS)
def test_a_second_fit_goes_on_where_the_first_one_ended(tmp_path: Path, every: int, steps: int) -> None:
    """With two optimizers too, whose updates Lightning counts together, however often each of them updates."""
    library = pytest.importorskip("lightning")
    net, data = lightning_pair(library, every), lightning_parts(library)[1]
    with record() as recorded:
        trainer = pair_trainer(library, tmp_path, callback(library))
        trainer.fit(net, data)
        trainer.fit_loop.max_epochs = 2
        trainer.fit(net, data)
    assert numbers(recorded) == list(range(2 * steps))


@pytest.mark.parametrize(("every", "steps"), PAIRS)
def test_a_second_fit_in_another_recording_goes_on_too(tmp_path: Path, every: int, steps: int) -> None:
    """The steps of the first one are not in it, and are counted."""
    library = pytest.importorskip("lightning")
    net, data = lightning_pair(library, every), lightning_parts(library)[1]
    trainer = pair_trainer(library, tmp_path, callback(library))
    with record():
        trainer.fit(net, data)
    trainer.fit_loop.max_epochs = 2
    with record() as recorded:
        trainer.fit(net, data)
    assert numbers(recorded) == list(range(steps, 2 * steps))


@pytest.mark.parametrize("optimizers", [1, 2])
def test_after_a_checkpoint_the_steps_go_on(tmp_path: Path, optimizers: int) -> None:
    """One step has an update of each optimizer."""
    library = pytest.importorskip("lightning")
    parts = lightning_parts(library)
    made, again = (parts[0] if optimizers == 1 else lightning_pair(library) for _ in range(2))
    before = pair_trainer(library, tmp_path)
    before.fit(made, parts[1])
    before.save_checkpoint(tmp_path / "saved.ckpt")
    with record() as recorded:
        trainer = pair_trainer(library, tmp_path, callback(library), epochs=2)
        trainer.fit(again, parts[1], ckpt_path=tmp_path / "saved.ckpt")
    assert numbers(recorded) == list(range(8, 16))


# ── ranks that Lightning starts itself ───────────────────────────────────────────────────────────────────────────────

TWO_RANKS = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    import torch
    torch.set_num_threads(1)
    import lightning
    from tests.integrations.loops import lightning_parts, lightning_trainer
    net, training, _ = lightning_parts(lightning)
    if "callback" in sys.argv:
        from sonde.integrations.lightning import SondeCallback
    callbacks = [SondeCallback()] if "callback" in sys.argv else []
    more = {{"strategy": "ddp", "devices": 2, "accumulate_grad_batches": 1, "callbacks": callbacks}}
    lightning_trainer(lightning, "out", **more).fit(net, training)
"""
RANKS = "SELECT rank, local_rank, world_size, role FROM processes WHERE rank IS NOT NULL ORDER BY rank"
STEPS = "SELECT rank, count(*) FROM steps GROUP BY rank ORDER BY rank"


def test_ranks_of_lightning_without_the_launcher_record_into_one_run(programs: Programs) -> None:
    """The callback starts to record in each of them, and they agree on a folder."""
    programs.run(TWO_RANKS, "callback")
    assert programs.rows(RANKS) == [(0, 0, 2, "trainer"), (1, 1, 2, "trainer")]
    assert programs.rows(STEPS) == [(0, 8), (1, 8)]


def test_ranks_of_lightning_are_known_under_sonde_run(programs: Programs) -> None:
    """And only the chosen one is recorded whole."""
    run(programs, "-q", "--ranks", "0", str(script(programs.folder, TWO_RANKS)))
    assert programs.rows(RANKS) == [(0, 0, 2, "trainer"), (1, 1, 2, "trainer")]
    assert programs.rows(STEPS) == [(0, 8), (1, 8)]
    assert programs.rows("SELECT rank, count(*) FROM events WHERE name = 'backward' GROUP BY rank") == [(0, 8)]
