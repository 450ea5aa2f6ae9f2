"""Checks what other numbers of workers are predicted to bring by really running with them: python -m benchmarks.faults.whatif."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.faults import trial
from sonde import units
from sonde.analysis.questions.loader import LoaderPipeline
from sonde.analysis.run import open_run
from sonde.diagnosis.facts import gather
from sonde.diagnosis.loading import pipeline_of
from sonde.diagnosis.policy import Policy

SCRIPTS = Path(__file__).parent / "loaders"
PROGRAMS = ("disk", "decode", "large")
WORKERS = (0, 1, 2, 4)
GOAL = 0.25  # error of a prediction


class Checked(NamedTuple):
    """What was predicted from a recording with other workers, and what was measured with these, in ns for a batch."""

    program: str
    recorded: int
    workers: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


def recorded(program: str, workers: int, epochs: int) -> LoaderPipeline:
    """Run a program with so many workers, and what its loader was like."""
    with tempfile.TemporaryDirectory(prefix="whatif-", ignore_cleanup_errors=True) as folder:
        command = [
            sys.executable,
            "-m",
            "sonde",
            "run",
            "--quiet",
            "--dir",
            folder,
            "--",
            sys.executable,
            "-W",
            "ignore",
        ]
        subprocess.run(
            [*command, str(SCRIPTS / f"{program}.py"), str(workers), str(epochs)],
            env=trial.environment(),
            check=True,
            timeout=trial.PATIENCE,
        )
        (path,) = Path(folder).iterdir()
        with open_run(path) as run:
            policy = Policy.load()
            found = pipeline_of(run, policy, gather(run, policy).health)
    assert found is not None, f"{program} with {workers} workers has no batches"
    return found


def checked(program: str, workers: Sequence[int] = WORKERS, rounds: int = 1, epochs: int = 2) -> list[Checked]:
    """Run a program with each of these numbers of workers, in turns, and compare each recording with what the others predict."""
    found: dict[int, list[LoaderPipeline]] = {number: [] for number in workers}
    for _ in range(rounds):
        for number in workers:
            found[number].append(recorded(program, number, epochs))
    rows = []
    for now, several in found.items():
        for other in workers:
            predicted = [setting.ns for one in several for setting in one.settings if setting.workers == other != now][
                : len(several)
            ]
            if predicted:
                rows.append(Checked(program, now, other, median(predicted), median(one.ns for one in found[other])))
    return rows


def table(rows: Sequence[Checked]) -> Table:
    """All predictions with their errors."""
    drawn = Table("program", "recorded with", "predicted for", "predicted", "measured", "error", box=None)
    for one in rows:
        drawn.add_row(
            one.program, units.plural(one.recorded, "worker"), units.plural(one.workers, "worker"), units.duration(one.predicted),
            units.duration(one.measured), f"{one.error:+.0%}",
        )  # fmt: skip
    return drawn


def main() -> None:
    """Check all programs, and say how far off the predictions are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.whatif", description=__doc__)
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="a program; without it, all")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each setting is run, in turns; the median counts"
    )
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    rows = [row for program in options.only or PROGRAMS for row in checked(program, rounds=options.rounds)]
    console.print(table(rows))
    errors = sorted(abs(one.error) for one in rows)
    within = sum(error <= GOAL for error in errors)
    console.print(
        f"{within} of {len(rows)} predictions within {units.share(GOAL)}; median error {units.share(median(errors))}, "
        f"largest {units.share(errors[-1])}."
    )
    sys.exit(median(errors) > GOAL)


if __name__ == "__main__":
    main()
