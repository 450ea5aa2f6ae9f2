"""The HTML of a trace: what is on it, that it is safe and small, and the pictures of arrays."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.flow.hand import train
from tests.flow.making import Making
from tests.html.parsing import Parsed

from sonde.capture.result import TraceCall, TraceResult
from sonde.capture.show import html
from sonde.capture.show.style import STYLE
from sonde.capture.show.thumbnail import MAX_ROWS, ROW_SIDE, SIDE, thumbnails
from sonde.picture import NOT_FINITE
from sonde.values.note import Item
from sonde.values.snapshot import SUMMARY, freeze

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\x1b[31m\udcff"
KNOWN = {
    *("html", "head", "meta", "title", "body", "style", "div", "span", "b", "i", "s", "ul", "li", "code", "img", "a"),
    *("details", "summary"),
}


def html_of(*values: object, **facts: Any) -> str:
    """The HTML of a trace with one call."""
    inputs = [freeze(value, name=f"x{n}") for n, value in enumerate(values)]
    return TraceResult(calls=[TraceCall("f", inputs=inputs, **facts)])._repr_html_()


# ── what is on it ──


def test_each_stage_and_call_can_be_folded() -> None:
    """By details and summary, which need no script."""
    trace = train()
    parsed = Parsed(trace._repr_html_())
    calls = sum(len(stage) for stage in trace)
    assert parsed.tags.count("details") >= len(trace) + calls
    assert "script" not in parsed.tags
    assert set(parsed.tags) <= KNOWN


def test_names_values_durations_and_digests_are_on_it() -> None:
    """What the text says, the page says."""
    words = Parsed(train()._repr_html_()).words
    for part in ("dataset_getter", "data.get_image", "'23'", "213 ms", "218.092529296875", "26660822658842624"):
        assert part in words


def test_where_a_call_belongs_is_on_it() -> None:
    """Epoch, step, batch, worker, process, items."""
    items = [Item(n, 10 + n, "abc"[n] if n < 3 else None) for n in range(12)]
    words = Parsed(html_of(1, epoch=2, step=3, batch=4, worker=5, pid=6, items=items)).words
    assert "epoch 2 · step 3 · batch 4 · worker 5 · pid 6 · items 10 (a), 11 (b), 12 (c), 13" in words
    assert "and 4 more" in words


def test_findings_notes_and_errors_are_on_it() -> None:
    """The first thing one sees."""
    bad = numpy.array([1.0, numpy.nan])
    trace = TraceResult(
        calls=[TraceCall("f", inputs=[freeze({"a": [bad]}, name="x")], error="ValueError")], notes=["cut"]
    )
    trace.add(TraceCall("g", stage_name="dataset_getter", output=freeze(bad, name="y"), items=[Item(0, 0)], seq=1))
    words = Parsed(trace._repr_html_()).words
    assert "raised ValueError" in words
    assert "1 not finite" in words
    assert "Notes" in words
    assert ("finding" in words) == bool(trace.findings())


def found(odd: int, count: int = 60) -> str:
    """The page of a trace of pictures, of which one is 255 times as bright."""
    making = Making()
    images = [
        noise(3, 16, 16) * numpy.float32(255 if n == odd else 1) + numpy.float32(n / 10_000) for n in range(count)
    ]
    samples = [making.get("data__get_image", images.__getitem__, index) for index in range(count)]
    making.collate(numpy.stack, samples, range(count))
    assert [finding.kind for finding in making.findings()] == ["range"]
    return making.result._repr_html_()


def test_a_finding_links_to_its_item_which_is_unfolded() -> None:
    """Also if it is far behind the first ones, in the getter and in the list that collate got."""
    content = found(odd=55)
    (link,) = re.findall(r'<a href="#([^"]+)">item 55</a>', content)
    call = content[: content.index(f'id="{link}"')].rpartition("<details")[2]
    assert " open" in call
    assert "sonde-marked" in call
    (row,) = re.findall(r'<li class=sonde-marked><span class="sonde-name">(\d+)</span>', content)
    assert row == "55"


def test_all_items_of_a_field_are_drawn_on_one_scale() -> None:
    """The picture that is 255 times as bright is bright, and the others are dark."""
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', found(odd=1, count=4))
    brightness = [float(decoded(base64.b64decode(one)).mean()) for one in pictures[:4]]
    assert brightness[1] > 100
    assert max(brightness[:1] + brightness[2:]) < 5


def test_a_picture_can_be_enlarged() -> None:
    """By a click, without a script."""
    assert '<details class="sonde-zoom"><summary><img' in html_of(noise(16, 16))
    assert ".sonde-zoom[open] img{width" in STYLE


def test_colours_are_those_of_the_notebook() -> None:
    """Text and background come from its variables, all other colours from these two."""
    for name in (
        "--jp-content-font-color1",
        "--jp-layout-color0",
        "--vscode-editor-foreground",
        "--vscode-editor-background",
    ):
        assert f"var({name}," in STYLE
    own = re.findall(r"#[0-9a-f]{3,6}\b", re.sub(r"--own-[a-z]+:[^;}]+|color-mix\([^;]+", "", STYLE))
    assert own == []


def test_a_call_that_still_runs_and_an_empty_result_are_shown() -> None:
    """Whatever the state of the trace."""
    assert "not finished" in html_of(1)
    assert "0 calls" in TraceResult()._repr_html_()


def test_long_containers_say_what_is_left_out() -> None:
    """Not every part is drawn."""
    assert f"{1000 - html.MAX_CHILDREN} more" in html_of([[n] for n in range(1000)])


def test_a_written_page_stands_alone(tmp_path: Path) -> None:
    """A whole document that may load nothing, private to the user."""
    path = tmp_path / "t.html"
    train().to_html(path)
    content = path.read_text("utf-8")
    parsed = Parsed(content)
    assert content.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in content
    assert not [value for name, value in parsed.attributes if name in ("src", "href") and not value.startswith("data:")]
    assert "url(" not in content
    assert "prefers-color-scheme:dark" in content
    assert path.stat().st_mode & 0o777 == 0o600


# ── it is safe ──


def test_hostile_names_and_texts_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    """Every text that comes from the traced program: names, keys, values, types, notes, errors, ids."""
    hostile = type(EVIL.replace("\udcff", ""), (), {"__repr__": lambda self: EVIL})
    values = [EVIL, {EVIL: EVIL, "o": hostile()}, [EVIL], hostile(), {EVIL}, numpy.array([EVIL.replace("\udcff", "")])]
    call = TraceCall(
        EVIL,
        stage_name=EVIL,
        inputs=[freeze(value, name=EVIL) for value in values],
        output=freeze(EVIL, name=EVIL),
        error=EVIL,
        items=[Item(0, EVIL, EVIL)],
    )
    trace = TraceResult(calls=[call], notes=[EVIL])
    trace.to_html(tmp_path / "t.html")
    for content in (trace._repr_html_(), trace.item(id=EVIL)._repr_html_(), (tmp_path / "t.html").read_text("utf-8")):
        parsed = Parsed(content)
        assert set(parsed.tags) <= KNOWN
        assert not [name for name, _ in parsed.attributes if name.startswith("on")]
        assert "<script>alert(1)</script>" in parsed.words
        content.encode("utf-8")


# ── it is small ──


def noise(*shape: int) -> numpy.ndarray[Any, Any]:
    """What compresses worst."""
    return numpy.random.default_rng(0).random(shape, dtype="f4")


def test_twenty_arrays_make_less_than_a_megabyte() -> None:
    """Even of noise in colour, in batches."""
    assert len(html_of(*[noise(8, 3, 128, 128) for _ in range(20)])) < 1_000_000
    assert len(html_of(*[noise(3, 300, 200) for _ in range(20)])) < 1_000_000


def test_pictures_that_have_no_room_are_left_out_and_that_is_said() -> None:
    """The page stays below its size."""
    content = html_of(*[noise(3, 96, 96) for _ in range(40)])
    assert len(content) < 1_000_000
    assert re.search(r"\d+ pictures left out", content)


def test_values_that_have_no_room_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that no browser opens helps nobody."""
    monkeypatch.setattr(html, "TEXT_BYTES", 1000)
    assert re.search(r"\d+ values left out", html_of(*["x" * 100 for _ in range(40)]))


