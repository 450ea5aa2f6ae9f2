"""`sonde gate`: stop a regression. Exit code 0 pass, 1 fail, 3 inconclusive, 2 for errors."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from sonde import environment, units
from sonde.analysis.run import Run
from sonde.cli.options.choose import choose, directory, one_run, runs_dir
from sonde.cli.output.console import out, stderr
from sonde.cli.output.progress import progress
from sonde.compare import baselines, gate as gates, rounds
from sonde.compare.divergence import compare_numbers
from sonde.compare.fingerprint import compare_fingerprints
from sonde.compare.gate import EXIT_CODES, Check, Gate, Limit
from sonde.compare.summary import Summary, read, summarize
from sonde.compare.verdict import compare_times
from sonde.errors import RunNotFound, SettingError, SondeError
from sonde.finding import CRITICAL, WARN
from sonde.terminal.gate import draw_gate

ERROR = 2
CALIBRATION = 2  # rounds of A against itself, before B runs
TURN_S = 3600  # one run of a program


@click.command(
    epilog="""\b
Example: sonde gate --baseline main --max-slowdown 5%
Example: sonde gate train-3f2a --baseline before --max input_wait_share=0.1 --max peak_rss=+10%
Example: sonde gate after --baseline before --same-numbers --no-new critical
Example: sonde gate --ab "python old.py" "python new.py" --max-slowdown 5% --rounds 10
Example: sonde gate --ab "python old.py" "python new.py" --stalls --rounds 100"""
)
@one_run
@directory
@click.option("--baseline", metavar="RUN|FILE|NAME", help="What to compare with: a run, a saved baseline or its file.")
@click.option(
    "--baselines",
    "folder",
    default=baselines.FOLDER,
    show_default=True,
    metavar="DIR",
    help="The folder with saved baselines.",
)
@click.option("--max-slowdown", metavar="SHARE", help="Maximum slow-down of steps, such as 5%.")
@click.option(
    "--max",
    "limits",
    multiple=True,
    metavar="METRIC=VALUE",
    help="Maximum of a metric: a number, or +10% above the baseline.",
)
@click.option(
    "--no-new", type=click.Choice([WARN, CRITICAL]), help="Fail if a finding of this severity, or worse, is new."
)
@click.option("--same-numbers", is_flag=True, help="Fail if losses, learning rates, batches or fingerprints differ.")
@click.option(
    "--ab", nargs=2, metavar="'CMD A' 'CMD B'", help="Run two commands in turn, and compare them round by round."
)
@click.option(
    "--rounds",
    "most_rounds",
    type=click.IntRange(min=rounds.LEAST_ROUNDS),
    default=15,
    show_default=True,
    metavar="N",
    help="With --ab: at most N rounds.",
)
@click.option(
    "--stalls", is_flag=True, help="With --ab: pass only if stalls stay below the limit too; takes many rounds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(
    run: str | None, dir: str | None, baseline: str | None, folder: str, max_slowdown: str | None, limits: tuple[str, ...],
    no_new: str | None, same_numbers: bool, ab: tuple[str, str] | None, most_rounds: int, stalls: bool, as_json: bool,
) -> None:  # fmt: skip
    """Pass or fail a run by limits; without enough data, it does not pass.

    0: every limit holds, with its whole confidence interval. 1: a limit is certainly exceeded. 3: inconclusive, because the interval
    includes the limit, the run is too short, or records are missing. 2: wrong usage, or a run cannot be read.
    """
    try:
        slowdown = None if max_slowdown is None else gates.share(max_slowdown)
        wanted = [gates.limit(one) for one in limits]
        if ab is not None:
            _refuse_with_ab(run, baseline, wanted, no_new, same_numbers)
            found = _rounds(ab, 0.05 if slowdown is None else slowdown, most_rounds, stalls)
        else:
            found = _checked(run, dir, baseline, Path(folder), slowdown, wanted, no_new, same_numbers)
    except (SondeError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(ERROR)
    if as_json:
        click.echo(json.dumps(gates.to_json(found), indent=1))
    else:
        draw_gate(found, out())
    sys.exit(EXIT_CODES[found.outcome])


def _refuse_with_ab(run: str | None, baseline: str | None, wanted: list[Limit], no_new: str | None, same: bool) -> None:
    if run is not None or baseline is not None or wanted or no_new or same:
        raise click.UsageError("--ab records both programs itself: give only --max-slowdown and --rounds with it.")


# ── a run against a baseline ─────────────────────────────────────────────────────────────────────────────────────────


def _checked(
    run: str | None, dir: str | None, baseline: str | None, folder: Path, slowdown: float | None, wanted: list[Limit],
    no_new: str | None, same_numbers: bool,
) -> Gate:  # fmt: skip
    if slowdown is None and not wanted and no_new is None and not same_numbers:
        raise click.UsageError(
            "Give a limit: --max-slowdown 5%, --max METRIC=VALUE, --no-new critical or --same-numbers."
        )
    if baseline is None and (slowdown is not None or no_new or same_numbers):
        raise click.UsageError("Give what to compare with: --baseline RUN, FILE or NAME.")
    with ExitStack() as stack, progress("Reading") as bar:
        opened = stack.enter_context(Run([choose(run, runs_dir(dir))], threads=1, progress=bar))
        one = summarize(opened)
        other = None if baseline is None else _found(baseline, folder, dir)
        before = stack.enter_context(Run([other], threads=1, progress=bar)) if isinstance(other, Path) else None
        base = summarize(before) if before is not None else other if isinstance(other, Summary) else None
        checks = gates.check_complete(one, "The run")
        checks += [gates.check_limit(one, base, limit) for limit in wanted]
        if base is not None:
            checks += gates.check_apart(one, base) + gates.check_complete(base, "The baseline")
            checks += _against(base, one, slowdown, no_new)
        if same_numbers:
            checks.append(_numbers(before, opened))
    return gates.gate(one.run, None if base is None else base.run, checks)


def _against(base: Summary, one: Summary, slowdown: float | None, no_new: str | None) -> list[Check]:
    times = compare_times(base, one)
    checks = [] if slowdown is None else gates.check_slowdown(times, base, one, slowdown)
    return checks + ([] if no_new is None else [gates.check_findings(times, no_new)])


def _numbers(before: Run | None, after: Run) -> Check:
    if before is None:
        why = "--same-numbers needs the run itself as a baseline: a saved baseline has no batches."
        return Check("same numbers", gates.INCONCLUSIVE, None, None, None, None, why)
    return gates.check_numbers(compare_numbers(before, after, compare_fingerprints(before, after)))


def _found(given: str, folder: Path, dir: str | None) -> Summary | Path:
    """A baseline: a file, one that was saved under this name, or a run."""
    if Path(given).is_file():
        return read(Path(given))
    try:
        return read(baselines.named(folder, given))
    except RunNotFound as error:
        missing = error
    try:
        return choose(given, runs_dir(dir))
    except RunNotFound as error:
        raise RunNotFound(f"{error} {missing}" if baselines.saved(folder) else str(error)) from None


# ── two programs in turn ─────────────────────────────────────────────────────────────────────────────────────────────


def _rounds(commands: tuple[str, str], most: float, limit: int, stalls: bool) -> Gate:
    """Run both in turn until it is decided, or the rounds are over. The order alternates."""
    for text in commands:
        _words(text)
    found: list[rounds.Round] = []
    with tempfile.TemporaryDirectory(prefix="sonde-gate-") as folder:
        same = [
            _round(commands[0], commands[0], Path(folder), f"calibration-{n}", swap=n % 2 == 1)
            for n in range(CALIBRATION)
        ]
        noise = rounds.noise([one.steady for one in same])
        _say(f"Two rounds of A itself differ by {units.share(noise)}.")
        checks = rounds.check_rounds(found, most, stalls=stalls)
        while len(found) < limit and not rounds.decided(checks, len(found)):
            found.append(_round(*commands, Path(folder), f"round-{len(found)}", swap=len(found) % 2 == 1))
            checks = rounds.check_rounds(found, most, stalls=stalls)
            _say(f"round {len(found)} of at most {limit}: B / A = {found[-1].steady:.3f}")
    notes = [f"{len(found)} rounds; two rounds of A itself differ by {units.share(noise)}."]
    if len(found) < rounds.STALL_ROUNDS:
        notes.append(f"Stalls of single steps were not tested: that takes {rounds.STALL_ROUNDS} rounds.")
    return gates.gate(commands[1], commands[0], checks, notes)


def _round(a: str, b: str, folder: Path, name: str, swap: bool) -> rounds.Round:
    order = (("b", b), ("a", a)) if swap else (("a", a), ("b", b))
    turns = {which: turn(text, folder / f"{name}-{which}") for which, text in order}
    found = rounds.round_of(turns["a"], turns["b"])
    if found is None:
        fewest = min(len(one.steps) for one in turns.values())
        raise RunNotFound(f"A program recorded {fewest} steps after warm-up; {rounds.LEAST_STEPS} are needed.")
    return found


def turn(text: str, folder: Path) -> rounds.Turn:
    """Record one program into a folder, and read what a round needs of it."""
    command = [sys.executable, "-m", "sonde", "run", "--quiet", "--dir", str(folder), "--", *_words(text)]
    with subprocess.Popen(  # noqa: S603  the user's own command
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment.without_run()
    ) as process:
        try:
            _, said = process.communicate(timeout=TURN_S)
        except subprocess.TimeoutExpired:
            raise SondeError(f"`{text}` was stopped after {units.duration(TURN_S * 1e9)}: it did not end.") from None
        finally:
            process.terminate()  # if it still runs: the launcher passes that on to the program
    if process.returncode:
        raise SondeError(f"`{text}` ended with exit code {process.returncode}: {_last(said)}")
    with Run([choose(None, folder)], threads=1) as run:
        return rounds.turn_of(run)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SettingError(f"{text!r} is not a command: {str(error).lower()}.") from None
    if not words:
        raise SettingError("A command of --ab is empty. Write: --ab 'python old.py' 'python new.py'")
    return words


def _last(said: bytes) -> str:
    """The last thing that the program said, or else what Sonde did."""
    lines = said.decode(errors="replace").strip().split("\n")
    return next((line for line in reversed(lines) if not line.startswith("sonde: ")), lines[-1])


def _say(text: str) -> None:
    stderr().print(f"sonde: {text}", style="dim")
