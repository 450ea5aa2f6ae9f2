"""Energy: counters of the kernel in a folder like its own, and what a step used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import phases, processes, with_records

from sonde import testing
from sonde.analysis.questions.energy import energy
from sonde.analysis.run import open_run
from sonde.launch.energy import Packages
from sonde.store import probe
from sonde.store.record import COUNTER
from sonde.testing import BuiltRecord, build_run


def zone(folder: Path, name: str, kind: str, microjoules: int) -> Path:
    """One of the kernel's."""
    place = folder / name
    place.mkdir(parents=True)
    for file, text in {"name": kind, "energy_uj": microjoules, "max_energy_range_uj": 10_000_000}.items():
        (place / file).write_text(f"{text}\n")
    return place


def test_the_joules_of_each_package_are_recorded(tmp_path: Path) -> None:
    """Those inside a package are part of it, and a counter that begins anew has not lost anything."""
    first, second = (
        zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000),
        zone(tmp_path, "intel-rapl:1", "package-1", 0),
    )
    zone(tmp_path, "intel-rapl:0:0", "core", 5)
    zone(tmp_path, "intel-rapl:2", "psys", 5)
    with testing.record() as recorded:
        packages = Packages(tmp_path)
        (first / "energy_uj").write_text("2000000\n")
        (second / "energy_uj").write_text("1500000\n")
        packages.sample()
    assert {(one["name"], one["key"]): one["value"] for one in recorded.events} == {
        ("energy", 0): 3.0,
        ("energy", 1): 1.5,
    }


@pytest.mark.parametrize("missing", ["folder", "number"])
def test_a_host_that_does_not_say_records_nothing(tmp_path: Path, missing: str) -> None:
    """No folder, or one that only root may read."""
    if missing == "number":
        (zone(tmp_path, "intel-rapl:0", "package-0", 1) / "energy_uj").unlink()
    with testing.record() as recorded:
        Packages(tmp_path / "none" if missing == "folder" else tmp_path).sample()
    assert recorded.events == []


def test_energy_of_a_step_is_that_of_the_hosts_while_they_trained(tmp_path: Path) -> None:
    """100 W for processors and 300 W for two devices."""
    (process,) = processes(steps=100, phases=phases(forward=30, backward=30))
    begun = min(one.start for one in process.records)
    watts = {(probe.ENERGY, 0): 100, (probe.GPU_ENERGY, 0): 250, (probe.GPU_ENERGY, 1): 50}
    looks = [
        BuiltRecord(name, probe.SYSTEM, kind=COUNTER, start=begun + second * 10**9, key=key, value=rate * second)
        for second in range(20)
        for (name, key), rate in watts.items()
    ]
    with open_run(build_run(tmp_path / "run", [with_records(process, *looks)])) as run:
        found = energy(run)
        ((count, mean),) = run.sql("SELECT count(*), avg(dur_ns) / 1e9 FROM steps WHERE NOT warmup").fetchall()
    assert found is not None
    assert (found.steps, found.sources) == (count, ["processors", "devices"])
    assert found.per_step_j == pytest.approx(400 * mean, rel=0.02)


def test_a_run_without_counters_has_no_energy(tmp_path: Path) -> None:
    """Missing is not zero."""
    with open_run(build_run(tmp_path / "run", processes())) as run:
        assert energy(run) is None
