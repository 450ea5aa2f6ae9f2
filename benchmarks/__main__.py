"""Run the benchmarks, print one table, write it as JSON: python -m benchmarks [NAME...] [--full] [--resume] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import (
    blackbox,
    budgets,
    deep,
    exchange,
    feeding,
    following,
    importing,
    infer,
    items,
    launching,
    ledger,
    options,
    pages,
    provider,
    reading,
    report,
    scale,
    screen,
    spans,
    step,
    tables,
    values,
    viewers,
)
from benchmarks.faults import score
from benchmarks.faults.cases import CASES
from benchmarks.programs import measure as programs
from sonde.errors import nearest

EVENTS = 10_000_000
STEPS = 1_000_000


class Effort(NamedTuple):
    """How much is measured."""

    rounds: int
    launches: int
    full: bool
    scale: tuple[int, int]  # ranks, and steps of each


SHORT = Effort(rounds=3, launches=1, full=False, scale=(200, 1000))  # the whole table in about 15 minutes on 2 cores
FULL = Effort(rounds=15, launches=3, full=True, scale=(1000, 10_000))
ONLY_FULL = ("tables",)  # long, and without a budget


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def parts(effort: Effort, verdicts: Path) -> dict[str, Callable[[], Any]]:
    """Everything that can be measured, by name."""
    rounds = effort.rounds
    cases = [case for case in CASES if case.quick or effort.full]
    return {
        "spans": lambda: spans.measure(rounds, lambda done, of: _tell(f"spans: round {done + 1} of {of}")),
        "values": lambda: values.measure(rounds),
        "importing": lambda: importing.measure(rounds),
        "reading": lambda: reading.measure(EVENTS),
        "steps": lambda: step.measure(rounds),
        "feeding": lambda: feeding.measure(rounds),
        "deep": lambda: deep.measure(rounds),
        "blackbox": lambda: blackbox.measure(rounds),
        "options": lambda: options.measure(rounds),
        "programs": lambda: programs.measure(rounds, _tell),
        "items": lambda: items.measure(max(2, rounds // 3)),
        "ledger": ledger.measure,
        "exchange": lambda: exchange.measure(
            2_000_000_000 if effort.full else 200_000_000, EVENTS if effort.full else EVENTS // 10, rounds
        ),
        "provider": lambda: provider.measure(rounds),
        "infer": lambda: infer.measure(rounds),
        "tables": lambda: tables.measure(STEPS),
        "launching": lambda: launching.measure(effort.launches),
        "report": lambda: report.measure(STEPS),
        "scale": lambda: scale.measure(*effort.scale),
        "following": following.measure,
        "pages": lambda: pages.measure(STEPS),
        "viewers": viewers.measure,
        "faults": lambda: score.measure(cases, repeats=1, traceml=True, json_file=verdicts, resume=True),
    }


def chosen(names: Sequence[str], known: Sequence[str], effort: Effort) -> list[str]:
    """The parts of these names; without any, all that this effort has."""
    for name in names:
        if name not in known:
            sys.exit(f"There is no benchmark {name!r}. {nearest(name, list(known))}")
    return [name for name in known if (name in names if names else effort.full or name not in ONLY_FULL)]


def measured(wanted: dict[str, Callable[[], Any]], about: dict[str, Any], file: Path) -> dict[str, Any]:
    """What the file has of the same benchmarks, and all the rest, written to it part by part: a cut loses only the one that runs."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results = found if {name: found.get(name) for name in about} == about else {**about, "seconds": {}}
    for name, measure in wanted.items():
        if name not in results:
            _tell(name)
            begun = time.monotonic()
            results[name] = measure()
            results["seconds"][name] = round(time.monotonic() - begun, 1)
            file.write_text(json.dumps(results, indent=2) + "\n")
    _tell("")
    return results


def main() -> None:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, such as steps or programs")
    parser.add_argument("--full", action="store_true", help="long rounds and every fault: over an hour")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where to write the results")
    parser.add_argument("--resume", action="store_true", help="continue where the last one was cut off")
    arguments = parser.parse_args()
    effort = FULL if arguments.full else SHORT
    verdicts = arguments.json.with_suffix(".faults.json")
    all_parts = parts(effort, verdicts)
    names = chosen(arguments.names, list(all_parts), effort)
    if not arguments.resume:
        for file in (arguments.json, verdicts):
            file.unlink(missing_ok=True)
    about = {"python": platform.python_version(), "machine": platform.platform(), "rounds": effort.rounds}
    results = measured({name: all_parts[name] for name in names}, about, arguments.json)
    checked = budgets.check(results)
    results["budgets"] = [{**budget._asdict(), "verdict": budget.verdict} for budget in checked]
    arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 110)
    screen.show(results, checked, console)
    taken = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in results["seconds"].items())
    console.print(f"Written to {arguments.json}. Time taken: {taken}", style="dim")


if __name__ == "__main__":
    main()
