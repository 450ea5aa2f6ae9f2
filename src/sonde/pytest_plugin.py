"""The pytest plugin: a fixture that records a test, and golden traces. Tests that use neither are not affected.

def test_loading(sonde_run):
train_one_epoch()
assert sonde_run.sql("select count(*) from steps").fetchall() == [(100,)]
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sonde.analysis.run import Run
    from sonde.compare.gate import Check
    from sonde.compare.summary import Summary

MARK = "sonde"
FIXTURE = "sonde_run"
RUN: pytest.StashKey[Run] = pytest.StashKey()
HELP = (
    "sonde(max_input_wait=0.1, max_slowdown='10%', max_<metric>=..., no_new='critical'): "
    "record the test with Sonde, and fail it if a limit is exceeded."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --sonde-update."""
    group = parser.getgroup("sonde", "golden traces and budgets (Sonde)")
    group.addoption("--sonde-update", action="store_true", help="Accept the current golden traces and baselines.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", HELP)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Record every test that has a limit."""
    names = getattr(item, "fixturenames", None)
    if names is not None and item.get_closest_marker(MARK) is not None and FIXTURE not in names:
        names.append(FIXTURE)


@pytest.fixture
def sonde_run(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Run]:
    """Record this test; the `Run` that it gives is read when you first ask it, and again after `refresh()`."""
    from sonde import testing
    from sonde.analysis.run import open_run

    where = str(tmp_path / "sonde-runs")
    with testing.record(dir=where, name=request.node.name) as recorded, open_run(recorded.path) as run:
        request.node.stash[RUN] = run
        yield run


@pytest.fixture
def assert_trace_matches() -> Callable[..., None]:
    """`sonde.testing.assert_trace_matches`, without an import."""
    from sonde import golden

    return golden.assert_trace_matches


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test, then hold it to its limits. Relative names of golden traces start at the folder of the test."""
    __tracebackhide__ = True
    from sonde import golden

    before = golden.current
    golden.current = golden.Golden(item.path.parent, _update(item))
    try:
        result = yield
    finally:
        golden.current = before
    limits: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARK))):  # the closest one counts
        limits |= mark.kwargs
    if limits and RUN in item.stash:
        _hold(item, limits)
    return result


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hold(item: pytest.Item, limits: dict[str, Any]) -> None:
    """Fail a test that exceeds a limit; skip one whose recording does not say."""
    __tracebackhide__ = True
    from sonde.compare import gate
    from sonde.compare.summary import summarize
    from sonde.errors import SettingError

    run = item.stash[RUN]
    run.refresh()
    one = summarize(run)
    try:
        checks = [gate.check_limit(one, None, gate.limit(f"{name}={value}")) for name, value in _metrics(limits)]
        checks += _against(item, one, limits)
    except SettingError as error:
        pytest.fail(f"@pytest.mark.sonde: {error}", pytrace=False)
    found = gate.gate(one.run, None, checks).outcome
    why = "\n".join(check.why for check in checks if check.outcome == found)
    if found == gate.FAIL:
        pytest.fail(f"a limit is exceeded:\n{why}", pytrace=False)
    if checks and found == gate.INCONCLUSIVE:
        pytest.skip(f"inconclusive: {why}")


def _metrics(limits: dict[str, Any]) -> list[tuple[str, Any]]:
    """The limits of metrics; `max_input_wait` is short for `max_input_wait_share`."""
    from sonde.compare.gate import METRICS

    found = []
    for name, value in limits.items():
        metric = name.removeprefix("max_")
        if name not in ("max_slowdown", "no_new"):
            found.append((f"{metric}_share" if f"{metric}_share" in METRICS else metric, value))
    return found


def _against(item: pytest.Item, one: Summary, limits: dict[str, Any]) -> list[Check]:
    """The limits that need a baseline, which `--sonde-update` saves beside the test."""
    __tracebackhide__ = True
    from sonde.compare import baselines, gate
    from sonde.compare.summary import read
    from sonde.compare.verdict import compare_times

    if not limits.keys() & {"max_slowdown", "no_new"}:
        return []
    folder, name = item.path.parent / baselines.FOLDER, _name(item)
    if _update(item):
        baselines.save(folder, name, one)
        return []
    if not (folder / f"{name}{baselines.SUFFIX}").is_file():
        pytest.fail(f"There is no baseline {name!r} in {folder}. Save it: pytest --sonde-update", pytrace=False)
    base = read(baselines.named(folder, name))
    times = compare_times(base, one)
    checks = []
    if "max_slowdown" in limits:
        checks += gate.check_slowdown(times, base, one, gate.share(str(limits["max_slowdown"])))
    return checks + ([gate.check_findings(times, limits["no_new"])] if "no_new" in limits else [])


def _name(item: pytest.Item) -> str:
    """The name of the baseline of a test."""
    return re.sub(r"[^\w.+-]+", "-", f"{item.path.stem}-{item.name}")[:100].strip("-.")


def _update(item: pytest.Item) -> bool:
    return bool(item.config.getoption("--sonde-update"))
