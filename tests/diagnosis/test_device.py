"""What a device did decides, where its times are known: input-bound, compute-bound and launch-bound runs told apart."""

from __future__ import annotations

from pathlib import Path

from tests.diagnosis.building import diagnosed, kinds, phases, processes, with_records

from sonde.analysis.run import open_run
from sonde.store import probe
from sonde.store.record import COUNTER
from sonde.testing import MS, BuiltProcess, BuiltRecord
from sonde.views.report import report


def on_device(ms: float, **times: int) -> list[BuiltProcess]:
    """A training whose host spends these times, and whose device spends so long in each of its phases."""
    (process,) = processes(phases=phases(**times))
    counters = [
        BuiltRecord(
            f"{probe.DEVICE}{one.name}", probe.PROBE, kind=COUNTER, start=one.start, step=one.step, value=ms * MS
        )
        for one in process.records
        if one.name in (probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER)
    ]
    return [with_records(process, *counters)]


def test_a_device_that_is_idle_while_the_host_waits_is_input_bound(tmp_path: Path) -> None:
    """40 ms of waiting, and 3 ms of work on the device."""
    assert diagnosed(tmp_path, on_device(1, input_wait=40, forward=1, backward=1)).verdict.kind == "INPUT_BOUND"


def test_a_device_that_is_at_work_while_the_host_waits_is_compute_bound(tmp_path: Path) -> None:
    """The host has started everything in 3 ms, and then waits for the device: in the loader, or at `.item()`."""
    found = diagnosed(tmp_path, on_device(15, input_wait=20, residual=25, forward=1, backward=1))
    assert kinds(found) == ["COMPUTE_BOUND"]
    assert found.verdict.why.startswith("The device computes for 94 % of the step time")


def test_a_device_that_is_done_when_the_host_is_waits_for_its_launches(tmp_path: Path) -> None:
    """Its phases take as long as the host needs to start them."""
    found = diagnosed(tmp_path, on_device(10, input_wait=1, residual=1, forward=10, backward=10, optimizer=10))
    assert found.verdict.kind == "LAUNCH_BOUND"
    assert "COMPUTE_BOUND" not in kinds(found)


def test_the_report_shows_the_time_of_the_device(tmp_path: Path) -> None:
    """For each phase that it has one for."""
    diagnosed(tmp_path, on_device(15))
    with open_run(tmp_path / "run") as run:
        told = {one.phase: one.device_ns for one in report(run).phases}
    assert told == {
        **dict.fromkeys(("input_wait", "residual")),
        **dict.fromkeys(("forward", "backward", "optimizer"), 15 * MS),
    }
