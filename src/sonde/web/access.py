"""Access control: the token, the Host and the Origin of every request, and reading methods only."""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
METHODS = ("GET", "HEAD")
TOKEN = "token"  # noqa: S105  the name of the parameter
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)
NO_TOKEN = "This needs the token. Open the whole address that `sonde ui` printed, with ?token=..."  # noqa: S105
WRONG_HOST = "This server does not answer for that host name. Open the address that `sonde ui` printed."
WRONG_ORIGIN = "This request came from another site. Only pages of this server may send it."
WRONG_METHOD = "This server only reads: use GET."
# What a person sees who opens an address without its token: the application itself is behind the door.
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>Sonde</title><main><h1>Sonde</h1><p>{}</p></main></html>'
)


class Access:
    """Lets through only who has the token, asks this host, and only reads. Adds the headers that every answer has.

    `framed`: a notebook may show the page inside a cell.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, *, framed: bool = False) -> None:
        self._app = app
        self._token = token
        self._any = host in ("0.0.0.0", "::")  # noqa: S104  it is compared, not bound
        self._hosts = {*LOOPBACK, host.lower(), socket.gethostname().lower()}
        frames = "http://localhost:* http://127.0.0.1:*" if framed else "'none'"
        self._headers = {
            "content-security-policy": _POLICY.format(frames=frames),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            await self._refuse(send, headers, *refused)
            return
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if TOKEN in given and self._right(given[TOKEN]):
            await self._admit(scope, send)
        elif self._right(_bearer(headers)) or self._right(_cookie(headers, _cookie_name(scope))):
            await self._app(scope, receive, self._with_headers(send))
        else:
            await self._refuse(send, headers, 401, NO_TOKEN)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        if not self._known(headers.get("host", "")):
            return 403, WRONG_HOST
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
            return 403, WRONG_ORIGIN
        return (405, WRONG_METHOD) if scope["method"] not in METHODS else None

    def _known(self, given: str) -> bool:
        """Whether a Host is this machine. The port is free: `ssh -L` may lead here from another one."""
        try:
            name = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            return False
        return name in self._hosts or (self._any and _is_address(name))

    def _right(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self._token.encode())

    async def _admit(self, scope: Scope, send: Send) -> None:
        """Put the token into a cookie, and redirect to the same address without it."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([pair for pair in query if pair[0] != TOKEN])
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        where = "/" + path.lstrip("/\\") + (f"?{rest}" if rest else "")
        cookie = f"{_cookie_name(scope)}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        await self._send(send, 303, {"location": where, "set-cookie": cookie}, b"")

    async def _refuse(self, send: Send, headers: dict[str, str], status: int, sentence: str) -> None:
        more = {"allow": ", ".join(METHODS)} if status == 405 else {}
        if "text/html" in headers.get("accept", ""):  # somebody opened the address
            kind, body = "text/html; charset=utf-8", _PAGE.format(sentence)
        else:
            kind, body = "application/json", json.dumps({"error": sentence})
        await self._send(send, status, {"content-type": kind, **more}, body.encode())

    async def _send(self, send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
        send = self._with_headers(send)
        length = {"content-length": str(len(body)), "cache-control": "no-store"}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in (headers | length).items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    def _with_headers(self, send: Send) -> Send:
        own = [(name.encode(), value.encode()) for name, value in self._headers.items()]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        return sent


def _is_address(name: str) -> bool:
    """A number, which no foreign name server can point here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(headers: dict[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _cookie_name(scope: Scope) -> str:
    """Cookies do not know ports: several servers on one machine need several names."""
    server = scope.get("server")
    return f"sonde-{server[1] if server else 0}"


def _cookie(headers: dict[str, str], name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value
