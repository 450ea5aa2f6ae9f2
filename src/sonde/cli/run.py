"""`sonde run`: start a program and record it, without editing it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from contextlib import suppress
from typing import NamedTuple

import click

from sonde import launch, ranks
from sonde.cli.options.program import Program, program_options, refuse_unknown
from sonde.errors import CommandRefused, MissingExtra, SettingError
from sonde.store.redact import redact_url
from sonde.trackers.tracker import check

MINUTES = 180.0  # seconds between two pushes
PUSH = "push"
NOT_PROFILED = "--profile-step {}: nothing was profiled. The program has fewer steps, or uses torch.profiler itself."
NO_ANSWER = "-1"  # for a tracker: its process is waited for


class PushTarget(NamedTuple):
    """Where a run is pushed to, what it is called there, and every how many seconds."""

    url: str
    id: str | None
    every: float


class Sinks(NamedTuple):
    """Who else gets the run: a URL, and trackers with what each gets."""

    push: PushTarget | None = None
    trackers: tuple[tuple[str, dict[str, str]], ...] = ()


NO_SINKS = Sinks()


@click.command(
    cls=Program,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example: sonde run train.py --epochs 3
Example: sonde run --name try-2 -m package.train
Example: sonde run torchrun --nproc-per-node 2 train.py
Example: sonde run --blackbox --watch-nonfinite train.py
Example: sonde run --profile-step 54:57 train.py
Example: sonde run --steps 100:200 -- bash start.sh
Example: sonde run --push s3://bucket/runs --id job-42 train.py
Example: sonde run --to-tensorboard runs/try-2 train.py""",
)
@program_options
@click.option(
    "--profile-step", metavar="A[:B]", help="Also record these steps with torch.profiler, such as 54 or 54:57."
)
@click.option(
    "--push", metavar="URL", help="Send the run to a URL every few minutes and at the end, such as s3://bucket/runs."
)
@click.option(
    "--id", metavar="ID", help="Name of the run at that URL (default: the job's id, or the run folder's name)."
)
@click.option(
    "--push-every",
    type=click.FloatRange(min=1),
    default=MINUTES,
    show_default=True,
    metavar="S",
    help="Seconds between two pushes.",
)
@click.option(
    "--to-wandb", is_flag=True, help="Send steps, verdict and report to Weights & Biases (its own variables apply)."
)
@click.option("--to-mlflow", is_flag=True, help="Send steps, verdict and report to MLflow (its own variables apply).")
@click.option(
    "--to-tensorboard",
    metavar="FOLDER",
    type=click.Path(),
    help="Write steps, verdict and report to this folder for TensorBoard.",
)
@click.option("--deep", is_flag=True, default=None, help="Also record each layer of the model.")
@click.option("--disable", is_flag=True, help="Run the program without Sonde.")
@click.option("-q", "--quiet", is_flag=True, help="Suppress output except errors.")
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGUMENT]...", type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    disable: bool,
    quiet: bool,
    push: str | None,
    id: str | None,
    push_every: float,
    to_wandb: bool,
    to_mlflow: bool,
    to_tensorboard: str | None,
    **given: str | int | bool | None,
) -> None:
    """Run a program and record it, without editing it.

    PROGRAM is a script (run by this Python), `-m` and a module, or any command: torchrun, accelerate launch, bash.
    Everything after PROGRAM belongs to it; `--` ends Sonde's options.

    The exit code is the program's own; 128 + n after signal n.
    """
    refuse_unknown(context, words)
    target = None if push is None else PushTarget(push, id, push_every)
    if target is not None:
        _check(target)
    elif id is not None:
        raise click.UsageError("--id names the run at a URL. Give the URL with --push.")
    sinks = Sinks(target, _trackers(to_wandb, to_mlflow, to_tensorboard))
    context.exit(run(words, launch.Options(**given), disable, quiet, sinks))  # type: ignore[arg-type]  # click knows the types


def _trackers(wandb: bool, mlflow: bool, tensorboard: str | None) -> tuple[tuple[str, dict[str, str]], ...]:
    """What is to be fed. Raises MissingExtra before a program runs for hours."""
    found: list[tuple[str, dict[str, str]]] = [
        (name, {}) for name, wanted in (("wandb", wandb), ("mlflow", mlflow)) if wanted
    ]
    if tensorboard is not None:
        found.append(("tensorboard", {"folder": os.path.abspath(tensorboard)}))
    for name, _ in found:
        check(name, f"--to-{name}")
    return tuple(found)


