"""Sends OTLP messages to a collector over HTTP: compressed, in time, and again where the protocol says so."""

from __future__ import annotations

import gzip
import http.client
import random
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from sonde.errors import RemoteError
from sonde.store.redact import redact_text, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AGAIN = (429, 502, 503, 504)  # all that the protocol allows to retry
SECONDS = 10.0  # for one request
FIRST_PATIENCE = 5.0  # seconds of trying while nothing was ever taken: the address may be wrong
PATIENCE = 60.0
LONGEST_PAUSE = 8.0
LONGEST_ANSWER = 1 << 20  # bytes
SHOWN = 200  # characters of what a collector says


class Collector:
    """A receiver of OTLP over HTTP, by its base URL. `send` blocks until it has taken a message, or raises RemoteError.

    To be used in `with`, which closes the connection.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = SECONDS,
        first_patience: float = FIRST_PATIENCE,
        patience: float = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises RemoteError if this is no URL of HTTP."""
        self.shown = redact_url(url)
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname or (port is None and ":" in parts.netloc[-6:]):
            raise RemoteError(f"{self.shown} is not the URL of a collector. Example: http://localhost:4318")
        if any(ord(one) < 32 or ord(one) > 126 for pair in (headers or {}).items() for one in "".join(pair)):
            raise RemoteError("A header for the collector is not plain ASCII. Correct OTEL_EXPORTER_OTLP_HEADERS.")
        self._base = parts.path.rstrip("/")
        self._headers = {**(headers or {}), "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._seconds, self._patience, self._sleep = seconds, first_patience, sleep
        self._later_patience = patience
        self._late = False  # this request took too long
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=seconds)

    def send(self, path: str, message: bytes) -> bytes:
        """Give a message to `path` below the URL; the answer."""
        body = gzip.compress(message, 1, mtime=0)
        until = time.monotonic() + self._patience
        pause = 0.5
        while True:
            wait, reason = pause, ""
            try:
                status, after, answer = self._post(path, body)
            except ssl.SSLCertVerificationError as error:
                raise RemoteError(f"TLS verification of {self.shown} failed: {error.verify_message}.") from None
            except (OSError, http.client.HTTPException) as error:
                reason = f"does not answer ({_reason(error)})"
            else:
                if 200 <= status < 300:
                    self._patience = self._later_patience
                    return answer
                reason = f"answers {status}{_said(answer)}"
                if status not in AGAIN:
                    hint = (
                        ". Is it the base URL of an OTLP/HTTP receiver?" if status in (301, 302, 404, 405, 415) else ""
                    )
                    raise RemoteError(f"{self.shown} {reason}{hint}")
                wait = max(pause, after)
            wait *= random.uniform(0.8, 1.2)  # noqa: S311  many senders are not to come back together
            if time.monotonic() + wait > until:
                raise RemoteError(f"{self.shown} {reason}. Start the collector, or correct the URL.")
            self._sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def _post(self, path: str, body: bytes) -> tuple[int, float, bytes]:
        """One request: status, seconds to wait at least, answer. A collector that only trickles is cut off in time, too."""
        self._late = False
        late = threading.Timer(self._seconds, self._cut)
        late.daemon = True
        late.start()
        try:
            found = self._exchange(path, body)
        except BaseException:
            self._connection.close()
            raise
        finally:
            late.cancel()
        if self._late:  # what was cut looks like an answer that is complete
            self._connection.close()
            raise TimeoutError
        return found

    def _exchange(self, path: str, body: bytes) -> tuple[int, float, bytes]:
        self._connection.request("POST", f"{self._base}{path}", body, self._headers)
        answer = self._connection.getresponse()
        content = answer.read(LONGEST_ANSWER)
        if not answer.isclosed():
            self._connection.close()  # more than anybody reads
        after = answer.headers.get("Retry-After", "")
        seconds = float(after) if after.isascii() and after.isdecimal() and len(after) < 5 else 0.0
        return answer.status, seconds, content

    def _cut(self) -> None:
        self._late = True
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError | http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "timed out or closed"
    return redact_text(getattr(error, "strerror", None) or str(error) or type(error).__name__)[:SHOWN]


def _said(answer: bytes) -> str:
    """What a collector says of its refusal: a protobuf status, JSON or text, of which the readable part counts."""
    text = " ".join(
        "".join(one if one.isprintable() else " " for one in answer[:1000].decode("utf-8", "ignore")).split()
    )
    return f": {redact_text(text)[:SHOWN]}" if text else ""
