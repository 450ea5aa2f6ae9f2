"""Custom rules: functions in a Python file, or queries with thresholds in a TOML file; and how they are run.

`python -m sonde.diagnosis.custom.rules RUN FILE...` asks them, in a process of its own: a rule may hang, or end its process. Each answer is
a line of JSON, written at once. `diagnosis/custom/process.py` starts it.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import runpy
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.run import Run
from sonde.diagnosis.facts import gather
from sonde.diagnosis.policy import Policy
from sonde.errors import RuleError, nearest
from sonde.finding import SEVERITIES, WARN, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

TOML = ".toml"
PYTHON = ".py"
KEYS = ("query", "above", "below", "severity", "why", "next", "confidence", "then")
FIELDS = ("kind", "severity", "confidence", "why", "next", "evidence", "then")
ACTIONS = ("stop", "dump", "deepen")  # what a finding may want of a program that runs
MOST_TEXT = 1000  # characters
OFF = "--off"  # an argument: the rules behind it are not asked


class OwnFacts:
    """What a rule is given: the facts of our own rules as attributes (`facts.speed`, `facts.health`, ...), and the tables as SQL."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._facts: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._facts is None:
            self._facts = gather(self._run, Policy.load())
        return getattr(self._facts, name)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        return self._run.sql(query).fetchall()

    def number(self, query: str) -> float | None:
        """The first number that a query gives; None if there is none."""
        rows = self.sql(query)
        return float(rows[0][0]) if rows and rows[0] and rows[0][0] is not None else None


class OwnRule(NamedTuple):
    """One rule: what it is called, and the function that is asked."""

    kind: str
    find: Callable[[OwnFacts], Any]


def load_rules(file: Path) -> list[OwnRule]:
    """The rules in a file. Raises RuleError if it cannot be read, or has none."""
    if file.suffix not in (TOML, PYTHON):
        raise RuleError(f"{file} is not a rules file. Use Python ({PYTHON}) or TOML ({TOML}).")
    if not file.is_file():
        raise RuleError(f"There is no file {file}. The setting `rules` or the command names it.")
    found = _of_toml(file) if file.suffix == TOML else _of_python(file)
    if not found:
        raise RuleError(
            f"{file} has no rule. Write a function with one parameter, facts, or a TOML table with a query."
        )
    return found


def ask(rule: OwnRule, facts: OwnFacts) -> Finding | None:
    """What a rule finds. Raises RuleError if that is no finding; whatever the rule raises passes."""
    answer = rule.find(facts)
    if answer is None or isinstance(answer, Finding):
        return answer
    if not isinstance(answer, dict):
        raise RuleError(f"{rule.kind} returned {type(answer).__name__}. Return None, or a dict with why and next.")
    unknown = [name for name in answer if name not in FIELDS]
    if unknown:
        raise RuleError(f"{rule.kind} returned an unknown field {unknown[0]!r}. {nearest(str(unknown[0]), [*FIELDS])}")
    severity, confidence = answer.get("severity", WARN), answer.get("confidence", 1.0)
    if severity not in SEVERITIES:
        raise RuleError(f"{rule.kind} has the severity {severity!r}. Use {', '.join(SEVERITIES)}.")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise RuleError(f"{rule.kind} has the confidence {confidence!r}. Use a number from 0 to 1.")
    if not answer.get("why"):
        raise RuleError(f"{rule.kind} gives no reason. Return a dict with why and next.")
    then = answer.get("then") or []
    wanted = [then] if isinstance(then, str) else list(then)
    wrong = [one for one in wanted if one not in ACTIONS]
    if wrong:
        raise RuleError(f"{rule.kind} asks for the action {wrong[0]!r}. {nearest(str(wrong[0]), [*ACTIONS])}")
    evidence = {"score": None, "numbers": {}, "queries": {}, **dict(answer.get("evidence") or {})}
    evidence |= {"then": wanted} if wanted else {}
    why, next = (str(answer.get(name) or "")[:MOST_TEXT] for name in ("why", "next"))
    return Finding(str(answer.get("kind") or rule.kind), severity, float(confidence), why, next, evidence)


