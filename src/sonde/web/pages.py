"""The static files of the page, and the page itself for every other address."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

from sonde.web.asking import error

if TYPE_CHECKING:
    from starlette.requests import Request

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
ASSETS = "assets/"  # their names change with their content
HOW_TO_BUILD = "The pages of sonde ui are not built. Build them in the source tree: make setup"
MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sonde</title>
<h1>The page is not built</h1>
<p>This installation has no front end. Build it in the source tree with <code>make setup</code>.</p>
<p>The data is there: <a href="/api/runs">/api/runs</a>.</p></html>
"""


def built(folder: Path = STATIC) -> bool:
    """Whether this installation has the front end."""
    return (folder / INDEX).is_file()


class Pages:
    """The built front end, by the names of its files: nothing else can be asked for."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}

    async def __call__(self, request: Request) -> Response:
        """A file, or the page."""
        name = request.path_params["path"]
        found = self._find(name)
        if found is None and name.startswith(
            ASSETS
        ):  # of another version: the page says that it has to be loaded again
            return error(404, "There is no such file. Sonde may have been updated: reload the page.")
        if found is None:
            name, found = INDEX, self._find(INDEX)
        if found is None:
            return Response(MISSING, media_type="text/html", headers={"cache-control": "no-store"})
        kept = "public, max-age=31536000, immutable" if name.startswith(ASSETS) else "no-cache"
        media = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(found.read_bytes(), media_type=media, headers={"cache-control": kept})

    def _find(self, name: str) -> Path | None:
        """A file of this name. They are listed again if it is not known, or gone: they may have been built anew."""
        found = self._files.get(name)
        if found is None or not found.exists():
            files = self._folder.rglob("*") if self._folder.is_dir() else ()
            self._files = {path.relative_to(self._folder).as_posix(): path for path in files if path.is_file()}
            found = self._files.get(name)
        return found
