"""The table of results: what goes in comes out, with Lance alone too, and nothing is ever overwritten."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from sonde.errors import FolderRefused, ResultsError
from sonde.pipeline.results import results as module
from sonde.pipeline.results.results import ResultWriter, open_results

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16", "M8[ns]", ">f4", ">i2"]


def write(folder: Path, outputs: dict[str, Any], batch: int = 10, chunk_bytes: int = 1 << 20) -> list[str]:
    """A table of these outputs, batch by batch; the ids."""
    count = len(next(iter(outputs.values())))
    ids = [f"id {number}" for number in range(count)]
    folder.mkdir(exist_ok=True)
    with ResultWriter(folder, chunk_bytes=chunk_bytes) as writer:
        for start in range(0, count, batch):
            part = slice(start, start + batch)
            writer.write(ids[part], {name: values[part] for name, values in outputs.items()})
    return ids


def write_each(folder: Path, *batches: dict[str, Any]) -> None:
    """A table of these batches; an exception among them is raised in the block."""
    with ResultWriter(folder, chunk_bytes=8) as writer:
        for number, batch in enumerate(batches):
            if "raise" in batch:
                raise batch["raise"]
            ids = [f"{number}-{row}" for row in range(len(next(iter(batch.values()))))]
            writer.write(ids, batch)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_number_comes_back_bit_for_bit(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """With shape and dtype, whatever the chunks are."""
    noise = np.random.default_rng(1).integers(0, 255, (25, *shape, np.dtype(dtype).itemsize), np.uint8)
    given = noise.view(np.uint8) % 2 if dtype == "?" else noise
    array = np.ascontiguousarray(given).view(dtype).reshape(25, *shape)
    write(tmp_path, {"out": array}, chunk_bytes=100)
    found = open_results(tmp_path)["out"]
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.tobytes() == array.astype(found.dtype).tobytes()


def test_nan_and_infinity_stay_what_they_are(tmp_path: Path) -> None:
    """None of them becomes a missing value, also for plain Lance."""
    array = np.array([[np.nan, np.inf], [-np.inf, -0.0]], np.float32)
    write(tmp_path, {"out": array})
    assert open_results(tmp_path)["out"].tobytes() == array.tobytes()
    assert lance.dataset(tmp_path / "results.lance").to_table()["out"].null_count == 0


def test_texts_are_kept(tmp_path: Path) -> None:
    """One for each item, of any length."""
    names = np.array(["", "é", "a longer name"] * 7)
    write(tmp_path, {"name": names, "raw": np.char.encode(names, "utf-8")})
    assert open_results(tmp_path)["name"].tolist() == names.tolist()
    assert open_results(tmp_path)["raw"].tolist() == np.char.encode(names, "utf-8").tolist()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    array=arrays.arrays(
        st.sampled_from([np.float32, np.int64, np.bool_, np.complex64]),
        arrays.array_shapes(min_dims=1, max_dims=4, max_side=6),
    ),
    batch=st.integers(1, 7),
    chunk=st.integers(1, 300),
)
def test_order_and_ids_do_not_depend_on_batches_or_chunks(
    tmp_path_factory: pytest.TempPathFactory, array: Any, batch: int, chunk: int
) -> None:
    """Any array, in any portions."""
    folder = tmp_path_factory.mktemp("run")
    ids = write(folder, {"out": array}, batch, chunk)
    found = open_results(folder)
    assert found.ids.tolist() == ids
    assert found["out"].tobytes() == array.tobytes()


def test_plain_lance_reads_the_table(tmp_path: Path) -> None:
    """Ids, values, and shape and dtype of each column in its metadata."""
    array = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    ids = write(tmp_path, {"out": array})
    table = lance.dataset(tmp_path / "results.lance").to_table()
    assert table["object_id"].to_pylist() == ids
    assert table["out"].to_pylist() == array.reshape(4, 6).tolist()
    assert table.schema.field("out").metadata == {b"sonde.shape": b"[2, 3]", b"sonde.dtype": b"float32"}


def test_many_small_batches_make_one_file(tmp_path: Path) -> None:
    """And one version."""
    write(tmp_path, {"out": np.zeros((500, 2))}, batch=1, chunk_bytes=160)
    table = lance.dataset(tmp_path / "results.lance")
    assert len(table.get_fragments()) == 1
    assert table.version == 1


def test_long_work_is_committed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a killed program loses only the last one; order and ids are those of one part."""
    monkeypatch.setattr(module, "FIRST_COMMIT", 0.0)
    ids = write(tmp_path, {"out": np.arange(500)}, chunk_bytes=160)
    assert len(lance.dataset(tmp_path / "results.lance").get_fragments()) > 1
    assert open_results(tmp_path).ids.tolist() == ids
    assert open_results(tmp_path)["out"].tolist() == list(range(500))


