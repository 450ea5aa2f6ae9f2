"""Damaged run folders: every command that reads ends with an answer or one sentence, whatever was changed in the files."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.analysis.boxes import batch, birth, certificate, with_marks, write_dump
from tests.analysis.ledger.test_ledger import write_ledger
from tests.cli.test_flow import trace

from sonde.analysis.seal import seal
from sonde.cli import main
from sonde.store.probe import batch_key
from sonde.testing import build_run, training_processes

COMMANDS = (
    ["show"], ["show", "steps"], ["show", "batches"], ["show", "items"], ["show", "events"], ["show", "layers"],
    ["report"], ["report", "--json"], ["report", "--html", "OUT"], ["blackbox"], ["blackbox", "--html", "OUT"], ["runs"],
    ["export", "--to", "chrome", "-o", "OUT"], ["export", "--to", "pfw", "-o", "OUT"], ["seal"],
)  # fmt: skip
DIRECTORY = ("runs",)  # commands that take the folder of all runs
TRACE, SHOW_TRACE = "trace.sonde", ["flow", "show"]
LONGEST = 2000  # characters of a message


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A raw run with ledgers, layers, losses and a dump, and the same sealed."""
    folder = tmp_path_factory.mktemp("fuzz")
    first, *others = training_processes(ranks=2, steps=24, workers=1, layers=["one"], loss=float, evaluate_every=8)
    raw = build_run(folder / "raw", [with_marks(first, birth(certificate())), *others])
    for process in raw.glob("*-100?-0"):
        write_ledger(process / "ledger.bin", [(batch_key(0, 0, number), (5, number, 2)) for number in range(24)])
    write_dump(raw, batches=[batch(3, {"x": np.ones((4, 8), np.float32)})])
    trace().save(raw / TRACE)
    sealed = folder / "sealed"
    shutil.copytree(raw, sealed)
    seal(sealed)
    return [raw, sealed]


def flip(content: bytearray, low: int, high: int, chance: random.Random) -> None:
    """Change one bit."""
    if low < high:
        content[chance.randrange(low, high)] ^= 1 << chance.randrange(8)


def overwrite(content: bytearray, low: int, high: int, chance: random.Random) -> None:
    """Change some bytes in a row."""
    start = chance.randrange(low, max(high, low + 1))
    end = min(start + chance.randrange(1, 16), high)
    content[start:end] = bytes(chance.choice((0, 255, chance.randrange(256))) for _ in range(start, end))


def cut(content: bytearray, low: int, high: int, chance: random.Random) -> None:
    """Lose the end."""
    del content[chance.randrange(low, max(high, low + 1)) :]


def remove(content: bytearray, low: int, high: int, chance: random.Random) -> None:
    """Lose some bytes in the middle."""
    start = chance.randrange(low, max(high, low + 1))
    del content[start : start + chance.randrange(1, 100)]


MUTATIONS: tuple[Callable[[bytearray, int, int, random.Random], None], ...] = (flip, flip, overwrite, cut, remove)


def footer(content: bytearray) -> int:
    """Where the footer of a Parquet file begins."""
    (length,) = struct.unpack_from("<I", content, len(content) - 8)
    return int(max(0, len(content) - 8 - length))


def damage(run: Path, chance: random.Random) -> str:
    """Change one file of a run; what was done."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    tables = [path for path in files if path.suffix == ".parquet"]
    path = chance.choice(tables) if tables and chance.random() < 0.6 else chance.choice(files)
    if chance.random() < 0.03:
        path.unlink()
        if chance.random() < 0.5:
            path.symlink_to("/etc/passwd")
        return f"{path.name}: removed"
    content = bytearray(path.read_bytes())
    low = footer(content) if path in tables and chance.random() < 0.7 else 0
    mutation = chance.choice(MUTATIONS)
    mutation(content, low, len(content), chance)
    path.write_bytes(content)
    return f"{path.name}: {mutation.__name__} from {low} on"


def answered(command: list[str], folder: Path, run: Path) -> str:
    """Give a command; what is wrong with its answer, empty if nothing is."""
    words = [str(folder / "out") if word == "OUT" else word for word in command]
    where = ["--dir", str(folder)] if command[0] in DIRECTORY else [str(run)]
    if command == SHOW_TRACE:
        where = [str(run / TRACE)]
    if command[0] == "show":
        where, words = [], ["show", str(run), *words[1:]]
    result = CliRunner().invoke(main, [*words, *where])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return repr(result.exception)
    if result.exit_code and not (result.stderr.startswith("Error: ") and len(result.stderr) < LONGEST):
        return f"exit code {result.exit_code}: {result.output[-LONGEST:]}"
    return ""


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(3000), marks=pytest.mark.soak)], ids=["some", "all"])
def test_no_damage_gives_a_traceback(originals: list[Path], seeds: range, tmp_path: Path) -> None:
    """One bit, some bytes, an end or a whole file: each reading command answers, or says in a sentence what is wrong."""
    wrong = []
    for seed in seeds:
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        run = folder / "run"
        shutil.copytree(chance.choice(originals), run)
        done = damage(run, chance)
        command = SHOW_TRACE if done.startswith(TRACE) else chance.choice(COMMANDS)
        fault = answered(command, folder, run)
        if fault:
            wrong.append(f"{seed}: {done}: sonde {' '.join(command)}: {fault}")
        shutil.rmtree(folder)
    assert wrong == []
