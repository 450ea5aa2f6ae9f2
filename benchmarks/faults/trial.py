"""One case, tried once: run its script under `sonde run`, diagnose what was recorded, and compare with the table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.faults.cases import FAULT, HEALTHY, NOTE, Case
from benchmarks.faults.limits import Group, group
from sonde.analysis.run import open_run
from sonde.diagnosis.diagnose import diagnose
from sonde.diagnosis.rules import LEARNING
from sonde.finding import CRITICAL, Finding

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0  # seconds for a program to end
HANGS = 100.0  # seconds until a program that hangs must have been noticed
LOOK = 5.0  # seconds between two looks at it
LESSONS = {rule.kind for rule in LEARNING}
SAID = 20_000  # characters of a failed program's words that are kept, of its beginning and of its end


class Outcome(NamedTuple):
    """What was said of a case. `left_out`: why it could not be tried; `wrong`: why the answer is wrong."""

    case: Case
    kind: str = ""
    severity: str = ""
    why: str = ""
    others: tuple[tuple[str, str], ...] = ()  # kind and severity of the findings behind the verdict
    seconds: float = 0.0
    wrong: str = ""
    left_out: str = ""

    @property
    def false_criticals(self) -> list[str]:
        """Critical findings, the verdict or others, of kinds that this case does not have."""
        true = () if self.case.healthy else (*self.case.expected, *self.case.also)
        found = [(self.kind, self.severity), *self.others]
        return [kind for kind, severity in found if severity == CRITICAL and kind not in true]


def run(case: Case, keep: Path | None = None) -> Outcome:
    """Try a case in a folder of its own; in `keep`, it stays."""
    begun = time.monotonic()
    with _folder(keep) as folder, _no_group(case) as missing, group(case.limit_mb) as limited:
        program = start(case, folder, limited)
        try:
            findings = _while_it_hangs(folder) if case.hangs else _after_its_end(case, program, folder)
        finally:
            end(program)
        return judged(case, findings, time.monotonic() - begun)
    return Outcome(case, left_out=missing[0])


@contextmanager
def _no_group(case: Case) -> Iterator[list[str]]:
    """A machine that gives no control group cannot try a case that needs one."""
    reasons: list[str] = []
    try:
        yield reasons
    except PermissionError as error:
        reasons.append(f"no control group: {error.strerror}")
        if case.limit_mb is None:
            raise


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def environment(**more: str) -> dict[str, str]:
    """Ours, without settings of Sonde and of job schedulers, and with the way to the scripts' parts."""
    strange = ("SONDE", "SLURM", "TORCHELASTIC", "OMP_", "MKL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


def words(case: Case, limited: Group | None) -> list[str]:
    """The command that is recorded."""
    arguments = [str(limited.limit), str(limited.used)] if limited else []
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
    return [sys.executable, *(torchrun if case.ranks else []), str(case.path), *arguments]


def start(case: Case, folder: Path, limited: Group | None = None) -> subprocess.Popen[bytes]:
    """Start a case under `sonde run`."""
    command = [
        sys.executable,
        "-m",
        "sonde",
        "run",
        "--quiet",
        "--dir",
        str(folder / "runs"),
        *(["--io"] if case.script.startswith("files_") else []),
        *(["--learning"] if case.half else []),
        "--",
        *words(case, limited),
    ]
    if limited is not None:  # the shell enters the group, and becomes the program
        command = ["/bin/sh", "-c", f'echo $$ > {limited.processes} && exec "$@"', "sh", *command]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _after_its_end(case: Case, program: subprocess.Popen[bytes], folder: Path) -> list[Finding]:
    code = program.wait(PATIENCE)
    if bool(code) != case.fails:
        raise RuntimeError(f"{case.name} ended with code {code}: {_said(folder / 'output')}")
    return findings(folder)


def _said(output: Path) -> str:
    """What the program said: its beginning, where the reason often is, and its end."""
    text = output.read_text(errors="replace")
    return text if len(text) <= 2 * SAID else f"{text[:SAID]}\n[...]\n{text[-SAID:]}"


def _while_it_hangs(folder: Path) -> list[Finding]:
    """Look again and again: the verdict must come while the program still hangs."""
    until = time.monotonic() + HANGS
    found: list[Finding] = []
    while time.monotonic() < until:
        time.sleep(LOOK)
        if not list(folder.glob("runs/*/*/process.json")):
            continue
        found = findings(folder)
        if any(one.kind == "HUNG" for one in found):
            break
    return found


def findings(folder: Path) -> list[Finding]:
    """What the diagnosis says of the only run in the folder, the verdict first."""
    (path,) = (folder / "runs").iterdir()
    with open_run(path) as opened:
        return diagnose(opened).findings


def end(program: subprocess.Popen[bytes]) -> None:
    """End what is left of the program and of all that it has started."""
    if program.poll() is not None:
        return
    left = psutil.Process(program.pid).children(recursive=True)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        program.wait(10)
    program.kill()
    program.wait()


def _nothing(verdict: Finding) -> Finding:
    """Nothing is wrong with learning."""
    return verdict._replace(kind=HEALTHY[0], severity=NOTE[0], why="")


def judged(case: Case, found: list[Finding], seconds: float = 0.0) -> Outcome:
    """Compare the findings with what the table expects. Of a script about learning, only findings about that count."""
    verdict = found[0]
    if case.half:
        found = [one for one in found if one.kind in LESSONS and one.severity in FAULT] or [_nothing(verdict)]
        verdict = found[0]
    wrong = ""
    if verdict.kind not in case.expected:
        wrong = f"{verdict.kind} instead of {' or '.join(case.expected)}"
    elif verdict.severity not in case.severities:
        wrong = f"{verdict.severity} instead of {' or '.join(case.severities)}"
    elif case.names and case.names.lower() not in f"{verdict.why} {verdict.next}".lower():
        wrong = f"{case.names!r} is not named"
    others = tuple((one.kind, one.severity) for one in found[1:])
    return Outcome(case, verdict.kind, verdict.severity, verdict.why, others, seconds, wrong)
