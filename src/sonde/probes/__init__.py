"""Probes: what is recorded of a training loop without an edit. Each part of it is one module, listed here in its order.

A probe has `install(settings)`, which returns the function that ends it. It subscribes to points (`sonde.hooks`), or takes a
fast path of them, and writes the records that `sonde.store.probe` names. One that fails switches itself off; a mark of the
category `probe.off` says so. All spans of a probe are based on `step.phases`, the switch of the steps that were not chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from sonde.guard import guard
from sonde.probes import frameworks, metrics, profile, step
from sonde.probes.disable import switch_off
from sonde.probes.files import install as files
from sonde.probes.layers import record as layers
from sonde.probes.learning import fingerprint, flops, items, model, sample
from sonde.probes.loader import install as loader
from sonde.probes.phases import backward, checkpoint, communication, device, forward, h2d, optimizer
from sonde.probes.process import children, gc, group, recompile, sampler, setup, stacks
from sonde.probes.sampling import sample as sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.config import Settings

AUTO = "auto"  # only in the mode auto
ALWAYS = "always"  # in every mode: it patches nothing, or nothing that was not asked for by name


class _Install(Protocol):
    def __call__(self, _settings: Settings, /) -> Callable[[], None]: ...


class Probe(NamedTuple):
    """One row of the list. `choice` is AUTO, ALWAYS, or the setting that chooses the probe in the mode selective."""

    name: str
    install: _Install
    choice: str

    def chosen(self, settings: Settings) -> bool:
        """Is this probe wanted?"""
        if self.choice == ALWAYS or settings.mode == "auto":
            return True
        return settings.mode == "selective" and self.choice != AUTO and bool(getattr(settings, self.choice))


PROBES = (
    Probe("files", files.install, ALWAYS),
    Probe("loader", loader.install, "patch_dataloader"),
    Probe("forward", forward.install, "patch_forward"),
    Probe("backward", backward.install, "patch_backward"),
    Probe("optimizer", optimizer.install, "patch_optimizer"),
    Probe("h2d", h2d.install, "patch_h2d"),
    Probe("layers", layers.install, ALWAYS),
    Probe("fingerprint", fingerprint.install, ALWAYS),
    Probe("learning", sample.install, ALWAYS),
    Probe("flops", flops.install, ALWAYS),
    Probe("items", items.install, ALWAYS),
    Probe("profile", profile.install, ALWAYS),
    Probe("sample", sampling.install, ALWAYS),
    Probe("ranks", group.install, ALWAYS),
    Probe("frameworks", frameworks.install, AUTO),
    Probe("metrics", metrics.install, AUTO),
    Probe("communication", communication.install, AUTO),
    Probe("checkpoint", checkpoint.install, AUTO),
    Probe("environment", setup.install, ALWAYS),
    Probe("model", model.install, AUTO),
    Probe("recompile", recompile.install, AUTO),
    Probe("collector", gc.install, ALWAYS),
    Probe("host", sampler.install, ALWAYS),
    Probe("device", device.install, AUTO),
    Probe("stacks", stacks.install, AUTO),
    Probe("children", children.install, AUTO),
)

_leave: list[Callable[[], None]] = []


def install(settings: Settings, probes: Sequence[Probe] = PROBES) -> None:
    """Put all probes in place that these settings choose. Nothing happens before the program imports torch and trains."""
    _leave.append(step.install(settings))
    for probe in probes:
        if probe.chosen(settings):
            with guard(f"installing the probe {probe.name}"):
                _leave.append(probe.install(settings))
                step.now.patched |= {probe.name}
                continue
            switch_off(probe.name, f"installing the probe {probe.name}")


def at_uninstall(leave: Callable[[], None]) -> None:
    """Call this when the recording ends: for what is switched on while it runs."""
    if leave not in _leave:
        _leave.append(leave)


def uninstall() -> None:
    """Take all of them away."""
    while _leave:
        with guard("removing a probe"):
            _leave.pop()()


__all__ = ["PROBES", "Probe", "at_uninstall", "install", "uninstall"]
