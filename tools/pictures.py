"""Make the pictures of README and docs from real runs: `make pictures`.

Each program is recorded once into build/pictures; delete a folder there to record it again. Terminal pictures are the output of the
command, drawn by Rich; pages are photographed by Chromium, in light and dark; the live screen is driven by Textual's pilot.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.cases import CASES
from benchmarks.faults.limits import group
from PIL import Image
from playwright.sync_api import Error, Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "pictures"
IMAGES = ROOT / "docs" / "images"
LIMIT = 250_000  # bytes of a picture
NORMAL = "3c4450 f05c6c 5dc480 e2b554 60a0f5 c682e8 48bec6 d6dbe2"
BRIGHT = "6e7886 ff7884 78d696 f4ce78 82b8ff d8a0f6 68d6dc ffffff"
PORT = 8797
TOKEN = "pictures"
TORCHRUN = "torchrun --standalone --nproc-per-node"


QUIET = subprocess.DEVNULL


class Recording(NamedTuple):
    """A program to record: its source, what starts it, and the options of `sonde run`."""

    source: str
    start: str = ""
    options: str = ""
    seconds: float = 0  # of one that hangs, or is interrupted: end it after this long
    ending: signal.Signals = signal.SIGTERM
    limit_mb: int | None = None  # of memory, by a control group


RECORDINGS = {
    "slow": Recording("examples/slow.py"),
    "nan": Recording("examples/nan.py", options="--blackbox --watch-nonfinite"),
    "late": Recording("benchmarks/faults/scripts/straggler_input.py", f"{TORCHRUN} 2"),
}


def faults() -> dict[str, Recording]:
    """One real faulty run for each rule: the first of its cases."""
    found = {"INTERRUPTED": Recording("examples/slow.py", seconds=16, ending=signal.SIGINT)}
    for case in CASES:
        kind = "BALANCED" if case.healthy else case.expected[0]
        if kind not in found:
            source = str(case.path.relative_to(ROOT))
            start = f"{TORCHRUN} {case.ranks}" if case.ranks else ""
            options = "--io" if case.script.startswith("files_") else "--learning" if case.half else ""
            seconds = 60 if case.hangs else 0
            found[kind] = Recording(source, start, options, seconds, limit_mb=case.limit_mb)
    return found


def main() -> None:
    """All pictures, or those whose names are given."""
    wanted = sys.argv[1:]
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "verdicts").mkdir(exist_ok=True)
    for name, draw in {
        "card": card,
        "blackbox": blackbox,
        "report": report,
        "ui": ui,
        "questions": questions,
        "flow": flow,
    }.items():
        if not wanted or name in wanted:
            draw()
    for kind, recording in faults().items():
        if not wanted or kind in wanted:
            verdict(kind, recording)
    if not wanted or "watch" in wanted:
        watch()
    for picture in sorted(IMAGES.rglob("*.*")):
        size = picture.stat().st_size
        print(f"{picture.relative_to(ROOT)}  {size / 1000:.0f} kB")
        assert size < LIMIT, picture


def record(name: str, recording: Recording) -> Path:
    """The folder in which a program was recorded; done once."""
    folder = WORK / name
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    script = "train.py" if name in RECORDINGS else Path(recording.source).name
    shutil.copy(ROOT / recording.source, folder / script)
    command = [sonde(), "run", "--quiet", *recording.options.split(), *(recording.start or "python").split(), script]
    with group(recording.limit_mb) as limited:
        if limited is not None:  # the shell enters the group, and becomes the program
            enter = ["/bin/sh", "-c", f'echo $$ > {limited.processes} && exec "$@"', "sh"]
            command = [*enter, *command, str(limited.limit), str(limited.used)]
        program = subprocess.Popen(command, cwd=folder, env=environment(), stdout=QUIET, stderr=QUIET)
        try:
            program.wait(recording.seconds or 240)
        except subprocess.TimeoutExpired:
            if not recording.seconds:
                raise
            if recording.ending == signal.SIGTERM:
                (folder / "report").write_text(ask(folder, "report"))  # while it hangs
            program.send_signal(recording.ending)
            program.wait(60)
    return folder


def sonde() -> str:
    """The command of this environment."""
    return str(Path(sys.executable).with_name("sonde"))


def environment() -> dict[str, str]:
    """Colours, a fixed width, and the parts of the fault scripts."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLUMNS": "100",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PATH": path,
        "TERM": "xterm-256color",
    }


