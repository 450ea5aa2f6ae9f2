"""data_request: what is wrong with one is told with group, name and key."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sonde.errors import ConfigError
from sonde.pipeline.data.request import parse_request

GOOD = {"dataset_class": "RandomDataset", "primary_id_field": "object_id"}
OTHER = {"dataset_class": "NpyDataset", "join_field": "star"}


def test_everything_that_was_said_is_in_the_source() -> None:
    """All keys, in the types that the rest of the pipeline uses."""
    given = {
        **GOOD,
        "data_location": "./here",
        "fields": ["image"],
        "split_fraction": 1,
        "dataset_config": {"size": 3},
        "augment": False,
    }
    (source,) = parse_request({"train": {"data": given}})["train"]
    assert source.friendly == "data"
    assert source.data_location == os.path.abspath("here")
    assert source.fields == ("image",)
    assert source.split_fraction == 1.0
    assert source.dataset_config == {"size": 3}
    assert not source.augment


def test_primary_source_comes_first() -> None:
    """Whatever the order in the request."""
    sources = parse_request({"train": {"spec": OTHER, "data": GOOD}})["train"]
    assert [source.friendly for source in sources] == ["data", "spec"]


def test_address_is_kept_as_it_is() -> None:
    """Only a path is made absolute."""
    (source,) = parse_request({"train": {"data": {**GOOD, "data_location": "s3://bucket/x"}}})["train"]
    assert source.data_location == "s3://bucket/x"


@pytest.mark.parametrize(("group", "augmented"), [("train", True), ("validate", False), ("infer", False)])
def test_training_is_augmented_if_nothing_is_said(group: str, augmented: bool) -> None:
    """A dataset that has augment functions wants them used."""
    assert parse_request({group: {"data": GOOD}})[group][0].augment is augmented


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (3, ["data_request is 3"]),
        ({"train": {}}, ["data_request.train"]),
        ({"train": GOOD}, ["data_request.train", "name of your choice"]),
        ({"train": {"data": 3}}, ["data_request.train.data is 3"]),
        ({"train": {"data": {"primary_id_field": "x"}}}, ["data_request.train.data has no dataset_class"]),
        ({"train": {"data": {"dataset_class": "X"}}}, ["data_request.train has no primary_id_field", "data"]),
        ({"train": {"a": GOOD, "b": GOOD}}, ["data_request.train", "a and b"]),
        ({"train": {"a": GOOD, "b": {"dataset_class": "X"}}}, ["data_request.train.b has no join_field", "ids of a"]),
        (
            {"train": {"a": {**GOOD, "join_field": "x"}}},
            ["data_request.train.a", "both primary_id_field and join_field"],
        ),
        ({"train": {"a": GOOD, "b": {**OTHER, "split_fraction": 0.5}}}, ["data_request.train.b has split_fraction"]),
        ({"train": {"a": {**GOOD, "feilds": []}}}, ["data_request.train.a has no key 'feilds'", "'fields'"]),
        ({"train": {"a": {**GOOD, "fields": "image"}}}, ["data_request.train.a.fields is 'image'"]),
        ({"train": {"a": {**GOOD, "fields": []}}}, ["data_request.train.a.fields", "at least one"]),
        ({"train": {"a": {**GOOD, "fields": ["x", "x"]}}}, ["data_request.train.a.fields", "'x' twice"]),
        ({"train": {"a": {**GOOD, "split_fraction": 0}}}, ["data_request.train.a.split_fraction is 0"]),
        ({"train": {"a": {**GOOD, "split_fraction": 1.5}}}, ["data_request.train.a.split_fraction is 1.5"]),
        ({"train": {"a": {**GOOD, "split_fraction": True}}}, ["data_request.train.a.split_fraction is True"]),
        ({"train": {"a": {**GOOD, "split_fraction": float("nan")}}}, ["data_request.train.a.split_fraction is nan"]),
        ({"train": {"a": {**GOOD, "dataset_config": 3}}}, ["data_request.train.a.dataset_config is 3"]),
        ({"train": {"a": {**GOOD, "data_location": ""}}}, ["data_request.train.a.data_location"]),
        ({"train": {"a": {**GOOD, "augment": "yes"}}}, ["data_request.train.a.augment is 'yes'"]),
        ({"infer": {"a": {**GOOD, "augment": True}}}, ["data_request.infer.a.augment"]),
        ({"train": {"object_id": GOOD}}, ["data_request.train", "'object_id'"]),
        ({"train": {7: GOOD}}, ["data_request.train", "7"]),
    ],
)
def test_error_says_group_name_and_key(request_: Any, words: list[str]) -> None:
    """And what was given."""
    with pytest.raises(ConfigError) as caught:
        parse_request(request_)
    for word in words:
        assert word in str(caught.value)
