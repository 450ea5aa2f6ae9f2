"""From the verdict to the pixel: by clicks, by keyboard alone, and back."""

from __future__ import annotations

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
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


def test_two_runs_are_compared_from_the_list(page: Tab) -> None:
    """Select two, compare them, and go from a difference to the step of one."""
    page.open("/")
    for run in ("nan", "slow"):
        page.page.check(f"tr:has(.id:text-is('{run}')) input[type=checkbox]")
    page.page.click("text=Compare the two")
    page.settled()
    assert page.place == "/compare?a=nan&b=slow"
    assert "Distribution of step times" in page.text()
    page.page.click("text=Swap A and B")
    page.settled()
    assert page.place == "/compare?a=slow&b=nan"
    page.page.click("[aria-label^='Step'][aria-label$='of B'] >> nth=0")
    page.settled()
    assert page.place.startswith("/runs/nan/steps/")


@pytest.mark.soak
def test_a_number_of_a_finding_leads_to_its_query(page: Tab) -> None:
    """And from its answer to the steps it is about; the query can be changed."""
    page.open("/runs/slow")
    page.page.click(".verdict .evidence summary")
    page.page.click(".verdict .evidence a:has-text('SQL') >> nth=0")
    page.settled()
    assert page.place.startswith("/runs/slow/sql?q=")
    assert re.search(r"\d+ rows? in", page.text("section[aria-label=Answer]"))
    page.page.fill("[aria-label=Query]", "SELECT step, dur_ns FROM steps ORDER BY dur_ns DESC LIMIT 3")
    page.page.keyboard.press("Control+Enter")
    page.page.click("section[aria-label=Answer] td a >> nth=0")
    page.settled()
    assert page.place == "/runs/slow/steps/0/10"


def test_the_black_box_leads_to_the_item_and_its_trace_to_the_same_pixel(page: Tab) -> None:
    """Overview, black box, item that went wrong; its finding in the trace, and both traces beside each other."""
    page.open("/runs/nan")
    page.page.click(".findings a:has-text('Open it')")
    page.settled()
    page.page.click(".exhibit.guilty button.array >> nth=0")
    assert page.page.inner_text(".pixel") == f"row {PIXEL[0]}, column {PIXEL[1]}: {pixel_text(page)}"
    page.page.click("text=Close")
    page.page.click("nav.tabs a:has-text('Traces')")
    page.page.click("a:has-text('trace-b')")
    page.settled()
    page.page.click(f".targets a:has-text('item {BAD_ITEM}') >> nth=0")
    page.settled()
    assert f"item={BAD_ITEM}" in page.place
    page.page.click("button.array:has(img) >> nth=0")
    assert page.page.inner_text(".pixel") == f"row {PIXEL[0]}, column {PIXEL[1]}: {pixel_text(page)}"
    page.page.click("text=Close")
    page.page.select_option("label:has-text('Compare with') select", "trace-a")
    page.page.wait_for_selector("text=First difference")


@pytest.mark.soak
def test_a_layer_leads_to_its_history(page: Tab) -> None:
    """By its box, and by its name."""
    page.open("/runs/slow/layers")
    page.page.click(".icicle .group")
    page.page.click(".icicle .leaf >> nth=0")
    page.settled()
    assert page.place.startswith("/runs/slow/layers/body.")
    assert "Time of a step" in page.text()