def ask(folder: Path, *words: str) -> str:
    """What a command prints, with its colours."""
    command = [sonde(), *words]
    done = subprocess.run(  # noqa: PLW1510  some answer with 1
        command,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=QUIET,
        text=True,
        timeout=240,
    )
    return done.stdout


def terminal(name: str, title: str, text: str) -> None:
    """Draw what a terminal shows as SVG. The fonts are those of the reader: no link to any other place."""
    console = Console(record=True, width=100, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi(text.rstrip("\n"), no_wrap=True))
    console.print()  # room for the underscores of the last line
    theme = TerminalTheme((17, 22, 29), (214, 219, 226), colours(NORMAL), colours(BRIGHT))
    drawn = console.export_svg(title=title, theme=theme, unique_id=re.sub(r"\W", "-", name))
    (IMAGES / f"{name}.svg").write_text(without_fonts(drawn))


def colours(text: str) -> list[tuple[int, int, int]]:
    """The eight colours of a terminal, from hexadecimal numbers."""
    return [(number >> 16, number >> 8 & 255, number & 255) for number in (int(one, 16) for one in text.split())]


def without_fonts(drawn: str) -> str:
    """Leave out the fonts that the SVG would load from a network."""
    plain = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    return plain.replace(
        "Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
    )


def until(text: str, *headings: str) -> str:
    """The lines before the first of these headings."""
    kept: list[str] = []
    for line in text.splitlines():
        if re.sub(r"\x1b\[[\d;]*m", "", line).startswith(headings):
            break
        kept.append(line)
    return "\n".join(kept)


def photograph(name: str, page: Path, width: int, height: int, modes: tuple[str, ...] = ("light", "dark")) -> None:
    """A page in light and dark, as a small file."""
    for mode in modes:
        target = IMAGES / f"{name}-{mode}.png"
        snap(page, target, width, height, dark=mode == "dark")
        shrink(target)


def shrink(picture: Path) -> None:
    """Few colours."""
    Image.open(picture).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(picture, optimize=True)


