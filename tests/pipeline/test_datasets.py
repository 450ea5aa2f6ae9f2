"""The built-in datasets: what they give, and what they say of files that do not fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sonde.errors import ConfigError, DataError
from sonde.pipeline.config import Config
from sonde.pipeline.data.provider import DataProvider


def provider(kind: str, location: Path | None = None, id_field: str = "object_id", **config: Any) -> DataProvider:
    """A provider of one built-in dataset."""
    source = {"dataset_class": kind, "primary_id_field": id_field, "dataset_config": config}
    if location is not None:
        source["data_location"] = str(location)
    return DataProvider(Config({"data_request": {"train": {"data": source}}}), "train")


def all_of(one: DataProvider) -> dict[str, Any]:
    """Everything as one batch."""
    return one.collate([one[index] for index in range(len(one))])


# ── random ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_random_images_have_shape_type_and_range() -> None:
    """And ids that count up from one that is no index."""
    found = all_of(provider("RandomDataset", shape=[3, 4, 5], size=7))
    image = found["data"]["image"]
    assert image.shape == (7, 3, 4, 5)
    assert image.dtype == np.float32
    assert 0 <= image.min() < image.max() < 1
    assert found["object_id"].tolist() == [str(number) for number in range(23, 30)]
    assert set(found["data"]["label"].tolist()) <= set(range(10))


def test_random_images_depend_on_the_seed_and_the_index_only() -> None:
    """Whatever was asked for before, and in which process."""
    first, second = provider("RandomDataset", seed=1), provider("RandomDataset", seed=1)
    second[5]
    assert (first[3]["data"]["image"] == second[3]["data"]["image"]).all()
    assert (first[3]["data"]["image"] != first[4]["data"]["image"]).any()
    assert (first[3]["data"]["image"] != provider("RandomDataset", seed=2)[3]["data"]["image"]).any()


def test_random_images_are_the_same_in_every_version() -> None:
    """The numbers of the notebook must not change."""
    image = provider("RandomDataset", shape=[2])[0]["data"]["image"]
    np.testing.assert_allclose(image, [0.3022847, 0.8201981], atol=1e-6)


def test_random_images_with_nan() -> None:
    """As many items as were asked for have one."""
    one = provider("RandomDataset", nan_items=3)
    assert [int(np.isnan(one[index]["data"]["image"]).sum()) for index in range(5)] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("config", [{"shape": [0, 3]}, {"size": -1}, {"classes": 0}])
def test_random_images_that_cannot_be(config: dict[str, Any]) -> None:
    """The error has the place in the request."""
    with pytest.raises(ConfigError, match=r"data_request.train.data: "):
        provider("RandomDataset", **config)


def test_negative_seed_is_a_seed() -> None:
    """Any whole number will do."""
    assert len(provider("RandomDataset", seed=-5)) == 100


# ── npy ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_npy_file_is_one_field(tmp_path: Path) -> None:
    """Ids are row numbers."""
    np.save(tmp_path / "x.npy", np.arange(12).reshape(4, 3))
    found = all_of(provider("NpyDataset", tmp_path / "x.npy", field="spectrum"))
    assert found["data"]["spectrum"].tolist() == np.arange(12).reshape(4, 3).tolist()
    assert found["object_id"].tolist() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_npy_arrays_are_fields_by_name(tmp_path: Path, form: str) -> None:
    """One for each file of a folder, or each array of a .npz file; one of them may be the ids."""
    arrays: dict[str, Any] = {"image": np.ones((2, 3)), "label": np.array([4, 5]), "object_id": np.array(["a", "b"])}
    if form == "npz":
        np.savez(tmp_path / "all.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    one = provider("NpyDataset", tmp_path / "all.npz" if form == "npz" else tmp_path)
    found = all_of(one)
    assert found["object_id"].tolist() == ["a", "b"]
    assert found["data"]["label"].tolist() == [4, 5]
    assert found["data"]["image"].shape == (2, 3)


def test_npy_arrays_are_not_pickled(tmp_path: Path) -> None:
    """A worker maps the file itself."""
    np.save(tmp_path / "image.npy", np.zeros((10, 10_000)))
    one = provider("NpyDataset", tmp_path)
    packed = pickle.dumps(one)
    assert len(packed) < 50_000
    np.testing.assert_equal(pickle.loads(packed)[3], one[3])


def test_npy_arrays_of_unequal_length_are_told(tmp_path: Path) -> None:
    """With their lengths."""
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.save(tmp_path / "b.npy", np.zeros(4))
    with pytest.raises(DataError, match=r"data_request.train.data: .* differ in length \(a 3, b 4\)"):
        provider("NpyDataset", tmp_path)


@pytest.mark.parametrize("content", ["nothing", "text", "object", "scalar", "cut"])
def test_npy_file_that_is_no_array_is_told(tmp_path: Path, content: str) -> None:
    """Also one that would have to be unpickled."""
    file = tmp_path / "x.npy"
    if content == "text":
        file.write_text("hello")
    elif content == "object":
        np.save(file, np.array([{}, []], dtype=object), allow_pickle=True)
    elif content == "scalar":
        np.save(file, np.array(3))
    elif content == "cut":
        np.save(file, np.zeros(1000))
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match=r"data_request.train.data: .*x.npy"):
        provider("NpyDataset", file)


def test_location_is_needed() -> None:
    """Only the random dataset does without."""
    for kind in ("NpyDataset", "ParquetDataset", "ImageFolderDataset"):
        with pytest.raises(ConfigError, match=f"{kind} needs"):
            provider(kind)


# ── parquet ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parquet_columns_are_fields(tmp_path: Path) -> None:
    """Numbers, texts, truths and lists; the files of a folder follow each other by name."""
    for number in range(2):
        table = pa.table(
            {
                "source": [f"{number}a", f"{number}b"],
                "flux": [[1.0, 2.0], [3.0, float(number)]],
                "label": pa.array([number, number + 1], pa.int16()),
                "good": [True, False],
            }
        )
        pq.write_table(table, tmp_path / f"part{number}.parquet", row_group_size=1)
    one = provider("ParquetDataset", tmp_path, id_field="source")
    found = all_of(pickle.loads(pickle.dumps(one)))
    assert found["object_id"].tolist() == ["0a", "0b", "1a", "1b"]
    assert found["data"]["flux"].tolist() == [[1, 2], [3, 0], [1, 2], [3, 1]]
    assert found["data"]["label"].tolist() == [0, 1, 1, 2]
    assert found["data"]["label"].dtype == np.int16
    assert found["data"]["good"].tolist() == [True, False, True, False]


def test_parquet_rows_without_ids_are_counted(tmp_path: Path) -> None:
    """As in the other formats."""
    pq.write_table(pa.table({"x": [1.5, 2.5]}), tmp_path / "x.parquet")
    assert provider("ParquetDataset", tmp_path / "x.parquet").ids() == ["0", "1"]


def test_missing_values_are_never_zero(tmp_path: Path) -> None:
    """A float that is missing is NaN; a whole number that is missing is told."""
    table = pa.table({"x": pa.array([1.0, None]), "n": pa.array([1, None])})
    pq.write_table(table, tmp_path / "x.parquet")
    one = provider("ParquetDataset", tmp_path / "x.parquet")
    assert np.isnan(one[1]["data"]["x"])
    assert one[1]["data"]["n"] is None
    with pytest.raises(DataError, match=r"data.n of item '1' is None"):
        all_of(one)


def test_parquet_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """Other columns, another format, none at all."""
    with pytest.raises(DataError, match=r"No .parquet file"):
        provider("ParquetDataset", tmp_path)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet has different columns"):
        provider("ParquetDataset", tmp_path)
    (tmp_path / "b.parquet").write_text("hello")
    with pytest.raises(DataError, match=r"b.parquet as Parquet"):
        provider("ParquetDataset", tmp_path)


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of images, and a file that is none."""
    for name, colour in (("cat/a.png", 255), ("cat/b.PNG", 0), ("dog/c.png", 51)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 2), (colour, 0, 0)).save(tmp_path / name)
    (tmp_path / "cat/notes.txt").write_text("no image")
    return tmp_path


