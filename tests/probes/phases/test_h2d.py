"""Copies from the host to a device, with torch's device "meta" in the place of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sonde.testing import Recorded, record

SELECTED: dict[str, Any] = {"mode": "selective", "patch_h2d": True}


def copies(recorded: Recorded) -> list[int]:
    """The bytes of each copy."""
    return [event["key"] for event in recorded.named("h2d")]


@pytest.mark.parametrize(
    "move",
    [
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor.to(torch.device("meta"), non_blocking=True),
        lambda tensor: tensor.to(device="meta", dtype=torch.float64),
        lambda tensor: tensor.to(torch.empty(1, device="meta")),
        lambda tensor: torch.empty(4, device="meta").copy_(tensor),
    ],
    ids=["text", "device", "by name", "other", "copy_"],
)
def test_a_copy_to_a_device_is_a_span_with_its_bytes(move: Any) -> None:
    """However it is asked for."""
    with record(**SELECTED) as recorded:
        assert move(torch.ones(4)).is_meta
    assert copies(recorded) == [16]


def test_what_stays_where_it_is_is_no_copy() -> None:
    """A change of type, the host, between devices, and the parameters of a model."""
    with record(**SELECTED) as recorded:
        torch.ones(4).to(torch.float64)
        torch.ones(4).to("cpu", copy=True)
        torch.ones(4, device="meta").to("meta")
        torch.empty(4).copy_(torch.ones(4))
        torch.nn.Linear(2, 2).to("meta")
    assert copies(recorded) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a device")
def test_a_copy_that_fails_is_marked_and_fails_as_before() -> None:
    """There is no device here."""
    with record(**SELECTED) as recorded, pytest.raises((AssertionError, RuntimeError)):
        torch.ones(4).cuda()
    assert [event["error"] for event in recorded.named("h2d")] == [True]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a device")
def test_without_a_device_tensors_are_left_alone() -> None:
    """A program on the host pays nothing."""
    with record():
        assert not {"to", "cuda", "copy_"} & set(vars(torch.Tensor))
