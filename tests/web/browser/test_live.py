"""What happens while one looks: a run grows, ends, is deleted; the server goes and comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.views.bad import newer
from tests.web.browser.harness import Server, Tab, needs_browser, served, tab
from tests.web.growing import growing

from sonde.testing import build_training

pytestmark = needs_browser


def test_a_growing_run_is_followed_without_losing_the_view(chromium: Browser, tmp_path: Path) -> None:
    """New steps come by themselves; the zoom stays, and at the end the page says so."""
    with growing(tmp_path, 30) as program, served(tmp_path) as server, tab(chromium, server) as page:
        page.open(f"/runs/{program.id}")
        page.page.wait_for_selector(".state:has-text('running')")
        page.page.wait_for_selector(".charttools:has-text('steps 0 to 29')")
        program.grow(10)
        page.page.wait_for_selector(".charttools:has-text('steps 0 to 39')")
        page.page.click("[aria-label='Zoom in']")
        page.settled()
        zoomed = page.text(".charttools")
        program.grow(10)
        page.page.wait_for_selector(".facts dd:text-is('49')")
        assert page.text(".charttools") == zoomed
        program.finish()
        page.page.wait_for_selector(".state:has-text('finished')")


@pytest.mark.soak
def test_a_killed_run_says_so(chromium: Browser, tmp_path: Path) -> None:
    """The page that was open says that the program died."""
    with growing(tmp_path, 20) as program, served(tmp_path) as server, tab(chromium, server) as page:
        page.open(f"/runs/{program.id}")
        program.process.kill()
        page.page.wait_for_selector(".state:has-text('killed'), .state:has-text('died')")


def test_an_empty_folder_says_what_to_do_and_shows_the_first_run(chromium: Browser, empty: Server) -> None:
    """Without loading the page again."""
    with tab(chromium, empty) as page:
        page.open("/")
        assert "sonde run train.py" in page.text()
        build_training(empty.folder / "first", steps=12)
        page.page.wait_for_selector("td:has-text('first')")


def test_a_deleted_run_is_gone_with_a_way_on(chromium: Browser, empty: Server) -> None:
    """The next question finds it gone."""
    build_training(empty.folder / "one", steps=12)
    with tab(chromium, empty) as page:
        page.allow(r"410|404")
        page.open("/runs/one")
        shutil.rmtree(empty.folder / "one")
        page.page.click("nav.tabs a:has-text('Steps')")
        page.page.wait_for_selector("text=This run was deleted")
        page.page.click("text=See the other runs")
        page.page.wait_for_selector("text=No runs yet")


def test_the_page_goes_on_when_the_server_is_back(chromium: Browser, empty: Server) -> None:
    """It says that the server is away, and what to do; then it goes on by itself."""
    build_training(empty.folder / "one", steps=12)
    with tab(chromium, empty) as page:
        page.allow("ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|net::ERR_ABORTED")
        page.open("/")
        empty.stop()
        page.page.click("td a")
        page.page.wait_for_selector(".banner:has-text('The server does not answer')")
        empty.start_again()
        page.page.wait_for_selector(".banner", state="detached")
        page.settled()
        assert page.place == "/runs/one"


@pytest.mark.soak
def test_another_token_is_said_and_the_new_address_mends_all_tabs(chromium: Browser, empty: Server) -> None:
    """A server that was started again with another token; the printed address is opened in another tab."""
    build_training(empty.folder / "one", steps=12)
    with tab(chromium, empty) as page:
        page.allow("ERR_|401")
        page.open("/runs/one")
        empty.stop()
        empty.start_again(token="another")
        page.page.click("nav.tabs a:has-text('Steps')")
        page.page.wait_for_selector(".banner:has-text('new token')")
        other = page.page.context.new_page()
        other.goto(empty.address("/?token=another"))
        page.page.wait_for_selector(".banner", state="detached")
        page.settled()


@pytest.mark.soak
def test_a_hidden_tab_asks_for_nothing_and_catches_up(chromium: Browser, tmp_path: Path) -> None:
    """Nobody looks, so nothing is read; when one looks again, all is there at once."""
    with growing(tmp_path, 20) as program, served(tmp_path) as server, tab(chromium, server) as page:
        page.open(f"/runs/{program.id}")
        look(page, hidden=True)
        program.grow(15)
        page.page.wait_for_timeout(2500)
        assert "steps 0 to 19" in page.text(".charttools")
        look(page, hidden=False)
        page.page.wait_for_selector(".charttools:has-text('steps 0 to 34')")


def look(page: Tab, *, hidden: bool) -> None:
    """Turn to another tab, or back."""
    page.page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
        "document.dispatchEvent(new Event('visibilitychange')) }",
        hidden,
    )


@pytest.mark.soak
def test_a_run_of_a_newer_version_says_so(chromium: Browser, empty: Server) -> None:
    """In the list and on its own page, and the others can be read."""
    newer(empty.folder / "newer")
    build_training(empty.folder / "one", steps=12)
    with tab(chromium, empty) as page:
        page.allow("422|409|404")
        page.open("/")
        assert page.page.locator("tbody tr").count() == 2
        page.open("/runs/newer")
        assert "format 99" in page.text()
        page.page.click("a.home")
        page.page.click(".runname:has(.id:text-is('one')) a")
        page.page.wait_for_selector(".verdict .kind")


@pytest.mark.soak
def test_a_query_ends_when_one_leaves(chromium: Browser, empty: Server) -> None:
    """The server stops computing, and the next question is answered at once."""
    build_training(empty.folder / "one", steps=12)
    slow = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
    with tab(chromium, empty) as page:
        page.open("/runs/one/sql")
        page.page.fill("[aria-label=Query]", slow)
        page.page.click("text=Run")
        page.page.click("text=Stop")
        page.page.wait_for_selector("text=Stopped.")
        page.page.fill("[aria-label=Query]", "SELECT count(*) AS n FROM steps")
        page.page.click("text=Run")
        page.page.wait_for_selector("section[aria-label=Answer] td")
        assert page.text("section[aria-label=Answer] tbody") == "12"
