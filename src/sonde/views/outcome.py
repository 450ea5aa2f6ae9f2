"""The outcome of a run in one line of a list: saved in its folder once it has ended, because the verdict takes half a second."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.locate import is_plain, size_of
from sonde.analysis.run import RECORDING, Run
from sonde.errors import SondeError
from sonde.store.alive import UNKNOWN
from sonde.store.folder import opened, write_json
from sonde.store.process import read_object
from sonde.version import __version__
from sonde.views.hosts import steps_done
from sonde.views.report import Report, report

if TYPE_CHECKING:
    from pathlib import Path

OUTCOME_FILE = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """The verdict on a run and its main numbers; None is not known."""

    verdict: str
    severity: str
    steps: int
    p50_ns: float | None
    loss: float | None


def read_outcome(path: Path) -> Outcome | None:
    """What was kept of this run, unless the run has changed since."""
    fields = read_object(path / OUTCOME_FILE, [])
    stamp = fields.pop("stamp", None)
    try:
        found = Outcome(**fields)
        valid = all(isinstance(text, str) for text in (found.verdict, found.severity)) and all(
            isinstance(number, int | float | None) for number in (found.steps, found.p50_ns, found.loss)
        )
    except TypeError:
        return None
    return found if valid and stamp == _stamp(path) else None


def make_outcome(path: Path) -> Outcome:
    """The outcome of this run, and keep it."""
    with Run([path], threads=1) as run:
        return keep_outcome(report(run), path)


def outcome_of(view: Report) -> Outcome:
    """The outcome as a report has it."""
    steps = view.steps
    done = steps_done(view.goodput) or steps.count + steps.warmup
    return Outcome(view.verdict.kind, view.verdict.severity, done, steps.p50_ns, steps.loss)


def keep_outcome(view: Report, path: Path) -> Outcome:
    """The outcome as a report has it. Kept if the run has ended and its folder can be written."""
    found = outcome_of(view)
    if view.run.state not in (RECORDING, UNKNOWN):
        with suppress(OSError, SondeError), opened(str(path)) as folder:
            write_json(folder, OUTCOME_FILE, asdict(found) | {"stamp": _stamp(path)})
    return found


def _stamp(path: Path) -> list[Any]:
    """What changes with the run, or with the rules."""
    own = path / OUTCOME_FILE
    return [__version__, size_of(path) - (own.lstat().st_size if is_plain(own) else 0)]
