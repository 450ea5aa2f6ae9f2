"""The static files: which address gets which file, and what is said without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from sonde.web.pages import Pages


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A built front end."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/page-1.js").write_text("one()")
    (tmp_path / "index.html").write_text("<title>page</title>")
    return tmp_path


def client(folder: Path) -> TestClient:
    return TestClient(Starlette(routes=[Route("/{path:path}", Pages(folder).__call__)]))


@pytest.mark.parametrize(
    "path", ["/", "/runs/a", "/runs/a/items/id:b/c", "/runs/..%2f..%2fetc%2fpasswd", "/index.html"]
)
def test_every_other_address_gets_the_page(static: Path, path: str) -> None:
    """The page reads from its address what to show."""
    found = client(static).get(path)
    assert (found.status_code, found.text, found.headers["cache-control"]) == (200, "<title>page</title>", "no-cache")


def test_assets_are_kept_by_the_browser_for_ever(static: Path) -> None:
    """Their names change with their content."""
    found = client(static).get("/assets/page-1.js")
    assert found.text == "one()"
    assert "immutable" in found.headers["cache-control"]
    assert found.headers["content-type"].startswith("text/javascript")


def test_an_asset_of_another_version_is_not_the_page(static: Path) -> None:
    """A browser would take HTML for a broken script."""
    assert client(static).get("/assets/page-0.js").status_code == 404


def test_files_that_were_built_anew_are_found(static: Path) -> None:
    """The server goes on while somebody builds."""
    browser = client(static)
    browser.get("/")
    (static / "assets/page-1.js").rename(static / "assets/page-2.js")
    assert browser.get("/assets/page-2.js").text == "one()"


def test_without_built_files_the_page_says_how_to_build_them(tmp_path: Path) -> None:
    """Never a blank page."""
    assert "make setup" in client(tmp_path / "nothing").get("/").text
