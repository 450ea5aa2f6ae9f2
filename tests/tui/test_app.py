"""The screen, driven by a pilot."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sonde import guard
from sonde.analysis.live.run import Live
from sonde.testing import build_run, build_training
from sonde.tui.app import Panel, Screen
from sonde.views.watch import Opinion, WatchView, watch

SECONDS = 60  # for anything to happen, on a busy machine
Act = Callable[[Screen, "Pilot[None]"], Awaitable[None]]


def drive(app: Screen, act: Act, size: tuple[int, int] = (120, 40)) -> None:
    """Show the screen, wait for the first look, act."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.view is not None)
            await pilot.pause()
            await act(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await pilot.pause(0.01)


def built(folder: Path, **training: Any) -> Callable[[], WatchView]:
    live = Live(build_training(folder / "run", **training))

    def look() -> WatchView:
        live.look()
        return watch(live)

    return look


def text(app: Screen, name: str) -> str:
    return app.query_one(f"#{name}", Panel)._drawn.plain


def shown(app: Screen) -> set[str]:
    """The parts that can be seen."""
    return {str(panel.id) for panel in app.query(Panel) if panel.display and panel.size.height and panel.size.width}


def still_running(view: WatchView) -> WatchView:
    return dataclasses.replace(view, headline=dataclasses.replace(view.headline, state="recording"))


def test_a_large_screen_shows_everything(tmp_path: Path) -> None:
    """Headline, step time, ranks, memory, items, layers, output and keys."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert shown(app) == {"head", "steps", "ranks", "memory", "items", "layers", "output", "keys"}
        assert "step 19" in text(app, "head")
        assert "input wait" in text(app, "steps")
        assert "1.00 GB" in text(app, "memory")
        assert "conv" in text(app, "layers")
        assert text(app, "output") == "hello"

    look = built(tmp_path, steps=20, ranks=2, workers=1, layers=("conv",), rss=lambda rank, step: 10**9)
    drive(Screen(look, iter([b"hello\n"] + [b""] * 1000).__next__), act)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (100, 30), (40, 12)])
def test_a_small_screen_shows_one_part_at_a_time(tmp_path: Path, size: tuple[int, int]) -> None:
    """Output at first, others by their key; the line of keys stays."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert shown(app) == {"head", "steps", "output", "keys"}
        for key, pane in (("r", "ranks"), ("m", "memory"), ("i", "items"), ("o", "output")):
            await pilot.press(key)
            await pilot.pause()
            assert shown(app) == {"head", "steps", pane, "keys"}

    drive(Screen(built(tmp_path, steps=20, workers=1), lambda: b""), act, size)


def test_a_chosen_part_has_the_screen_until_escape(tmp_path: Path) -> None:
    """On a large one too."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("i")
        await pilot.pause()
        assert shown(app) == {"head", "steps", "items", "keys"}
        await pilot.press("escape")
        await pilot.pause()
        assert "ranks" in shown(app)

    drive(Screen(built(tmp_path, steps=20), lambda: b""), act)


def test_another_size_is_another_arrangement(tmp_path: Path) -> None:
    """The terminal may be resized at any time."""
    sizes: list[tuple[int, int]] = []

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: shown(app) == {"head", "steps", "output", "keys"})
        await pilot.resize_terminal(160, 50)
        await until(pilot, lambda: "ranks" in shown(app))
        assert sizes[-1] == (158, 50)

    look = built(tmp_path, steps=20)
    drive(Screen(look, lambda: b"", resized=lambda columns, rows: sizes.append((columns, rows))), act)


def test_q_leaves(tmp_path: Path) -> None:
    """The program is not touched."""
    interrupted: list[bool] = []

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    drive(Screen(built(tmp_path), interrupt=lambda: interrupted.append(True)), act)
    assert interrupted == []


def test_ctrl_c_interrupts_a_program_that_was_started_here(tmp_path: Path) -> None:
    """The screen stays, to show how it ends."""
    interrupted: list[bool] = []

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert interrupted == [True]
        assert app.is_running
        assert "interrupted" in text(app, "keys")

    look = built(tmp_path)
    drive(Screen(lambda: still_running(look()), interrupt=lambda: interrupted.append(True)), act)


def test_ctrl_c_leaves_a_run_that_is_only_looked_at(tmp_path: Path) -> None:
    """And one that is over."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)

    drive(Screen(built(tmp_path)), act)


def test_output_that_fits_is_not_scrolled(tmp_path: Path) -> None:
    """Nor further back than to its first line, from which one key leads forward again."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        output = app.query_one("#output")
        await until(pilot, lambda: "line 2" in text(app, "output"))
        await pilot.press("up", "up", "up")
        await pilot.pause()
        assert str(output.border_title).strip() == "output"
        more.append(b"more\n" * output.content_size.height)
        await until(pilot, lambda: "line 2" not in text(app, "output"))
        await pilot.press("pageup", "pageup", "pageup")
        await pilot.pause()
        assert text(app, "output").startswith("line 0")
        assert "3 lines back" in str(output.border_title)
        await pilot.press("down")
        await pilot.pause()
        assert text(app, "output").startswith("line 1")

    more = [b"line 0\nline 1\nline 2\n"]
    drive(Screen(built(tmp_path), lambda: more.pop() if more else b"", refresh=0.05), act)


def test_the_screen_of_a_run_whose_folder_is_gone(tmp_path: Path) -> None:
    """What was known is still there. A program that was started here may still be interrupted."""
    interrupted: list[bool] = []

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        shutil.rmtree(tmp_path / "run")
        await until(pilot, lambda: "✖ gone" in text(app, "head"))
        assert "step 9" in text(app, "head")
        await until(pilot, lambda: "the run folder was deleted" in text(app, "notices"))
        assert "detach" in text(app, "keys")
        await pilot.press("ctrl+c")
        assert interrupted

    drive(Screen(built(tmp_path), refresh=0.05, interrupt=lambda: interrupted.append(True)), act)


def test_the_output_can_be_scrolled_back(tmp_path: Path) -> None:
    """With the keys of every pager; End returns."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "line 99" in text(app, "output"))
        await pilot.press("pageup")
        await pilot.pause()
        assert "line 99" not in text(app, "output")
        assert "20 lines back" in str(app.query_one("#output").border_title)
        await pilot.press("end")
        await pilot.pause()
        assert "line 99" in text(app, "output")

    lines = "".join(f"line {number}\n" for number in range(100)).encode()
    drive(Screen(built(tmp_path), iter([lines] + [b""] * 1000).__next__), act)


def test_without_output_there_is_no_place_for_it(tmp_path: Path) -> None:
    """A run that was started by something else writes elsewhere."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert "output" not in shown(app)

    drive(Screen(built(tmp_path, steps=20)), act)


def test_it_is_redrawn_only_where_something_changed(tmp_path: Path) -> None:
    """A view that stays the same costs no drawing."""
    drawn: list[str] = []

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        for panel in app.query(Panel):
            panel.update = lambda *_, name=panel.id, **__: drawn.append(str(name))  # type: ignore[method-assign]
        app._show()
        app._show()
        assert drawn == []

    drive(Screen(built(tmp_path, steps=20)), act)


def test_a_run_without_steps_waits(tmp_path: Path) -> None:
    """And says so."""
    live = Live(build_run(tmp_path / "run", []))

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert text(app, "steps") == "Waiting for the first training step to finish."
        assert "n/a" in text(app, "head")

    drive(Screen(lambda: watch(live)), act)


def test_without_colours_letters_make_the_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is honoured."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert "IIIIFFFFFF" in text(app, "steps").replace("\n", "")
        assert app.native_ansi_color

    drive(Screen(built(tmp_path, steps=20)), act)


LONG = "3 items take over 5 ms to load, the median item takes 0.58 ms. " * 3 + "Slowest: item 237."


def judged(look: Callable[[], WatchView]) -> Callable[[], WatchView]:
    opinion = Opinion("SLOW_ITEMS", "critical", LONG, "Look at item 237 first.", age_ns=12 * 10**9)
    return lambda: dataclasses.replace(still_running(look()), verdict=opinion)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
def test_the_whole_verdict_can_be_read(tmp_path: Path, size: tuple[int, int]) -> None:
    """`v` shows every word of it and how old it is; Escape shows the rest again."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert "10 s ago" in text(app, "verdict")
        await pilot.press("v")
        await until(pilot, lambda: shown(app) == {"head", "whole", "keys"} and bool(text(app, "whole")))
        words = text(app, "whole").split()
        assert set(LONG.split()) < set(words)
        assert " ".join(words).endswith("next Look at item 237 first.")
        await pilot.press("escape")
        await until(pilot, lambda: "steps" in shown(app) and "whole" not in shown(app))

    drive(Screen(judged(built(tmp_path, steps=20)), lambda: b""), act, size)


def test_a_question_mark_shows_what_each_key_does(tmp_path: Path) -> None:
    """On the smallest screen too, where the line of keys has no room for all."""

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        assert "? help" in text(app, "keys")
        await pilot.press("question_mark")
        await until(pilot, lambda: "memory, items" in " ".join(text(app, "help").split()))

    drive(Screen(judged(built(tmp_path, steps=20)), lambda: b""), act, (60, 20))


def test_a_look_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """The next one may go well."""
    look = built(tmp_path, steps=20)
    views = [still_running(look())]

    async def act(app: Screen, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: guard.counts().get("updating the screen", 0) > 0)
        assert "step 19" in text(app, "head")

    drive(Screen(views.pop, lambda: b"", refresh=0.05), act)
