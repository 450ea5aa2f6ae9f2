"""The cache: an item is read once while there is room, and what it gives cannot be spoiled."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from tests.pipeline.stars import batch, made

from sonde.pipeline.data.cache import Cache


class Counted:
    """A getter that knows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, row: int) -> Any:
        self.asked.append(row)
        return np.zeros(100)


def test_value_is_read_once() -> None:
    """From the second time on it comes out of memory."""
    counted = Counted()
    get = Cache(10**6).around(counted)
    for row in (1, 2, 1, 2, 1):
        get(row)
    assert counted.asked == [1, 2]


def test_it_never_holds_more_than_its_limit() -> None:
    """What came first stays; what has no room is read again."""
    counted = Counted()
    cache = Cache(5_000)
    get = cache.around(counted)
    for _ in range(2):
        for row in range(20):
            get(row)
    assert cache.used <= 5_000
    assert counted.asked[20:] == list(range(5, 20))


def test_fields_share_one_limit() -> None:
    """It is the limit of the provider."""
    cache = Cache(1_500)
    first, second = cache.around(lambda _: np.zeros(100)), cache.around(lambda _: np.zeros(100))
    assert first(0) is first(0)
    assert second(0) is not second(0)


def test_dataset_may_use_its_array_again() -> None:
    """What is kept is a copy."""
    page = np.zeros(3)
    get = Cache(10**6).around(lambda _: page)
    get(0)
    page += 1
    assert get(0).tolist() == [0, 0, 0]


def test_what_is_kept_cannot_be_written_to() -> None:
    """A function that changes it in place finds out."""
    get = Cache(10**6).around(lambda _: np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        get(0)[0] = 1


def test_provider_gives_the_same_with_and_without_it() -> None:
    """Only faster; each epoch is augmented anew."""
    config = {"data.cache_bytes": 10**6}
    plain, cached = made("Turned", augment=True), made("Turned", config, augment=True)
    for epoch in range(3):
        plain.epoch = cached.epoch = epoch
        np.testing.assert_equal(batch(cached), batch(plain))


def test_it_does_not_travel() -> None:
    """A worker begins with an empty one."""
    provider = made("Stars", {"data.cache_bytes": 10**8})
    before = len(pickle.dumps(provider))
    batch(provider)
    assert len(pickle.dumps(provider)) == before
