"""What `--io` says of real kinds of data, against what strace saw."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sonde.analysis.run import open_run

PROGRAM = Path(__file__).with_name("kinds.py")
READ = re.compile(r"(?:read|pread64)\(\d+<([^>]*)>.*= (\d+)$")
SONDE = [sys.executable, "-m", "sonde", "run", "-q", "--io", "--dir", "runs"]


def record(folder: Path, kind: str, workers: int, context: str = "fork", before: tuple[str, ...] = ()) -> Path:
    """Record the program; its run."""
    subprocess.run([*before, *SONDE, str(PROGRAM), kind, str(workers), context], cwd=folder, check=True, timeout=200)
    (run,) = (folder / "runs").iterdir()
    return run


def traced(folder: Path) -> Counter[str]:
    """The bytes that strace saw of each file of the data."""
    found: Counter[str] = Counter()
    for path in folder.glob("trace.*"):
        for line in path.read_text(errors="replace").splitlines():
            seen = READ.search(line)
            if seen is not None and seen[1].startswith(str(folder / "data")):
                found[seen[1]] += int(seen[2])
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("kind", "library"), [("npy", "numpy"), ("pillow", "PIL"), ("tar", "tarfile"), ("hdf5", "h5py")]
)
def test_names_and_bytes_are_those_that_strace_saw(kind: str, library: str, tmp_path: Path) -> None:
    """Of each file, what its items have read is what the kernel gave."""
    pytest.importorskip(library)
    strace = ("strace", "-ff", "-qq", "-y", "-e", "trace=read,pread64", "-o", str(tmp_path / "trace"))
    run = record(tmp_path, kind, 1, before=strace)
    with open_run(run) as opened:
        found = dict(
            opened.sql("SELECT file, sum(bytes)::BIGINT FROM reads WHERE file IS NOT NULL GROUP BY 1").fetchall()
        )
    expected = traced(tmp_path)
    assert expected
    assert {path: size for path, size in found.items() if path in expected} == pytest.approx(dict(expected), rel=0.02)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("kind", "library", "context"), [("parquet", "pyarrow", "fork"), ("lance", "lance", "spawn")]
)  # lance does not survive a fork
def test_bytes_that_threads_of_a_library_read_are_seen_in_a_worker(
    kind: str, library: str, context: str, tmp_path: Path
) -> None:
    """In a worker, whatever thread reads them; those that the import of the library reads are in the first item."""
    pytest.importorskip(library)
    strace = ("strace", "-ff", "-qq", "-y", "-e", "trace=read,pread64", "-o", str(tmp_path / "trace"))
    run = record(tmp_path, kind, 1, context, before=strace)
    with open_run(run) as opened:
        ((size,),) = opened.sql("SELECT sum(bytes)::BIGINT FROM items").fetchall()
    assert size >= 0.95 * sum(traced(tmp_path).values()) > 0


@pytest.mark.parametrize(("workers", "context"), [(0, "fork"), (2, "fork"), (2, "spawn")])
def test_every_item_names_its_file(workers: int, context: str, tmp_path: Path) -> None:
    """In the training process, and in workers however they start."""
    with open_run(record(tmp_path, "npy", workers, context)) as run:
        rows = run.sql('SELECT "index", file, bytes FROM items ORDER BY 1').fetchall()
    assert [(index, Path(file).name) for index, file, _ in rows] == [(index, f"{index}.npy") for index in range(12)]
    assert all(size >= 160_000 for *_, size in rows)
