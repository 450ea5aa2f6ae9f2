"""The page of the black box: what is on it, in which width, and what it is made of."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.analysis.boxes import batch, birth, certificate, raised, summary, with_marks, write_dump
from tests.views.runs import EVIL

from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.run import open_run
from sonde.errors import UnknownName
from sonde.store import probe
from sonde.store.record import MARK, OPEN
from sonde.terminal.blackbox import draw_page
from sonde.testing import BuiltProcess, BuiltRecord, build_run, training_processes
from sonde.views.blackbox import Page, blackbox
from sonde.views.items import Case, cases

PLAIN = BuiltProcess([BuiltRecord(dur=1)])
IMAGES = np.random.default_rng(0).random((16, 3, 12, 12), np.float32)


def view(path: Path, number: int | None = None) -> Page:
    with open_run(path) as run:
        return blackbox(run, black_box(run), number)


def shown(path: Path) -> list[Case]:
    with open_run(path) as run:
        box = black_box(run)
        page = blackbox(run, box)
        return cases(page, box.main_dump, box)


def drawn(page: Page, width: int = 100, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False, markup=False)
    draw_page(page, console, **options)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def faulty(path: Path, **fields: Any) -> Path:
    """A run with a birth, its dump, and an exception afterwards."""
    found = certificate(**({"items": [{"position": 2, "index": 81202, "id": None}]} | fields))
    run = build_run(path, [with_marks(PLAIN, birth(found))])
    batches = [
        batch(811, {"image": IMAGES}, changed=True),
        batch(812, {"image": IMAGES, "label": np.arange(16)}, loss="NaN"),
    ]
    write_dump(run, "nonfinite", batches, nonfinite=found, left_out=["depth: too large"])
    write_dump(run, "exception", number=1, exception=raised())
    return run


def test_the_page_reads_like_a_certificate(tmp_path: Path) -> None:
    """What, where, in which item; then the exception, the batches, spans, threads, what was left out."""
    text = drawn(view(faulty(tmp_path / "run")))
    flat = " ".join(text.split())
    assert "First NaN: layer `encoder.3.norm` (LayerNorm), item 81202 of batch 812 (step 812" in flat
    assert "inputs finite, max 3.4e38" in flat
    assert "item 77, at position 1 of batch 4, loaded by worker 0" in flat
    assert "batch 812: item 81202 at position 2" in flat
    assert "CHANGED" in text
    assert "probe.forward for 4.00 ms" in text
    assert "step (train.py:41)" in text
    assert "- depth: too large" in text
    assert "000-nonfinite-testhost-1000" in "".join(text.split())


def test_a_batch_that_was_not_read_whole_is_the_same_as_far_as_it_was_read(tmp_path: Path) -> None:
    """The mark of a sample stands at the digest and at what is said of the batch."""
    run = build_run(tmp_path / "run", [PLAIN])
    batches = [batch(1, {}, digest_of="sample"), batch(2, {}), batch(3, {}, digest_of="sample", changed=True)]
    write_dump(run, "exception", batches, exception=raised())
    text = drawn(view(run))
    assert [line.count("unchanged~") for line in text.splitlines() if "unchanged" in line] == [1, 0]
    assert text.count("CHANGED") == 1
    assert "~ the digest covers a sample of the bytes" in text


def test_without_values_nothing_is_said_of_pictures_and_digests(tmp_path: Path) -> None:
    """There are none where the setting `values` is off."""
    run = build_run(tmp_path / "run", [with_marks(BuiltProcess([BuiltRecord(dur=1)]), birth(certificate()))])
    write_dump(
        run, "nonfinite", [batch(812, {}, size=4, kept="off", digest=None, digest_of="sample")], nonfinite=certificate()
    )
    text = drawn(view(run))
    assert "item 8412 of batch 812" in " ".join(text.split())
    assert "Pictures" not in text
    assert "digest" not in text


@pytest.mark.parametrize(
    ("width", "options", "most"), [(100, {}, 100), (200, {}, 100), (40, {}, 40), (100, {"narrow": True}, 60)]
)
def test_the_page_fits(tmp_path: Path, width: int, options: dict[str, Any], most: int) -> None:
    """At most 100 columns, 60 if that is wanted, and what a small terminal has. The path at its end may not be broken."""
    page = view(faulty(tmp_path / "run", inputs=[summary("x", 0, 1), summary("y", -1, 1)]))
    lines = [line for line in drawn(page, width, **options).splitlines() if str(tmp_path)[:8] not in line]
    assert max(map(len, lines)) <= most


def test_no_name_can_move_the_cursor(tmp_path: Path) -> None:
    """Whatever a program calls its layers, items and exceptions."""
    run = faulty(tmp_path / "run", layer=EVIL, items=[{"position": 0, "index": None, "id": EVIL}])
    write_dump(
        run,
        "worker",
        [batch(1, {}, ids=[EVIL], size=1)],
        number=2,
        exception=raised() | {"message": EVIL, "type": EVIL},
    )
    assert "\x1b" not in drawn(view(run))


def test_the_other_dump_can_be_asked_for(tmp_path: Path) -> None:
    """By its number; one that is not there is told with those that are."""
    run = faulty(tmp_path / "run")
    assert view(run, 2).dump == "001-exception-testhost-1000"
    with pytest.raises(UnknownName, match="1 to 2"):
        view(run, 3)


def test_a_killed_run_tells_what_its_records_say(tmp_path: Path) -> None:
    """And says what it is made of."""
    (process, *_) = training_processes(steps=12, loss=lambda step: 0.5)
    open_span = BuiltRecord(
        "forward", "probe", flags=OPEN, start=process.records[-1].start + 1, seq=len(process.records) + 1
    )
    numbered = [one._replace(seq=place) for place, one in enumerate(process.records, 1)]
    run = build_run(tmp_path / "run", [process._replace(records=[*numbered, open_span], process={"end": None})])
    page = view(run)
    assert not page.empty
    assert "No dump (the black box was off)" in page.made_of
    assert [one.step for one in page.batches] == [9, 10, 11]
    assert page.batches[-1].loss == 0.5
    assert [one.label for one in page.open] == ["probe.forward"]


def test_a_run_with_nothing_says_what_to_do(tmp_path: Path) -> None:
    """It is empty, and names the command."""
    page = view(build_run(tmp_path / "run", [PLAIN]))
    assert page.empty
    assert "sonde run --blackbox --watch-nonfinite" in page.made_of


def test_a_loss_without_a_certificate_has_a_headline(tmp_path: Path) -> None:
    """The black box alone knows the batch; where it was born only the watch tells."""
    run = build_run(tmp_path / "run", [PLAIN])
    write_dump(run, "nonfinite", [batch(5, {"image": IMAGES}, loss="NaN")])
    assert "the loss was NaN or infinite in step 5, batch 5" in (view(run).headline or "")


def test_the_exception_of_the_watch_is_not_told_twice(tmp_path: Path) -> None:
    """The certificate says it all."""
    run = build_run(tmp_path / "run", [with_marks(PLAIN, birth(certificate()))])
    write_dump(run, "nonfinite", exception={"type": "NonFinite", "message": "x", "traceback": [], "item": None})
    assert view(run).raised is None


def test_what_came_through_a_worker_shows_the_frames_of_the_worker(tmp_path: Path) -> None:
    """torch puts its traceback into the message."""
    run = build_run(tmp_path / "run", [PLAIN])
    message = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "/lib/torch/fetch.py", line 54, in fetch\n    data = self.dataset[0]\n'
        '  File "/home/me/data.py", line 7, in __getitem__\n    raise ValueError("bad")\nValueError: bad\n'
    )
    write_dump(run, "worker", exception=raised() | {"message": message})
    found = view(run).raised
    assert found is not None
    assert found.message == "bad (Caught ValueError in DataLoader worker process 1)"
    assert found.frames == [
        'me/data.py:7 in __getitem__: raise ValueError("bad")',
        "torch/fetch.py:54 in fetch: data = self.dataset[0]",
    ]


# ── exhibits ──


def test_items_that_went_wrong_stand_first(tmp_path: Path) -> None:
    """With some others to compare them with; the newest batch first."""
    newest, before = shown(faulty(tmp_path / "run"))
    assert (newest.batch.batch, before.batch.batch) == (812, 811)
    assert (newest.exhibits[0].name, newest.exhibits[0].guilty) == ("81202", True)
    assert [one.guilty for one in newest.exhibits[1:]] == [False] * 8
    picture, label = newest.exhibits[0].sights
    assert picture.picture is not None
    assert picture.picture.startswith(b"\x89PNG")
    assert label.numbers == ["2"]
    assert (len(newest.rest), newest.more) == (16 - 9, 0)


def test_without_a_certificate_the_values_tell_who_it_was(tmp_path: Path) -> None:
    """The items whose values are not finite."""
    bad = IMAGES.copy()
    bad[7, 0, 0, 0] = np.inf
    run = build_run(tmp_path / "run", [PLAIN])
    write_dump(run, "nonfinite", [batch(5, {"image": bad}, loss="NaN")])
    (case,) = shown(run)
    assert (case.exhibits[0].position, case.exhibits[0].sights[0].nonfinite) == (7, 1)


def test_what_is_no_picture_is_a_curve(tmp_path: Path) -> None:
    """With the places that are not finite, and a histogram."""
    series = np.linspace(-1, 1, 4 * 960).reshape(4, 960)
    series[1, 480] = np.nan
    run = build_run(tmp_path / "run", [PLAIN])
    write_dump(run, batches=[batch(5, {"flux": series})])
    (case,) = shown(run)
    curve = case.exhibits[0].sights[0].curve
    assert curve is not None
    assert (case.exhibits[0].position, curve.bad) == (1, [48])
    assert sum(curve.bins) == 959


@pytest.mark.parametrize("what", ["missing", "cut", "other"])
def test_arrays_that_cannot_be_read_are_told(tmp_path: Path, what: str) -> None:
    """And the page is made without them."""
    run = build_run(tmp_path / "run", [PLAIN])
    file = write_dump(run, batches=[batch(5, {"image": IMAGES})]) / "batch-0" / "0.npy"
    if what == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:500] if what == "cut" else b"GIF89a")
    (case,) = shown(run)
    assert case.exhibits == []
    assert "cannot show" in case.notes[0]


def test_extreme_numbers_are_drawn(tmp_path: Path) -> None:
    """The distance of two of them may be no number."""
    wild = np.tile(np.array([-1.7e308, 1.7e308, 0.0, np.inf]), (4, 50))
    run = build_run(tmp_path / "run", [PLAIN])
    write_dump(run, batches=[batch(5, {"flux": wild, "none": np.full((4, 30), np.nan)})])
    (case,) = shown(run)
    assert [sight.nonfinite for sight in case.exhibits[0].sights] == [50, 30]


def lacking(path: Path, **memory: Any) -> Path:
    """A run that ran out of memory."""
    run = build_run(path, [PLAIN])
    write_dump(
        run, "memory", [batch(811, {"ids": np.ones((4, 9))}), batch(812, {"ids": np.ones((4, 90))})], memory=memory
    )
    return run


def test_a_lack_of_memory_is_told_with_its_batch_and_item(tmp_path: Path) -> None:
    """The batch beside the median one; the largest item first among those of the batch; and what the device held."""
    sizes = {"total": 80 << 30, "free": 1 << 30, "allocated": 60 << 30, "reserved": 78 << 30, "largest_free": 1 << 20}
    page = view(
        lacking(
            tmp_path / "run",
            batch={"bytes": 4000, "median_bytes": 1000.0, "batches": 64},
            item={"position": 2, "size": 90, "median": 12, "unit": "length"},
            devices=[{"device": 0, **sizes}],
            snapshot="allocator.json",
        )
    )
    text = " ".join(drawn(page).split())
    assert "memory The newest batch has 4.00 kB, 4.0x the median of 64 batches before it." in text
    assert "Its largest item is 81202, at position 2: 90 long without padding; the median item 12." in text
    assert "Device 0: 64.4 GB allocated, 83.8 GB reserved of 85.9 GB; the largest free block has 1.05 MB." in text
    assert page.batches[-1].culprits == [2]


@pytest.mark.parametrize(
    "memory", [{}, {"batch": 3, "item": {"position": -1}, "devices": "none"}, {"item": {"unit": "miles"}}]
)
def test_a_damaged_memory_part_tells_nothing(tmp_path: Path, memory: dict[str, Any]) -> None:
    """Whoever wrote it."""
    assert view(lacking(tmp_path / "run", **memory)).memory == []


def test_the_item_that_was_read_most_is_named_where_the_batch_tells_nothing(tmp_path: Path) -> None:
    """With `--io`: 40 MB for one item, 8 kB for the others."""
    key = probe.batch_key(0, 0, 812)
    fetch = BuiltRecord(probe.FETCH, probe.PROBE, dur=9, key=key)
    items = [BuiltRecord(probe.ITEM, probe.PROBE, dur=1, key=100 + place, parent=1, depth=1) for place in range(4)]
    reads = [
        BuiltRecord(
            probe.READ, probe.IO, kind=MARK, key=key,
            args={"file": 1, "position": place, "opens": 1, "calls": 1, "bytes": 40_000_000 if place == 2 else 8000, "ns": 5},
        )
        for place in range(4)
    ]  # fmt: skip
    run = build_run(tmp_path / "run", [BuiltProcess([fetch, *items, *reads])])
    write_dump(run, "memory", [batch(812, {"image": np.ones((4, 9))})], memory={"batch": {"bytes": 288}})
    assert view(run).memory == ["Item 102, at position 2, read 40.0 MB from files; the median item 8.00 kB."]
