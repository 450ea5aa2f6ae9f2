"""docs/reference/pipeline: the examples about data run, in the order in which they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs/reference/pipeline"


pytestmark = pytest.mark.usefixtures("as_before")


@pytest.mark.parametrize("page", ["dataset.md", "collation.md"])
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in one program."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)
