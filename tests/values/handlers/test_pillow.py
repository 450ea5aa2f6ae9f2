"""Images of PIL: pixels as an array, without reading a file that the program has not read."""

from __future__ import annotations

import io

import numpy
import PIL.Image
import pytest

from sonde.capture.show.text import value_text
from sonde.values.note import ARRAY, MISSING
from sonde.values.snapshot import OFF, SUMMARY, Keep, digest, freeze


@pytest.mark.parametrize("keep", [Keep(), SUMMARY, OFF, Keep(limit=0)], ids=["full", "summary", "off", "no room"])
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I", "F", "I;16", "LA", "HSV"])
def test_any_image_freezes_and_prints(mode: str, keep: Keep) -> None:
    """In every mode."""
    note = freeze(PIL.Image.new(mode, (4, 3)), keep).note
    assert (note.kind, note.type) == (ARRAY, "PIL.Image.Image")
    assert note.shape is not None
    assert note.shape[:2] == (3, 4)
    assert value_text(note)


def test_image_has_the_digest_of_its_pixels() -> None:
    """An image and the array made from it are the same content."""
    pixels = numpy.arange(36, dtype=numpy.uint8).reshape(3, 4, 3)
    image = PIL.Image.fromarray(pixels)
    assert digest(image) == digest(pixels)
    kept = freeze(image).value
    assert isinstance(kept, numpy.ndarray)
    assert kept.tolist() == pixels.tolist()


def test_image_that_was_not_read_yet_stays_so() -> None:
    """Reading it would change what `draft` and `seek` do afterwards."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (64, 64)).save(file, "JPEG")
    with PIL.Image.open(file) as image:
        kept = freeze(image)
        assert (kept.note.shape, kept.note.digest, kept.value) == ((64, 64), None, MISSING)
        image.draft("RGB", (16, 16))
        assert image.size == (16, 16)
        image.load()
        assert freeze(image).note.shape == (16, 16, 3)


def test_later_changes_do_not_show() -> None:
    """The copy is a snapshot."""
    image = PIL.Image.new("L", (2, 2))
    kept = freeze(image)
    image.putpixel((0, 0), 255)
    assert isinstance(kept.value, numpy.ndarray)
    assert kept.value.max() == 0
