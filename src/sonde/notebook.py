"""Sonde in IPython and Jupyter: `%load_ext sonde`, the magic `%%sonde`, and reports that show themselves."""

from __future__ import annotations

import html
import io
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console

from sonde import session
from sonde.analysis.run import Run, open_run
from sonde.capture.trace import trace
from sonde.config import NAMES
from sonde.diagnosis.summary import current_run
from sonde.errors import SettingError, nearest
from sonde.html import page
from sonde.terminal.report import draw_card
from sonde.views.charts import charts
from sonde.views.report import report as view_of

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.views.report import Report

COLUMNS = 100
HEIGHT = 560  # pixels
TRACED = ("items", "batches")  # what `%%sonde flow` may limit


class ShownReport:
    """The report of a run: `print` draws the card of `sonde report`, a notebook shows the page. `view` has everything as data."""

    def __init__(self, view: Report, content: str) -> None:
        """Use `sonde.report()` instead."""
        self.view = view
        self._content = content

    @property
    def verdict(self) -> str:
        """The kind of the verdict, such as INPUT_BOUND."""
        return self.view.verdict.kind

    def __repr__(self) -> str:
        console = Console(
            file=io.StringIO(), force_jupyter=False, width=COLUMNS, highlight=False, emoji=False, markup=False
        )
        draw_card(self.view, console)
        found: io.StringIO = console.file  # type: ignore[assignment]
        return found.getvalue().rstrip()

    def _repr_html_(self) -> str:
        # In a frame of its own: its styles are for a whole page. It runs no script.
        content = html.escape(self._content, quote=True)
        style = f"width: 100%; height: {HEIGHT}px; border: 1px solid #8884; border-radius: 6px"
        return f'<iframe sandbox="" title="Report of Sonde" style="{style}" srcdoc="{content}"></iframe>'


def report(run: Run | str | Path | None = None) -> ShownReport:
    """The report of a run: verdict, evidence, next step, step time, memory.

    `run` is an open run or its folder. Default: the run that this process records, else the newest one.
    """
    if isinstance(run, Run):
        return _shown(run)
    with open_run(run if run is not None else current_run()) as opened:
        return _shown(opened)


def _shown(run: Run) -> ShownReport:
    view = view_of(run)
    return ShownReport(view, page(view, charts(run)))


def load_ipython_extension(shell: Any) -> None:
    """Make `%%sonde` known. IPython calls this for `%load_ext sonde`."""
    shell.register_magic_function(lambda line, cell: _magic(shell, line, cell), "cell", "sonde")


def _magic(shell: Any, line: str, cell: str) -> object:
    """`%%sonde [SETTING=VALUE]...` records the cell; `%%sonde flow [items=N]` traces its values."""
    from IPython.core.error import UsageError  # of the shell that calls this

    words = shlex.split(line)
    try:
        if words[:1] == ["flow"]:
            return _traced(shell, _given(words[1:], list(TRACED), "%%sonde flow"), cell)
        return _recorded(shell, _given(words, NAMES, "%%sonde"), cell)
    except SettingError as error:
        raise UsageError(str(error)) from None


def _given(words: list[str], valid: list[str], magic: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if name not in valid:
            raise SettingError(f"{magic} has no setting {name!r}. {nearest(name, valid)}")
        found[name] = value if sign else True
    return found


def _recorded(shell: Any, settings: dict[str, Any], cell: str) -> ShownReport | None:
    outer = session.current()
    running = session.init(**{"name": "cell", **settings})
    try:
        shell.run_cell(cell)  # it shows an exception itself
    finally:
        if outer is None:
            running.finish()
    return None if running.path is None else report(running.path)


def _traced(shell: Any, limits: dict[str, Any], cell: str) -> object:
    wrong = next((name for name, value in limits.items() if not str(value).isdecimal()), None)
    if wrong is not None:
        raise SettingError(f"{wrong} is {limits[wrong]!r}. Use a whole number, such as {wrong}=4.")
    counts: dict[str, Any] = {name: int(value) for name, value in limits.items()}
    with trace(**counts) as found:
        shell.run_cell(cell)
    return found
