"""TraceML's names, each parameter and default of its API page, and what they record."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import sonde  # noqa: E402
from sonde import session  # noqa: E402
from sonde.compat import traceml  # noqa: E402
from sonde.compat.traceml import decorators  # noqa: E402
from sonde.probes.layers import backward as graph  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402

needs_c = pytest.mark.skipif(graph.native is None, reason="the C part was not built")
EMPTY = inspect.Parameter.empty
DEFAULTS = {
    "model": EMPTY,
    "sample_layer_memory": True,
    "trace_layer_forward_memory": True,
    "trace_layer_backward_memory": True,
    "trace_layer_forward_time": True,
    "trace_layer_backward_time": True,
    "trace_execution": True,
    "include_names": None,
    "exclude_names": None,
    "leaf_only": True,
}


def net() -> Any:
    """Two layers with a block between them."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Sequential(torch.nn.Tanh()), torch.nn.Linear(8, 1)
    ).requires_grad_()


def stepped(recorded: Recorded, **options: Any) -> Recorded:
    """One training step in deep mode after `trace_model_instance` with these options."""
    model = net()
    traceml.trace_model_instance(model, **options)
    with traceml.trace_step(model):
        model(torch.ones(2, 4)).sum().backward()
    return recorded


def layers(recorded: Recorded, kind: str = "layer") -> set[str]:
    """The names of the recorded layers."""
    return {event["name"] for event in recorded.events if event["cat"] == kind}


