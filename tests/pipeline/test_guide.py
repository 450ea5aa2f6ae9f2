"""docs/reference/pipeline: the examples run, and each page leads to the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sonde

GUIDES = Path(__file__).resolve().parents[2] / "docs/reference/pipeline"


@pytest.mark.parametrize("page", ["flow.md", "model.md"])
def test_the_examples_of_a_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """One after the other, in one program."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    for block in re.findall(r"^```python\n(.*?)^```", (GUIDES / page).read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    assert isinstance(names["p"], sonde.Pipeline)
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


@pytest.mark.parametrize("page", sorted(path.name for path in GUIDES.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    """A link to a file of the project has that file at its end."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (GUIDES / page).read_text()):
        assert (GUIDES / target).exists(), f"{page} links to {target}"
