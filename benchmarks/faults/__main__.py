"""Run the fault suite and print its score: python -m benchmarks.faults [--repeats 3] [--busy] [--traceml] [--json FILE]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.faults.cases import CASES, Case
from benchmarks.faults.score import measure, reached, score_table, sentences
from sonde.errors import nearest


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
    parser.add_argument("--json", type=Path, help="write the results there as well, after each case")
    parser.add_argument("--resume", action="store_true", help="go on with what the file of --json has")
    options = parser.parse_args()
    if options.resume and options.json is None:
        parser.error("--resume goes on with a file: name it with --json")
    try:
        result = measure(
            chosen(options.only), options.repeats, busy=options.busy, traceml=options.traceml, json_file=options.json,
            resume=options.resume,
        )  # fmt: skip
    except ValueError as error:
        sys.exit(str(error))
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(score_table(result))
    for line in sentences(result):
        console.print(line, markup=False, highlight=False)
    sys.exit(not reached(result))


if __name__ == "__main__":
    main()
