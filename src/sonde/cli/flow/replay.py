"""`sonde flow replay`: rebuild a batch of a run, and compare it with what was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from sonde.analysis.run import Run, open_run
from sonde.cli.options.choose import choose, directory, runs_dir
from sonde.errors import FolderRefused
from sonde.replay import Replay, replay as rebuild
from sonde.replay.model import ForwardComparison, forward, load_weights
from sonde.replay.target import load_data, load_model

DIFFERENT = 1  # exit code


@click.command(
    epilog="""\b
Example: sonde flow replay train.py:make_dataset --step 340        the newest run
Example: sonde flow replay train-3f2a train.py:train_set --step 340 --rank 1
Example: sonde flow replay train-3f2a train.py:make_loader --step 340 --out batch.npz
Example: sonde flow replay train.py:make_dataset --step 0 --model train.py:make_model"""
)
@click.argument("run", required=False)
@click.argument("target", required=False, metavar="SCRIPT:NAME")
@directory
@click.option(
    "--step", type=click.IntRange(min=0), required=True, metavar="N", help="Rebuild the batches of this step."
)
@click.option(
    "--rank", metavar="R", type=click.IntRange(min=0), default=0, show_default=True, help="The rank that ran the step."
)
@click.option("--out", metavar="FILE", help="Also write the arrays of the batches to this .npz file.")
@click.option("--model", metavar="SCRIPT:NAME", help="Also compute the forward, and compare it with the fingerprints.")
@click.option("--weights", metavar="FILE", help="Load this checkpoint into the model: the weights before the step.")
def replay(
    run: str | None,
    target: str | None,
    dir: str | None,
    step: int,
    rank: int,
    out: str | None,
    model: str | None,
    weights: str | None,
) -> None:
    """Rebuild the batches of a step from the recorded item order, and compare them with the run.

    With --model, of a run recorded with --fingerprint: does this machine give the same numbers in the forward?

    SCRIPT:NAME is a Python file and the name of a dataset, a loader, or a function that makes one. The file is
    imported: its `__main__` block is not executed.

    RUN is a path, a run folder's name or any unique part of it. Default: the newest run. Exit code 1 means that the
    data or the numbers differ from the recorded run.
    """
    if target is None:
        run, target = None, run
    if target is None:
        raise click.UsageError("Give the dataset as SCRIPT:NAME, such as train.py:make_dataset.")
    if out is not None and Path(out).exists():
        raise FolderRefused(f"{out} exists. Delete it, or choose another name with --out.")
    if weights is not None and model is None:
        raise click.UsageError("--weights needs --model SCRIPT:NAME.")
    opened = open_run(choose(run, runs_dir(dir)))
    found = rebuild(opened, step, load_data(target), rank)
    click.echo(str(found))
    if out is not None:
        found.save(out)
        click.echo(f"Wrote {out}.")
    same = found.same
    if model is not None:
        computed = _computed(opened, found, model, weights)
        click.echo(str(computed))
        same = computed.same if same is None else same and computed.same
    if same is False:
        click.get_current_context().exit(DIFFERENT)


def _computed(run: Run, found: Replay, target: str, weights: str | None) -> ForwardComparison:
    model = load_model(target)
    if weights is not None:
        load_weights(model, weights)
    return forward(run, found.step, found.rank or 0, found.batches[0], model)
