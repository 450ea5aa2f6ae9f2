"""Tries cases of the fault suite, counts what was right, and draws the table of it, with TraceML's answers beside ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.faults import peer, trial
from benchmarks.faults.cases import Case
from benchmarks.faults.trial import Outcome

GOAL = 0.95
LONGEST = 2_000  # characters of the reason of a miss that are printed
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
    cases: Sequence[Case],
    repeats: int,
    *,
    busy: bool = False,
    traceml: bool = False,
    json_file: Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Try all cases; everything that the table shows, as plain data. The file is written anew after each case, so that one
    that was cut off can be resumed: cases that the file has are not tried again.
    """
    missing = peer.missing() if traceml else "not asked"
    settings = {"repeats": repeats, "busy": busy, "traceml": missing or "asked"}
    rows = _done(json_file, settings) if resume and json_file is not None else []
    left = [case for case in cases if case.name not in {row["name"] for row in rows}]
    result: dict[str, Any] = {**settings, "cases": rows, **score(rows)}
    with burners(os.cpu_count() or 1) if busy else burners(0):
        for number, case in enumerate(left):
            _tell(f"{number + 1} of {len(left)}: {case.name}")
            outcomes = [tried(case) for _ in range(repeats)]
            rows.append(row(case, outcomes, peer.verdict(case) if missing is None else None))
            result |= score(rows)
            if json_file is not None:
                _write(json_file, result)
    _tell("")
    return result


def _done(json_file: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The cases that a file of the same settings has. ValueError: it has others."""
    if not json_file.exists():
        return []
    result = json.loads(json_file.read_text())
    for name, value in settings.items():
        if result[name] != value:
            raise ValueError(
                f"{json_file} has {name} = {result[name]!r}, and {value!r} was asked for: name another file"
            )
    return list(result["cases"])


def _write(json_file: Path, result: dict[str, Any]) -> None:
    """Whole or not at all: a cut in the middle leaves the file as it was."""
    new = json_file.with_name(f"{json_file.name}.new")
    new.write_text(json.dumps(result, indent=2) + "\n")
    new.replace(json_file)


def tried(case: Case) -> Outcome:
    """One trial. A program that does not do what the table says of it is a miss, and no end of the suite."""
    try:
        return trial.run(case)
    except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
        return Outcome(case, "(no verdict)", wrong=f"{type(error).__name__}: {error}")


def row(case: Case, outcomes: list[Outcome], peers: str | None) -> dict[str, Any]:
    """What the table has of a case; `peers`: the answer of TraceML, None if it was not asked."""
    return {
        "name": case.name,
        "ranks": case.ranks,
        "expected": list(case.expected),
        "healthy": case.healthy,
        "half": case.half,
        "given": [f"{one.kind} {one.severity}".strip() for one in outcomes if not one.left_out],
        "others": [[f"{kind} {severity}" for kind, severity in one.others] for one in outcomes],
        "why": outcomes[-1].why,
        "wrong": [one.wrong for one in outcomes if one.wrong],
        "false_criticals": sorted({kind for one in outcomes for kind in one.false_criticals}),
        "left_out": next((one.left_out for one in outcomes if one.left_out), ""),
        "seconds": [round(one.seconds, 1) for one in outcomes],
        "traceml": peers,
        "traceml_right": None
        if peers is None or peers.startswith(peer.NOT_TRIED)
        else peers.split()[0] in case.expected,
        "traceml_knows": bool(peer.KINDS.intersection(case.expected)),
    }


def score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many trials were right, and those of the peer."""
    trials = sum(len(row["given"]) for row in rows)
    asked = [row for row in rows if row["traceml_right"] is not None]
    known = [row for row in asked if row["traceml_knows"]]
    return {
        "trials": trials,
        "right": trials - sum(len(row["wrong"]) for row in rows),
        "false_criticals": sum(bool(row["false_criticals"]) for row in rows),
        "traceml_asked": len(asked),
        "traceml_right": sum(row["traceml_right"] for row in asked),
        "traceml_known": len(known),
        "traceml_known_right": sum(row["traceml_right"] for row in known),
    }


def reached(result: dict[str, Any]) -> bool:
    """Whether the goal is reached: enough is right, and nothing is critical without reason."""
    return bool(result["right"] >= GOAL * result["trials"] and not result["false_criticals"])


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
        f"Missed: {row['name']}: {'; '.join(map(_shortened, dict.fromkeys(row['wrong'])))}"
        for row in result["cases"]
        if row["wrong"]
    ]
    for half in (1, 2):
        rows = [row for row in result["cases"] if row.get("half") == half]
        if rows:
            part = score(rows)
            lines.append(
                f"Learning, half {half}: {part['right']} of {part['trials']}, {part['false_criticals']} false critical."
            )
    lines.append(f"{result['false_criticals']} cases with a false critical finding.")
    lines += [
        f"False critical: {row['name']}: {', '.join(row['false_criticals'])}"
        for row in result["cases"]
        if row["false_criticals"]
    ]
    lines += [f"Left out: {row['name']} ({row['left_out']})" for row in result["cases"] if row["left_out"]]
    if result["traceml_asked"]:
        lines.append(
            f"TraceML: {result['traceml_right']} of {result['traceml_asked']} right, asked once each; of those whose verdict "
            f"is one that it has, {result['traceml_known_right']} of {result['traceml_known']}."
        )
    return lines


def _shortened(reason: str) -> str:
    return (
        reason
        if len(reason) <= LONGEST
        else f"{reason[:200]} ... {reason[200 - LONGEST :]} (the file of --json has it whole)"
    )


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
