"""The documentation: generated pages are up to date, and nothing is left out. `make docs` writes them again."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sonde import config
from sonde.version import __version__

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def test_settings_page_is_up_to_date() -> None:
    """docs/reference/settings.md is what the table of settings says; `make docs` writes it."""
    assert (ROOT / "docs/reference/settings.md").read_text() == config.document()


def test_each_setting_is_documented() -> None:
    """Each setting has a section with its variable."""
    page = (ROOT / "docs/reference/settings.md").read_text()
    for row in config.TABLE:
        assert f"## {row.name}\n" in page
        assert f"`{row.env}`" in page


def test_changelog_has_a_section_for_this_version() -> None:
    """Who changes the version says what has changed."""
    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_each_make_target_that_the_pages_name_exists() -> None:
    """`make something` in a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)[^`]*`", page.read_text())}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A link to a file of the project has that file at its end."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_each_extra_that_the_sources_name_exists() -> None:
    """`pip install 'sonde-ml[x]'` names an extra of pyproject.toml, and the error for a missing one names one too."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    sources = [*(ROOT / "src").rglob("*.py")]
    texts = [file.read_text() for file in [*PAGES, *sources]]
    named = {name for text in texts for name in re.findall(r"sonde-ml\[([a-z]+)\]", text)}
    raised = {name for text in texts for name in re.findall(r"MissingExtra\.of\([^,]+, \"([a-z]+)\"", text)}
    assert named >= {"pipeline", "huggingface", "lightning"}
    assert raised == {"pipeline", "huggingface", "lightning"}
    assert named | raised <= extras


def test_every_install_line_names_the_distribution() -> None:
    """On PyPI, `sonde` is another project: nobody may be sent there."""
    files = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").iterdir()]
    wrong = re.compile(r"pip install (-\S+ )*'?sonde(?!-ml)\b|sonde\[[a-z]+\]")
    assert not [file.name for file in files if file.is_file() and wrong.search(file.read_text())]


def test_every_module_that_the_architecture_names_exists() -> None:
    """The map and the walks can be followed with the editor open."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|c|h))`", text))
    assert len(named) > 40
    assert not {name for name in named if not (ROOT / "src/sonde" / name).exists() and not (ROOT / name).exists()}


if __name__ == "__main__":
    (ROOT / "docs/reference/settings.md").write_text(config.document())