# ── pictures ──


def decoded(png: bytes) -> numpy.ndarray[Any, Any]:
    """The pixels of a PNG file, as our own writer makes them; with its check sums checked."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = {}, png[8:]
    while rest:
        (length,) = struct.unpack(">I", rest[:4])
        body, check = rest[4 : 8 + length], rest[8 + length : 12 + length]
        assert struct.unpack(">I", check)[0] == zlib.crc32(body)
        chunks[body[:4]] = body[4:]
        rest = rest[12 + length :]
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), "u1").reshape(height, -1)
    return rows[:, 1:].reshape(height, width, {0: 1, 2: 3, 6: 4}[kind])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32, 40), (32, 40, 1)),
        ((32, 40, 1), (32, 40, 1)),
        ((32, 40, 3), (32, 40, 3)),
        ((32, 40, 4), (32, 40, 4)),
        ((1, 32, 40), (32, 40, 1)),
        ((3, 32, 40), (32, 40, 3)),
        ((300, 200, 3), (75, 50, 3)),
        ((3, 1000, 2000), (47, 95, 3)),
    ],
)
def test_arrays_that_look_like_images_have_a_picture(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Grey, colour, transparent; colours first or last; never larger than a thumbnail."""
    ((_, picture),) = thumbnails(noise(*shape))
    assert decoded(picture).shape == expected
    assert max(expected) <= SIDE


