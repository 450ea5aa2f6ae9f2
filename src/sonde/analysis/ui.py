"""`sonde ui` for one run in a separate process: for a notebook cell, or next to a watched program."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import threading
import weakref
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from sonde import environment
from sonde.errors import SondeError
from sonde.guard import guard

if TYPE_CHECKING:
    from pathlib import Path

_ADDRESS = re.compile(r"http://\S+\?token=\S+")
_GRACE = 5.0  # seconds for the server to end
# A browser counts localhost and 127.0.0.1 as two sites and keeps the token from a frame of the other one.
_SAME_NAME = (
    "for (const one of document.querySelectorAll('iframe[data-sonde]')) {"
    "const url = new URL(one.dataset.sonde);"
    "if (['localhost', '127.0.0.1'].includes(location.hostname)) url.hostname = location.hostname;"
    "if (one.src !== url.href && !one.dataset.shown) { one.dataset.shown = 1; one.src = url.href }}"
)


class RunPage:
    """The pages of a run, served until `close()` or the end of this program. A notebook shows them in the cell."""

    def __init__(self, path: Path, *, framed: bool = False, height: int = 720) -> None:
        """Start the server. Raises SondeError if it does not start."""
        self.height = height
        line = [sys.executable, "-m", "sonde", "ui", str(path.resolve()), "--no-open", "--attached"]
        self._process = subprocess.Popen(  # noqa: S603  our own command
            [*line, "--framed"] if framed else line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment.unrecorded(),
            start_new_session=True,  # Ctrl-C is for the program
        )
        weakref.finalize(self, _end, self._process)
        assert self._process.stdout is not None
        try:
            self.address = _address(self._process.stdout)
        except SondeError:
            self._process.stdout.close()
            _end(self._process)
            raise
        self._drain = threading.Thread(target=_drain, args=(self._process.stdout,), name="sonde page", daemon=True)
        self._drain.start()

    def close(self) -> None:
        """End the server."""
        _end(self._process)
        self._drain.join(_GRACE)

    def __repr__(self) -> str:
        return f"Sonde shows this run at {self.address}"

    def _repr_html_(self) -> str:
        address = html.escape(self.address, quote=True)
        port = urlsplit(self.address).port
        far = f"If the notebook runs on another machine, first forward the port: ssh -L {port}:127.0.0.1:{port} HOST"
        frame = f'<iframe data-sonde="{address}" title="Sonde" width="100%" height="{self.height}" style="border:0"></iframe>'
        link = f'<p><a href="{address}" target="_blank" rel="noreferrer">Open in a tab</a>. {far}</p>'
        return f"{frame}{link}<script>{_SAME_NAME}</script>"


def _address(output: IO[str]) -> str:
    """The address that the server prints. Raises SondeError with what it said if it ended instead."""
    said = []
    for line in output:
        found = _ADDRESS.search(line)
        if found:
            return found[0]
        said.append(line)
    raise SondeError("".join(said).strip().removeprefix("Error: ") or "`sonde ui` ended immediately.")


def _drain(output: IO[str]) -> None:
    """Read what else the server says, so that it never waits for a reader."""
    with output:
        for _ in output:
            pass


def _end(process: subprocess.Popen[str]) -> None:
    """The server ends when its standard input does."""
    with guard("ending the page of a run"):
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
