"""Stacks of threads, as faulthandler writes them."""

from __future__ import annotations

import pytest

from sonde.analysis.postmortem.stacks import threads_in

TEXT = """\
Current thread 0x00007f0000000001 [MainThread] (most recent call first):
  File "/site-packages/sonde/{room}/watch.py", line 12 in raised
  File "/home/me/train.py", line 41 in forward
Thread 0x00007f0000000002 (most recent call first):
  File "/home/me/data.py", line 7 in load
"""


@pytest.mark.parametrize("room", ["nonfinite", "blackbox", "capture", "hooks"])
def test_the_frames_of_the_recorder_are_left_out(room: str) -> None:
    """The innermost frame is one of the program."""
    main, other = threads_in(TEXT.format(room=room))
    assert (main.name, main.current, main.frames) == ("MainThread", True, ["forward (train.py:41)"])
    assert (other.current, other.frames) == (False, ["load (data.py:7)"])
