"""Run the fault suite and print its score: python -m benchmarks.faults [--only NAME] [--repeats 3] [--busy] [--traceml]."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.faults import peer, trial
from benchmarks.faults.cases import CASES, Case
from benchmarks.faults.trial import Outcome
from sonde.errors import nearest

GOAL = 0.95
BURNER = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"


@contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core busy; they end with this one."""
    processes = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(
    cases: Sequence[Case], repeats: int, *, busy: bool = False, traceml: bool = False, json_file: Path | None = None
) -> dict[str, Any]:
    """Try all cases; everything that the table shows, as plain data. The file is written anew after each case."""
    missing = peer.missing() if traceml else "not asked"
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {
        "repeats": repeats,
        "busy": busy,
        "traceml": missing or "asked",
        "cases": rows,
        **score(rows),
    }
    with burners(os.cpu_count() or 1) if busy else burners(0):
        for number, case in enumerate(cases):
            _tell(f"{number + 1} of {len(cases)}: {case.name}")
            outcomes = [tried(case) for _ in range(repeats)]
            rows.append(_row(case, outcomes, peer.verdict(case) if missing is None else None))
            result |= score(rows)
            if json_file is not None:
                json_file.write_text(json.dumps(result, indent=2) + "\n")
    _tell("")
    return result


def tried(case: Case) -> Outcome:
    """One trial. A program that does not do what the table says of it is a miss, and no end of the suite."""
    try:
        return trial.run(case)
    except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
        return Outcome(case, "(no verdict)", wrong=f"{type(error).__name__}: {error}")


def _row(case: Case, outcomes: list[Outcome], peers: str | None) -> dict[str, Any]:
    return {
        "name": case.name,
        "ranks": case.ranks,
        "expected": list(case.expected),
        "healthy": case.healthy,
        "given": [f"{one.kind} {one.severity}".strip() for one in outcomes if not one.left_out],
        "others": [[f"{kind} {severity}" for kind, severity in one.others] for one in outcomes],
        "why": outcomes[-1].why,
        "wrong": [one.wrong for one in outcomes if one.wrong],
        "false_criticals": sorted({kind for one in outcomes for kind in one.false_criticals}),
        "left_out": next((one.left_out for one in outcomes if one.left_out), ""),
        "seconds": [round(one.seconds, 1) for one in outcomes],
        "traceml": peers,
        "traceml_right": None if peers is None or peers.startswith("(not tried") else peers.split()[0] in case.expected,
    }


def score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many trials were right, and those of the peer."""
    trials = sum(len(row["given"]) for row in rows)
    asked = [row["traceml_right"] for row in rows if row["traceml_right"] is not None]
    return {
        "trials": trials,
        "right": trials - sum(len(row["wrong"]) for row in rows),
        "false_criticals": sum(bool(row["false_criticals"]) for row in rows),
        "traceml_asked": len(asked),
        "traceml_right": sum(asked),
    }


# ── what is printed ──────────────────────────────────────────────────────────────────────────────────────────────────


def score_table(result: dict[str, Any]) -> Table:
    """Expected and given, case by case."""
    busy = ", the machine kept busy" if result["busy"] else ""
    table = Table(
        title=f"Fault suite: {len(result['cases'])} cases, {result['repeats']} times each{busy}", title_justify="left"
    )
    for name in ("case", "expected", "Sonde", ""):
        table.add_column(name, overflow="fold")
    table.add_column("TraceML" if result["traceml"] == "asked" else f"TraceML ({result['traceml']})", overflow="fold")
    for row in result["cases"]:
        given = ", ".join(f"{row['given'].count(one)}x {one}" for one in dict.fromkeys(row["given"]))
        mark = "left out" if row["left_out"] else "MISS" if row["wrong"] else "ok"
        table.add_row(
            row["name"], " or ".join(row["expected"]), given or row["left_out"], mark, row["traceml"] or "-",
            style="bold red" if row["wrong"] else None,
        )  # fmt: skip
    return table


def sentences(result: dict[str, Any]) -> list[str]:
    """The score, the misses by name, and what was called critical without being it."""
    right, trials = result["right"], result["trials"]
    share = right / trials if trials else 0.0
    lines = [f"{right} of {trials} verdicts are right ({share:.1%}; the goal is {GOAL:.0%})."]
    lines += [
        f"Missed: {row['name']}: {'; '.join(dict.fromkeys(row['wrong']))}" for row in result["cases"] if row["wrong"]
    ]
    lines.append(f"{result['false_criticals']} cases with a false critical finding.")
    lines += [
        f"False critical: {row['name']}: {', '.join(row['false_criticals'])}"
        for row in result["cases"]
        if row["false_criticals"]
    ]
    lines += [f"Left out: {row['name']} ({row['left_out']})" for row in result["cases"] if row["left_out"]]
    if result["traceml_asked"]:
        lines.append(f"TraceML: {result['traceml_right']} of {result['traceml_asked']} right, asked once each.")
    return lines


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def chosen(names: Sequence[str]) -> list[Case]:
    """The cases of these names; all without any. A name may be the beginning of several."""
    found = [case for case in CASES if not names or any(case.name.startswith(name) for name in names)]
    for name in names:
        if not any(case.name.startswith(name) for case in CASES):
            sys.exit(f"There is no case {name!r}. {nearest(name, [case.name for case in CASES])}")
    return found


def main() -> None:
    """Try the cases, print the table, say whether the goal is reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a case, or the beginning of its name"
    )
    parser.add_argument("--repeats", type=int, default=3, help="how often each is tried")
    parser.add_argument("--busy", action="store_true", help="keep all cores busy with something else")
    parser.add_argument("--traceml", action="store_true", help="ask TraceML too, once for each case")
    parser.add_argument("--json", type=Path, help="write the results there as well")
    options = parser.parse_args()
    result = measure(
        chosen(options.only), options.repeats, busy=options.busy, traceml=options.traceml, json_file=options.json
    )
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(score_table(result))
    for line in sentences(result):
        console.print(line, markup=False, highlight=False)
    sys.exit(result["right"] < GOAL * result["trials"] or result["false_criticals"] > 0)


if __name__ == "__main__":
    main()
