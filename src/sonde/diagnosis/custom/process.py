"""Runs custom rules in a separate process, for a limited time: a rule may hang, or end its process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde import environment
from sonde.diagnosis.custom.rules import OFF, rule_id
from sonde.errors import SondeError
from sonde.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SECONDS = 30.0
UNASKED = " Later rules were not run."


class OwnFindings(NamedTuple):
    """What the rules have found, what was wrong with them, and the names of those that were asked."""

    findings: list[Finding]
    problems: list[str]
    asked: list[str]
    failed: dict[str, str]  # the id of a rule that raised, hung or ended its process, and the problem


def ask_apart(run: Path, files: Sequence[str], seconds: float = SECONDS, off: Iterable[str] = ()) -> OwnFindings:
    """Ask all rules of some files about a run, but those that are off. One that takes too long ends it: it is named, and those after it
    are not asked.
    """
    command = [sys.executable, "-P", "-m", "sonde.diagnosis.custom.rules", str(run), *files, OFF, *off]
    try:
        done = subprocess.run(  # noqa: S603  our own words
            command,
            env=environment.unrecorded(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        ended = None if done.returncode == 0 else f"ended its process (exit code {done.returncode})"
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        ended, output = f"did not end within {seconds:g} s", late.stdout or b""
    except OSError as error:
        raise SondeError(f"Cannot start a process for the rules: {error.strerror}.") from None
    return _read(output, ended)


def _read(output: bytes, ended: str | None) -> OwnFindings:
    found = OwnFindings([], [], [], {})
    last: dict[str, Any] = {}
    for line in output.splitlines():
        try:
            last = json.loads(line)
        except ValueError:
            continue
        if "begin" in last:
            found.asked.append(str(last["begin"]))
        elif "finding" in last:
            found.findings.append(Finding(**last["finding"]))
        elif "problem" in last:
            found.problems.append(str(last["problem"]))
            if "failed" in last:
                found.failed[rule_id(str(last["file"]), str(last["failed"]))] = found.problems[-1]
    if ended is not None:
        who = f"The rule {last['begin']} in {Path(last['file']).name}" if "begin" in last else "A file of rules"
        found.problems.append(f"{who} {ended}.{UNASKED}")
        if "begin" in last:
            found.failed[rule_id(str(last["file"]), str(last["begin"]))] = found.problems[-1]
    return found
