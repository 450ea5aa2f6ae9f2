"""`sonde flow`: look at captured values, compare two traces, and rebuild a batch of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sonde.analysis.records.locate import is_plain
from sonde.analysis.run import Run, open_run
from sonde.capture.diff import compare
from sonde.capture.encode import pack_note
from sonde.capture.result import TraceResult, load
from sonde.cli.choose import choose, directory, runs_dir
from sonde.cli.console import Group
from sonde.errors import FolderRefused, RunNotFound, SondeError, UnknownName
from sonde.replay import Replay, replay as rebuild
from sonde.replay.model import ForwardComparison, forward, load_weights
from sonde.replay.target import load_data, load_model

SUFFIX = ".sonde"
MOST_LISTED = 10
CAPTURE = "Capture values with `with sonde.flow.trace(...)`."
DIFFERENT, TROUBLE = 1, 2  # exit codes of `diff`, as those of the program of that name
WHEN = ("seq", "parent", "start_ns", "duration_ns", "epoch", "step", "loader", "batch")
WHERE = ("func_name", "pid", "thread", "worker", "error")


@click.group(
    cls=Group,
    epilog="""\b
Example: sonde flow show                         the traces of the newest run
Example: sonde flow show t.sonde --html t.html
Example: sonde flow diff before.sonde after.sonde
Example: sonde flow replay train-3f2a train.py:make_dataset --step 340""",
)
def command() -> None:
    """Inspect captured values, compare two traces, rebuild a batch."""


@command.command(
    epilog="""\b
Example: sonde flow show                         the traces of the newest run
Example: sonde flow show train-3f2a --item 8412
Example: sonde flow show t.sonde --html t.html   a page for a browser
Example: sonde flow show t.sonde --json | jq .traces[0].findings"""
)
@click.argument("source", required=False, metavar="[FILE_OR_RUN]")
@directory
@click.option("--html", metavar="FILE", help="Write an HTML page instead of printing text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: descriptions and findings, no arrays.")
@click.option("--item", metavar="INDEX", help="Show one item's path through the stages, by index or id.")
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
def show(source: str | None, dir: str | None, html: str | None, as_json: bool, item: str | None, force: bool) -> None:
    """Show captured values stage by stage, and what is wrong with them.

    FILE_OR_RUN is a file written by trace.save(), or a run: a path, a run folder's name or any unique part of it.
    Default: the newest run.
    """
    if sum((html is not None, as_json, item is not None)) > 1:
        raise click.UsageError("Use only one of --html, --json and --item.")
    files = _files(source, dir)
    if html is not None:
        _write_page(_one(files), Path(html), force)
        return
    traces = [(file, load(file)) for file in files]
    if as_json:
        document = {"traces": [{"file": str(file), **_packed(trace)} for file, trace in traces]}
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    for file, trace in traces:
        if len(traces) > 1:
            click.echo(f"{file}:")
        click.echo(str(trace) if item is None else str(_item(trace, item)))


@command.command(
    epilog="""\b
Example: sonde flow diff before.sonde after.sonde
Example: sonde flow diff cpu.sonde gpu.sonde --rtol 1e-5
Example: sonde flow diff train-3f2a train-91c0 && echo the same"""
)
@click.argument("a")
@click.argument("b")
@directory
@click.option(
    "--rtol",
    type=click.FloatRange(min=0, min_open=False),
    default=0.0,
    metavar="SHARE",
    help="Tolerance relative to an array's largest value, such as 1e-5 (default: 0).",
)
def diff(a: str, b: str, dir: str | None, rtol: float) -> None:
    """Show the first value that differs between two traces.

    A and B are files or runs, as for `sonde flow show`. Exit code: 0 for no difference, 1 for a difference, 2 if they
    cannot be compared.
    """
    try:
        left, right = (load(_one(_files(source, dir))) for source in (a, b))
    except (SondeError, OSError) as error:
        raise _Trouble(str(error)) from None
    found = compare(left, right, rtol=rtol)
    click.echo(f"A: {a}\nB: {b}\n{found}" if found else str(found))
    if found:
        click.get_current_context().exit(DIFFERENT)


@command.command(
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


class _Trouble(click.ClickException):
    exit_code = TROUBLE


def _files(source: str | None, dir: str | None) -> list[Path]:
    """The trace files that are meant: one, or those of a run."""
    if source is not None and Path(source).is_file():
        return [Path(source)]
    if source is not None and source.endswith(SUFFIX):
        raise RunNotFound(f"No such file: {source}. Write one with trace.save({Path(source).name!r}).")
    run = choose(source, runs_dir(dir))
    found = [file for file in sorted(run.glob(f"*/values/*{SUFFIX}")) if is_plain(file)]
    if not found:
        raise RunNotFound(f"The run {run.resolve().name} has no traces. {CAPTURE}")
    return found


def _one(files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    names = "".join(f"\n  {file}" for file in files[:MOST_LISTED])
    more = f"\n  and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
    raise UnknownName(f"This run has {len(files)} traces. Choose one of these files:{names}{more}")


def _write_page(file: Path, target: Path, force: bool) -> None:
    if target.is_dir():
        raise FolderRefused(f"{target} is a folder. Give a file name with --html.")
    if target.exists() and not force:
        raise FolderRefused(f"{target} exists. Overwrite it with --force, or choose another name with --html.")
    if not target.parent.is_dir():
        raise FolderRefused(f"There is no folder {target.parent}. Create it, or choose another path with --html.")
    load(file).to_html(target)
    click.echo(f"Wrote {target}.")


def _item(trace: TraceResult, name: str) -> Any:
    """One item, by index where there is such an index, else by id."""
    known = {str(one.index): one.index for one in trace.known_items() if one.index is not None}
    return trace.item(index=known[name]) if name in known else trace.item(id=name)


def _packed(trace: TraceResult) -> dict[str, Any]:
    """A trace as JSON has it."""
    return {
        "items": trace.items,
        "notes": trace.notes,
        "findings": [finding._asdict() for finding in trace.findings()],
        "stages": {name: [_call(call.about) for call in stage.calls] for name, stage in trace.stages.items()},
    }


def _call(call: Any) -> dict[str, Any]:
    values = {kept.name: pack_note(kept.note) for kept in call.inputs}
    output = None if call.output is None else {call.output.name: pack_note(call.output.note)}
    items = [one._asdict() for one in call.items]
    return {"function": call.disp_name, "items": items, "inputs": values, "output": output} | {
        name: getattr(call, name) for name in (*WHEN, *WHERE)
    }
