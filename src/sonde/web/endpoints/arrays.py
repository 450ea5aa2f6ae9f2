"""`/arrays`: the numbers of one value of one item; and pictures as addresses that a page can show."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.views.itemvalues import ArrayPlace, whole_array
from sonde.web.endpoints.series import packed

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.views.items import ItemValue
    from sonde.views.itemvalues import WholeArray
    from sonde.web.asking import Ask, Binary


def array(run: Run, ask: Ask) -> object:
    """One array, as float64."""
    place = ArrayPlace(ask.path["dump"], *(max(ask.place(name), 0) for name in ("batch", "value", "position")))
    return packed_array(whole_array(run, place))


def packed_array(found: WholeArray) -> Binary:
    """One line about an array, then its numbers."""
    image = list(found.numbers.shape) if found.is_image else None
    head = {"shape": list(found.shape), "dtype": found.dtype, "image": image, "stride": found.stride}
    return packed(head, [found.numbers.reshape(-1)])


def as_address(picture: bytes | None) -> str | None:
    """A PNG file as a `data:` address."""
    return None if picture is None else f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def value_fields(shown: ItemValue) -> dict[str, object]:
    """What a page draws of one value of one item."""
    return {
        "shape": shown.shape,
        "low": shown.low,
        "high": shown.high,
        "nonfinite": shown.nonfinite,
        "image": as_address(shown.picture),
        "curve": None if shown.curve is None else asdict(shown.curve),
        "numbers": shown.numbers,
    }
