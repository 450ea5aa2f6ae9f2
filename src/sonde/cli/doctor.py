"""`sonde doctor`: checks how recording works here, what it cannot see, and proves it with a real recording."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from sonde import config, events, hooks, units
from sonde.analysis.run import open_run
from sonde.cli.options.choose import directory
from sonde.cli.output.console import out, print_json
from sonde.errors import SondeError
from sonde.store import filesystem
from sonde.terminal.doctor import Examination, FolderCheck, Proof, SettingRow, draw_examination
from sonde.version import __version__

# What of the optional libraries switches something on.
EXTRAS = ("torch", "numpy", "textual", "pytorch-ignite", "pylance", "onnx", "onnxruntime")
SIZES = ("cap", "values_limit")  # settings that are numbers of bytes
SPANS = 500
PROBE_SECONDS = 60

# Records, and dies without a word, as a killed program would; where records are written in blocks it ends properly,
# because there a kill may lose the last block.
PROBE = """
import os, signal, sys
for name in ("SONDE", "SONDE_RUN"):
    os.environ.pop(name, None)
import sonde
folder, spans, kill = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "kill"
session = sonde.init("doctor", dir=folder, enabled=True)
for number in range(spans):
    with sonde.span("probe", key=number):
        pass
import asyncio, contextlib, json
from sonde import guard, hooks
with contextlib.suppress(Exception):  # as a program that trains does it
    import torch
print(json.dumps({"patched": hooks.describe(), "failures": guard.counts()}), flush=True)
if kill:
    os.kill(os.getpid(), signal.SIGKILL)
sonde.finish()
"""


@click.command(
    epilog="""\b
Example: sonde doctor
Example: sonde doctor --json | jq .proof"""
)
@directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, dir: str | None, as_json: bool) -> None:
    """Check that recording works on this machine, and how.

    Records a tiny program next to your runs, kills it, reads the records back and deletes them. Exit code 1 means that
    this failed.
    """
    found = examine(dir)
    if as_json:
        print_json(found)
    else:
        draw_examination(found, out())
    context.exit(0 if found.proof.ok else 1)


def examine(dir: str | None) -> Examination:
    """Look at everything, and try it."""
    gathered = config.gather(dir=dir)
    settings = config.load(dir=dir)
    folder = _folder(settings)
    return Examination(
        sonde=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        program=sys.executable,
        platform=platform.platform(),
        core=events.core.KIND,
        core_note=events.CORE_NOTE,
        enabled=settings.enabled,
        folder=folder,
        proof=_proof(Path(settings.dir), folder.writes),
        settings=[SettingRow(name, _value(name, one.value), one.source) for name, one in gathered.items()],
        unseen=[*hooks.BLIND_SPOTS, *_unseen(folder.writes)],
        extras={name: _version(name) for name in EXTRAS},
    )


def _value(name: str, value: object) -> str:
    if value is None:
        return "not set"
    if name in SIZES and isinstance(value, int):
        return units.size(value)
    return "none" if value == () else str(value)


def _folder(settings: config.Settings) -> FolderCheck:
    path = _existing(Path(settings.dir))
    writes, why = _writes(settings, path)
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        free = None
    return FolderCheck(settings.dir, filesystem.type_of(path), writes, why, free)


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next((one for one in (path, *path.parents) if one.is_dir()), Path("/"))


def _writes(settings: config.Settings, path: Path) -> tuple[str, str]:
    if settings.writes != "auto":
        return settings.writes, "set by the `writes` setting"
    if filesystem.may_map(path):
        return "mapped", "records survive a killed process"
    if filesystem.may_map(settings.scratch):
        return (
            "mapped elsewhere",
            f"buffers are written to {settings.scratch}, because this file system cannot be memory-mapped safely",
        )
    return "block", (
        "neither this file system nor `scratch` can be memory-mapped safely; a kill loses the last block of records"
    )


def _unseen(writes: str) -> list[str]:
    """What the way of writing adds to what no recording shows."""
    if writes == "block":
        return ["the last block of records of a killed process"]
    if writes == "mapped elsewhere":
        return ["the last records of a host that crashes: its buffers are on its own disk"]
    return []


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


# ── the proof ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _proof(dir: Path, writes: str) -> Proof:
    """Record, kill, read back."""
    try:
        with _temporary(dir) as folder:
            return _recorded(folder, kill=writes != "block")
    except OSError as error:
        return Proof(False, f"cannot create a folder next to the runs: {error}")
    except SondeError as error:
        return Proof(False, f"cannot read the recording back: {error}")
    except subprocess.TimeoutExpired:
        return Proof(False, f"the test program did not finish within {PROBE_SECONDS} s")


@contextmanager
def _temporary(dir: Path) -> Iterator[Path]:
    """A hidden folder on the same file system as the runs."""
    with tempfile.TemporaryDirectory(prefix=".sonde-doctor-", dir=_existing(dir)) as folder:
        yield Path(folder)


def _recorded(folder: Path, kill: bool) -> Proof:
    end = "kill" if kill else "finish"
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", PROBE, str(folder / "runs"), str(SPANS), end],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_SECONDS,
        check=False,
    )
    runs = sorted((folder / "runs").glob("*")) if (folder / "runs").is_dir() else []
    if not runs:
        said = done.stderr.strip().splitlines()
        return Proof(False, f"nothing was recorded: {said[-1] if said else f'exit code {done.returncode}'}")
    with open_run(runs[0]) as run:
        ((count,),) = run.sql("SELECT count(*) FROM events WHERE name = 'probe' AND dur_ns IS NOT NULL").fetchall()
    what = "was killed with SIGKILL" if kill else "ended"
    sentence = f"{count} of {SPANS} spans recovered from a program that {what}"
    return Proof(count == SPANS, sentence, **_said(done.stdout))


def _said(output: str) -> dict[str, Any]:
    """What the recorded program said of itself in its last line."""
    try:
        said = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return said if isinstance(said, dict) else {}
