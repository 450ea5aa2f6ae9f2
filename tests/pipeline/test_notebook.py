"""The notebook examples/trace.ipynb: it runs from top to bottom, and shows what trace.golden says.

Durations and digests are masked; other numbers may differ by a little, as they do between processors.
`python tests/pipeline/test_notebook.py` runs the notebook, and writes its outputs and the golden text again.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "trace.ipynb"
GOLDEN = Path(__file__).with_name("trace.golden")
SECONDS = 120
NUMBER = re.compile(r"(-?\d+\.\d*(?:e[-+]?\d+)?)")


def executed(folder: Path) -> Any:
    """The notebook after a run in this folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


def shown(notebook: Any) -> str:
    """What the cells have printed, cell by cell, with masks."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "\n".join(f"[{number}]\n{_printed(cell)}" for number, cell in enumerate(cells, 1))


def _printed(cell: Any) -> str:
    printed = "".join(_text(output) for output in cell.outputs)
    masked = re.sub(r"duration=\S+ ms", "duration=* ms", printed)
    return re.sub(r"hash=\d+", "hash=*", masked)


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    return f"{output.data['text/plain']}\n" if "data" in output else "\n".join(output.traceback)


def same(found: str, golden: str) -> bool:
    """Are two texts equal, but for the last digits of numbers?"""
    one, other = NUMBER.split(found), NUMBER.split(golden)
    return len(one) == len(other) and all(
        (math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-4) if place % 2 else a == b)
        for place, (a, b) in enumerate(zip(one, other, strict=True))
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_shows_what_the_golden_text_says(tmp_path: Path) -> None:
    """And leaves nothing behind: all its verbs are traced."""
    found = shown(executed(tmp_path))
    assert same(found, GOLDEN.read_text()), found
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_is_shipped_with_these_outputs() -> None:
    """Who reads it without running it sees the same."""
    import nbformat

    assert same(shown(nbformat.read(NOTEBOOK, as_version=4)), GOLDEN.read_text())


@pytest.mark.parametrize(
    ("text", "equal"),
    [("x=0.50001 y", True), ("x=0.6 y", False), ("x=0.5 z", False), ("x=0.5 y 0.5", False), ("x=nan y", False)],
)
def test_small_differences_are_allowed_in_numbers_only(text: str, equal: bool) -> None:
    """The comparison itself is able to fail."""
    assert same(text, "x=0.5 y") is equal


def rewrite() -> None:
    """Run the notebook, and keep what it shows."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Path(folder))
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, NOTEBOOK)
    GOLDEN.write_text(shown(notebook))


if __name__ == "__main__":
    rewrite()
    sys.stdout.write(GOLDEN.read_text())
