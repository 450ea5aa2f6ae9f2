"""Lets commands write to terminals and files that are not in UTF-8: what these cannot show becomes the nearest plain character.

Each character becomes one, so that columns stay below each other.
"""

from __future__ import annotations

import codecs
import io
import sys

NEAREST = "sonde.nearest"  # what the handler is called
UNKNOWN = "?"
# The signs that views draw with.
_NEAR = {
    **dict.fromkeys("█▉▊▋▌▇▆▅", "#"),
    **dict.fromkeys("▍▎▏│", "|"),
    **dict.fromkeys("·─━", "-"),
    **dict.fromkeys("▄▃▂▁", "_"),
    **dict.fromkeys("●■", "*"),
    "○": "o",
    "✖": "x",
    "…": "~",
    "→": ">",
    "µ": "u",
    "μ": "u",
}


def write_what_can_be_shown() -> None:
    """Never fail for a character that standard output or the error channel do not have. A choice of the user's stays."""
    codecs.register_error(NEAREST, _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=NEAREST)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_NEAR.get(one, UNKNOWN) for one in error.object[error.start : error.end]), error.end