def snap(page: Path, target: Path, width: int, height: int, *, dark: bool = False) -> None:
    """One screenshot by the system's Chromium."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        *(["--force-dark-mode"] if dark else []),
    ]
    subprocess.run(
        ["chromium", *options, f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )


def card() -> None:
    """The card of a training with three slow items."""
    folder = record("slow", RECORDINGS["slow"])
    terminal("card", "sonde run train.py", until(ask(folder, "report"), "ABOUT THIS RECORDING"))


def report() -> None:
    """The page of the same report."""
    folder = record("slow", RECORDINGS["slow"])
    ask(folder, "report", "--html", "report.html")
    photograph("report", folder / "report.html", 1100, 1250)


def ui() -> None:
    """The first page of `sonde ui`, of the same run."""
    folder = record("slow", RECORDINGS["slow"])
    (run,) = os.listdir(folder / "sonde-runs")
    words = [sonde(), "ui", "--no-open", "--port", str(PORT), "--token", TOKEN]
    server = subprocess.Popen(words, cwd=folder, env=environment(), stdout=QUIET, stderr=QUIET)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for mode in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1280, "height": 1240}, color_scheme=mode)
                visit(page, f"http://127.0.0.1:{PORT}/runs/{run}?token={TOKEN}")
                page.get_by_text("SLOW_ITEMS").first.wait_for(timeout=60_000)
                page.wait_for_timeout(2_000)  # the charts
                page.screenshot(path=IMAGES / f"ui-{mode}.png")
                shrink(IMAGES / f"ui-{mode}.png")
            browser.close()
    finally:
        server.terminate()
        server.wait(60)


def visit(page: Page, address: str) -> None:
    """Open a page, as soon as the server answers."""
    for _ in range(300):
        with suppress(Error):
            page.goto(address)
            break
        time.sleep(0.2)


def blackbox() -> None:
    """The page that names the picture with the NaN."""
    folder = record("nan", RECORDINGS["nan"])
    ask(folder, "blackbox", "--html", "blackbox.html")
    photograph("blackbox", folder / "blackbox.html", 1100, 1270)


def questions() -> None:
    """The answers to the questions of the README, each from its own run."""
    late = record("late", RECORDINGS["late"])
    terminal("late", "sonde report", until(ask(late, "report"), "MEMORY"))
    nan = record("nan", RECORDINGS["nan"])
    terminal("first-nan", "sonde blackbox", until(ask(nan, "blackbox"), "OPEN SPANS"))


def flow() -> None:
    """The page of a trace: four items from the dataset to the loss."""
    folder = WORK / "flow"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "examples/nan.py", folder / "galaxies.py")
    program = (
        "import galaxies, sonde, torch\nfrom torch.utils.data import DataLoader, Subset\n"
        "data = Subset(galaxies.Galaxies(), [341, 342, 343])\n"
        "model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 3))\n"
        "with sonde.flow.trace(items=3) as trace:\n"
        "    for batch in DataLoader(data, batch_size=3):\n"
        "        torch.nn.functional.cross_entropy(model(batch['image']), batch['label'])\n"
        "trace.to_html('trace.html')\n"
    )
    if not (folder / "trace.html").exists():
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=120, stdout=QUIET, stderr=QUIET)
    photograph("flow", folder / "trace.html", 1100, 900, modes=("light",))


def verdict(kind: str, recording: Recording) -> None:
    """The head of a card: what is wrong, why, and what to do next."""
    folder = record(kind, recording)
    kept = folder / "report"
    shown = until(
        kept.read_text() if kept.exists() else ask(folder, "report"), "  also", "STEP TIME", "MEMORY", "ABOUT THIS"
    )
    first = re.search(r"^   ([A-Z_]{4,}) ", re.sub(r"\x1b\[[\d;]*m", "", shown), re.MULTILINE)
    if first is None or first[1] != kind:
        print(f"{kind}: this run has another verdict; delete {folder.relative_to(ROOT)} and try again")
        return
    terminal(
        f"verdicts/{kind}",
        f"sonde report · {Path(recording.source).stem}",
        shown.replace(f"{folder}/", "/data/").replace(f"{folder.name}/", "data/"),
    )


def watch() -> None:
    """The live screen while a training runs, as an animation of ten looks."""
    folder = WORK / "watch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = (ROOT / "examples/slow.py").read_text().replace("range(4)", "range(400)")
    (folder / "train.py").write_text(source)
    program = subprocess.Popen(
        [sonde(), "run", "--quiet", "python", "train.py"], cwd=folder, env=environment(), stdout=QUIET, stderr=QUIET
    )
    try:
        frames = asyncio.run(look(folder))
    finally:
        program.terminate()
        program.wait(60)
    pictures = []
    for number, frame in enumerate(frames):
        drawn, shot = folder / f"{number}.svg", folder / f"{number}.png"
        drawn.write_text(without_fonts(frame))
        width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frame)[0])
        page = folder / f"{number}.html"
        page.write_text(f"<body style='margin:0;background:#0d1117'><img src='{drawn.name}' width={width * 0.8:.0f}>")
        snap(page, shot, int(width * 0.8), int(height * 0.8))
        pictures.append(Image.open(shot).convert("RGB"))
    colours = pictures[0].quantize(24, dither=Image.Dither.NONE)  # one palette for all: only what changed is stored
    first, *rest = [picture.quantize(palette=colours, dither=Image.Dither.NONE) for picture in pictures]
    first.save(IMAGES / "watch.gif", save_all=True, append_images=rest, duration=1000, loop=0, disposal=1)


async def look(folder: Path) -> list[str]:
    """Ten screenshots, one each second, from the first verdict on."""
    from sonde.cli.live.screen import Reader
    from sonde.tui.app import Screen

    while not (found := sorted((folder / "sonde-runs").glob("*-train-*"))):  # noqa: ASYNC110  the other program makes it
        await asyncio.sleep(0.2)
    reader = Reader(found[-1])
    app = Screen(reader.look, None, refresh=1.0)
    frames: list[str] = []
    async with app.run_test(size=(110, 34)) as pilot:
        begun = time.monotonic()
        while time.monotonic() - begun < 120 and len(frames) < 10:
            await pilot.pause(1.0)
            if app.view is not None and app.view.verdict is not None:
                frames.append(app.export_screenshot(title="sonde watch train.py"))
    reader.close()
    return frames


if __name__ == "__main__":
    main()