def _of_python(file: Path) -> list[OwnRule]:
    """The functions of a file with one parameter; those whose names begin with `_` are not rules."""
    try:
        names = runpy.run_path(str(file), run_name="sonde_rules")
    except Exception as error:
        raise RuleError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    found = []
    for name, one in names.items():
        own = inspect.isfunction(one) and one.__code__.co_filename == str(file) and not name.startswith("_")
        if own and len(inspect.signature(one).parameters) == 1:
            found.append(OwnRule(name.upper(), one))
    return found


def _of_toml(file: Path) -> list[OwnRule]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuleError(f"{file} is not valid TOML: {error}.") from None
    return [_of_table(file, kind, table) for kind, table in tables.items()]


def _of_table(file: Path, kind: str, table: Any) -> OwnRule:
    if not isinstance(table, dict) or not isinstance(table.get("query"), str):
        raise RuleError(f"{file}: [{kind}] has no query. Add: query = 'SELECT ...'")
    unknown = [name for name in table if name not in KEYS]
    if unknown:
        raise RuleError(f"{file}: [{kind}] has an unknown key {unknown[0]!r}. {nearest(unknown[0], [*KEYS])}")
    limits = {name: table[name] for name in ("above", "below") if name in table}
    if not limits or any(isinstance(one, bool) or not isinstance(one, int | float) for one in limits.values()):
        raise RuleError(f"{file}: [{kind}] has no threshold. Add: above = 10, or below = 10")

    def find(facts: OwnFacts) -> dict[str, Any] | None:
        value = facts.number(table["query"])
        high = value is not None and value > limits.get("above", float("inf"))
        low = value is not None and value < limits.get("below", float("-inf"))
        if value is None or not (high or low):
            return None
        limit = f"more than {limits['above']:g}" if high else f"less than {limits['below']:g}"
        why = (
            str(table.get("why", "The value is {value}, {limit}."))
            .replace("{value}", f"{value:.6g}")
            .replace("{limit}", limit)
        )
        said = {name: table[name] for name in ("severity", "confidence", "next", "then") if name in table}
        evidence = {"numbers": {"value": value}, "queries": {"value": table["query"]}}
        return {"next": f"Look at the rule [{kind}] in {file.name}.", **said, "why": why, "evidence": evidence}

    return OwnRule(kind, find)


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────────


def rule_id(file: str, kind: str) -> str:
    """What identifies a rule."""
    return f"{file}:{kind}"


def answers(path: str, files: Sequence[str], off: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Ask all rules but those that are off: what begins, what was found, and what went wrong."""
    with Run([path], threads=1) as run:
        facts = OwnFacts(run)
        for file in files:
            try:
                rules = load_rules(Path(file))
            except RuleError as error:
                yield {"problem": str(error)}
                continue
            for rule in rules:
                if rule_id(file, rule.kind) in off:
                    continue
                yield {"begin": rule.kind, "file": file}
                try:
                    found = ask(rule, facts)
                except RuleError as error:
                    yield {"failed": rule.kind, "file": file, "problem": str(error)}
                except Exception as error:  # noqa: BLE001  the user's code
                    why = f"The rule {rule.kind} in {os.path.basename(file)} failed: {type(error).__name__}: {error}"
                    yield {"failed": rule.kind, "file": file, "problem": why[:MOST_TEXT]}
                else:
                    yield {"end": rule.kind} if found is None else {"finding": found._asdict()}


def main(path: str, words: Sequence[str]) -> None:
    """Print each answer at once. What the rules print goes to the error channel. After `--off` come the rules that are not asked."""
    out, sys.stdout = sys.stdout, sys.stderr
    files = list(itertools.takewhile(lambda word: word != OFF, words))
    for one in answers(path, files, words[len(files) + 1 :]):
        out.write(json.dumps(one, default=str) + "\n")
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