def test_a_killed_program_leaves_what_was_committed(tmp_path: Path) -> None:
    """A table that can be read, whose rows are the first ones."""
    program = (
        "import sys, numpy as np, sonde.pipeline.results.results as r\n"
        "r.FIRST_COMMIT = 0\n"
        "w = r.ResultWriter(sys.argv[1], chunk_bytes=800)\n"
        "for k in range(10**9):\n"
        "    w.write([str(k)], {'out': np.array([k])})\n"
        "    if k == 2000: print('go', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    found = open_results(tmp_path)
    assert len(found) > 0
    assert found["out"].tolist() == list(range(len(found)))


def test_what_is_written_is_a_copy(tmp_path: Path) -> None:
    """A model may use its output array again."""
    array = np.zeros((1, 2))
    with ResultWriter(tmp_path) as writer:
        for number in range(5):
            array[:] = number
            writer.write([str(number)], {"out": array})
    assert open_results(tmp_path)["out"][:, 0].tolist() == [0, 1, 2, 3, 4]


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    """A second writer is refused before it writes."""
    write(tmp_path, {"out": np.zeros(3)})
    with pytest.raises(FolderRefused, match="never overwritten"):
        ResultWriter(tmp_path)
    assert len(open_results(tmp_path)) == 3


def test_an_exception_in_the_block_keeps_what_was_written(tmp_path: Path) -> None:
    """And is the one that is raised."""
    with pytest.raises(ZeroDivisionError):
        write_each(tmp_path, {"out": np.ones(2)}, {"raise": ZeroDivisionError()})
    assert open_results(tmp_path).ids.tolist() == ["0-0", "0-1"]


def test_a_failure_of_the_disk_is_raised(tmp_path: Path) -> None:
    """By the writer, with the path and the reason, and not in a thread where nobody sees it."""
    folder = tmp_path / "run"
    folder.write_text("a file stands where the folder should be")
    with pytest.raises(ResultsError, match=r"Cannot write the results to .*run"):
        write_each(folder, *[{"out": np.ones(1)}] * 1000)


WRONG: dict[str, tuple[Any, str]] = {
    "no table holds objects": (np.array([None]), "dtype object"),
    "texts stand alone": (np.array([["a", "b"]]), "shape"),
    "a number is not a row for each item": (np.float32(1), "single number"),
    "too many rows": (np.ones(2), "2 rows for a batch of 1 items"),
    "nothing in it": (np.ones((1, 0)), "is empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_output_that_no_table_holds_is_an_error_with_its_name(tmp_path: Path, case: str) -> None:
    """Before anything is written."""
    value, words = WRONG[case]
    with pytest.raises(ResultsError, match=words) as caught, ResultWriter(tmp_path) as writer:
        writer.write(["a"], {"score": value})
    assert "'score'" in str(caught.value)


@pytest.mark.parametrize("name", ["object_id", "", "a.b"])
def test_an_output_has_a_name_that_a_table_can_have(tmp_path: Path, name: str) -> None:
    """The ids have theirs."""
    with pytest.raises(ResultsError, match="cannot be named"), ResultWriter(tmp_path) as writer:
        writer.write(["a"], {name: np.ones(1)})


def test_an_output_that_changes_its_shape_is_an_error_with_both(tmp_path: Path) -> None:
    """What was written before stays."""
    with pytest.raises(ResultsError, match=r"\(3,\).* after item 2, but had shape \(2,\)"):
        write_each(tmp_path, {"out": np.ones((2, 2))}, {"out": np.ones((1, 3))})
    assert len(open_results(tmp_path)) == 2


def test_an_output_that_is_new_or_gone_is_an_error(tmp_path: Path) -> None:
    """The message lists both sets."""
    with pytest.raises(ResultsError, match="has the outputs other; earlier batches had out"):
        write_each(tmp_path, {"out": np.ones(1)}, {"other": np.ones(1)})


def test_an_unknown_column_is_told_with_the_nearest(tmp_path: Path) -> None:
    """And all there are."""
    write(tmp_path, {"score": np.ones(3)})
    with pytest.raises(ResultsError, match="Did you mean 'score'"):
        open_results(tmp_path)["scor"]


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    """No folder, an empty one, and one with runs in it."""
    with pytest.raises(ResultsError, match="No such folder"):
        open_results(tmp_path / "no")
    with pytest.raises(ResultsError, match="has no results"):
        open_results(tmp_path)
    write(tmp_path / "run-1", {"out": np.ones(1)})
    with pytest.raises(ResultsError, match="run-1"):
        open_results(tmp_path)


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    """With its path, as an error of ours."""
    write(tmp_path, {"out": np.ones(1)})
    for manifest in (tmp_path / "results.lance" / "_versions").iterdir():
        manifest.write_bytes(b"rubbish")
    with pytest.raises(ResultsError, match="as a Lance table"):
        open_results(tmp_path)


def test_tables_of_others_are_read_too(tmp_path: Path) -> None:
    """Numbers, lists of fixed size and texts; what no array holds is left out."""
    import pyarrow

    table = pyarrow.table(
        {
            "object_id": ["a", "b"],
            "n": [1, 2],
            "v": pyarrow.array([[1.0, 2.0], [3.0, 4.0]], pyarrow.list_(pyarrow.float32(), 2)),
            "odd": [[1], [2, 3]],
        }
    )
    lance.write_dataset(table, tmp_path / "other.lance")
    found = open_results(tmp_path / "other.lance")
    assert list(found.columns) == ["n", "v"]
    assert found["v"].tolist() == [[1, 2], [3, 4]]


def test_a_part_of_a_column_can_be_read(tmp_path: Path) -> None:
    """From a row to before another."""
    write(tmp_path, {"out": np.arange(50)})
    assert open_results(tmp_path).part("out", 7, 10).tolist() == [7, 8, 9]
