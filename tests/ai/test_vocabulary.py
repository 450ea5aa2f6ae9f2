"""The table of the vocabulary, the tree that grows from it, the classes that describe it, and its page agree."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from sonde import ai
from sonde.ai import tree
from sonde.ai.node import Detached, Node
from sonde.ai.vocabulary import ROOT, TABLE, Row
from sonde.events import core

LEVELS = {0: "essential", 1: "normal", 2: "detail"}
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "vocabulary.md"


def find(path: str) -> object:
    """`ai.<path>`."""
    found: object = ai
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.path)
def test_each_row_is_a_node_with_its_name_and_category(row: Row) -> None:
    """`ai.<path>` is there, and is what the row says."""
    node = find(row.path)
    assert isinstance(node, Node)
    assert (node.name, node.cat) == (row.name, row.cat)


def test_the_root_is_named_ai_root() -> None:
    """Name and category."""
    assert (ai.name, ai.cat) == (ROOT, ROOT)


def test_no_two_rows_have_the_same_path_or_record_the_same_event() -> None:
    """An event tells which profiler it came from."""
    assert len({row.path for row in TABLE}) == len({(row.cat, row.name) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("path", ["", *tree.KINDS])
def test_the_classes_declare_exactly_the_children_of_the_table(path: str) -> None:
    """What an editor offers is what is there."""
    kind = tree.KINDS[path] if path else tree.Root
    declared = {name for name in get_type_hints(kind) if not name.startswith("_")}
    assert declared == {row.attribute for row in TABLE if row.path.rpartition(".")[0] == path}


def test_rows_with_children_have_a_class() -> None:
    """So that their children are typed."""
    assert {row.path.rpartition(".")[0] for row in TABLE} - {""} == set(tree.KINDS)


def test_the_page_shows_the_table() -> None:
    """Line by line, and nothing else."""
    lines = [f"| `ai.{row.path}` | {row.cat} | `{row.name}` | {LEVELS[row.level]} | {row.about} |" for row in TABLE]
    shown = PAGE.read_text().partition("## All names")[2].partition("## Forms")[0].splitlines()
    assert [line for line in shown if line.startswith("| `ai.")] == lines


@pytest.mark.parametrize("name", ["__enter__", "__exit__", "start", "stop", "wrap"])
def test_entering_and_leaving_is_the_work_of_the_core(name: str) -> None:
    """No class of the vocabulary puts Python code in between."""
    for kind in (*tree.KINDS.values(), tree.Root, Node, Detached):
        assert getattr(kind, name) is getattr(core.Span, name)
