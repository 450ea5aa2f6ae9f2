"""TraceML's `init()`: what is recorded without an edit of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde import environment, session

if TYPE_CHECKING:
    import os

__all__ = ["TraceMLInitConfig", "init", "start"]


class TraceMLInitConfig(NamedTuple):
    """The settings that `init()` uses."""

    mode: str
    patch_dataloader: bool
    patch_forward: bool
    patch_backward: bool
    patch_h2d: bool
    disabled: bool


class _State:
    config: TraceMLInitConfig | None = None


def init(
    *,
    mode: str = "auto",
    patch_dataloader: bool | None = None,
    patch_forward: bool | None = None,
    patch_backward: bool | None = None,
    patch_h2d: bool | None = None,
    disabled: bool | None = None,
    logs_dir: str | os.PathLike[str] | None = None,
    session_id: str | None = None,
    ui_mode: object = None,
    interval: object = None,
    enable_logging: object = None,
    aggregator_host: object = None,
    aggregator_port: object = None,
    connect_timeout_sec: object = None,
    connect_retry_interval_sec: object = None,
    on_missing_aggregator: object = None,
) -> TraceMLInitConfig:
    """Start recording. Raises ValueError for settings that contradict each other, RuntimeError if the settings differ from earlier ones.

    `logs_dir` is the folder of the run folders, `session_id` the name of the run. Settings of TraceML's aggregator and
    screens have no effect.
    """
    mode = "selective" if mode == "custom" else mode
    chosen = {
        "patch_dataloader": patch_dataloader,
        "patch_forward": patch_forward,
        "patch_backward": patch_backward,
        "patch_h2d": patch_h2d,
    }
    off = environment.traceml_disabled() if disabled is None else disabled
    patched = {name: not off and (mode == "auto" or bool(value)) for name, value in chosen.items()}
    config = TraceMLInitConfig(mode=mode, disabled=off, **patched)
    if _State.config is not None and session.current() is not None and config != _State.config:
        raise RuntimeError(f"init() was called before with other settings: {_State.config}. Call it once.")
    if not off:
        session.init(session_id, logs_dir, mode=mode, **{name: value for name, value in chosen.items() if value})
    _State.config = config
    return config


start = init
