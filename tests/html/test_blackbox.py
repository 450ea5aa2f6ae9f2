"""The page of the black box: what is on it, and that nothing in it is obeyed."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from tests.analysis.boxes import batch, birth, certificate, raised, with_marks, write_dump
from tests.html.parsing import Parsed
from tests.html.test_report import ALLOWED
from tests.views.runs import EVIL

from sonde.analysis.postmortem.blackbox import black_box
from sonde.analysis.run import open_run
from sonde.html import box_page
from sonde.picture import NOT_FINITE
from sonde.testing import BuiltProcess, BuiltRecord, build_run
from sonde.views.blackbox import blackbox
from sonde.views.items import cases

PLAIN = BuiltProcess([BuiltRecord(dur=1)])


def page_of(path: Path) -> str:
    with open_run(path) as run:
        box = black_box(run)
        view = blackbox(run, box)
        return box_page(view, cases(view, box.main_dump, box))


def images(bad: int | None = None) -> np.ndarray[Any, Any]:
    """Sixteen pictures; one of them with a pixel that is not finite."""
    found = np.random.default_rng(0).random((16, 3, 16, 16), np.float32)
    if bad is not None:
        found[bad, 1, 3, 5] = np.nan
    return found


def faulty(path: Path, name: str = "encoder.3.norm", **fields: Any) -> Path:
    """A run with a birth in item 2, whose dump has pictures and curves."""
    told = certificate(layer=name, type=name, code=name, items=[{"position": 2, "index": 81202, "id": name}])
    run = build_run(path, [with_marks(PLAIN, birth(told))], name=name)
    curves = np.linspace(0, 1, 16 * 100).reshape(16, 100)
    kept = batch(812, {name: images(2), "curve": curves, "label": np.arange(16)}, loss="NaN", ids=[name] * 16, **fields)
    write_dump(run, "nonfinite", [kept], nonfinite=told, left_out=[name], host=name, role=name)
    wrong = raised() | {"type": name, "message": name, "traceback": [name]}
    write_dump(run, "exception", number=1, exception=wrong, host=name)
    return run


def test_a_batch_that_was_not_read_whole_is_the_same_as_far_as_it_was_read(tmp_path: Path) -> None:
    """One that was read whole is the same without that."""
    sampled, whole = (page_of(faulty(tmp_path / of, digest_of=of)) for of in ("sample", "all"))
    assert "(of a sample)" in sampled
    assert "unchanged since delivery" in whole
    assert "as far as" not in whole


def test_the_certificate_and_the_pictures_are_there(tmp_path: Path) -> None:
    """The item that went wrong is marked, and each shown item has its picture, curve and number."""
    page = page_of(faulty(tmp_path / "run"))
    words = " ".join(Parsed(page).words.split())
    assert "First NaN: layer encoder.3.norm" in words
    assert "inputs finite, max 3.4e38" in words
    assert page.count('class="item guilty large"') == 1
    assert page.count("data:image/png;base64,") == 16
    assert page.count('class="curve"') == 16
    assert "loss NaN" in words


def test_a_pixel_that_is_not_finite_is_loud(tmp_path: Path) -> None:
    """In the picture of its item, and in no other one."""
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", page_of(faulty(tmp_path / "run")))
    pixels = [decoded(base64.b64decode(picture)) for picture in pictures]
    assert [int((one == NOT_FINITE).all(axis=2).sum()) for one in pixels] == [1] + [0] * 15
    assert tuple(pixels[0][3, 5]) == NOT_FINITE


def test_further_items_can_be_opened(tmp_path: Path) -> None:
    """Eight stand beside the one that went wrong, the others are folded."""
    page = page_of(faulty(tmp_path / "run"))
    at_once, _, opened = page.partition("<details><summary>7 more items</summary>")
    assert at_once.count("data:image/png;base64,") == 9
    assert opened.partition("</details>")[0].count("data:image/png;base64,") == 7
    assert "not shown" not in page


def test_all_items_of_a_batch_are_drawn_with_one_mapping(tmp_path: Path) -> None:
    """That of the items that are well: one with wild values in a corner looks like its neighbours elsewhere."""
    same = np.tile(np.linspace(0, 1, 16 * 16, dtype=np.float32).reshape(1, 1, 16, 16), (16, 3, 1, 1))
    same[2, :, 0, 0] = 1e6
    same[2, :, 0, 1] = np.nan
    told = certificate(items=[{"position": 2, "index": 81202, "id": None}])
    run = build_run(tmp_path / "run", [with_marks(PLAIN, birth(told))])
    write_dump(run, "nonfinite", [batch(812, {"image": same})], nonfinite=told)
    pixels = [decoded(base64.b64decode(one)) for one in re.findall(r"png;base64,([^\"]+)", page_of(run))]
    assert (pixels[0][1:] == pixels[1][1:]).all()


def decoded(content: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a PNG file of ours."""
    width, height = struct.unpack(">II", content[16:24])
    data = re.search(rb"IDAT(.*).{4}\x00{4}IEND", content, re.DOTALL)
    assert data is not None
    rows = np.frombuffer(zlib.decompress(data[1]), np.uint8).reshape(height, -1)
    return rows[:, 1:].reshape(height, width, 3)


def test_no_name_becomes_an_element(tmp_path: Path) -> None:
    """Whatever a program calls its layers, values, items, exceptions and hosts."""
    page = page_of(faulty(tmp_path / "run", EVIL))
    parsed = Parsed(page)
    assert set(parsed.tags) <= ALLOWED | {"img", "dl", "dt", "dd", "em"}
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert all(value.startswith("data:image/png;base64,") for name, value in parsed.attributes if name == "src")
    assert not [name for name, _ in parsed.attributes if name in ("href", "style")]
    assert "\x1b" not in page
    assert page.isascii()


def test_a_page_stays_small(tmp_path: Path) -> None:
    """Pictures that would make it too large are left out, and that is said."""
    run = build_run(tmp_path / "run", [PLAIN])
    noise = np.random.default_rng(0).random((12, 3, 192, 192), np.float32)
    for_each = [batch(number, {f"{place}": noise for place in range(4)}) for number in range(3)]
    write_dump(run, batches=for_each)
    page = page_of(run)
    assert len(page) < 9_000_000
    assert "Some pictures are left out" in page


def test_a_run_without_a_dump_has_a_page(tmp_path: Path) -> None:
    """With what there is to say."""
    assert "Nothing was saved" in Parsed(page_of(build_run(tmp_path / "run", [PLAIN]))).words
