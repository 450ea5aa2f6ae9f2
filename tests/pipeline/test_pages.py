"""docs/pipeline: the examples about data run, in the order in which they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.pipeline import registry

PAGES = Path(__file__).resolve().parents[2] / "docs/pipeline"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What an example registers is gone after it."""
    before = {name: dict(kind.registered) for name, kind in registry._kinds.items()}
    yield
    for name, kind in registry._kinds.items():
        kind.registered.clear()
        kind.registered.update(before[name])


@pytest.mark.parametrize("page", ["dataset.md", "collation.md"])
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in one program."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the project has that file at its end."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
