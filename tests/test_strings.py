"""Every text that a user can read is listed in tests/strings.txt and is plain English. `make docs` writes the list.

A text is what Python and TOML sources hold as strings with two words or more: messages, help, labels, findings, settings.
Docstrings count where they are shown: those of commands, of rules and of the public API. The messages of the C parts are
those of their Python twins.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src/sonde"
LIST = ROOT / "tests/strings.txt"
HOLE = "{…}"
LONGEST = 25  # words of a sentence
PROSE = re.compile(r"[A-Za-z][\w'-]*[,;:.]? (?:[a-z]{2,}|\{…\})|\{…\} [a-z]{2,}|[A-Z]{4,} [A-Z]{3,}")
CODE = re.compile(  # SQL, regular expressions, programs, styles
    r"^\s*(SET|RESET|FORMAT|SELECT|WITH|COPY|CREATE|UNION|FROM|WHERE|AND|JOIN|CASE|import|from)\b|\b(FROM \{|IS NOT NULL|NULLS LAST|ORDER BY|WHERE |BETWEEN |THEN | AND [a-z])|\bAS \w+|::\w|\bFILTER \(|\(\?[:m!]"
    r"|color-mix|^(not )?bold |^arg_m|<>|coalesce\(|^default-src|quantile_cont|\bOR \(|\(SELECT |^\n?:root|<!DOCTYPE"
)
MARKUP = re.compile(r"<[^<>]*>|&\w+;")
# Private words, and words that sound translated. Names in backticks may have any.
BANNED = re.compile(
    r"\b(told|tells?|telling|nobody|somebody|(for|in) want of|grav(e|est|er)|so (many|much|often|long)|of which|by (itself|themselves)|"
    r"(?-i:(?<!there )is none)|wish(es|ed)?|born|(?<!\.)births?|certificates?|usual|usually|residuals?|judg(e|es|ed|ing)|settle[sd]?|strata|sieve|census|"
    r"com(e|es|ing) by|came by|go(es|ing)? on|stand(s|ing)? (in|for|out|behind|beside|above|below)|stood|taken back|most of all|"
    r"the doing of|lies? between|as it were|let go|any more|(?<!there )is no [a-z]+)\b",
    re.IGNORECASE,
)


@functools.cache
def strings() -> list[str]:
    """One line for each text: its file, and the text with `{…}` where a value goes."""
    files = [*SOURCES.rglob("*.py"), *SOURCES.rglob("*.toml")]
    return sorted({f"{file.relative_to(SOURCES)}: {text}" for file in files for text in _texts(file)})


def _texts(file: Path) -> Iterator[str]:
    source = file.read_text()
    if file.suffix == ".py":
        found = of_python(ast.parse(source), file)
    else:
        found = (text for pair in re.findall(r'doc = "(.*?)"|# (.*)', source) for text in pair)
    return (plain(text) for text in found if is_prose(text))


def is_prose(text: str) -> bool:
    """Is this a text for people?"""
    return bool(PROSE.search(plain(text))) and not CODE.search(text)


def plain(text: str) -> str:
    """The text in one line, without markup; `¶` between paragraphs."""
    text = text.replace("\b\n", "").replace("\n", "\n\n") if "\b" in text else text  # click: lines as they are
    paragraphs = inspect.cleandoc(MARKUP.sub(" ", text)).split("\n\n")
    return " ¶ ".join(" ".join(one.split()) for one in paragraphs)


def of_python(tree: ast.Module, file: Path) -> Iterator[str]:
    """The strings of a module, without docstrings that are for its readers only."""
    return (text for _, text in text_nodes(tree, file))


def text_nodes(tree: ast.Module, file: Path) -> Iterator[tuple[ast.expr, str]]:
    """Each string with its node; an f-string is one, with holes."""
    shown, hidden = set(_documented(tree, file)), set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            docstring = node.body[0]
            assert isinstance(docstring, ast.Expr)
            hidden.update([] if node in shown else [docstring.value])
        elif isinstance(node, ast.JoinedStr):
            hidden.update(part for part in node.values if isinstance(part, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in hidden:
            yield node, node.value


def _documented(tree: ast.Module, file: Path) -> Iterator[ast.AST]:
    """What has a docstring that is shown: commands, rules, and public names with their members."""
    here = file.relative_to(SOURCES).as_posix()
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        command = any("command" in ast.unparse(mark) or "group" in ast.unparse(mark) for mark in node.decorator_list)
        public = any(here.startswith(home) and name in ("", node.name) for home, name in PUBLIC)
        if command or here.startswith("diagnosis/rules/") or public:
            yield node
            yield from (one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"))


def _public() -> list[tuple[str, str]]:
    """Where the public API is defined, and under which name; "" for modules that are public as a whole."""
    facades = "".join((SOURCES / name).read_text() for name in ("__init__.py", "flow.py"))
    named = [(home, name) for name, home in re.findall(r'"(\w+)": "sonde\.([\w.]+)"', facades)]
    for home, names in re.findall(r"from sonde\.([\w.]+) import ([\w, ]+)", facades):
        named += [(home, name.split()[0]) for name in names.split(", ")]
    return [("testing.py", ""), ("compat/", ""), *((home.replace(".", "/"), name) for home, name in named)]


PUBLIC = _public()


def _is_long(line: str) -> bool:
    sentences = re.split(r"(?<=[.!?])[\"')]*\s|¶|\|", line.partition(": ")[2])
    return any(len(re.findall(r"[\w{`][^\s]*", one)) > LONGEST for one in sentences)


def test_the_list_is_up_to_date() -> None:
    """tests/strings.txt has every text; `make docs` writes it."""
    assert LIST.read_text().splitlines() == strings()


def test_no_text_has_a_private_word() -> None:
    """The field has a word for each of them."""
    found = [line for line in strings() if BANNED.search(re.sub(r"`[^`]*`", "", line.partition(": ")[2]))]
    assert not found, "\n".join(found)


def test_no_sentence_is_long() -> None:
    """A sentence of more than 25 words is two."""
    found = [line for line in strings() if _is_long(line)]
    assert not found, "\n".join(found)


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in strings()))
