"""The pytest plugin: a fixture that records a test, and golden traces. A test that uses neither runs as without it.

def test_loading(sonde_run):
train_one_epoch()
assert sonde_run.sql("select count(*) from steps").fetchall() == [(100,)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sonde.analysis.run import Run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --sonde-update."""
    group = parser.getgroup("sonde", "golden traces and budgets (Sonde)")
    group.addoption("--sonde-update", action="store_true", help="Accept the current golden traces and baselines.")


@pytest.fixture
def sonde_run(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Run]:
    """Record this test; the `Run` that it gives is read when you first ask it, and again after `refresh()`."""
    from sonde import testing
    from sonde.analysis.run import open_run

    where = str(tmp_path / "sonde-runs")
    with testing.record(dir=where, name=request.node.name) as recorded, open_run(recorded.path) as run:
        yield run


@pytest.fixture
def assert_trace_matches() -> Callable[..., None]:
    """`sonde.testing.assert_trace_matches`, without an import."""
    from sonde import golden

    return golden.assert_trace_matches


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Relative names of golden traces start at the folder of the test."""
    from sonde import golden

    before = golden.current
    golden.current = golden.Golden(item.path.parent, bool(item.config.getoption("--sonde-update")))
    try:
        return (yield)
    finally:
        golden.current = before
