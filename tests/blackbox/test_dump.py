"""A dump on the disk: all of it or nothing, bounded, and never through pickle."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from tests.flow.boxes import dumps, folders, loader, only, train

import sonde
from sonde.blackbox import contents, dump as writer
from sonde.blackbox.box import _box, trigger
from sonde.store import folder
from sonde.testing import Recorded, record
from sonde.values.nested import MOST_PARTS

ARRAYS: dict[str, Any] = {
    "plain": torch.arange(12.0).reshape(3, 4),
    "turned": torch.arange(12).reshape(3, 4).t(),
    "foreign": np.arange(6, dtype=">i4").reshape(2, 3),
    "brain": torch.arange(4, dtype=torch.bfloat16),
    "truth": torch.tensor([True, False]),
    "single": torch.tensor(7.5),
    "empty": torch.empty(0, 3),
    "complex": torch.ones(2, dtype=torch.complex64),
    "dates": np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "texts": np.array(["ab", "c"]),
}


pytestmark = pytest.mark.usefixtures("expected")


def written(tmp_path: Path, *batches: Any, **settings: Any) -> Recorded:
    """A dump of these batches."""
    with record(dir=str(tmp_path), blackbox=8, **settings) as recorded:
        sonde.mark("begin")
        for batch in batches:
            _box.deliver(None, None, batch)
        trigger("demand")
    return recorded


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    """Of any dtype and layout, as NumPy reads them without pickle."""
    recorded = written(tmp_path, {name: ARRAYS[name]})
    (value,) = only(recorded)["batches"][0]["values"]
    found = np.load(folders(recorded)[0] / value["file"], allow_pickle=False)
    wanted = ARRAYS[name]
    wanted = wanted.float().numpy() if wanted is ARRAYS["brain"] else np.asarray(wanted)
    assert found.dtype == wanted.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, wanted)
    assert (value["path"], value["cut"], value["shape"]) == (name, False, list(wanted.shape))


@dataclass
class Labelled:
    """A batch as a class of the program."""

    image: Any
    ids: list[str]


def test_the_fields_of_a_dataclass_are_written(tmp_path: Path) -> None:
    """With their arrays, the ids, and a digest."""
    recorded = written(tmp_path, Labelled(torch.ones(2, 3), ["a", "b"]))
    (batch,) = only(recorded)["batches"]
    assert [(value["path"], value["file"]) for value in batch["values"]] == [("image", "batch-0/0.npy"), ("ids", None)]
    assert (batch["ids"], batch["digest_of"], batch["changed"]) == (["a", "b"], "all", False)


def test_objects_are_described_only(tmp_path: Path) -> None:
    """Nothing is pickled, whatever stands in a batch."""
    recorded = written(tmp_path, {"odd": np.array([{1: 2}, None], dtype=object), "thing": threading.Lock(), "n": 3})
    values = {value["path"]: value for value in only(recorded)["batches"][0]["values"]}
    assert [value["file"] for value in values.values()] == [None, None, None]
    assert values["odd"]["dtype"] == "object"
    assert values["n"]["type"] == "int"


def test_arrays_are_written_up_to_the_limit_the_smallest_first(tmp_path: Path) -> None:
    """Of what does not fit the first rows are; the rest is said."""
    recorded = written(
        tmp_path,
        {"large": np.zeros((100, 10), np.uint8), "small": np.ones(100, np.uint8)},
        {"middle": np.ones((20, 10), np.uint8)},
        values_limit=450,
    )
    first, second = only(recorded)["batches"]
    large, small = first["values"]
    assert (small["cut"], second["values"][0]["cut"], large["cut"]) == (False, False, True)
    assert np.load(folders(recorded)[0] / large["file"]).shape == (15, 10)
    assert only(recorded)["left_out"] == ["All but the first rows of large of batch 0: 1000 bytes."]
    assert only(recorded)["limit_bytes"] == 450


def test_what_has_no_room_at_all_is_described(tmp_path: Path) -> None:
    """Its statistics cover all of it."""
    recorded = written(tmp_path, {"a": np.full((1, 200), 3, np.uint8)}, values_limit=100)
    (value,) = only(recorded)["batches"][0]["values"]
    assert (value["file"], value["max"], value["shape"]) == (None, 3, [1, 200])
    assert "The elements of a of batch 0" in only(recorded)["left_out"][0]


def test_parts_that_are_not_taken_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those that are excluded; of very many, how many there are at least."""
    full, few = (
        [np.ones(1)] * MOST_PARTS,
        dict.fromkeys(range(MOST_PARTS + 3), 1) | {"patient": 2},
    )
    monkeypatch.setattr(writer, "MOST_COUNTED", 100)
    recorded = written(tmp_path, full, few, [*full, 1], full * 2, exclude="patient")
    assert only(recorded)["left_out"] == [
        "3 more parts of batch 1: only the first 64 are saved.",
        "1 more part of batch 2: only the first 64 are saved.",
        "At least 36 more parts of batch 3: only the first 64 are saved.",
    ]
    assert [batch["digest_of"] for batch in only(recorded)["batches"]] == ["all", "sample", "sample", "sample"]


