"""What the processes of a run count together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sonde.store.usage import BYTES, HOMELESS, RunUsage, homeless

if TYPE_CHECKING:
    from pathlib import Path


def counts(folder: Path) -> RunUsage:
    return RunUsage(os.open(folder / "usage", os.O_RDWR | os.O_CREAT, 0o600))


def test_processes_add_to_one_count(tmp_path: Path) -> None:
    """Each sees what the others have added."""
    one, other = counts(tmp_path), counts(tmp_path)
    assert one.add(BYTES, 5)
    assert other.add(BYTES, 7)
    assert other.add(HOMELESS, 3)
    assert one.add(HOMELESS, -1)
    assert (other.known[BYTES], homeless(tmp_path)) == (12, 2)


def test_a_file_that_is_cut_goes_on_from_what_is_known(tmp_path: Path) -> None:
    """A run does not start at zero again because somebody emptied its count."""
    one = counts(tmp_path)
    one.add(BYTES, 5)
    os.truncate(tmp_path / "usage", 0)
    one.add(BYTES, 7)
    assert one.known[BYTES] == 12


def test_without_a_file_a_process_counts_for_itself() -> None:
    """As on a network disk."""
    one = RunUsage(-1)
    assert not one.add(BYTES, 5)
    assert not one.add(BYTES, 7)
    assert one.known[BYTES] == 12


def test_a_descriptor_that_is_somebody_elses_is_not_written_to(tmp_path: Path) -> None:
    """The program has closed it, and opened a file of its own."""
    fd = os.open(tmp_path / "usage", os.O_RDWR | os.O_CREAT, 0o600)
    one = RunUsage(fd)
    os.close(fd)
    mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT, 0o600)
    os.dup2(mine, fd)
    assert not one.add(BYTES, 5)
    assert (tmp_path / "mine").read_bytes() == b""
    os.close(mine)
    if fd != mine:
        os.close(fd)
