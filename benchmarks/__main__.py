"""Run the benchmarks, print one table, write it as JSON: python -m benchmarks [--quick] [--resume] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    blackbox,
    budgets,
    deep,
    feeding,
    importing,
    infer,
    items,
    launching,
    ledger,
    provider,
    reading,
    report,
    screen,
    spans,
    step,
    tables,
    values,
)
from benchmarks.faults import score
from benchmarks.faults.cases import CASES

EVENTS = 10_000_000
STEPS = 1_000_000


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def parts(rounds: int, shrink: int, verdicts: Path) -> dict[str, tuple[str, Callable[[], Any]]]:
    """All that is measured: what it is, and how; `shrink` divides what is long."""
    events, steps = EVENTS // min(shrink, 10), STEPS // shrink
    cases = [case for case in CASES if case.quick or shrink == 1]
    return {
        "spans": ("spans", lambda: spans.measure(rounds, lambda done, of: _tell(f"spans: round {done + 1} of {of}"))),
        "values": ("values", lambda: values.measure(rounds)),
        "importing": ("importing", lambda: importing.measure(rounds)),
        "reading": (f"reading {events:,} events", lambda: reading.measure(events)),
        "steps": ("steps of training, beside the peers", lambda: step.measure(rounds)),
        "feeding": ("steps fed by loaders", lambda: feeding.measure(rounds)),
        "deep": ("every layer of an encoder, beside the peers", lambda: deep.measure(rounds)),
        "blackbox": ("the black box and the watch", lambda: blackbox.measure(rounds)),
        "items": ("items in loader workers", lambda: items.measure(max(3, rounds // 3))),
        "ledger": ("the ledger", ledger.measure),
        "provider": ("the pipeline", lambda: provider.measure(rounds)),
        "infer": ("inference", lambda: infer.measure(rounds)),
        "tables": ("tables of a long training", lambda: tables.measure(steps)),
        "launching": ("programs beside sonde run and sonde watch", lambda: launching.measure(3 if shrink == 1 else 1)),
        "report": ("the report of a long training", lambda: report.measure(steps)),
        "faults": (
            "the fault suite",
            lambda: score.measure(cases, repeats=1, traceml=True, json_file=verdicts, resume=True),
        ),
    }


def measured(wanted: dict[str, tuple[str, Callable[[], Any]]], about: dict[str, Any], file: Path) -> dict[str, Any]:
    """What the file has of the same benchmarks, and all the rest, written to it part by part: a cut loses only the one that runs."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    results = found if {name: found.get(name) for name in about} == about else dict(about)
    for name, (what, measure) in wanted.items():
        if name not in results:
            _tell(what)
            results[name] = measure()
            file.write_text(json.dumps(results, indent=2) + "\n")
    _tell("")
    return results


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds and 1 M events: to see that it works")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where to write the results")
    parser.add_argument("--resume", action="store_true", help="go on where the last one was cut off")
    options = parser.parse_args()
    rounds, shrink = (3, 50) if options.quick else (15, 1)
    verdicts = options.json.with_suffix(".faults.json")
    if not options.resume:
        for file in (options.json, verdicts):
            file.unlink(missing_ok=True)
    about = {"python": platform.python_version(), "machine": platform.platform(), "rounds": rounds}
    results = measured(parts(rounds, shrink, verdicts), about, options.json)
    checked = budgets.check(results)
    results["budgets"] = [{**budget._asdict(), "verdict": budget.verdict} for budget in checked]
    options.json.write_text(json.dumps(results, indent=2) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 110)
    screen.show(results, checked, console)
    console.print(f"Written to {options.json}", style="dim")


if __name__ == "__main__":
    main()