def query(recorded: Recorded, text: str) -> list[tuple[Any, ...]]:
    """The answer of the run, which is still there."""
    with sonde.open_run(recorded.path) as run:
        return list(run.sql(text).fetchall())


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_trace_model_instance_has_this_parameter_and_default(name: str, default: Any) -> None:
    """In TraceML's order."""
    found = inspect.signature(traceml.trace_model_instance).parameters
    assert list(found) == list(DEFAULTS)
    assert found[name].default is default
    assert found[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_trace_step_takes_the_model() -> None:
    """And nothing else."""
    (model,) = inspect.signature(traceml.trace_step).parameters.values()
    assert (model.name, model.default) == ("model", EMPTY)


def test_the_module_of_decorators_has_the_same_names() -> None:
    """Older programs import them from there."""
    assert decorators.trace_step is traceml.trace_step
    assert decorators.trace_model_instance is traceml.trace_model_instance


def test_a_block_is_a_step() -> None:
    """Two blocks, two steps."""
    with record() as recorded:
        model = net()
        for _ in range(2):
            with traceml.trace_step(model):
                model(torch.ones(2, 4)).sum().backward()
        assert query(recorded, "select step from steps order by 1") == [(0,), (1,)]


def test_an_exception_passes_a_block() -> None:
    """It is the program's own."""
    with record(), pytest.raises(ZeroDivisionError), traceml.trace_step(net()):
        raise ZeroDivisionError


def test_a_disabled_step_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACEML_DISABLED=1, as `--disable-traceml` sets it."""
    monkeypatch.setenv("TRACEML_DISABLED", "1")
    with record(mode="manual") as recorded:
        with traceml.trace_step(net()):
            pass
        assert [event["name"] for event in recorded.events if event["name"] == "step"] == []


@needs_c
def test_layers_are_recorded_in_deep_mode_only() -> None:
    """As `traceml run` and `traceml deep`."""
    with record() as recorded:
        assert layers(stepped(recorded)) == set()
    with record(deep=True) as recorded:
        assert layers(stepped(recorded)) == {"0", "1.0", "2"}


@needs_c
def test_include_names_chooses_layers() -> None:
    """By a part of the name."""
    with record(deep=True) as recorded:
        assert layers(stepped(recorded, include_names=["2"])) == {"2"}


@needs_c
def test_exclude_names_leaves_layers_out() -> None:
    """By a part of the name."""
    with record(deep=True) as recorded:
        assert layers(stepped(recorded, exclude_names=["2"])) == {"0", "1.0"}


@needs_c
def test_leaf_only_false_records_blocks_too() -> None:
    """A module that calls others."""
    with record(deep=True) as recorded:
        assert "1" in layers(stepped(recorded, leaf_only=False))


@needs_c
@pytest.mark.parametrize(
    ("option", "column"),
    [
        ("sample_layer_memory", "parameter_bytes"),
        ("trace_layer_forward_memory", "activation_bytes"),
    ],
)
def test_memory_can_be_left_out(option: str, column: str) -> None:
    """Parameters and outputs, each by its switch."""
    text = f"select coalesce(max({column}), 0) > 0 from layers where layer = '2'"
    with record(deep=True) as recorded:
        assert query(stepped(recorded), text) == [(True,)]
    with record(deep=True) as recorded:
        assert query(stepped(recorded, **{option: False}), text) == [(False,)]


@needs_c
def test_memory_of_incoming_gradients_can_be_left_out() -> None:
    """The calls of the backward pass are still there."""

    def incoming(**options: bool) -> set[bool]:
        with record(deep=True) as recorded:
            stepped(recorded, **options)
        return {bool(event["key"]) for event in recorded.events if event["cat"] == "layer.backward"}

    assert (incoming(), incoming(trace_layer_backward_memory=False)) == ({True}, {False})


@needs_c
def test_forward_calls_go_with_time_memory_and_execution() -> None:
    """None of them wanted, none recorded; one is enough."""
    off = {"trace_layer_forward_time": False, "trace_layer_forward_memory": False, "trace_execution": False}
    with record(deep=True) as recorded:
        assert layers(stepped(recorded, **off)) == set()
    for one in off:
        with record(deep=True) as recorded:
            assert layers(stepped(recorded, **{**off, one: True})) == {"0", "1.0", "2"}


@needs_c
def test_backward_calls_go_with_time_and_memory() -> None:
    """Neither wanted, none recorded; one is enough."""
    off = {"trace_layer_backward_time": False, "trace_layer_backward_memory": False}
    with record(deep=True) as recorded:
        assert layers(stepped(recorded, **off), "layer.backward") == set()
    for one in off:
        with record(deep=True) as recorded:
            assert "2" in layers(stepped(recorded, **{**off, one: True}), "layer.backward")


def test_what_is_no_model_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """TraceML logs its own failures; none reaches the program."""
    with record(deep=True):
        traceml.trace_model_instance("no model")  # type: ignore[arg-type]
    assert "torch.nn.Module" in caplog.text


# ── init ──


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder; what a test has begun to record ends with it."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sonde.finish()


def test_init_records_into_logs_dir_under_session_id(folder: Path) -> None:
    """Its config says what is patched."""
    config = traceml.init(logs_dir=folder / "logs", session_id="mine", interval=2.0, aggregator_port=29765)
    running = session.current()
    assert running is not None
    assert running.path is not None
    assert (running.name, running.path.parent) == ("mine", folder / "logs")
    assert config == traceml.TraceMLInitConfig("auto", True, True, True, True, False)


def test_init_in_selective_mode_patches_what_is_chosen(folder: Path) -> None:
    """`custom` is another name of it."""
    config = traceml.init(mode="custom", patch_forward=True)
    assert config == traceml.TraceMLInitConfig("selective", False, True, False, False, False)


UNUSED = (
    "ui_mode", "interval", "enable_logging", "aggregator_host", "aggregator_port", "connect_timeout_sec",
    "connect_retry_interval_sec", "on_missing_aggregator",
)  # fmt: skip


@pytest.mark.parametrize("name", UNUSED)
def test_init_takes_the_settings_of_the_aggregator(name: str) -> None:
    """They have no effect."""
    assert inspect.signature(traceml.init).parameters[name].default is None


def test_init_refuses_a_misspelt_setting(folder: Path) -> None:
    """As every function does."""
    with pytest.raises(TypeError, match="patch_dataloder"):
        traceml.init(mode="selective", patch_dataloder=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("settings", [{"mode": "selective"}, {"patch_forward": True}, {"mode": "fast"}])
def test_init_refuses_what_does_not_fit(folder: Path, settings: dict[str, Any]) -> None:
    """With a ValueError, as TraceML does."""
    with pytest.raises(ValueError, match="mode"):
        traceml.init(**settings)


def test_init_twice_is_fine_with_the_same_settings_only(folder: Path) -> None:
    """Other settings raise."""
    assert traceml.init() == traceml.init()
    with pytest.raises(RuntimeError, match="before"):
        traceml.init(mode="manual")


def test_a_disabled_init_records_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the argument, or by the variable."""
    assert traceml.init(disabled=True).disabled
    monkeypatch.setenv("TRACEML_DISABLED", "1")
    assert traceml.start().disabled
    assert list(folder.iterdir()) == []
