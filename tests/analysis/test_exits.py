"""How a run ended, in the one word that every command uses."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.analysis.exits import ending
from sonde.store.alive import DIED, ENDED, UNKNOWN
from sonde.store.process import Info, Moment

LAUNCHER: dict[str, Any] = {"role": "launcher", "pid": 1}
PROGRAM: dict[str, Any] = {"pid": 2, "parent_pid": 1}
RANK: dict[str, Any] = {"pid": 3, "parent_pid": 2, "role": "trainer"}
TORCHRUN: dict[str, Any] = {"pid": 2, "parent_pid": 1, "role": "launcher"}


def process(state: str = ENDED, **fields: Any) -> tuple[Info, str]:
    """A process in this state."""
    end = None if state != ENDED else Moment(1, 1)
    plain = dict.fromkeys(Info._fields) | {"host": "another host", "end": end}
    return Info(**{**plain, **fields}), state


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([process(**PROGRAM)], "finished"),
        ([process(**PROGRAM, exception="ValueError")], "crashed (ValueError)"),
        ([process(**PROGRAM, exception="KeyboardInterrupt")], "interrupted (KeyboardInterrupt)"),
        ([process(DIED, **PROGRAM)], "killed"),
        ([process(UNKNOWN, **PROGRAM)], "unknown"),
        ([], "unknown"),
        ([process(**LAUNCHER, program_exit=0), process(**PROGRAM)], "finished"),
        ([process(**LAUNCHER, program_exit=3), process(**PROGRAM)], "crashed (exit code 3)"),
        ([process(**LAUNCHER, program_exit=137), process(DIED, **PROGRAM)], "killed (signal 9)"),
        ([process(**LAUNCHER, program_exit=130), process(DIED, **PROGRAM)], "interrupted (signal 2)"),
        ([process(**LAUNCHER, program_exit=1), process(**PROGRAM, exception="KeyError")], "crashed (KeyError)"),
        ([process(**LAUNCHER, program_exit=1), process(**TORCHRUN), process(DIED, **RANK)], "killed"),
        ([process(DIED, **LAUNCHER), process(**PROGRAM)], "finished"),
        ([process(**PROGRAM), process(DIED, pid=4, parent_pid=2, role="worker", worker=0)], "finished"),
    ],
)  # fmt: skip
def test_a_run_ends_in_one_word(found: list[tuple[Info, str]], told: str) -> None:
    """The exception, the signal or the exit code stands behind it."""
    assert str(ending(found)) == told
