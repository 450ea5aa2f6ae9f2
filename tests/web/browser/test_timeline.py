"""The timeline in the browser: keys, mouse, touch, search, arrows, sums, and the file for Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser
from tests.web.browser.harness import PHONE, Server, Tab, needs_browser, tab

pytestmark = needs_browser
PLACE = "/runs/slow/timeline"
BOARD = ".board[aria-busy=false]"


@pytest.fixture
def board(page: Tab) -> Tab:
    """The timeline of a run in which item 42 of step 10 is slow."""
    page.open(PLACE)
    page.page.wait_for_selector(BOARD)
    return page


def window(page: Tab) -> tuple[int, int] | None:
    """From where to where the address says that the timeline is shown; None: all of it."""
    page.page.wait_for_timeout(400)  # the address follows what moves
    query = parse_qs(urlsplit(page.page.url).query)
    return (int(query["from"][0]), int(query["to"][0])) if "from" in query else None


def spot(page: Tab, across: float, down: float) -> tuple[float, float]:
    """A place on the canvas: a share of its width, and px below its top."""
    box = page.page.locator(".board canvas").bounding_box()
    assert box is not None
    return box["x"] + across * box["width"], box["y"] + down


def test_keys_zoom_pan_and_return(board: Tab) -> None:
    """W and S, A and D as in other viewers; 0 shows the whole run."""
    board.page.focus(".board")
    board.page.keyboard.press("w")
    near = window(board)
    assert near is not None
    board.page.keyboard.press("d")
    right = window(board)
    assert right is not None
    assert right[0] > near[0]
    assert right[1] - right[0] == pytest.approx(near[1] - near[0], abs=2)
    board.page.keyboard.press("s")
    board.page.keyboard.press("s")
    far = window(board)
    assert far is None or far[1] - far[0] > right[1] - right[0]
    board.page.keyboard.press("0")
    assert window(board) is None


def test_the_wheel_zooms_where_the_mouse_is_and_a_drag_pans(board: Tab) -> None:
    """The time under the mouse stays there."""
    board.page.mouse.move(*spot(board, 0.25, 60))
    board.page.mouse.wheel(0, -400)
    near = window(board)
    assert near is not None
    board.page.mouse.move(*spot(board, 0.6, 60))
    board.page.mouse.down()
    board.page.mouse.move(*spot(board, 0.5, 60), steps=4)
    board.page.mouse.up()
    moved = window(board)
    assert moved is not None
    assert moved[0] == pytest.approx(near[0] + 0.1 * (near[1] - near[0]), rel=0.05)


def test_what_the_mouse_is_over_is_named(board: Tab) -> None:
    """Also where a bar has no room for its name; the colours of phases have a key."""
    board.page.mouse.move(*spot(board, 0.25, 58))
    assert board.text(".tip") == "input wait, 200 ms"
    board.page.mouse.move(*spot(board, 0.25, 4))
    board.page.wait_for_selector(".tip", state="detached")
    assert "forward" in board.text(".board + .key")


def test_search_leads_to_the_slow_item_and_from_there_to_its_step(board: Tab) -> None:
    """By name to the longest span, along its path to batch and step, and back."""
    board.page.fill("[aria-label='Search spans by name']", "item")
    board.page.keyboard.press("Enter")
    board.page.click("[aria-label='Go to the longest item']")
    board.page.wait_for_selector(".stops")
    assert "item 42" in board.text(".stops")
    board.page.click("[aria-label='Show batch 10, round 0 here']")
    board.page.wait_for_selector("h2:has-text('input wait')")
    board.page.click(".stops a:has-text('step 10')")
    board.settled()
    assert board.place.startswith("/runs/slow/steps/0/10")
    board.page.go_back()
    board.page.wait_for_selector("h2:has-text('input wait')")


def test_a_range_is_summed_by_name(board: Tab) -> None:
    """By a drag on the axis, by the key M, and Escape clears it."""
    board.page.mouse.move(*spot(board, 0.13, 10))
    board.page.mouse.down()
    board.page.mouse.move(*spot(board, 0.35, 10), steps=4)
    board.page.mouse.up()
    board.page.wait_for_selector("section[aria-label='Sum of the range'] tbody tr")
    assert "input wait" in board.text("section[aria-label='Sum of the range'] tbody")
    board.page.focus(".board")
    board.page.keyboard.press("Escape")
    board.page.wait_for_selector("section[aria-label='Sum of the range']", state="detached")
    board.page.keyboard.press("m")
    board.page.wait_for_selector("section[aria-label='Sum of the range'] tbody tr")


def test_the_file_for_perfetto_has_the_spans(board: Tab, tmp_path: Path) -> None:
    """What the button saves is a trace."""
    with board.page.expect_download() as saved:
        board.page.click("text=Open in Perfetto")
    file = tmp_path / "trace.json.gz"
    saved.value.save_as(file)
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert any(one["name"].endswith("forward") for one in events)


@pytest.mark.soak
def test_two_fingers_zoom(chromium: Browser, server: Server) -> None:
    """On a phone, fingers that move apart look closer."""
    with tab(chromium, server, viewport=PHONE, has_touch=True) as page:
        page.open(PLACE)
        page.page.wait_for_selector(BOARD)
        middle, y = spot(page, 0.5, 60)
        touch = page.page.context.new_cdp_session(page.page)

        def fingers(kind: str, apart: float) -> None:
            points: list[dict[str, Any]] = [{"x": middle + side * apart, "y": y, "id": side} for side in (-1, 1)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if apart else []})

        fingers("touchStart", 20)
        for apart in (30, 50, 80):
            fingers("touchMove", apart)
        fingers("touchEnd", 0)
        near = window(page)
        assert near is not None
        assert near[1] - near[0] < 600_000_000
