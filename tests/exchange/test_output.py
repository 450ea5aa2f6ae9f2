"""The file that an export is written to."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from sonde.exchange.output import output_file


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """While it is written, nothing has the final name."""
    target = tmp_path / "out"
    with output_file(target, compressed=False) as file:
        file.write("half")
        file.flush()
        assert not target.exists()
    assert target.read_text() == "half"


def test_a_failed_export_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    """An error in the middle removes what was written so far, and only that."""
    target = tmp_path / "out"
    target.write_text("old")

    def fail() -> None:
        with output_file(target, compressed=True) as file:
            file.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "old")]


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o600), (True, 0o644)])
def test_only_a_shared_file_can_be_read_by_others(tmp_path: Path, shared: bool, mode: int) -> None:
    """As far as the umask allows it."""
    before = os.umask(0o022)
    try:
        with output_file(tmp_path / "out", compressed=False, shared=shared) as file:
            file.write("line\n")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == mode


def test_an_open_file_stays_open(tmp_path: Path) -> None:
    """Standard output is written to, not closed."""
    target = io.BytesIO()
    with output_file(target, compressed=False) as file:
        file.write("line\n")
    assert target.getvalue() == b"line\n"
