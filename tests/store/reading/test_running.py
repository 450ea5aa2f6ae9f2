"""The open spans of a process, from the newest part of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

import sonde
from sonde.events.recorder import serving
from sonde.store.reading import running as module
from sonde.store.reading.running import running
from sonde.testing import record


def here() -> Path:
    """The folder of this process."""
    recorder = serving()
    assert recorder is not None
    return Path(recorder.folder)


@pytest.mark.parametrize("writes", ["mapped", "block"])
def test_spans_that_have_left_the_ring_are_found(tmp_path: Path, writes: str) -> None:
    """An outer one was spilled long ago, and is open all the same."""
    with record(dir=str(tmp_path), writes=writes), sonde.span("epoch", "mine"):
        for _ in range(5000):
            with sonde.span("step"):
                pass
        with sonde.span("inner"):
            found = running(here())
    names = [(span.cat, span.name) for span in found]
    assert names[0] == ("mine", "epoch")
    assert ("user", "step") not in names
    assert found[0].for_ns > 0
    assert found[0].thread == "MainThread"
    assert writes == "block" or names[-1] == ("user", "inner")


def test_a_span_that_was_closed_after_it_had_left_the_ring_is_not_open(tmp_path: Path) -> None:
    """Its second copy says so."""
    with record(dir=str(tmp_path)):
        with sonde.span("epoch"):
            for _ in range(5000):
                sonde.mark("x")
        assert running(here()) == []


def test_only_the_tail_of_the_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before it costs nothing, and is not found."""
    monkeypatch.setattr(module, "TAIL", 48 * 100)
    with record(dir=str(tmp_path)), sonde.span("epoch"):
        for _ in range(5000):
            sonde.mark("x")
        with sonde.span("inner"):
            assert [span.name for span in running(here())] == ["inner"]
