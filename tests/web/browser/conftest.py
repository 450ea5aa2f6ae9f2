"""One browser and one server for the tests of a file, and a fresh tab for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.web.browser.harness import Server, Tab, browser, served, tab
from tests.web.browser.runs import build_all


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser. It ends with the file: while it runs, its thread has an event loop."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over one folder with all kinds of runs."""
    with served(build_all(tmp_path_factory.mktemp("runs"))) as found:
        yield found


@pytest.fixture
def page(chromium: Browser, server: Server) -> Iterator[Tab]:
    """A tab of a desk's size."""
    with tab(chromium, server) as found:
        yield found


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Server]:
    """A server over an empty folder."""
    with served(tmp_path) as found:
        yield found
