"""What TraceML says of the same scripts, where it is installed. It has to be told where a step is; the scripts do so."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.faults.cases import Case
from benchmarks.faults.parts import PEER
from benchmarks.faults.trial import environment

PATIENCE = 240.0
NOT_TRIED = "(not tried"  # so begins what is no answer of its own
# What it can say of a whole run; the rest of our kinds it does not have.
KINDS = frozenset(
    [
        *("INPUT_BOUND", "H2D_BOUND", "RESIDUAL_HEAVY", "COMPUTE_BOUND"),
        *("INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "STRAGGLER", "BALANCED", "INSUFFICIENT_DATA"),
    ]
)
# Its words for ours; what is not here has the same name.
NAMES = {
    "NO_CLEAR_PERFORMANCE_BOTTLENECK": "BALANCED",
    "INSUFFICIENT_STEP_TIME_DATA": "INSUFFICIENT_DATA",
    "INSUFFICIENT_DATA": "INSUFFICIENT_DATA",
}


def missing() -> str | None:
    """Why TraceML cannot be asked; None if it can."""
    return None if importlib.util.find_spec("traceml_ai") else "not installed"


def verdict(case: Case) -> str:
    """Its kind of the run, in our words; in brackets, why there is none."""
    if case.hangs:
        return f"{NOT_TRIED}: the program never ends)"
    if case.limit_mb is not None:
        return f"{NOT_TRIED}: it needs more memory than the limit)"
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        command = [
            str(Path(sys.executable).with_name("traceml")), "run", "--mode", "summary", "--logs-dir", "logs", "--run-name", "run",
            "--aggregator-port", str(_free()), "--master-port", str(_free()), "--nproc-per-node", str(case.ranks or 1),
            str(case.path),
        ]  # fmt: skip
        try:
            subprocess.run(
                command, cwd=folder, env=environment(**{PEER: "traceml"}), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"(no end after {PATIENCE:.0f} s)"
        return _read(Path(folder) / "logs" / "run" / "final_summary.json")


def _free() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _read(path: Path) -> str:
    try:
        found = json.loads(path.read_text())["primary_diagnosis"]
    except (OSError, ValueError, KeyError):
        return "(no summary)"
    kind = str(found.get("kind", "(no kind)")).upper().replace(" ", "_").replace("-", "_")
    return f"{NAMES.get(kind, kind)} {found.get('severity', '')}".strip()
