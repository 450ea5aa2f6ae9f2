"""Under which conditions a forward is computed again: threads, autocast and random numbers as they were in the run."""

from __future__ import annotations

import copy
import json
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import quoted
from sonde.compare.divergence import OUTPUT
from sonde.compare.fingerprint import Print
from sonde.compare.setup import environment
from sonde.errors import ReplayError
from sonde.probes.layers import names as naming
from sonde.probes.learning import randomness
from sonde.probes.learning.fingerprint import FORWARD, RANDOM, measure, tensors
from sonde.probes.process.setup import facts
from sonde.replay.target import USUAL
from sonde.store.probe import FINGERPRINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sonde.analysis.run import Run

AUTOCAST, NONE = "precision.autocast", "none"
OURS = ("cpu", "version.torch", "precision.matmul", "precision.dtype", "torch.deterministic")


@dataclass
class Computed:
    """One forward: its fingerprints, whether it drew random numbers, and whether the model itself uses autocast."""

    prints: list[Print] = field(default_factory=list)
    draws: bool = False
    autocast: bool = False


@dataclass(frozen=True)
class Conditions:
    """What the run computed this step with. None: not known."""

    threads: int | None
    autocast: str
    random: Any

    @contextmanager
    def threads_set(self) -> Iterator[None]:
        """With as many threads as in the run: sums are split among them, and so rounded in another way."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def computed(self, model: Any, call: Callable[[Any], Any], step: int, rank: int) -> Computed:
        """One forward of a copy, in training mode. Autocast is put around it unless the model does that itself."""
        found = self._once(model, call, step, rank, nullcontext())
        if self.autocast == NONE or found.autocast:
            return found
        import torch

        kind = next(model.parameters()).device.type
        return self._once(model, call, step, rank, torch.autocast(kind, getattr(torch, self.autocast)))

    def _once(self, model: Any, call: Callable[[Any], Any], step: int, rank: int, around: Any) -> Computed:
        import torch

        model = copy.deepcopy(model).train()
        made = Computed()
        counts: Counter[str] = Counter()

        def note(name: str, output: Any) -> None:
            for taken in filter(None, map(measure, tensors(output))):  # as in a recording, each tensor has a number
                counts[name] += 1
                made.prints.append(Print(rank, step, FORWARD, name, counts[name], *taken))
            made.autocast = made.autocast or any(map(torch.is_autocast_enabled, ("cpu", "cuda")))

        hooks = [module.register_forward_hook(_noting(note, name)) for name, module in _leaves(model)]
        try:
            with torch.random.fork_rng(devices=[]):
                if self.random is not None:
                    torch.set_rng_state(self.random)
                before = torch.get_rng_state()
                with around:
                    output = call(model)
                made.draws = not torch.equal(torch.get_rng_state(), before)
                note(OUTPUT, output)
        except USUAL as error:
            raise ReplayError(f"{type(model).__name__} fails on this batch: {type(error).__name__}: {error}") from error
        finally:
            for hook in hooks:
                hook.remove()
        return made


def _noting(note: Callable[[str, Any], None], name: str) -> Callable[..., None]:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        note(name, output)

    return hook


def _leaves(model: Any) -> Iterator[tuple[str, Any]]:
    """The leaf layers, with the names that a recording gives them; not those that torch.compile took."""
    for one in naming.layers(model):
        if not one.compiled and next(one.module.children(), None) is None:
            yield one.name or naming.kind(model), one.module


def random_numbers(run: Run, step: int, rank: int) -> Any:
    """The state of random numbers with which the forward of a step began; None: it was not recorded."""
    wanted = f"cat = {quoted(FINGERPRINT + RANDOM)} AND step = {step} AND coalesce(rank, 0) = {rank}"
    rows = run.sql(f"SELECT args FROM events WHERE kind = 'mark' AND args IS NOT NULL AND {wanted}").fetchall()  # noqa: S608
    return randomness.unpacked(json.loads(rows[0][0]).get("state")) if rows else None


def differences(setup: Mapping[str, Any], model: Any) -> list[str]:
    """What is not as in the run, and may round in another way."""
    now = {**environment(facts()), "model.compiled": any(one.compiled for one in naming.layers(model))}
    found = [
        f"{name}: {now[name]} here, {setup[name]} in the run"
        for name in (*OURS, "model.compiled")
        if name in setup and name in now and setup[name] != now[name]
    ]
    return [f"Differences from the run: {'; '.join(found)}."] if found else []
