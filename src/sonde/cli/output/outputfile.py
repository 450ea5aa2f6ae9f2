"""The file that a command writes a page to: checked before the work begins, and never replaces a file that Sonde did not write."""

from __future__ import annotations

from pathlib import Path

from sonde.errors import FolderRefused
from sonde.html import is_page


def page_target(given: str, kind: str) -> Path:
    """The path, if a page of this kind (`report`, `black box`) can be written there. Raises FolderRefused."""
    path = in_a_folder(Path(given))
    if path.exists() and not (path.is_file() and is_page(path, kind)):
        raise FolderRefused(f"{path} exists and is not a Sonde {kind}. Choose another name with --html.")
    return path


def in_a_folder(path: Path) -> Path:
    """The path, if its folder exists and it is none itself. Raises FolderRefused."""
    if path.is_dir():
        raise FolderRefused(f"{path} is a folder. Give a file name with --html.")
    if not path.parent.is_dir():
        raise FolderRefused(f"There is no folder {path.parent}. Create it, or choose another path with --html.")
    return path
