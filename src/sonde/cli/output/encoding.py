"""Lets commands write to terminals and files that are not in UTF-8, and copes with closed ones.

What cannot be shown becomes the nearest plain character. Each character becomes one, so that columns stay below each other.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

NEAREST = "sonde.nearest"  # what the handler is called
UNKNOWN = "?"
UNCHOSEN = (
    "strict",
    "surrogateescape",
)  # what Python takes for unknown characters by itself; the latter in the locale C
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
        if isinstance(stream, io.TextIOWrapper) and stream.errors in UNCHOSEN:
            stream.reconfigure(errors=NEAREST)


def replace_closed() -> None:
    """Put an empty file in the place of each standard stream that was closed (`<&-`, `>&-`); programs that are started have none."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  for as long as we run


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_NEAR.get(one, UNKNOWN) for one in error.object[error.start : error.end]), error.end
