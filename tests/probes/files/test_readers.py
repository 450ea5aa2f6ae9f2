"""Files behave under `--io` as they do without it, and what is not seen of them is not zero."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sonde.analysis.run import open_run

SONDE = [sys.executable, "-m", "sonde", "run", "-q", "--io", "--dir", "runs"]
IDIOMS = """
import sonde
sonde.init()
sonde.mark("here")
import copy, gc, io, mmap, os, pathlib, tempfile, warnings
warnings.simplefilter("error")
path = pathlib.Path("some.bin")
path.write_bytes(bytes(range(256)) * 40)
print(open(path, "rb", 0).read(3))
read = open(path, "rb", 0).read
gc.collect()
print(len(read(1000)))
del read
gc.collect()
with open(file=path, mode="rb") as file:
    print(type(file), type(file.raw), file.name, file.mode, file.read(5), file.tell(), file.seek(-4, 2), file.read())
    print(len(os.pread(file.fileno(), 100, 0)), len(os.readv(file.fileno(), [bytearray(10)]) * b"x"))
with io.open(path, encoding="latin-1", newline="") as file:
    print(len(file.readline()), sum(len(line) for line in file))
with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    print(len(mapped), mapped[:4])
with open(path, "r+b") as file:
    print(file.write(b"abc"), file.seek(0), file.read(4))
with open(os.open(path, os.O_RDONLY), "rb") as file:
    print(len(file.read()))
for wrong in (("missing",), (path, "q"), (path, "rb", 0, "utf8"), ()):
    try:
        open(*wrong)
    except Exception as error:
        print(type(error).__name__)
file = open(path, "rb")
file.close()
try:
    file.read()
except ValueError as error:
    print(error)
try:
    copy.copy(open(path, "rb", 0))
except TypeError as error:
    print(error)
except ResourceWarning:
    pass
"""


def test_a_program_that_reads_files_in_many_ways_prints_the_same(tmp_path: Path) -> None:
    """Bound methods, descriptors, maps, errors: all as without Sonde."""
    (tmp_path / "idioms.py").write_text(IDIOMS)
    plain, recorded = (
        subprocess.run([*before, "idioms.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
        for before in ([sys.executable], SONDE)
    )
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert plain.returncode == 0


@pytest.mark.parametrize(
    "reads",
    ["os.read(os.open('some.bin', os.O_RDONLY), 9)", "open('some.bin', 'rb', 0).read()"],
    ids=["by descriptor", "without a buffer"],
)
def test_bytes_that_nothing_counts_are_unknown(reads: str, tmp_path: Path) -> None:
    """Outside of items, what is read by a descriptor is not seen."""
    (tmp_path / "some.bin").write_bytes(b"x" * 1000)
    (tmp_path / "train.py").write_text(f"import os, sonde\nsonde.init()\nsonde.mark('here')\n{reads}\n")
    subprocess.run([*SONDE, "train.py"], cwd=tmp_path, check=True, timeout=100)
    (path,) = (tmp_path / "runs").iterdir()
    with open_run(path) as run:
        rows = run.sql("SELECT opens, bytes, dur_ns FROM reads WHERE file LIKE '%some.bin'").fetchall()
    assert rows == [(1, None, None)]
