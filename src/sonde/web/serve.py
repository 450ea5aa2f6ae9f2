"""Starts the server: a free port, a token, the printed address; it ends with Ctrl-C."""

from __future__ import annotations

import logging
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import uvicorn

from sonde.errors import SettingError
from sonde.web.app import make_app
from sonde.web.folder import RunsFolder

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.web.endpoints.traces import TraceReader

PORT = 8700
MOST_TRIED = 50
LOOPBACK = "127.0.0.1"


class QuietEnd(uvicorn.Server):
    """Ends without a word about the requests that it cuts off: an open page of a run that grows always has one."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections; the next server sets the level of the log again."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


class WebServer:
    """A server that has its port already; `address` is what to open."""

    def __init__(
        self,
        folder: Path,
        chosen: str | None = None,
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        token: str | None = None,
        framed: bool = False,
        traces: TraceReader | None = None,
    ) -> None:
        """Raises SettingError if there is no such port or address."""
        self.token = token or secrets.token_urlsafe(24)
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.host = host
        self._chosen = chosen
        app = make_app(RunsFolder(folder, chosen, traces), self.token, host, framed=framed)
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        self.server = QuietEnd(settings)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        name = LOOPBACK if self.host in ("0.0.0.0", "::") else f"[{self.host}]" if ":" in self.host else self.host  # noqa: S104
        page = f"/runs/{quote(self._chosen, safe='')}" if self._chosen else "/"
        return f"http://{name}:{self.port}{page}?token={quote(self.token, safe='')}"

    def run(self) -> None:
        """Serve until Ctrl-C."""
        with suppress(KeyboardInterrupt):  # uvicorn raises it again when all is closed
            self.server.run(sockets=[self._socket])

    def close(self) -> None:
        """Give the port back without serving."""
        self._socket.close()


def _bound(host: str, port: int | None) -> socket.socket:
    """A socket on the port that is asked for; without one, on the first free port from 8700."""
    tried = [port] if port is not None else [*range(PORT, PORT + MOST_TRIED), 0]
    for number in tried:
        found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
        except OSError as problem:
            found.close()
            if port is not None or problem.errno not in _BUSY:
                what = f"{host}:{number}"
                raise SettingError(
                    f"Cannot listen on {what}: {problem.strerror}. Choose another --port or --host."
                ) from None
        else:
            return found
    raise SettingError(f"No free port from {PORT} to {PORT + MOST_TRIED - 1}. Choose one with --port.")


_BUSY = (98, 48, 13)  # address in use (Linux, macOS), not allowed
