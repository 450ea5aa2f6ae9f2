"""The documentation: generated pages are up to date, and nothing is left out. `make docs` writes them again."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.test_strings import BANNED, HOLE, strings

import sonde
import sonde.flow
from sonde import config
from sonde.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
GUIDES = [page for page in PAGES if page.parent.name != "decisions"]


def test_settings_page_is_up_to_date() -> None:
    """docs/reference/settings.md is what the table of settings says; `make docs` writes it."""
    assert (ROOT / "docs/reference/settings.md").read_text() == settings_page()


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


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_private_word(page: Path) -> None:
    """The words that no message may have, outside of code."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [line for line in prose.splitlines() if BANNED.search(re.sub(r"`[^`]*`", "", line))]
    assert not found, "\n".join(found)


def test_an_entry_of_the_changelog_is_short() -> None:
    """Two or three sentences, for people who upgrade."""
    entries = re.split(r"^- ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert not [entry for entry in entries if len(entry.split()) > 60]


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
    assert raised >= {"pipeline", "huggingface", "lightning", "mcp"}
    assert named | raised <= extras


def test_every_install_line_names_the_distribution() -> None:
    """On PyPI, `sonde` is another project: nobody may be sent there."""
    files = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").iterdir()]
    wrong = re.compile(r"pip install (-\S+ )*'?sonde(?!-ml)\b|sonde\[[a-z]+\]")
    assert not [file.name for file in files if file.is_file() and wrong.search(file.read_text())]


def test_every_snippet_of_the_readme_runs(tmp_path: Path) -> None:
    """Pasted in order, beside a `train.py`: the commands, then the Python."""
    (tmp_path / "train.py").write_text((ROOT / "examples/slow.py").read_text().replace("range(4)", "range(1)"))
    text = (ROOT / "README.md").read_text()
    commands = [line for block in blocks(text, "sh") for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        run(["sonde", *shlex.split(command, comments=True)[1:]], tmp_path)
    for block in blocks(text, "python"):
        assert "Trace Stages" in run(["python", "-c", block], tmp_path)


def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    """Its program, its commands and its questions, in order; the NaN is found in item 342."""
    program, question, trace = blocks((ROOT / "docs/tutorial/first-hour.md").read_text(), "python")
    program = program.replace("range(4)", "range(1)")
    (tmp_path / "train.py").write_text(program)
    run(["sonde", "run", "train.py"], tmp_path)
    assert re.search(r"\(\d+, [01], 2\d\d\.", run(["python", "-c", question], tmp_path))
    assert "Trace Stages" in run(["python", "-c", trace], tmp_path)
    line = re.findall(r"        return torch.randn\(64\).*", (ROOT / "docs/tutorial/first-hour.md").read_text())[1]
    (tmp_path / "train.py").write_text(re.sub(r"        return torch.randn\(64\).*", line, program))
    run(["sonde", "run", "--blackbox", "--watch-nonfinite", "train.py"], tmp_path)
    assert "item 342" in run(["sonde", "blackbox"], tmp_path)


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page, by language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """Run a command of this environment; what it printed."""
    program = str(Path(sys.executable).with_name(command[0]))
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_rule_has_a_place_in_the_gallery() -> None:
    """Each verdict that the page of rules names is explained, with a fix."""
    rules = re.findall(r"^### (\w+)", (ROOT / "docs/reference/rules.md").read_text(), re.MULTILINE)
    shown = re.findall(
        r"^### (\w+)\n\n\S.*?\n- ", (ROOT / "docs/reference/verdicts.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert sorted(rules) == sorted(shown)


def test_every_verdict_that_needs_no_device_has_a_picture() -> None:
    """The gallery shows the card of a real run, except where the fault needs a GPU."""
    sections = re.split(r"^### ", (ROOT / "docs/reference/verdicts.md").read_text(), flags=re.MULTILINE)[1:]
    without = {section.split()[0] for section in sections if "](../images/verdicts/" not in section}
    assert without == {
        "H2D_BOUND", "LAUNCH_BOUND", "GPU_UNDERUSED", "GPU_THROTTLED", "GPU_IMBALANCE", "GPU_MEMORY_UNUSED",
    }  # fmt: skip


def test_the_pictures_of_verdicts_have_the_present_words() -> None:
    """Each sentence on a card of the gallery is one that a rule says today; `make pictures` draws a card again."""
    said_by_rules = {
        _pattern(sentence) for line in strings() if line.startswith("diagnosis/") for sentence in _sentences(line)
    }
    old = [
        f"{picture.stem}: {sentence}"
        for picture in sorted((ROOT / "docs/images/verdicts").glob("*.svg"))
        for sentence in _sentences_on(picture)
        if not any(one.search(sentence) for one in said_by_rules)
    ]
    assert not old, "\n".join(old)


def _sentences(line: str) -> list[str]:
    """The sentences of a text in the list, with two fixed words or more."""
    parts = re.split(r"(?<=[.?!]) ", line.partition(": ")[2].replace("{}", HOLE))
    return [part for part in parts if len(re.findall(r"[a-z]{2,}", part)) >= 2]


def _pattern(sentence: str) -> re.Pattern[str]:
    """Any value where the text has a hole."""
    fixed = re.sub(rf"^({HOLE} ?)+", "", sentence).split(HOLE)
    return re.compile(".*".join(map(re.escape, fixed)), re.IGNORECASE)


def _sentences_on(picture: Path) -> list[str]:
    """What a card says after `why` and `next`."""
    rows: dict[float, str] = {}
    for place, text in re.findall(r'<text[^>]*y="([\d.]+)"[^>]*>(.*?)</text>', picture.read_text()):
        rows[float(place)] = rows.get(float(place), "") + html.unescape(text)
    card = " ".join(" ".join(rows[place].split()) for place in sorted(rows))
    said = re.search(r" why (.*?) next (.*)", card)
    assert said, picture
    return [one for text in said.groups() for one in re.split(r"(?<=[a-z)%`0-9?]\.) (?=[A-Z])", text)]


