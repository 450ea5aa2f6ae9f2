"""Probes: what is recorded of a training loop without an edit. Each part of it is one module, listed here in its order.

A probe has `install(settings)`, which returns the function that ends it. It subscribes to points (`sonde.hooks`), or takes a
lane of them, and writes the records that `sonde.store.probe` names. One that fails switches itself off; a mark of the
category `probe.off` says so. All spans of a probe are based on `step.phases`, the switch of the steps that were not chosen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from sonde.guard import guard
from sonde.probes import step
from sonde.probes.off import switch_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

AUTO = "auto"  # only in the mode auto
ALWAYS = "always"  # in every mode: it patches nothing, or nothing that was not asked for by name


class Probe(NamedTuple):
    """One row of the list: its name, its module below this one; `choice` is AUTO, ALWAYS, or the setting that chooses the probe in the mode selective."""

    name: str
    module: str
    choice: str

    def chosen(self, settings: Settings) -> bool:
        """Is this probe wanted?"""
        if self.choice == ALWAYS or settings.mode == "auto":
            return True
        return settings.mode == "selective" and self.choice != AUTO and bool(getattr(settings, self.choice))


PROBES = (
    Probe("loader", "loader.wait", "patch_dataloader"),
    Probe("forward", "phases.forward", "patch_forward"),
    Probe("backward", "phases.backward", "patch_backward"),
    Probe("optimizer", "phases.optimizer", "patch_optimizer"),
    Probe("h2d", "phases.h2d", "patch_h2d"),
    Probe("layers", "layers.record", ALWAYS),
    Probe("nonfinite", "nonfinite", ALWAYS),
    Probe("ranks", "process.ranks", ALWAYS),
    Probe("frameworks", "frameworks", AUTO),
    Probe("communication", "phases.communication", AUTO),
    Probe("checkpoint", "phases.checkpoint", AUTO),
    Probe("collector", "process.gc", ALWAYS),
    Probe("host", "process.host", ALWAYS),
    Probe("device", "phases.device", AUTO),
    Probe("stacks", "process.stacks", AUTO),
    Probe("children", "process.children", AUTO),
    Probe("blackbox", "blackbox", ALWAYS),
)

_leave: list[Callable[[], None]] = []


def install(settings: Settings) -> None:
    """Put all probes in place that these settings choose. Nothing happens before the program imports torch and trains."""
    _leave.append(step.install(settings))
    for probe in PROBES:
        if probe.chosen(settings):
            with guard(f"installing the probe {probe.name}"):
                _leave.append(import_module(f"sonde.probes.{probe.module}").install(settings))
                step.now.patched |= {probe.name}
                continue
            switch_off(probe.name, f"installing the probe {probe.name}")


def uninstall() -> None:
    """Take all of them away."""
    while _leave:
        with guard("taking a probe away"):
            _leave.pop()()


__all__ = ["PROBES", "install", "uninstall"]
