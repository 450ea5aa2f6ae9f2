"""From the verdict to the pixel: by clicks, by keyboard alone, and back."""

from __future__ import annotations

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser
from tests.web.browser.harness import SECONDS, Server, Tab, needs_browser
from tests.web.browser.runs import BAD_ITEM, BAD_STEP, PIXEL

from sonde.analysis.run import Run

pytestmark = needs_browser


def test_the_verdict_leads_to_the_pixel_by_clicks(page: Tab) -> None:
    """Runs, run, finding, step, batch, item, picture, number; and back again."""
    page.open("/")
    page.page.click("text=encoder.3.norm >> nth=0")
    page.settled()
    assert "NON_FINITE" in page.text(".verdict")
    page.page.click(f".verdict a:has-text('step {BAD_STEP}') >> nth=0")
    page.settled()
    assert page.place.startswith("/runs/nan/steps/")
    page.page.click("section[aria-label=Batch] td a")
    page.settled()
    assert f"Batch {BAD_STEP}" in page.text()
    page.page.click(".pictures .guilty a")
    page.settled()
    assert page.place == f"/runs/nan/items/{BAD_ITEM}"
    page.page.click("button.array:has(img)")
    assert page.page.inner_text(".pixel") == f"row {PIXEL[0]}, column {PIXEL[1]}: {pixel_text(page)}"
    page.page.click("text=Close")
    page.page.go_back()
    page.page.wait_for_url("**/batches/**")
    page.settled()
    assert f"Batch {BAD_STEP}" in page.text()


def pixel_text(page: Tab) -> str:
    """What the page says of the bad pixel: the middle one of its three colours is NaN."""
    page.page.wait_for_selector(".pixel")
    found = page.page.inner_text(".pixel").split(": ")[1]
    assert re.fullmatch(r"[\d.e-]+, NaN, [\d.e-]+", found)
    return found


def test_the_verdict_leads_to_the_pixel_by_keyboard_alone(page: Tab) -> None:
    """Tab, Enter and arrows are enough, and so is the command palette."""
    page.open("/runs/nan")
    press_to(page, f"item {BAD_ITEM}")
    page.page.keyboard.press("Enter")
    page.settled()
    assert page.place == f"/runs/nan/items/{BAD_ITEM}"
    press_to(page, "Enlarge image")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".pixel")
    press_to(page, "Pixel")
    page.page.keyboard.press("ArrowRight")
    assert page.page.inner_text(".pixel").startswith(f"row {PIXEL[0]}, column {PIXEL[1] + 1}:")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("dialog", state="detached")
    page.page.keyboard.press("Control+k")
    page.page.keyboard.type(f"step {BAD_STEP}")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url(f"**/steps/0/{BAD_STEP}")


def press_to(page: Tab, name: str) -> None:
    """Press Tab until something with this name has the focus."""
    for _ in range(150):
        page.page.keyboard.press("Tab")
        named = page.page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
        )
        if named.startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached with Tab")


def test_a_view_comes_back_from_its_address(page: Tab) -> None:
    """Zoom, scale and the step that was pointed at are in it."""
    page.open("/runs/slow")
    page.page.click("text=Log")
    page.page.click("[aria-label='Zoom in']")
    page.settled()
    place = page.place
    assert re.search(r"\?from=\d+&log=1&to=\d+", place)
    shown = page.text(".charttools")
    page.open(place)
    assert page.text(".charttools") == shown
    page.page.go_back()


def test_steps_are_filtered_by_words(page: Tab) -> None:
    """What one types is what one gets, and what is not understood is said."""
    page.open("/runs/slow/steps")
    page.page.fill("[aria-label='Filter steps']", "> 3x median")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("text=1 step with > 3x median")
    page.settled()
    assert page.page.locator("tbody tr").count() == 1
    page.page.fill("[aria-label='Filter steps']", "purple")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("text=Cannot read")
    page.open("/runs/nan/steps?where=nan")
    assert page.page.locator("tbody tr").count() == 10


def test_a_notebook_shows_a_run_in_a_cell(chromium: Browser, server: Server, tmp_path: Path) -> None:
    """A page of another server of this machine has it in a frame, whatever the machine is called there."""
    with Run([server.folder / "slow"]) as run:
        page = run.ui()
    (tmp_path / "cell.html").write_text(f"<title>Notebook</title>{page._repr_html_()}")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    try:
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as notebook:
            Thread(target=notebook.serve_forever, daemon=True).start()
            for name in ("localhost", "127.0.0.1"):
                tab = chromium.new_page()
                tab.goto(f"http://{name}:{notebook.server_port}/cell.html")
                frame = tab.frame_locator("iframe")
                frame.locator(".verdict .kind").first.wait_for(timeout=SECONDS * 1000)
                tab.close()
            notebook.shutdown()
    finally:
        page.close()
