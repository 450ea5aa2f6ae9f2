"""Arguments of events, which queries read from files while they run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sonde.analysis.records.load import OPEN_FILES, ArgumentReader
from sonde.store.reading.reader import read_process
from sonde.testing import BuiltProcess, BuiltRecord, build_run

EACH = 20  # arguments of a process


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_several_threads_read_the_arguments_of_many_processes(tmp_path: Path) -> None:
    """More processes than files that are open at once: no thread closes the file that another one reads."""
    processes = [
        BuiltProcess([BuiltRecord(args={"of": pid, "number": one}) for one in range(EACH)], pid=pid)
        for pid in range(1000, 1000 + OPEN_FILES + 8)
    ]
    run = build_run(tmp_path / "one", processes)
    recordings = [read_process(folder) for folder in sorted(run.iterdir()) if folder.is_dir()]
    ids = [[int(one) for one in recording.records["args"]] for recording in recordings]
    reader = ArgumentReader(recordings)
    wanted = [(number, id) for number, some in enumerate(ids) for id in some]

    def read(turn: int) -> list[str | None]:
        return [reader.text(number, id) for number, id in wanted[turn::3] + wanted[turn::2]]

    with ThreadPoolExecutor(8) as pool:
        found = [text for texts in pool.map(read, [0, 1, 2] * 8) for text in texts]
    reader.close()
    assert None not in found
