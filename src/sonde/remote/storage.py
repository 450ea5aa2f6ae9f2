"""A folder at a URL, through fsspec: what goes wrong there becomes one sentence, and passing faults are tried again."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sonde.errors import MissingExtra, RemoteError, SondeError
from sonde.store.redact import redact_text, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAUSES = (0.5, 2.0)  # seconds before it is tried again
LONGEST = 200  # characters of what a library says
# What libraries below fsspec raise that is no OSError: (module, class). They are loaded only if a URL needs them.
_RAISED = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp.client_exceptions", "ClientError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("azure.core.exceptions", "AzureError"),
    ("paramiko.ssh_exception", "SSHException"),
    ("fsspec.exceptions", "FSTimeoutError"),
    ("gcsfs.retry", "HttpError"),
)
_FOLDERS = ("file", "local", "sftp", "ssh", "smb", "hdfs", "webhdfs", "ftp", "memory")  # where folders have to be made
_FINAL = (FileNotFoundError, PermissionError, ImportError, ValueError, NotADirectoryError, IsADirectoryError)

_Answer = TypeVar("_Answer")


def is_url(word: str) -> bool:
    """Is this a URL, and no path?"""
    scheme, separator, _ = word.partition("://")
    return bool(separator) and scheme.replace("+", "").replace("-", "").replace(".", "").isalnum()


class RemoteFolder:
    """A folder at a URL. `shown` is the URL as it may be written down: without credentials."""

    def __init__(self, url: str) -> None:
        self.shown = redact_url(url).rstrip("/")
        files: Any
        files, root = self._tried("open", lambda: _opened(url))
        self._files = files
        protocol = files.protocol
        self._protocols = (protocol,) if isinstance(protocol, str) else tuple(protocol)
        self._root = str(root).rstrip("/")

    def below(self, *names: str) -> RemoteFolder:
        """A folder in this one."""
        made: RemoteFolder = object.__new__(RemoteFolder)
        made.shown = "/".join([self.shown, *names])
        made._files, made._protocols = self._files, self._protocols
        made._root = "/".join([self._root, *names])
        return made

    @property
    def name(self) -> str:
        """The last word of the URL."""
        return self.shown.rpartition("/")[2]

    def folders(self) -> list[str]:
        """The names of the folders in this one; empty if it is not there."""
        try:
            found = self._tried("list", lambda: self._files.ls(self._root, detail=True, refresh=True))
        except FileNotFoundError:
            return []
        return sorted(str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it is not there."""
        try:
            content: bytes = self._tried(f"read {name} at", lambda: self._files.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, and ask the store how long it is there."""
        path = f"{self._root}/{name}"
        try:
            self._tried(f"write {name} to", lambda: self._put(path, content))
            size = self._tried(f"check {name} at", lambda: self._files.info(path, refresh=True))["size"]
        except FileNotFoundError as error:
            self._fail(f"write {name} to", error)
        if size != len(content):
            raise RemoteError(f"{self.shown} stored {size} of {len(content)} bytes of {name}. Push again.")

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that nothing refers to. What cannot be removed stays."""
        for name in names:
            try:
                self._tried(f"remove {name} at", partial(self._files.rm_file, f"{self._root}/{name}"))
            except (FileNotFoundError, RemoteError):
                continue

    def _put(self, path: str, content: bytes) -> None:
        if not set(self._protocols) & set(_FOLDERS):  # an object appears whole
            self._files.pipe_file(path, content)
            return
        self._files.makedirs(self._root, exist_ok=True)
        self._files.pipe_file(f"{path}.part", content)
        self._files.mv(f"{path}.part", path)

    def _tried(self, doing: str, call: Callable[[], _Answer]) -> _Answer:
        """The answer of a store. Raises FileNotFoundError if there is no such file, else RemoteError."""
        for pause in (*PAUSES, None):
            try:
                return call()
            except (FileNotFoundError, SondeError):
                raise
            except _failures() as error:
                if pause is None or isinstance(error, _FINAL):
                    self._fail(doing, error)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _fail(self, doing: str, error: BaseException) -> NoReturn:
        raise RemoteError(f"Cannot {doing} {self.shown}: {_reason(error)}") from None


def _opened(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtra.of("fsspec", "cluster", "A run at a URL") from None
    files, root = url_to_fs(url, use_listings_cache=False)
    return files, root


def _failures() -> tuple[type[BaseException], ...]:
    """What a file system may raise: its own errors, and those of the libraries that it has loaded."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in _RAISED]
    loaded = [one for one in found if isinstance(one, type) and issubclass(one, Exception)]
    return (OSError, ImportError, ValueError, RuntimeError, *loaded)


def _reason(error: BaseException) -> str:
    """Why, and what to do."""
    said = redact_text(" ".join(str(error).split()))[:LONGEST].rstrip(".")
    if isinstance(error, ImportError):
        return f"{said}. Install that library with pip."
    if isinstance(error, PermissionError):
        return f"access denied ({said}). Check the credentials and the permissions of the bucket or folder."
    if isinstance(error, FileNotFoundError):
        return f"it does not exist ({said}). Create the bucket or folder."
    if isinstance(error, TimeoutError) or "imeout" in type(error).__name__:
        return "it does not answer in time. Try again later."
    return f"{said or type(error).__name__}. Check the URL and the network, then try again."
