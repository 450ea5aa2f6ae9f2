"""For tests of programs that use Sonde, and of Sonde itself: real recordings, a fake clock, built and varied runs."""

from sonde.golden import assert_trace_matches
from sonde.testing.building import (
    MS as MS,
    START_NS as START_NS,
    WALL_NS as WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_process,
    build_run,
)
from sonde.testing.clock import FakeClock
from sonde.testing.recorded import Recorded, record
from sonde.testing.synthetic import Straggler, synthetic_run
from sonde.testing.training import TRAINING as TRAINING, build_training, training_processes

__all__ = [
    "BuiltProcess",
    "BuiltRecord",
    "FakeClock",
    "Recorded",
    "Straggler",
    "assert_trace_matches",
    "build_process",
    "build_run",
    "build_training",
    "record",
    "synthetic_run",
    "training_processes",
]
