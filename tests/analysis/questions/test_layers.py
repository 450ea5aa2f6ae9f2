"""The model as a tree, and one layer over the steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sonde.analysis.questions.layers import LayerNode, layer_history, layer_tree
from sonde.analysis.run import Run
from sonde.errors import UnknownName
from sonde.testing import build_training

LAYERS = ["encoder.0", "encoder.1", "head"]
STEPS = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A training whose parts were not recorded by themselves."""
    with Run([build_training(tmp_path_factory.mktemp("runs") / "one", steps=STEPS, layers=LAYERS)]) as found:
        yield found


@pytest.fixture(scope="module")
def tree(run: Run) -> dict[str, LayerNode]:
    """Its layers by name."""
    return {one.layer: one for one in layer_tree(run)}


def test_a_part_has_the_sums_of_what_is_in_it(tree: dict[str, LayerNode]) -> None:
    """A part that is no layer of its own costs what its layers cost."""
    parts = [tree["encoder.0"], tree["encoder.1"]]
    assert tree["encoder"].forward_ns == pytest.approx(sum(one.forward_ns or 0 for one in parts))
    assert tree["encoder"].share == pytest.approx(sum(one.share or 0 for one in parts))
    assert (tree["encoder"].inside, tree["encoder"].steps) == (2, None)


def test_the_shares_of_the_top_add_up_to_one(tree: dict[str, LayerNode]) -> None:
    """Nothing is counted twice."""
    assert sum(one.share or 0 for one in tree.values() if one.parent is None) == pytest.approx(1)


def test_each_part_stands_before_what_is_in_it(tree: dict[str, LayerNode]) -> None:
    """A page can cut a part out by its place and its number of layers."""
    names = list(tree)
    at = names.index("encoder")
    assert set(names[at + 1 : at + 3]) == {"encoder.0", "encoder.1"}
    assert [tree[name].depth for name in ("encoder", "encoder.0", "head")] == [0, 1, 0]


def test_a_point_of_a_long_history_keeps_the_longest_step(run: Run) -> None:
    """Four points for twelve steps: means, and the most of each."""
    _, each = layer_history(run, "head", STEPS)
    layer, few = layer_history(run, "head", 4)
    assert (few.steps, few.width) == ([0, 3, 6, 9], 3)
    assert layer.steps == STEPS
    assert few.longest_ns[0] == max(one or 0 for one in each.longest_ns[:3])
    assert few.forward_ns[0] == pytest.approx(sum(one or 0 for one in each.forward_ns[:3]) / 3)


def test_an_unknown_layer_is_refused(run: Run) -> None:
    """By its name."""
    with pytest.raises(UnknownName, match="no layer 'body'"):
        layer_history(run, "body", 10)