def test_what_is_left_out_is_named_by_the_number_of_the_batch(tmp_path: Path) -> None:
    """As in the table of the page, and not by the place among those that are kept."""
    with record(dir=str(tmp_path), blackbox=2, values_limit=70) as recorded:
        train(loader(), most=5)
        trigger("demand")
    numbers = [batch["number"] for batch in only(recorded)["batches"]]
    assert numbers == [3, 4]
    assert only(recorded)["left_out"] == [
        "All but the first rows of x of batch 4: 64 bytes.",
        "The elements of x of batch 3: 64 bytes.",
    ]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """Folders are 0700, files 0600."""
    recorded = written(tmp_path, {"a": np.ones(3)})
    box = recorded.path / "blackbox"
    for path in [box, *box.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_its_name_tells_number_reason_host_and_process(tmp_path: Path) -> None:
    """So that a list of them reads by itself."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        names = [trigger("demand"), trigger("sigterm"), trigger("demand")]
    rest = f"{folder.host()}-{os.getpid()}"
    assert names == [f"001-demand-{rest}", f"002-sigterm-{rest}", f"003-demand-{rest}"]
    assert [path.name for path in folders(recorded)] == names


def test_it_says_who_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process, rank, role, step and clocks."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        train(loader(), most=3)
        sonde.mark("x")
        trigger("demand")
    dump = only(recorded)
    assert (dump["rank"], dump["world_size"], dump["role"], dump["worker"]) == (3, 4, "trainer", None)
    assert (dump["pid"], dump["host"], dump["version"]) == (os.getpid(), folder.host(), 1)
    assert (dump["step"], dump["stacks"]) == (3, "stacks.txt")
    assert dump["wall_ns"] > 1e18
    assert dump["monotonic_ns"] > 0


def test_open_spans_of_all_threads_are_listed(tmp_path: Path) -> None:
    """With their thread, and for how long."""
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with sonde.span("in a thread"):
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=work, name="helper")
    with record(dir=str(tmp_path), blackbox=1) as recorded, sonde.span("outer"):
        for _ in range(3000):  # the outer one has left its ring
            with sonde.span("short"):
                pass
        thread.start()
        inside.wait(60)
        with sonde.span("inner", "mine"):
            trigger("demand")
        done.set()
        thread.join()
    spans = only(recorded)["open_spans"]
    assert [(span["cat"], span["name"], span["thread"]) for span in spans] == [
        ("user", "outer", "MainThread"),
        ("user", "in a thread", "helper"),
        ("mine", "inner", "MainThread"),
    ]
    assert spans[0]["since_ns"] > spans[2]["since_ns"] >= 0
    assert "[helper]" in (folders(recorded)[0] / "stacks.txt").read_text()


def test_a_long_message_keeps_its_begin_and_its_end(tmp_path: Path) -> None:
    """That of a worker has its reason at the end."""
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        trigger("exception", error=ValueError("begin" + "x" * 100_000 + "\ud800end"))
    message = only(recorded)["exception"]["message"]
    assert message.startswith("begin")
    assert message.endswith("\\ud800end")
    assert len(message) <= 2000


class Unprintable(Exception):
    """Whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_without_a_text_is_written(tmp_path: Path, expected: set[str]) -> None:
    """Its type is known."""
    expected.add("turning an exception into text")
    with record(dir=str(tmp_path), blackbox=1) as recorded:
        trigger("exception", error=Unprintable())
    assert only(recorded)["exception"]["type"] == "Unprintable"


# ── when it cannot be written ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A disk that has so many bytes left for files of dumps; what is removed is free again."""

    def fill(room: int) -> None:
        real = folder.write_all

        def write_all(fd: int, content: Any) -> None:
            box = Path(os.readlink(f"/proc/self/fd/{fd}"))
            above = next((path for path in box.parents if path.name.startswith(writer.UNFINISHED)), None)
            if above is not None:
                used = sum(path.stat().st_size for path in above.rglob("*.*") if path.suffix in (".npy", ".json"))
                if used + len(content) > room:
                    real(fd, bytes(content)[: max(room - used, 0)])
                    raise OSError(errno.ENOSPC, "No space left on device")
            real(fd, content)

        monkeypatch.setattr(folder, "write_all", write_all)

    return fill


def test_on_a_full_disk_the_description_stays(tmp_path: Path, full: Callable[[int], None], expected: set[str]) -> None:
    """An array that does not fit leaves no trace but a sentence."""
    expected.add("writing a part of the black box")
    full(20_000)
    recorded = written(tmp_path, {"a": np.ones(10_000, np.uint8), "b": np.ones(50_000, np.uint8)})
    (found,) = folders(recorded)
    assert sorted(path.name for path in found.rglob("*.npy")) == ["0.npy"]
    assert [value["file"] for value in only(recorded)["batches"][0]["values"]] == ["batch-0/0.npy", None]
    assert only(recorded)["left_out"] == ["The elements of b of batch 0: the disk is full."]


def test_arrays_make_room_for_the_description(tmp_path: Path, full: Callable[[int], None]) -> None:
    """The largest first."""
    full(12_000)
    recorded = written(tmp_path, {"a": np.ones(100, np.uint8), "b": np.ones(11_000, np.uint8)})
    assert [value["file"] for value in only(recorded)["batches"][0]["values"]] == ["batch-0/0.npy", None]
    assert "The elements of b of batch 0: the disk is full." in only(recorded)["left_out"]


def test_where_nothing_fits_nothing_stays(tmp_path: Path, full: Callable[[int], None], expected: set[str]) -> None:
    """No half of a dump; the failure is counted."""
    expected.add("writing the black box")
    full(10)
    recorded = written(tmp_path, {"a": 1})
    assert folders(recorded) == []


def test_a_part_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: set[str]) -> None:
    """And said; all the rest is there."""
    expected.add("writing a part of the black box")

    def broken(_folder: Path) -> Any:
        raise MemoryError

    monkeypatch.setattr(contents, "running", broken)
    recorded = written(tmp_path, {"a": np.ones(3)})
    assert only(recorded)["left_out"] == ["The open spans: writing failed (MemoryError)."]
    assert only(recorded)["batches"][0]["values"][0]["file"] == "batch-0/0.npy"


def test_an_interrupted_dump_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it is written passes, and takes the half of it away."""

    def interrupted(_path: str) -> None:
        raise KeyboardInterrupt

    with record(dir=str(tmp_path), blackbox=1) as recorded:
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_write_stacks", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trigger("demand")
        assert folders(recorded) == []
        trigger("demand")
    assert len(dumps(recorded)) == 1


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path, expected: set[str]) -> None:
    """Nothing is written through it."""
    expected.add("writing the black box")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with record(dir=str(tmp_path / "runs"), blackbox=1) as recorded:
        (recorded.path / "blackbox").symlink_to(elsewhere)
        assert trigger("demand") is None
    assert list(elsewhere.iterdir()) == []
