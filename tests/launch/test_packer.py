"""A run that would outgrow its size cap is packed while its program runs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import sonde
from sonde import launch
from sonde.store.folder import PACKED_FILE, SEGMENT_FILE

SECONDS = 120
CAP = 2_000_000
# It records three times its cap, no faster than it is packed.
PROGRAM = f"""
import os, sonde, time
from sonde.store.usage import recorded
for step in range(60_000):
    with sonde.trace_step(step=step):
        pass
    while step % 500 == 0 and recorded(os.environ["SONDE_RUN"]) > 0.7 * {CAP}:
        time.sleep(0.01)
"""


def test_a_long_run_below_a_small_cap_has_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is thinned out, and the run ends below its cap, though its segment is larger than that."""
    monkeypatch.setenv("SONDE_CAP", str(CAP))
    launched = launch.start([sys.executable, "-c", PROGRAM], launch.Options(dir=str(tmp_path)))
    try:
        assert launched.wait(SECONDS) == 0
    finally:
        launched.signal(signal.SIGKILL)
    assert launched.run is not None
    segment = max(Path(launched.run).glob(f"*/{SEGMENT_FILE}"), key=lambda path: path.stat().st_size)
    assert segment.stat().st_size > CAP
    assert (segment.stat().st_blocks + segment.with_name(PACKED_FILE).stat().st_blocks) * 512 < CAP
    with sonde.open_run(launched.run) as run:
        assert run.sql("SELECT count(*), max(step) FROM steps").fetchall() == [(60_000, 59_999)]
        assert run.sql("SELECT sum(drops) FROM processes").fetchall() == [(0,)]