def _check(target: PushTarget) -> None:
    """Refuse what cannot work before a program runs for hours."""
    if "://" not in target.url:
        raise click.UsageError(
            f"{target.url} is not a URL. For a folder, use: --push file://{os.path.abspath(target.url)}"
        )
    if importlib.util.find_spec("fsspec") is None:
        raise MissingExtra.of("fsspec", "cluster", "--push")


def run(words: tuple[str, ...], options: launch.Options, disable: bool, quiet: bool, sinks: Sinks = NO_SINKS) -> int:
    """Start the program, wait for its end, and return its exit code."""
    try:
        line = launch.command_of(words)
        if disable or not launch.wanted(options):
            sys.stdout.flush()
            launch.replace(line)
        with launch.blocked() as before:
            launched = launch.start(line, options, mask=before)
            quiet = quiet or (ranks.slurm_task() or 0) > 0  # of the tasks of a job, the first is enough
            shown = _greet(launched, quiet)
            others = _others(launched, sinks, before, quiet)
            code = launch.attend(launched)
            profiled = launched.run is not None and launch.join_profiles(launched.run, before, quiet)
            if launched.run is not None and options.profile_step and not profiled:
                print_note(NOT_PROFILED.format(options.profile_step))
            for one in others.values():
                one.finish()
            _part(launched, quiet, shown, before)
            for name, one in others.items():
                if name == PUSH and sinks.push is not None:
                    _report_unpushed(one, sinks.push, launched)
                elif one.wait() is None:
                    print_note(f"still sending to {name} (process {one.pid})")
    except CommandRefused as error:
        print_note(str(error))
        return error.exit_code
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    return code


def _others(launched: launch.Launched, sinks: Sinks, mask: set[int], quiet: bool) -> dict[str, launch.Beside]:
    """The processes that read the run beside the program, by name."""
    if launched.run is None:
        return {}
    found: dict[str, launch.Beside] = {}
    silent = str(int(quiet))
    if sinks.push is not None:
        url, id, every = sinks.push
        words = [str(every), silent, launched.run, url, *([id] if id else [])]
        found[PUSH] = launch.Beside("sonde.cli.live.pushloop", words, mask)
    for name, target in sinks.trackers:
        words = [NO_ANSWER, silent, launched.run, name, json.dumps(target)]
        found[name] = launch.Beside("sonde.trackers.follow", words, mask)
    return found


def _greet(launched: launch.Launched, quiet: bool) -> int:
    """Say where the run is, and what is known to be wrong; returns how many notices were printed."""
    if launched.run is not None and not quiet:
        print_note(f"recording to {_short(launched.run)}")
    shown = len(launched.notices)
    for notice in launched.notices[:shown]:
        print_note(notice)
    return shown


def _part(launched: launch.Launched, quiet: bool, shown: int, mask: set[int]) -> None:
    for notice in launched.notices[shown:]:
        print_note(notice)
    if launched.run is None or quiet:
        return
    drawn = launch.draw_report(launched.run, mask)
    if drawn is False:
        print_note("the report failed; for the reason, run: sonde report")
    print_note(f"recorded. Next: sonde {'show' if drawn is None else 'report'} {_short(launched.run)}")


def _report_unpushed(pusher: launch.Beside, target: PushTarget, launched: launch.Launched) -> None:
    """Wait for the rest to be pushed, and say if it was not. The exit code stays that of the program."""
    done = pusher.wait()
    url = redact_url(target.url)
    if done is None:
        print_note(f"still pushing to {url} (process {pusher.pid})")
    elif not done:
        print_note(f"the run at {url} is incomplete. Push the rest with: sonde push {_short(launched.run or '')} URL")


def _short(path: str) -> str:
    """The path from here, if that is shorter."""
    with suppress(OSError, ValueError):
        return min(path, os.path.relpath(path), key=len)
    return path


def print_note(text: str) -> None:
    """One line on the error channel. If nobody reads it, the program is not to suffer."""
    with suppress(OSError):
        click.echo(f"sonde: {text}", err=True)
