"""DataProvider: items of one group, from one dataset; what is wrong with a dataset is told with all names."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.pipeline.stars import PATH, Turned, batch, made, source

from sonde.errors import ConfigError, DataError
from sonde.flow import trace, trace_dataset_func
from sonde.pipeline.config import Config
from sonde.pipeline.data.provider import DataProvider


def test_item_has_the_fields_under_the_name_of_the_source() -> None:
    """And the id, as a text."""
    item = made("Stars", fields=["image", "label"])[3]
    assert list(item) == ["data", "object_id"]
    assert list(item["data"]) == ["image", "label"]
    assert (item["data"]["image"] == 3).all()
    assert item["object_id"] == "s3"


def test_all_getters_are_fields_if_none_are_named() -> None:
    """The id getter is then called once, not twice."""
    item = made("Stars")[3]
    assert set(item["data"]) == {"image", "label", "name"}
    assert item["object_id"] == "s3"


def test_id_is_always_a_text() -> None:
    """Also where the dataset counts with numbers."""
    provider = made("Stars", primary_id_field="label", fields=["image"], dataset_config={"size": 3})
    assert provider[2]["object_id"] == "2"
    assert provider.ids() == ["0", "1", "2"]
    assert provider.object_id(1) == "1"


def test_same_value_from_getitem_and_resolve_data() -> None:
    """They are two names for one thing, and a loader's way is a third."""
    provider = made("Stars", fields=["label"])
    assert provider[4] == provider.resolve_data(4) == provider.__getitems__([4])[0]


@pytest.mark.parametrize("indices", [[50], [0, 50]])
def test_index_that_does_not_exist_is_an_index_error(indices: list[int]) -> None:
    """The mistake is the caller's, not one of the data."""
    with pytest.raises(IndexError):
        made("Stars").__getitems__(indices)


def test_iterating_ends() -> None:
    """An index too large is an IndexError, as Python wants it."""
    assert len(list(made("Stars"))) == 20  # type: ignore[call-overload]
    assert made("Stars", fields=["label"])[-1]["object_id"] == "s19"


@pytest.mark.parametrize("kind", ["Broken", "Nameless"])
def test_getter_that_raises_is_named_with_dataset_field_index_and_id(kind: str) -> None:
    """What it raised is the cause; an id that cannot be read either is no second error."""
    provider = made(kind, {"data.check_ids": False}, fields=["label", "image"])
    with pytest.raises(DataError) as caught:
        batch(provider)
    said = str(caught.value)
    for word in ("get_image", "'data'", kind, "item 17", "OSError: the disk is gone"):
        assert word in said
    assert ("id 's17'" if kind == "Broken" else "its id cannot be read") in said
    assert isinstance(caught.value.__cause__, OSError)


class Interrupted:
    """Ctrl-C is pressed while the second item is read."""

    def __len__(self) -> int:
        return 3

    def get_name(self, index: int) -> str:
        if index == 1:
            raise KeyboardInterrupt
        return str(index)


def test_interrupt_in_a_getter_passes() -> None:
    """Ctrl-C is no mistake of the data."""
    provider = made("Stars", {"data.check_ids": False}, dataset_class=f"{__name__}.Interrupted")
    with pytest.raises(KeyboardInterrupt):
        provider[1]


def test_empty_dataset_is_told() -> None:
    """Before anything is read."""
    with pytest.raises(DataError, match=r"data_request.train.data: Stars has no items at /nowhere"):
        made("Stars", dataset_config={"size": 0}, data_location="/nowhere")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"primary_id_field": "nam"}, "data_request.train.data.primary_id_field is 'nam', but Stars has no get_nam"),
        ({"fields": ["imgae"]}, "data_request.train.data.fields is 'imgae', but Stars has no get_imgae"),
        ({"dataset_class": f"{PATH}.Starz"}, "data_request.train.data.dataset_class: "),
        ({"dataset_class": "builtins.object"}, "object has no __len__"),
    ],
)
def test_name_that_does_not_exist_is_told_with_the_nearest(more: dict[str, Any], words: str) -> None:
    """Group, name and key are in the message."""
    with pytest.raises(ConfigError) as caught:
        made("Stars", **more)
    assert words in str(caught.value)


