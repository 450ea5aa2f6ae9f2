"""Where the fingerprints of two runs part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch: Any = pytest.importorskip("torch")

from tests.probes.training import model, sgd, train  # noqa: E402

from sonde.analysis.run import open_run  # noqa: E402
from sonde.cli import main  # noqa: E402
from sonde.compare.divergence import Numbers, compare_numbers, describe_divergence  # noqa: E402
from sonde.compare.fingerprint import compare_fingerprints  # noqa: E402
from sonde.testing import record  # noqa: E402


def trained(folder: Path, spoil: Any = None, every: int = 1) -> Path:
    """A run of six steps; before the third, `spoil` gets the model and its optimizer."""
    with record(dir=str(folder), fingerprint=every) as recorded:
        net = model()
        optimizer = sgd(net)
        train(net, optimizer, 3)
        if spoil is not None:
            spoil(net, optimizer)
        train(net, optimizer, 3)
    return recorded.path


def compared(a: Path, b: Path) -> Numbers:
    """The numbers of two runs, with fingerprints."""
    with open_run(a) as one, open_run(b) as other:
        return compare_numbers(one, other, compare_fingerprints(one, other))


def test_equal_runs_are_identical(tmp_path: Path) -> None:
    """Fingerprints too."""
    found = compared(trained(tmp_path), trained(tmp_path))
    assert found.identical is True
    assert "fingerprints" in found.text


def _weight(net: Any, _optimizer: Any) -> None:
    with torch.no_grad():
        net[2].weight += 1e-3


def _rate(_net: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.param_groups[0]["weight_decay"] = 0.1


@pytest.mark.parametrize(
    ("spoil", "direction", "layer"),
    [(_weight, "forward", "2"), (_rate, "update", "0.weight")],
    ids=["weight", "optimizer"],
)
def test_the_first_layer_that_differs_is_named(tmp_path: Path, spoil: Any, direction: str, layer: str) -> None:
    """With its step and its direction."""
    found = compared(trained(tmp_path), trained(tmp_path, spoil))
    assert found.identical is False
    (stream,) = [one for one in found.streams if one.what == "fingerprint"]
    first = stream.first_difference
    assert first is not None
    assert (first.step, first.direction, first.layer) == (3, direction, layer)
    assert f"`{layer}` ({direction}) differs" in describe_divergence(first)


def test_runs_with_other_intervals_are_compared_where_both_have_some(tmp_path: Path) -> None:
    """Every second and every third step: step 0 is common."""
    with open_run(trained(tmp_path, every=2)) as a, open_run(trained(tmp_path, every=4)) as b:
        found = compare_fingerprints(a, b)
    assert found is not None
    assert (found.compared, found.first_difference) == (2, None)


def test_a_run_without_fingerprints_has_nothing_to_compare(tmp_path: Path) -> None:
    """That is not the same as identical."""
    with open_run(trained(tmp_path)) as a, open_run(trained(tmp_path, every=0)) as b:
        assert compare_fingerprints(a, b) is None


def test_a_gate_for_the_same_numbers_looks_at_fingerprints(tmp_path: Path) -> None:
    """A difference that no loss shows fails it."""

    def last(net: Any, _optimizer: Any) -> None:
        with torch.no_grad():
            net[0].weight[0, 0] += 1e-7  # smaller than what reaches the loss

    a, b = trained(tmp_path), trained(tmp_path, last)
    found = CliRunner().invoke(main, ["gate", str(b), "--baseline", str(a), "--same-numbers"])
    assert found.exit_code == 1
    assert "0" in found.output
