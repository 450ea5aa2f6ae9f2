"""A process whose environment has no rank learns it from torch. The groups are real, and of a backend that exchanges nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from tests.probes.training import model, sgd, train

import sonde
from sonde import hooks, ranks
from sonde.analysis.live.run import Live
from sonde.guard import counts
from sonde.testing import Recorded, record

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(autouse=True)
def _leave_group() -> Iterator[None]:
    """No group stays after a test."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def join(rank: int, world_size: int = 2) -> None:
    """Make the process group."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)


def facts(recorded: Recorded) -> dict[str, Any]:
    """What this process says of itself in the run."""
    (path,) = Path(recorded.path).glob("*/process.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return {name: found[name] for name in ("rank", "local_rank", "world_size", "role")}


def seen(recorded: Recorded) -> list[int]:
    """The steps that were recorded whole."""
    return [event["step"] for event in recorded.named("backward")]


def test_the_rank_is_known_when_the_group_was_made() -> None:
    """Also in a process that has recorded before: it is a trainer from then on."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 1)
        assert facts(recorded) == {"rank": None, "local_rank": None, "world_size": None, "role": "main"}
        join(1)
        assert facts(recorded) == {"rank": 1, "local_rank": None, "world_size": 2, "role": "trainer"}


def test_a_rank_that_is_known_before_the_first_record_stands_in_it() -> None:
    """The folder of a process is made with its first record."""
    net = model()
    with record() as recorded:
        join(1)
        assert not list(Path(recorded.path).glob("*/process.json"))
        train(net, sgd(net), 1)
        assert (facts(recorded)["rank"], facts(recorded)["role"]) == (1, "trainer")


def test_a_group_that_was_made_before_the_recording_is_found() -> None:
    """A callback of a framework starts to record when the group is there."""
    net = model()
    join(1)
    with record() as recorded:
        assert ranks.current() == (1, None, 2)
        train(net, sgd(net), 1)
        assert facts(recorded)["rank"] == 1


def test_in_the_mode_manual_it_is_looked_for_when_training_begins() -> None:
    """Nothing is patched for it."""
    plain = dist.init_process_group
    with record(mode="manual") as recorded:
        assert dist.init_process_group is plain
        join(1)
        with sonde.trace_step():
            pass
        assert facts(recorded)["rank"] == 1


def test_a_group_that_could_not_be_made_tells_nothing() -> None:
    """Its exception reaches the program."""
    with record():
        with pytest.raises(RuntimeError, match="nowhere"):
            dist.init_process_group("gloo", init_method="nowhere://", rank=1, world_size=2)
        assert ranks.current() == (None, None, None)


def test_torch_itself_makes_groups_by_the_same_function() -> None:
    """A device mesh makes the default group, if there is none."""
    plain = dist.init_process_group
    with record():
        assert dist.init_process_group is not plain
        for owner in (dist.distributed_c10d, dist.device_mesh):
            assert owner.init_process_group is dist.init_process_group
    assert dist.init_process_group is plain


def test_a_rank_that_was_not_chosen_is_not_recorded_whole_from_then_on() -> None:
    """What was recorded before stays, and the ends of steps are noted as ever."""
    net = model()
    optimizer = sgd(net)
    with record(ranks="0") as recorded:
        train(net, optimizer, 12)  # long enough for the fast paths of plain steps
        join(1)
        train(net, optimizer, 5)
    assert seen(recorded) == list(range(12))
    assert [event["step"] for event in recorded.named("optimizer")] == list(range(12))
    assert len(recorded.named("update")) == 17


@pytest.mark.parametrize(("more", "steps"), [({}, range(2, 14)), ({"steps": "5:9", "every": 2}, [5, 7])])
def test_a_rank_that_was_chosen_is_recorded_whole_from_then_on(more: dict[str, Any], steps: Any) -> None:
    """Of the steps that were chosen, if not all were."""
    net = model()
    optimizer = sgd(net)
    with record(ranks="1", **more) as recorded:
        train(net, optimizer, 2)
        join(1)
        train(net, optimizer, 12)
    assert seen(recorded) == list(steps)


def test_a_rank_of_the_environment_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun nothing changes when the group is made."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    net = model()
    with record() as recorded:
        train(net, sgd(net), 1)
        (path,) = Path(recorded.path).glob("*/process.json")
        before = path.stat().st_mtime_ns, path.stat().st_ino
        join(1)
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
        assert facts(recorded) == {"rank": 1, "local_rank": 1, "world_size": 2, "role": "trainer"}


def test_a_look_at_a_run_that_grows_finds_the_rank() -> None:
    """A live view that has seen the process without a rank names it by its rank."""
    net = model()
    with record() as recorded:
        train(net, sgd(net), 2)
        live = Live(recorded.path)
        live.look()
        assert [one.name for one in live.trainers] == ["main"]
        join(1)
        train(net, sgd(net), 1)
        live.look()
        assert [one.name for one in live.trainers] == ["rank 1"]


def test_it_is_forgotten_with_the_recording() -> None:
    """The next one asks torch again, and no patch stays."""
    with record():
        join(1)
        assert ranks.current().rank == 1
    assert ranks.current().rank is None
    assert hooks.describe() == []
    dist.destroy_process_group()
    with record():
        assert ranks.current().rank is None


def test_a_failure_of_ours_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch, expected: set[str]) -> None:
    """The group is made, and what failed is counted."""
    expected.add("learning the rank of this process")
    with record():
        monkeypatch.setattr(ranks, "learn", None)
        join(1)
        assert dist.get_rank() == 1
    assert counts()["learning the rank of this process"] == 1