def test_group_that_does_not_exist_is_told() -> None:
    """With those that do."""
    with pytest.raises(ConfigError, match=r"no group 'infer'. Valid: train"):
        DataProvider(made("Stars").config, "infer")


def test_duplicate_ids_are_told_with_both_items() -> None:
    """Results are found by id, so that one of the two would be lost."""
    with pytest.raises(DataError, match="items 4 and 9 have the same id 's4'"):
        made("Twins")


def test_duplicate_ids_can_be_let_through() -> None:
    """For data whose ids are expensive to read."""
    assert len(made("Twins", {"data.check_ids": False})) == 20


def test_missing_id_is_told() -> None:
    """None is no id."""
    with pytest.raises(DataError, match=r"get_label of 'data' \(Gaps\) failed on item 2: ValueError: there is no id"):
        made("Gaps", primary_id_field="label")


def test_keys_of_a_dataset_are_checked_if_it_says_which_it_knows() -> None:
    """The message has the whole path to the key."""
    assert made("Known", dataset_config={"scale": 2}).datasets["data"].config == {"size": 20, "scale": 2.0}
    with pytest.raises(ConfigError, match=r"data_request.train.data.dataset_config: .*'scal'. Did you mean 'scale'"):
        made("Known", dataset_config={"scal": 2})


def test_dataset_config_goes_before_the_table_of_the_class() -> None:
    """One class may be used twice, with other settings."""
    config = {f'data_set."{PATH}.Stars".size': 7}
    assert len(made("Stars", config)) == 7
    assert len(made("Stars", config, dataset_config={"size": 5})) == 5


def test_constructor_that_fails_is_named() -> None:
    """Group, name, class and reason."""
    with pytest.raises(DataError, match=r"data_request.train.data: cannot create Fails: RuntimeError: no licence"):
        made("Stars", dataset_class=f"{__name__}.Fails")


def test_constructor_with_other_arguments_is_told() -> None:
    """What it must accept."""
    with pytest.raises(ConfigError, match=r"Asks\(a, b, c\) must accept \(config, data_location\)"):
        made("Stars", dataset_class=f"{__name__}.Asks")


class Fails:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Asks:
    """Wants too much."""

    def __init__(self, a: Any, b: Any, c: Any) -> None: ...


def test_augmentation_only_where_it_is_asked_for() -> None:
    """By the request, for the group train if it says nothing; the same for all of an epoch, another in the next one."""
    plain, turned = made("Turned", augment=False), made("Turned")
    assert (plain[3]["data"]["image"] == 3).all()
    first = turned[3]["data"]["image"]
    assert (first != 3).all()
    assert (turned[3]["data"]["image"] == first).all()
    turned.epoch = 1
    assert (turned[3]["data"]["image"] != first).all()


@pytest.mark.parametrize(
    ("group", "augment", "turned"),
    [
        ("train", True, True),
        ("train", None, True),
        ("train", ["image"], True),
        ("train", False, False),
        ("train", [], False),
        ("validate", None, False),
        ("validate", True, True),
        ("validate", ["image"], True),
    ],
)
def test_request_says_what_is_augmented(group: str, augment: Any, turned: bool) -> None:
    """Nothing, everything, or a list of fields; the provider needs no argument for it."""
    config = Config({"data_request": {group: {"data": {**source("Turned"), "augment": augment}}}})
    assert (DataProvider(config, group)[3]["data"]["image"] != 3).all() == turned


def test_only_the_listed_fields_are_augmented() -> None:
    """Others stay as they are, also if there is a function for them."""
    request = {"dataset_class": f"{PATH}.Twice", "primary_id_field": "name", "augment": ["label"]}
    item = DataProvider(Config({"data_request": {"train": {"data": request}}}), "train")[3]["data"]
    assert (item["image"] == 3).all()
    assert item["label"] == 100


@pytest.mark.parametrize(
    ("augment", "words"),
    [
        (["imag"], "Did you mean 'image'"),
        (["label"], "augment_label"),
        ("image", "a list of field names"),
        ([1], "list"),
    ],
)
def test_a_field_that_cannot_be_augmented_is_told(augment: Any, words: str) -> None:
    """With the place in the request."""
    with pytest.raises(ConfigError, match=r"data_request\.train\.data\.augment") as caught:
        DataProvider(Config({"data_request": {"train": {"data": {**source("Turned"), "augment": augment}}}}), "train")
    assert words in str(caught.value)


