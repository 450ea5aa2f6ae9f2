"""A browser that looks at a server of ours, and notices whatever goes wrong: for all tests of pages."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from sonde.capture.show.data import TraceFiles
from sonde.web.pages import built
from sonde.web.serve import WebServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).resolve().parents[3] / "frontend/node_modules/axe-core/axe.min.js"
TOKEN = "secret"
SECONDS = 60  # for anything to appear, on a busy machine
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1280, "height": 900}
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-default-apps", "--disable-extensions", "--disable-sync", "--metrics-recording-only", "--no-first-run",
]  # fmt: skip
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or not built(),
    reason="needs chromium (Debian's package `chromium`) and the built pages (make setup)",
)


@contextmanager
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Server:
    """A server in a thread of this process; it can be stopped, and started again on its port."""

    def __init__(self, folder: Path, port: int | None = None, token: str = TOKEN) -> None:
        self.folder = folder
        self.token = token
        self._start(port)

    def _start(self, port: int | None) -> None:
        self._site = WebServer(self.folder, port=port, token=self.token, traces=TraceFiles())
        self.port = self._site.port
        self._thread = threading.Thread(target=self._site.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + SECONDS
        while not self._site.server.started and time.monotonic() < until:
            time.sleep(0.01)

    def address(self, path: str = "/") -> str:
        """Where a page is."""
        return f"http://127.0.0.1:{self.port}{path}"

    def stop(self) -> None:
        """End it; the browser notices."""
        self._site.server.should_exit = True
        self._thread.join(SECONDS)
        self._site.close()

    def start_again(self, token: str | None = None) -> None:
        """On the same port."""
        self.token = token or self.token
        self._start(self.port)


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[Server]:
    """A server over a folder of runs."""
    server = Server(folder, **options)
    try:
        yield server
    finally:
        server.stop()


class Tab:
    """A tab of the browser. `troubles` has what went wrong: errors, failed requests, requests to other hosts."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.server = server
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SECONDS * 1000)
        self.troubles: list[str] = []
        self.expected: list[str] = []  # patterns of troubles that the test makes on purpose
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)
        self.page.on("dialog", self._asked)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself asks no more for what it does not show any more
            self.troubles.append(f"failed: {request.url} {request.failure}")

    def _asked(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _answered(self, response: Response) -> None:
        host = urlsplit(response.url).netloc
        if host and host != f"127.0.0.1:{self.server.port}":
            self.troubles.append(f"other host: {response.url}")
        if response.status >= 400:
            self.troubles.append(f"status {response.status}: {response.url}")

    def open(self, path: str = "/") -> None:
        """Go to a page with the token, as the printed address does, and wait until it shows something."""
        mark = "&" if "?" in path else "?"
        self.page.goto(self.server.address(f"{path}{mark}token={self.server.token}"))
        self.settled()

    def settled(self) -> None:
        """Wait until the page has its data: a heading, and nothing that loads."""
        self.page.wait_for_selector("main h1, main .empty")
        busy = self.page.locator(".loading, .verdict.pending, [aria-busy=true]")
        expect(busy).to_have_count(0, timeout=SECONDS * 1000)

    def allow(self, pattern: str) -> None:
        """This test makes such troubles on purpose."""
        self.expected.append(pattern)

    def check(self) -> None:
        """Nothing went wrong."""
        left = [one for one in self.troubles if not any(re.search(pattern, one) for pattern in self.expected)]
        assert not left, "\n".join(left)

    @property
    def place(self) -> str:
        """The path and the parameters in the address bar."""
        parts = urlsplit(self.page.url)
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def text(self, selector: str = "main") -> str:
        """What a part of the page says."""
        return " ".join(self.page.inner_text(selector).split())

    def axe(self) -> list[str]:
        """What axe-core finds that is serious or worse."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['target']} {one['nodes'][0]['html'][:120]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found


@contextmanager
def tab(chromium: Browser, server: Server, **context: Any) -> Iterator[Tab]:
    """A tab in a profile of its own; at the end nothing may have gone wrong."""
    opened = chromium.new_context(**({"viewport": DESK} | context))
    try:
        found = Tab(opened, server)
        yield found
        found.check()
    finally:
        opened.close()
