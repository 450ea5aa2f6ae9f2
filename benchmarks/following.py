"""How late `sonde ui` shows a step of a run that grows, in a real browser; and what its server costs while nothing is clicked."""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.importing import ENVIRONMENT
from benchmarks.pages import serving
from benchmarks.subjects import scratch

STEP_S = 0.02
WARM_UP = 8.0  # seconds from the first paint on: the report and all charts are made once
SECONDS = 30.0
QUIET = 10.0
# Trains until it is killed, and says when each step had ended.
PROGRAM = f"""
import sys, time
import sonde
from sonde import ai
sonde.init(dir=sys.argv[1], name="followed")
step = 0
with open(sys.argv[2], "w", buffering=1) as ends:
    while True:
        with sonde.trace_step(step=step):
            with ai.dataloader.fetch: pass
            with ai.compute.forward: time.sleep({STEP_S})
            with ai.compute.backward: pass
            sonde.log(loss=1 / (step + 1))
        print(time.time(), file=ends)
        step += 1
"""
# Notes when the number of the newest step changes on the screen.
NOTE = """
window.shown = []
const look = () => {
  const name = [...document.querySelectorAll(".facts dt")].find(one => one.textContent === "step")
  const text = name?.nextElementSibling?.textContent.replace(/\\D/g, "")
  if (text && text !== window.last) { window.last = text; window.shown.push([Date.now() / 1000, Number(text)]) }
  requestAnimationFrame(look)
}
look()
"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def measure(seconds: float = SECONDS) -> dict[str, Any]:
    """Seconds from the end of a step to the screen (p50, p95); share of a core of the server, with a page open and without."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Install chromium to measure how late a page shows a step.")
    with scratch() as place, sync_playwright() as playwright:
        folder, ends = Path(place) / "runs", Path(place) / "ends"
        line = [sys.executable, "-c", PROGRAM, str(folder), str(ends)]
        with subprocess.Popen(line, env=ENVIRONMENT | {"SONDE_ENABLED": "1"}) as program, serving(folder) as server:
            try:
                time.sleep(2)
                run = server.ask("/api/runs")["runs"][0]["id"]
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                page = browser.new_page(extra_http_headers={"Authorization": "Bearer bench"})
                page.goto(server.address(f"/runs/{run}"))
                time.sleep(WARM_UP)
                before = server.cpu()
                shown = _watched(page, seconds)
                share = (server.cpu() - before) / seconds
                browser.close()
                time.sleep(1)
                before = server.cpu()
                time.sleep(QUIET)
                alone = (server.cpu() - before) / QUIET
            finally:
                program.kill()
        late = _late(shown, [float(one) for one in ends.read_text().split()])
    return {
        "steps": len(late),
        "late_p50_s": statistics.median(late),
        "late_p95_s": statistics.quantiles(late, n=20)[-1],
        "open_share": share,
        "quiet_share": alone,
    }


def _watched(page: Page, seconds: float) -> list[tuple[float, int]]:
    """When which step was the newest on the screen."""
    page.evaluate(NOTE)
    page.wait_for_timeout(seconds * 1000)
    found: list[tuple[float, int]] = page.evaluate("window.shown")
    return found[1:]  # the first was there before


def _late(shown: list[tuple[float, int]], ends: list[float]) -> list[float]:
    """For each step, how long it had ended when it, or a later one, was on the screen."""
    late: list[float] = []
    for (_, last), (time_shown, step) in itertools.pairwise(shown):
        late += [time_shown - ends[one] for one in range(last + 1, step + 1)]
    return late


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
