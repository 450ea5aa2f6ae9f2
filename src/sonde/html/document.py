"""A page as one file: what stands around its content, and how to tell later that Sonde wrote it."""

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


def document(title: str, kind: str, style: str, content: str, *, pictures: bool = False) -> str:
    """The whole file, in ASCII. It may run no script and ask nobody for anything; `pictures`: those in the file itself."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    images = " img-src data:;" if pictures else ""
    policy = f"default-src 'none';{images} style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'{GENERATOR.format(kind)}{__version__}">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body><main>\n{content}\n</main></body>\n</html>\n"
    )
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def is_page(path: Path, kind: str) -> bool:
    """Whether a file is a page of this kind that Sonde wrote: such a one may be written again."""
    with path.open("rb") as file:
        return GENERATOR.format(kind).encode() in file.read(HEAD_BYTES)
