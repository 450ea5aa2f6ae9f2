"""The colours of phases: told apart by everyone, in light and in dark."""

from __future__ import annotations

import itertools

import numpy
import pytest

from sonde.views.palette import DARK, LIGHT, PALETTE, PHASES

FAR = 0.09  # in OKLab: half of the distance between neighbours of a rainbow of nine
# How each kind of colour blindness mixes red, green and blue (Machado, Oliveira and Fernandes 2009, full severity).
EYES = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LMS = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
OKLAB = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]


def linear(colour: str) -> numpy.ndarray:
    """A colour as amounts of light."""
    parts = numpy.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return numpy.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def seen(colour: str, eye: str) -> numpy.ndarray:
    """Where a colour stands in OKLab for an eye: distances there are as large as they look."""
    light = (numpy.array(EYES[eye]) @ linear(colour)).clip(0, 1)
    found: numpy.ndarray = numpy.array(OKLAB) @ numpy.cbrt(numpy.array(LMS) @ light)
    return found


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG defines it."""
    bright, dim = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("eye", list(EYES))
def test_every_two_phases_look_different(theme: str, eye: str) -> None:
    """With any colour blindness, no two phases have nearly the same colour."""
    places = {phase: seen(colours[theme], eye) for phase, colours in PHASES.items()}
    near = {
        (a, b): float(numpy.linalg.norm(places[a] - places[b]))
        for a, b in itertools.combinations(places, 2)
        if numpy.linalg.norm(places[a] - places[b]) < FAR
    }
    assert not near


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_can_be_read_on_its_background(theme: str) -> None:
    """Each colour of text has a contrast of at least 4.5 with each background it is used on."""
    colours = PALETTE[theme]
    pairs = [(text, ground) for text in ("ink", "soft", "faint") for ground in ("paper", "panel")]
    pairs += [(word, word + "bg") for word in ("info", "warn", "critical")]
    pairs += [("soft", word + "bg") for word in ("info", "warn", "critical")]
    low = {(a, b): contrast(colours[a], colours[b]) for a, b in pairs if contrast(colours[a], colours[b]) < 4.5}
    assert not low


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_name_can_be_read_on_the_colour_of_its_phase(theme: str) -> None:
    """In white, or in the black that the front end uses."""
    low = {
        phase: colours[theme]
        for phase, colours in PHASES.items()
        if max(contrast(colours[theme], text) for text in ("#ffffff", "#10141b")) < 4.5
    }
    assert not low