@pytest.mark.parametrize("module", [sonde, sonde.flow], ids=lambda module: module.__name__)
def test_each_public_function_is_on_the_page_of_the_api(module: ModuleType) -> None:
    """docs/reference/python.md is made from the docstrings of all of them."""
    page = (ROOT / "docs/reference/python.md").read_text()
    functions = [name for name in module.__all__ if name.islower() and callable(getattr(module, name)) and name != "ai"]
    assert len(functions) > 10
    assert not [name for name in functions if f"{module.__name__}.{name}" not in page]


def test_pictures_are_small_and_load_nothing() -> None:
    """Each is below 250 kB, is used by a page, and links to no other host."""
    used = "".join(page.read_text() for page in PAGES)
    for picture in (path for path in (ROOT / "docs/images").rglob("*") if path.is_file()):
        assert picture.stat().st_size < 250_000, picture
        assert picture.name in used, picture
        if picture.suffix == ".svg":
            assert not re.search(r"(href|src|url\()[=\"' ]*https?:", picture.read_text()), picture


def test_every_module_that_the_architecture_names_exists() -> None:
    """The map and the walks can be followed with the editor open."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|c|h))`", text))
    assert len(named) > 40
    assert not {name for name in named if not (ROOT / "src/sonde" / name).exists() and not (ROOT / name).exists()}


def test_every_module_that_a_decision_names_exists() -> None:
    """Except in the pages that recount what was renamed."""
    told = {"001", "200", "201", "289", "290", "298", "305"}
    missing = {
        f"{page.name}: {name}"
        for page in (ROOT / "docs/decisions").glob("*.md")
        if page.name[:3] not in told
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|c|h))`", page.read_text())
        if not (ROOT / "src/sonde" / name).exists() and not (ROOT / name).exists()
    }
    assert not missing


def test_every_decision_has_its_own_number_and_a_line_in_the_index() -> None:
    """The index names each page once, by its number and its title."""
    folder = ROOT / "docs/decisions"
    pages = [path for path in folder.glob("*.md") if path.name != "README.md"]
    titles = {(path.name[:3], path.name, path.read_text().split("\n")[0].removeprefix("# ")) for path in pages}
    rows = re.findall(r"^- \[(\d{3})\]\(([\w.-]+)\) (.+)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert len({number for number, _, _ in titles}) == len(titles)
    assert sorted(rows) == sorted(titles)


def test_no_walk_comes_by_a_module_twice() -> None:
    """They go forward, from the program to the screen."""
    lines = [
        line.strip().removeprefix("|").removesuffix("|").split("|")
        for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    ]
    walks = list(zip_longest(*(line for line in lines if len(line) > 1 and ".py`" in "".join(line))))
    assert len(walks) == 4
    for walk in walks:
        names = [one.strip() for one in walk if one and one.strip()]
        assert len(names) > 10
        assert len(names) == len(set(names))


def test_every_package_and_top_level_module_stands_in_the_map() -> None:
    """Who opens the tree finds each name of it in ARCHITECTURE.md."""
    source = ROOT / "src/sonde"
    drawn = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    top = {path.name for path in source.glob("*.py")}
    packages = {f"{path.parent.name}/" for path in source.rglob("__init__.py") if path.parent != source}
    assert {"flow.py", "guard.py"} <= top
    assert {"learning/", "web/"} <= packages
    missing = {name for name in top | packages if not re.search(rf"(?<![\w.]){re.escape(name)}", drawn)}
    assert missing <= {"__main__.py"}


# ── the page of settings ─────────────────────────────────────────────────────────────────────────────────────────────

_INTRODUCTION = """# Settings

<!-- Made from the table in src/sonde/config.py by `make docs`. -->

A setting takes its value from the first of these sources:

1. an argument: `sonde.init(cap="500MB")`;
2. an environment variable: `SONDE_CAP=500MB` (an empty one is ignored);
3. the nearest `sonde.toml`, or `[tool.sonde]` in `pyproject.toml`, in the working folder or one of its parents:
   `cap = "500MB"`;
4. the default.

An invalid argument raises `SettingError`, which says what is valid. An invalid value in the environment or in a file is
logged with its source and ignored, so that it never stops your program. Settings are read when recording starts; later
changes have no effect.
"""


def settings_page() -> str:
    """docs/reference/settings.md."""
    return "\n".join([_INTRODUCTION, *(_section(row) for row in config.TABLE)])


def _section(row: config.Setting) -> str:
    refusals = [f"- Not from {_article(kind)}: {why}.\n" for kind, why in row.refused.items()]
    return (
        f"## {row.name}\n\n{row.doc}\n\n- Environment: `{row.env}`\n- Allowed: {row.allowed}\n"
        f"- Default: {row.default_text}\n{''.join(refusals)}"
    )


def _article(kind: str) -> str:
    return "an argument" if kind == "argument" else "a file"


if __name__ == "__main__":
    (ROOT / "docs/reference/settings.md").write_text(settings_page())
