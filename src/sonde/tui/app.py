"""The screen of `sonde watch`: looks at a run once a second, and redraws only what changed."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from sonde.guard import guard
from sonde.tui import paint
from sonde.tui.scroll import Scroll

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from sonde.views.watch import WatchView

PANES = ("output", "ranks", "memory", "items", "layers")
OVER = ("whole", "help")  # shown in the place of everything between headline and keys
COLUMNS = {"left": {"ranks", "memory"}, "right": {"items", "layers"}}
WIDE, TALL = 100, 34  # from this size on everything is shown at once
HISTORY_ROWS = ((40, 4), (24, 2), (18, 1))  # from which height on the history has how many rows
SHORT = 16  # below this the legend has one row
HIGH = 28  # from this on a sentence may have two rows
SOON = 0.25  # seconds between looks until the first step was seen
SHARE = 0.025  # of a core: what looking may cost; what costs more is done less often
LONGEST = 10.0  # but not less often than this
IDLE = 2.0  # and, at least, when nothing changes any more


class Panel(Static):
    """One part of the screen. `draw` gives its text for a width and a height; `grows`: it is as high as its text."""

    def __init__(
        self,
        id: str,
        draw: Callable[[WatchView, int, int], Text],
        title: Callable[[WatchView], str] | None = None,
        *,
        grows: bool = False,
    ) -> None:
        super().__init__("", id=id, classes="panel" if title else "", markup=False)
        self._draw = draw
        self._title = title
        self._grows = grows
        self._view: WatchView | None = None
        self._drawn = Text()

    def show(self, view: WatchView) -> None:
        """Draw this; nothing is done if it looks the same."""
        self._view = view
        if self._title is not None:
            title = f" {self._title(view)} "
            if self.border_title != title:
                self.border_title = title
        width, height = self.content_size
        if not width or not self.display:
            return
        drawn = self._draw(view, width, height)
        if drawn != self._drawn:
            self._drawn = drawn
            self.update(drawn, layout=False)
            if self._grows:
                self.styles.height = len(drawn.plain.splitlines()) + bool(self._title)

    def on_resize(self, _: events.Resize) -> None:
        """Draw again in the new size."""
        if self._view is not None:
            self.show(self._view)


class Screen(App[None]):
    """The whole screen.

    `look` reads the run, `read` the program's new output (None: it cannot be had). `interrupt` is what Ctrl-C does, if it
    is more than leaving.
    """

    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", priority=True),
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("ctrl+q", "leave", priority=True),
        *(Binding(pane[0], f"choose('{pane}')") for pane in PANES),
        Binding("v", "choose('whole')"),
        Binding("question_mark", "choose('help')"),
        Binding("escape", "choose('')"),
        Binding("up,k", "scroll(1)"),
        Binding("down,j", "scroll(-1)"),
        Binding("pageup", "scroll(20)"),
        Binding("pagedown", "scroll(-20)"),
        Binding("end", "scroll(-1000000)"),
    ]

    def __init__(
        self,
        look: Callable[[], WatchView],
        read: Callable[[], bytes] | None = None,
        *,
        refresh: float = 1.0,
        interrupt: Callable[[], None] | None = None,
        resized: Callable[[int, int], None] | None = None,
        pane: str = "",
    ) -> None:
        plain = Console(stderr=True).no_color
        super().__init__(ansi_color=plain)
        self.view: WatchView | None = None
        self._coloured = not plain
        self._look = look
        self._read = read
        self._every = refresh
        self._interrupt = interrupt
        self._resized = resized
        self._scroll = Scroll()
        self._back = 0  # lines that the output is scrolled back
        self._chosen = pane
        self._interrupted = False

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Panel("head", lambda view, width, _: paint.headline(view, width))
        yield Panel("verdict", lambda view, width, _: paint.verdict(view, width, self._rows()), grows=True)
        yield Panel("notices", lambda view, width, _: paint.notices(view, width, 4), grows=True)
        yield Panel("steps", self._draw_steps, lambda view: paint.steps_title(view.step_time), grows=True)
        with Container(id="middle"):
            with Container(id="left", classes="column"):
                yield Panel("ranks", paint.ranks, paint.ranks_title)
                yield Panel("memory", paint.memory, lambda _: "memory")
            with Container(id="right", classes="column"):
                yield Panel("items", paint.items, paint.items_title)
                yield Panel("layers", paint.layers, lambda _: "layers")
        yield Panel("output", self._draw_output, lambda _: self._output_title())
        yield Panel("whole", paint.whole_verdict, lambda _: "verdict")
        yield Panel("help", lambda _, width, __: paint.help_text(width), lambda _: "keys")
        yield Panel("keys", lambda _, width, __: paint.keys(self._keys(), self._pane(), width))

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_mount(self) -> None:
        """Begin to look. A screen that is asked to end leaves the terminal as it was."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self._arrange()
        self.run_worker(self._follow(), exclusive=True)

    async def _follow(self) -> None:
        while True:
            begun = time.process_time()
            before = self.view
            with guard("updating the screen"):  # what was read before stays on the screen
                self.view = await asyncio.to_thread(self._look)
                if self._read is not None:
                    self._scroll.feed(await asyncio.to_thread(self._read))
            self._show()
            await asyncio.sleep(self._pause(before, time.process_time() - begun))

    def _pause(self, before: WatchView | None, cost: float) -> float:
        """Seconds until the next look, if the last one took so many seconds of a core."""
        if self.view is not None and self.view.headline.state in ("ended", "died", "gone"):
            return max(self._every, IDLE)
        if before is None or not before.step_time.steps:
            return min(SOON, self._every)
        return max(self._every, min(cost / SHARE, LONGEST))

    def _show(self) -> None:
        view = self.view
        if view is None:
            return
        with self.batch_update():
            over = self._chosen in OVER
            self.query_one("#verdict").display = not over and view.verdict is not None and self.size.height >= SHORT
            self.query_one("#notices").display = not over and bool(view.notices)
            self.query_one("#steps").display = not over
            self._arrange()
            for panel in self.query(Panel):
                panel.show(view)

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_steps(self, view: WatchView, width: int, _: int) -> Text:
        rows = next((rows for height, rows in HISTORY_ROWS if self.size.height >= height), 0)
        return paint.step_time(view, width, rows=rows, coloured=self._coloured, short=self.size.height < SHORT)

    def _rows(self) -> int:
        """Of each sentence of the verdict."""
        return 2 if self.size.height >= HIGH else 1

    def _draw_output(self, _: WatchView, width: int, height: int) -> Text:
        if self._read is None:
            return Text("The program writes to its own terminal.", paint.QUIET)
        last = len(self._scroll) - self._lines_back()
        shown = self._scroll.lines(last - height, last)
        for line in shown:
            line.truncate(width)
        return Text("\n").join(shown)

    def _output_title(self) -> str:
        back = self._lines_back()
        return f"output · {back} lines back, End returns" if back else "output"

    def _lines_back(self) -> int:
        """How many lines the output is scrolled back: with the first one at the top, no further."""
        room = self.query_one("#output").content_size.height
        return min(self._back, max(len(self._scroll) - room, 0))

    def _keys(self) -> list[tuple[str, str]]:
        assert self.view is not None
        state = self.view.headline.state
        over = state in ("ended", "died", "unknown") or (state == "gone" and self._interrupt is None)
        leave = "leave" if over else "detach, keep it running" if self.size.width >= WIDE else "detach"
        keys = [("q", leave)]
        if self._interrupt is not None and not over:
            keys.append(("^C", "interrupted" if self._interrupted else "interrupt"))
        if self._chosen:
            keys.append(("esc", "all"))
        if self.view.verdict is not None:
            keys.append(("v", "verdict"))
        return [*keys, ("?", "help"), *((pane[0], pane) for pane in self._panes())]

    # ── arranging ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _panes(self) -> list[str]:
        """The parts that there is something to show in."""
        deep = self.view is not None and bool(self.view.layers or self.view.headline.deep)
        return [pane for pane in PANES if (pane != "layers" or deep) and (pane != "output" or self._read is not None)]

    def _roomy(self) -> bool:
        return self.size.width >= WIDE and self.size.height >= TALL

    def _pane(self) -> str | None:
        """The one part that is shown; None: all."""
        if self._chosen in (*self._panes(), *OVER):
            return self._chosen
        return None if self._roomy() else self._panes()[0]

    def _arrange(self) -> None:
        """Show what there is room for."""
        pane = self._pane()
        shown = set(self._panes()) if pane is None else {pane}
        for name in (*PANES, *OVER):
            self.query_one(f"#{name}").display = name in shown
        for column, names in COLUMNS.items():
            self.query_one(f"#{column}").display = bool(shown & names)
        self.query_one("#middle").display = bool(shown & {name for names in COLUMNS.values() for name in names})

    def on_resize(self, event: events.Resize) -> None:
        """Another size: arrange anew, and tell the program how wide its terminal is."""
        if self._resized is not None:
            self._resized(event.size.width - 2, event.size.height)
        self._show()

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def action_choose(self, pane: str) -> None:
        """Show only this part, or all again."""
        self._chosen = "" if pane == self._chosen else pane
        self._show()
        self.call_after_refresh(self._show)

    def action_scroll(self, lines: int) -> None:
        """Move through the output."""
        self._back = max(self._lines_back() + lines, 0)
        self._back = self._lines_back()
        self._show()

    def action_leave(self) -> None:
        """Leave the screen; the program goes on."""
        self.exit()

    def action_interrupt(self) -> None:
        """As Ctrl-C without a screen: the program is interrupted. Where it is not ours or is over, the screen is left."""
        if self._interrupt is None or (self.view is not None and self.view.headline.state in ("ended", "died")):
            self.exit()
            return
        self._interrupt()
        self._interrupted = True
        self._show()
