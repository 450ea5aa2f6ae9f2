"""Starts a program so that it is recorded without an edit, and accompanies it: `sonde run` and `sonde watch`.

    launched = start(command_of(["train.py", "--epochs", "3"]), Options(name="try"))
    launched.run                 the run folder; None if nothing is recorded
    launched.wait()              its exit code, as a shell tells it: death by signal n is 128 + n

The program gets a bootstrap through its environment (`sonde/boot`), and each Python in it records itself. The launcher
records what can be seen from outside: memory and load of every process of the tree, and how the program ended.
"""

from __future__ import annotations

from sonde.launch.command import Options, command_of
from sonde.launch.companion import Beside
from sonde.launch.finalreport import draw_report, join_profiles
from sonde.launch.program import Launched, replace, start, wanted
from sonde.launch.signals import attend, blocked

__all__ = [
    "Beside",
    "Launched",
    "Options",
    "attend",
    "blocked",
    "command_of",
    "draw_report",
    "join_profiles",
    "replace",
    "start",
    "wanted",
]