@pytest.mark.parametrize("shape", [(8, 3, 64, 64), (8, 64, 64, 3), (8, 1, 64, 64), (8, 64, 64)])
def test_batches_of_images_show_the_first_few(shape: tuple[int, ...]) -> None:
    """Small ones, beside each other."""
    pictures = thumbnails(noise(*shape))
    assert len(pictures) == MAX_ROWS
    assert max(decoded(pictures[0][1]).shape) <= ROW_SIDE
    assert [name for name, _ in thumbnails(noise(*shape), None, [6, 7])] == [f"row {n}" for n in (0, 1, 2, 3, 6, 7)]


@pytest.mark.parametrize(
    "value",
    [
        noise(100),
        noise(4, 10),
        noise(2000, 20),
        noise(2, 5, 3, 32, 32),
        numpy.empty((0, 32, 32)),
        numpy.full((16, 16), "a"),
        numpy.full((16, 16), None),
        numpy.zeros((16, 16), complex),
        numpy.zeros((16, 16), "M8[s]"),
        "text",
        None,
        7,
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_other_values_have_none(value: object) -> None:
    """And no failure either."""
    assert thumbnails(value) == ()


def test_a_picture_shows_the_content() -> None:
    """Dark where the numbers are low, bright where they are high; bytes as they are."""
    ramp = numpy.linspace(-3, 5, 64, dtype="f4").repeat(64).reshape(64, 64)
    pixels = decoded(thumbnails(ramp)[0][1])[:, 0, 0]
    assert (pixels[0], pixels[-1]) == (0, 255)
    assert (numpy.diff(pixels.astype(int)) >= 0).all()
    grey = numpy.full((16, 16), 40, "u1")
    assert (decoded(thumbnails(grey)[0][1]) == 40).all()


def test_numbers_that_are_not_finite_stand_out() -> None:
    """In a colour of their own; what is finite has the colours that it has elsewhere."""
    image = numpy.zeros((16, 16))
    image[3, 4] = numpy.nan
    image[5, 6] = numpy.inf
    image[0, 0] = 1
    pixels = decoded(thumbnails(image)[0][1])
    assert tuple(pixels[3, 4]) == tuple(pixels[5, 6]) == NOT_FINITE
    assert (tuple(pixels[0, 0]), tuple(pixels[9, 9])) == ((255,) * 3, (0,) * 3)


@pytest.mark.parametrize(
    "value",
    [numpy.ones((16, 16)), numpy.full((16, 16), numpy.nan), numpy.full((16, 16), 1e308), numpy.zeros((16, 16), bool)],
)
def test_images_without_a_range_have_a_picture(value: numpy.ndarray[Any, Any]) -> None:
    """One colour."""
    assert len(numpy.unique(decoded(thumbnails(value)[0][1]).reshape(256, -1), axis=0)) == 1


def test_tensors_have_pictures_too() -> None:
    """Of types that NumPy does not have as well."""
    torch = pytest.importorskip("torch")
    assert len(thumbnails(torch.rand(3, 32, 32))) == 1
    assert len(thumbnails(torch.rand(2, 1, 32, 32).to(torch.bfloat16))) == 2


def test_pictures_stand_beside_their_array() -> None:
    """As data in the page, inside containers too."""
    content = html_of({"a": [noise(16, 16)]})
    (written,) = re.findall(r'src="data:image/png;base64,([^"]+)"', content)
    assert decoded(base64.b64decode(written)).shape == (16, 16, 1)


def test_without_a_copy_there_is_no_picture() -> None:
    """A summary has no pixels."""
    call = TraceCall("f", inputs=[freeze(noise(16, 16), SUMMARY, "x")])
    assert "<img" not in TraceResult(calls=[call])._repr_html_()
