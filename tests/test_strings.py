"""Every text that a user can read is listed in tests/strings.txt and is plain English. `make docs` writes the list.

A text is a string of two words or more: messages, help, findings, settings, in Python, TOML, C, SQL and the pages of `sonde ui`.
Docstrings count where they are shown: those of commands, of rules, of the public API and of the C parts. Labels of one word are
listed where tables and screens are drawn, in one line for each file.
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
PAGES = ROOT / "frontend/src"
LIST = ROOT / "tests/strings.txt"
HOLE = "{…}"
LONGEST = 25  # words of a sentence
PROSE = re.compile(r"[A-Za-z][\w'-]*[,;:.]? (?:[a-z]{2,}|\{…\})|\{…\} [a-z]{2,}|[A-Z]{4,} [A-Z]{3,}")
CODE = re.compile(  # SQL, regular expressions, programs, styles
    r"^\s*(SET|RESET|FORMAT|SELECT|WITH|COPY|CREATE|UNION|FROM|WHERE|AND|JOIN|CASE|import|from)\b|\b(FROM \{|IS NOT NULL|NULLS LAST|ORDER BY|WHERE |BETWEEN |THEN | AND [a-z])|\bAS \w+|::\w|\bFILTER \(|\(\?[:m!]"
    r"|color-mix|^(not )?bold |^arg_m|<>|coalesce\(|^default-src|quantile_cont|\bOR \(|\(SELECT |^\n?:root|<!DOCTYPE"
)
C_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
C_HOLE = re.compile(r"%(?:zd|ld|lld|[sduRSUiA])")
C_COMMENT = re.compile(r"/\*.*?\*/|(?m:^#\s*(?:include|pragma)[^\n]*$)|_Static_assert\(.*?\);", re.DOTALL)
TS_COMMENT = re.compile(r"/\*.*?\*/|(?m:(?<![:\w])//[^\n]*$)", re.DOTALL)
TS_CLASS = re.compile(r"""class=(?:"[^"]*"|\{`[^`]*`\})""")
TS_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
TS_HOLE = re.compile(r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
TS_TEXT = re.compile(r"(?<=[>}])[^<>{}]+(?=[<{])")  # between tags and values
TS_KEYWORD = re.compile(
    r"=>|&&|[{}]|\b(export|function|const|return|import)\b|px\b|-color-|fill-|^(soft|link|note|text|scroll|empty|worst) "
)
TS_CODE = re.compile(
    r"[=;|]|&&|\w\(|\)\)|\? \(|: \(|^\s*[)\]:]|\w\[|\.\.\.|\b(export|function|const|return|import|number|string|boolean)\b"
)
DRAWN = ("terminal", "tui", "html", "views")
LABEL = re.compile(r"[A-Za-z][a-z]{2,}(?:-[a-z]+)?")
KEYED = re.compile(
    r"get|pop|getattr|setdefault|startswith|endswith|removeprefix|sql"
)  # their first argument is no label
NAMING = re.compile(r"style|justify|encoding|mode|overflow|name|kind")  # nor are these
STYLE = re.compile(  # tags, colours and styles
    r"ascii|blue|bold|class|code|critical|cyan|dark|details|dim|div|footer|green|head|header|info|light|magenta|middle|pre|red|scroll"
    r"|section|soft|span|strerror|strip|summary|table|tail|tbody|thead|warn|xmlcharrefreplace|yellow"
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
    own = [file for file in SOURCES.rglob("*.*") if file.suffix in READERS and "static" not in file.parts]
    listed = {f"{file.relative_to(SOURCES)}: {text}" for file in own for text in _texts(file)}
    listed |= {f"ui/{file.relative_to(PAGES)}: {text}" for file in PAGES.rglob("*.ts*") for text in _texts(file)}
    listed |= {f"{file.relative_to(SOURCES)}, labels: {', '.join(words)}" for file, words in labels().items() if words}
    return sorted(listed)


def _texts(file: Path) -> Iterator[str]:
    return (plain(text) for text in READERS[file.suffix](file) if is_prose(text))


def _of_python(file: Path) -> Iterator[str]:
    return of_python(ast.parse(file.read_text()), file)


def _of_toml(file: Path) -> Iterator[str]:
    return (text for pair in re.findall(r'doc = "(.*?)"|# (.*)', file.read_text()) for text in pair)


def _of_sql(file: Path) -> list[str]:
    return re.findall(r"-- (?!include )(.*)", file.read_text())


def _of_page(file: Path) -> Iterator[str]:
    return (line.strip("|# ") for line in file.read_text().split("\n"))


def _of_c(file: Path) -> Iterator[str]:
    for found in C_STRING.findall(C_COMMENT.sub(" ", file.read_text())):
        text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found))
        yield C_HOLE.sub(HOLE, text).replace("\\n", "\n").partition("--\n")[2 if "--\\n" in found else 0]


def _of_typescript(file: Path) -> Iterator[str]:
    source = TS_CLASS.sub("", TS_COMMENT.sub("", file.read_text()))
    found = [TS_HOLE.sub(HOLE, quoted or template) for quoted, template in TS_STRING.findall(source)]
    yield from (text for text in found if not TS_KEYWORD.search(text.replace(HOLE, "")))
    if file.suffix == ".tsx":
        yield from (text for text in TS_TEXT.findall(TS_STRING.sub("", source)) if not TS_CODE.search(text))


READERS = {
    ".py": _of_python,
    ".toml": _of_toml,
    ".sql": _of_sql,
    ".md": _of_page,
    ".c": _of_c,
    ".h": _of_c,
    ".ts": _of_typescript,
    ".tsx": _of_typescript,
}


def labels() -> dict[Path, list[str]]:
    """The labels of one word in each module that draws: strings that are not keys, styles or compared with."""
    files = (file for name in DRAWN for file in (SOURCES / name).rglob("*.py"))
    return {file: sorted(set(_labels(ast.parse(file.read_text())))) for file in files}


def _labels(tree: ast.Module) -> Iterator[str]:
    hidden = {part for node in ast.walk(tree) for one in _not_shown(node) for part in ast.walk(one)}
    for node in ast.walk(tree):
        text = node.value.strip() if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if node not in hidden and LABEL.fullmatch(text) and not STYLE.fullmatch(text):
            yield text


def _not_shown(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key]
    if isinstance(node, ast.keyword) and node.arg and NAMING.fullmatch(node.arg):
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and KEYED.fullmatch(node.func.attr):
        return list(node.args[:1])
    if isinstance(node, ast.Match):
        return [case.pattern for case in node.cases]
    return list(node.values) if isinstance(node, ast.JoinedStr) else []


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
    if ", labels: " in line:
        return False
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
