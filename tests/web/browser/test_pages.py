"""Every page in the browser: no error, no request elsewhere, readable by everyone, on a phone and in the dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser
from tests.web.browser.harness import DESK, PHONE, Server, Tab, needs_browser, tab
from tests.web.browser.runs import BAD_ITEM, BAD_STEP, hostile_name

pytestmark = needs_browser
EVIL = f"/runs/{quote(hostile_name(), safe='')}"
# Every page has its address here: it is then opened in light, dark and at a phone's width, and looked at by axe.
PLACES = {
    "runs": "/",
    "run": "/runs/nan",
    "run with ranks": "/runs/ranks",
    "run by time": "/runs/slow?axis=time&log=1",
    "run zoomed": "/runs/slow?from=5&to=20",
    "killed run": "/runs/killed",
    "run without steps": "/runs/bare",
    "steps": "/runs/slow/steps?sort=dur_ns&order=desc",
    "step": "/runs/slow/steps/0/10",
    "step with ranks": "/runs/ranks/steps/1/10",
    "batch": f"/runs/nan/batches/0/0/0/{BAD_STEP}",
    "items": "/runs/slow/items",
    "item": f"/runs/nan/items/{BAD_ITEM}",
    "compare": "/compare?a=slow&b=nan",
    "layers": "/runs/nan/layers",
    "layers inside": "/runs/slow/layers?part=body&by=memory",
    "layer": "/runs/slow/layers/body.first",
    "black box": "/runs/nan/blackbox",
    "traces": "/runs/nan/traces",
    "trace": "/runs/nan/traces/trace-b",
    "trace of an item": f"/runs/nan/traces/trace-b?item={BAD_ITEM}",
    "two traces": "/runs/nan/traces/trace-a?beside=trace-b",
    "sql": "/runs/slow/sql?q=SELECT+step%2C+dur_ns%2C+loss+FROM+steps+ORDER+BY+step",
    "sql as lines": "/runs/slow/sql?q=SELECT+step%2C+dur_ns%2C+forward_ns+FROM+steps&view=chart",
    "sql as bars": "/runs/slow/sql?q=SELECT+phase%2C+sum(dur_ns)+AS+ns+FROM+phases+GROUP+BY+1&view=chart",
    "hostile comparison": f"/compare?a=nan&b={quote(hostile_name(), safe='')}",
    "hostile layers": f"{EVIL}/layers",
    "hostile black box": f"{EVIL}/blackbox",
    "hostile trace": f"{EVIL}/traces/trace-b",
    "timeline": "/runs/slow/timeline",
    "learning": "/runs/learned/learning",
    "learning zoomed": "/runs/learned/learning?from=100000000&to=400000000",
    "samples": "/runs/learned/samples",
    "samples inside": "/runs/learned/samples?call=0.0&phase=forward",
    "hosts": "/runs/hosts/hosts",
    "hostile run": EVIL,
    "hostile steps": f"{EVIL}/steps",
    "hostile item": f"{EVIL}/items/{BAD_ITEM}",
}
SAMPLE = (
    ("runs", "phone"),
    ("run", "light"),
    ("item", "phone"),
    ("compare", "dark"),
    ("hostile trace", "phone"),
    ("sql as lines", "light"),
    ("samples", "dark"),
    ("learning", "phone"),
    ("hosts", "light"),
)
VIEWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "has_touch": True},
}


def cases() -> Iterator[object]:
    """All pages in all views; a sample of them is part of every `make test`."""
    for place in PLACES:
        for view in VIEWS:
            sampled = (place, view) in SAMPLE
            yield pytest.param(place, view, id=f"{place}-{view}", marks=[] if sampled else [pytest.mark.soak])


@pytest.mark.parametrize(("name", "view"), list(cases()))
def test_a_page_is_sound(chromium: Browser, server: Server, name: str, view: str) -> None:
    """No error, nothing too wide, nothing serious for axe. With SONDE_SHOTS=DIR, a screenshot is kept."""
    with tab(chromium, server, **VIEWS[view]) as page:
        page.open(PLACES[name])
        assert page.too_wide() <= 0
        assert not page.axe()
        assert page.page.title() != "owned"
        shots = os.environ.get("SONDE_SHOTS")
        if shots:
            page.page.screenshot(path=str(Path(shots) / f"{name.replace(' ', '-')}-{view}.png"), full_page=True)


@pytest.mark.soak
@pytest.mark.parametrize("run", ["nan", "ranks"])
def test_no_link_from_a_run_is_dead(page: Tab, run: str) -> None:
    """A crawler follows every link from the run, three pages deep; each kind of page is opened a few times."""
    seen: dict[str, int] = {}
    waiting, done = [(f"/runs/{run}", 0)], set()
    while waiting:
        place, depth = waiting.pop(0)
        kind = "/".join("*" if part.lstrip("-").isdigit() else part for part in urlsplit(place).path.split("/"))
        if place in done or seen.get(kind, 0) >= 4:
            continue
        done.add(place)
        seen[kind] = seen.get(kind, 0) + 1
        page.open(place)
        assert not page.page.query_selector(".failure"), f"{place}: {page.text('.failure')}"
        assert "There is no such page" not in page.text("main"), place
        links = page.page.eval_on_selector_all("a[href]", "all => all.map(one => one.getAttribute('href'))")
        waiting += [(link, depth + 1) for link in links if link.startswith("/") and depth < 3]
    assert len(seen) >= 6, seen


def test_hostile_names_are_text(page: Tab) -> None:
    """The name of a run, of a layer and of a value is never obeyed."""
    page.open(f"{EVIL}/items/{BAD_ITEM}")
    assert "onerror" in page.text("main")
    assert page.page.locator("main img[src=x]").count() == 0
    page.page.click(".crumbs a >> nth=1")
    page.settled()
    assert "<script>" in page.text("h1")
    assert page.page.title() != "owned"