def test_images_have_the_class_of_their_folder(pictures: Path) -> None:
    """Ids are paths, other files are left out."""
    found = all_of(provider("ImageFolderDataset", pictures))
    assert found["object_id"].tolist() == ["cat/a.png", "cat/b.PNG", "dog/c.png"]
    assert found["data"]["label"].tolist() == [0, 0, 1]
    assert found["data"]["label_name"].tolist() == ["cat", "cat", "dog"]
    assert found["data"]["image"].shape == (3, 3, 2, 4)
    assert found["data"]["image"].dtype == np.float32
    np.testing.assert_allclose(found["data"]["image"][:, 0, 0, 0], [1, 0, 0.2])


def test_images_are_converted_as_the_configuration_says(pictures: Path) -> None:
    """Grey, of another size, as bytes."""
    found = all_of(provider("ImageFolderDataset", pictures, mode="L", size=[8, 6], scale=False))
    assert found["data"]["image"].shape == (3, 1, 8, 6)
    assert found["data"]["image"].dtype == np.uint8


def test_broken_image_is_told_with_its_file(pictures: Path) -> None:
    """A half-written file, for one; field, index and id are told as well."""
    file = pictures / "dog/c.png"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError) as caught:
        all_of(provider("ImageFolderDataset", pictures))
    for word in ("get_image of 'data'", "item 2 (id 'dog/c.png')", "as an image"):
        assert word in str(caught.value)


def test_folder_without_images_has_no_items(tmp_path: Path) -> None:
    """And one that is not there is told."""
    with pytest.raises(DataError, match="ImageFolderDataset has no items at"):
        provider("ImageFolderDataset", tmp_path)
    with pytest.raises(ConfigError, match="needs a folder"):
        provider("ImageFolderDataset", tmp_path / "none")


@pytest.mark.parametrize("config", [{"size": [3]}, {"size": [3, 0]}, {"extensions": [3]}, {"scael": True}])
def test_settings_of_images_are_checked(pictures: Path, config: dict[str, Any]) -> None:
    """With group, name and key."""
    with pytest.raises(ConfigError, match=r"data_request.train.data"):
        provider("ImageFolderDataset", pictures, **config)
