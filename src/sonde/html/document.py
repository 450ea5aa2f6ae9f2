"""A page as one file: the frame around its content, and how to recognise that Sonde wrote it."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from sonde.html.markup import safe
from sonde.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

GENERATOR = '<meta name="generator" content="sonde {} '
HEAD_BYTES = 2000  # of a page, in which it says what it is


def document(
    title: str, kind: str, style: str, content: str, *, pictures: bool = False, script: str = "", data: str = ""
) -> str:
    """The whole file, in ASCII. It asks nobody for anything and runs no script but `script`, which its digest allows.

    `pictures`: those in the file itself. `data`: JSON for the script.
    """
    images = " img-src data:;" if pictures else ""
    scripts = f" script-src {_digest(script)};" if script else ""
    policy = f"default-src 'none';{images}{scripts} style-src {_digest(style)}; base-uri 'none'; form-action 'none'"
    run = (
        f'<script type="application/json" id="charts-data">{data}</script>\n<script>{script}</script>\n'
        if script
        else ""
    )
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'{GENERATOR.format(kind)}{__version__}">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body><main>\n{content}\n</main>\n{run}</body>\n</html>\n"
    )
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def is_page(path: Path, kind: str) -> bool:
    """Whether a file is a page of this kind that Sonde wrote: such a one may be written again."""
    with path.open("rb") as file:
        return GENERATOR.format(kind).encode() in file.read(HEAD_BYTES)
