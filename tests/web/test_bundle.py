"""The built front end: small, complete, and without a word of any other host."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from sonde.web.pages import INDEX, STATIC, built

ROOT = Path(__file__).resolve().parents[2]
MOST = 300_000  # bytes, compressed


@pytest.fixture
def files() -> list[Path]:
    """The built files."""
    if not built():
        pytest.skip("the front end is not built: make setup")
    return [path for path in STATIC.rglob("*") if path.is_file()]


def test_the_bundle_is_small(files: list[Path]) -> None:
    """All pages together are below 300 kB on the wire."""
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in files}
    assert sum(sizes.values()) < MOST, sizes


def test_every_file_that_the_page_names_is_there(files: list[Path]) -> None:
    """A page without its script would be blank."""
    named = re.findall(r'(?:src|href)="/([^"]+)"', (STATIC / INDEX).read_text())
    assert any(name.endswith(".js") for name in named)
    assert {STATIC / name for name in named} <= set(files)


def test_the_page_has_no_script_or_style_of_its_own(files: list[Path]) -> None:
    """The policy of the server allows files only."""
    page = (STATIC / INDEX).read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)


def test_the_lock_file_names_versions_and_no_registry() -> None:
    """Whoever installs uses a registry of their own; digests say that it is the same package."""
    packages = json.loads((ROOT / "frontend/package-lock.json").read_text())["packages"]
    assert not [name for name, one in packages.items() if "resolved" in one]
    assert not [name for name, one in packages.items() if name and "integrity" not in one]