def test_it_gives_the_same_after_a_pickle() -> None:
    """Workers that are spawned get it that way."""
    provider = made("Turned", {"data.cache_bytes": 10**6}, augment=True)
    provider.epoch = 3
    before = provider[5]
    again = pickle.loads(pickle.dumps(provider))
    np.testing.assert_equal(again[5], before)
    np.testing.assert_equal(batch(again, 1, 2), batch(provider, 1, 2))


def test_column_has_one_field_of_all_items() -> None:
    """With or without the name of the source; also a field that was not asked for."""
    provider = made("Stars", fields=["image"], split_fraction=0.5)
    assert provider.column("data.label").tolist() == [row % 3 for row in provider.rows]
    assert provider.column("label").tolist() == provider.column("data.label").tolist()
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        provider.column("lable")


def test_description_says_what_the_group_consists_of() -> None:
    """As the seed shows it."""
    said = made("Stars", data_location="/data", fields=["image", "label"]).describe()
    assert said.splitlines() == [
        "Name: data (primary dataset)",
        f"  Dataset class: {PATH}.Stars",
        "  Data location: /data",
        "  Fraction of data to use: 1.0",
        "  Primary ID field: name",
        "  Requested fields: image, label",
    ]


def test_it_needs_no_torch() -> None:
    """The engine runs without."""
    code = (
        "import sys; from tests.pipeline.stars import made, batch; batch(made('Stars')); "
        "print([name for name in ('torch', 'ignite', 'lance', 'onnx', 'tomlkit') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_trace_shows_each_call_once_with_the_names_of_the_seed() -> None:
    """Getters by the name of the source, then the item, the batch, the batch without NaN."""
    with trace(items=2, automatic=False) as result:
        provider = made("Stars", fields=["image"])
        batch(provider, 0, 1)
    getters = [call.disp_name for call in result.dataset_getter]
    assert getters == ["data__get_image", "data__get_name"] * 2
    assert [call.disp_name for call in result.resolve_data] == ["DataProvider__resolve_data"] * 2
    assert [call.disp_name for call in result.collate] == ["DataProvider__collate", "DataProvider__handle_nans"]
    assert result.resolve_data[1].index == 1
    assert result.collate[0].batch_dict["data"]["image"].shape == (2, 2, 3)


def test_trace_shows_augmentation_and_collation_of_the_dataset() -> None:
    """What the dataset does is seen, whatever it is."""
    with trace(items=2, automatic=False) as result:
        batch(made("Turned", augment=True, fields=["image"]), 0)
        batch(made("Whole"), 0)
    assert "data__augment_image" in [call.disp_name for call in result.dataset_getter]
    assert "data__collate" in [call.disp_name for call in result.collate]


class Decorated:
    """A dataset whose getter its author has decorated."""

    def __len__(self) -> int:
        return 2

    @trace_dataset_func
    def get_image(self, index: int) -> Any:
        return np.zeros(2)

    def get_name(self, index: int) -> str:
        return str(index)


def test_decorated_getter_appears_once_in_a_trace() -> None:
    """Not once by the decorator and once by the provider."""
    with trace(items=2, automatic=False) as result:
        made("Stars", dataset_class=f"{__name__}.Decorated", fields=["image"])[0]
    assert len([call for call in result.dataset_getter if call.func_name == "get_image"]) == 1


class Stumbling(Turned):
    """Augmentation fails."""

    def augment_image(self, value: Any, index: int, seed: int) -> Any:
        raise ZeroDivisionError("no angle")


def test_augmentation_that_raises_is_named() -> None:
    """As the function it is, and once."""
    provider = made("Stars", augment=True, dataset_class=f"{__name__}.Stumbling", fields=["image"])
    with pytest.raises(DataError) as caught:
        provider[3]
    assert str(caught.value) == "augment_image of 'data' (Stumbling) failed on item 3: ZeroDivisionError: no angle"
