"""The table of cases: which script, on how many ranks, and what the verdict on it must be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import learning
from sonde.finding import CRITICAL, INFO, WARN

SCRIPTS = Path(__file__).parent / "scripts"
FAULT = (WARN, CRITICAL)
NOTE = (INFO,)
HEALTHY = ("BALANCED", "COMPUTE_BOUND")


class Case(NamedTuple):
    """One script with its fault. `also`: kinds that are true of it as well, and may be critical beside the verdict."""

    name: str
    script: str
    expected: tuple[str, ...]  # the kinds that are right as the verdict
    severities: tuple[str, ...]
    ranks: int = 0  # 0: plain Python; otherwise torchrun
    also: tuple[str, ...] = ()
    fails: bool = False  # the program does not end with exit code 0
    hangs: bool = False  # it never ends: it is looked at while it runs
    limit_mb: int | None = None  # of memory, by a control group; where there can be none, the case is left out
    names: str | None = None  # what the verdict must also name: an item, a rank, a signal
    quick: bool = False  # one of the sample that runs in every test
    half: int = 0  # of the scripts about learning: 1 before the thresholds were frozen, 2 after it

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / f"{self.script}.py"

    @property
    def healthy(self) -> bool:
        """Nothing is wrong with it."""
        return self.expected == HEALTHY


def _fault(
    kind: str,
    script: str,
    ranks: int = 0,
    also: tuple[str, ...] = (),
    severities: tuple[str, ...] = FAULT,
    *,
    fails: bool = False,
    hangs: bool = False,
    limit_mb: int | None = None,
    names: str | None = None,
    quick: bool = False,
) -> Case:
    return Case(_name(script, ranks), script, (kind,), severities, ranks, also, fails, hangs, limit_mb, names, quick)


def _healthy(script: str, ranks: int = 0, *, quick: bool = False) -> Case:
    return Case(_name(script, ranks), script, HEALTHY, NOTE, ranks, quick=quick)


def _lessons(scripts: dict[str, str | None], half: int) -> tuple[Case, ...]:
    """Cases about learning, recorded with `--learning`."""
    found = []
    for script, kind in scripts.items():
        expected, severities = (HEALTHY, NOTE) if kind is None else ((kind,), FAULT)
        name = f"learning/{script}"
        found.append(Case(name, name, expected, severities, names=learning.NAMED.get(script), half=half))
    return tuple(found)


def _name(script: str, ranks: int) -> str:
    return f"{script}_{ranks}" if ranks else script


_LOADED = ("INPUT_BOUND", "STEP_SPIKES")
_LATE = ("COMM_BOUND", "INPUT_BOUND", "RESIDUAL_HEAVY")

CASES: tuple[Case, ...] = (
    _fault("INPUT_BOUND", "input_items", quick=True),
    _fault("INPUT_BOUND", "input_worker"),
    _fault("INPUT_BOUND", "input_iterable"),
    _fault("INPUT_BOUND", "input_collate"),
    _fault("INPUT_BOUND", "input_custom"),
    _fault("INPUT_BOUND", "input_accumulate"),
    _fault("INPUT_BOUND", "input_together"),
    _fault("INPUT_BOUND", "input_decode"),
    _fault("COMPUTE_BOUND", "compute_wide", severities=NOTE),
    _fault("COMPUTE_BOUND", "compute_lbfgs", severities=NOTE),
    _fault("COMM_BOUND", "comm_gradients", 2),
    _fault("COMM_BOUND", "comm_ddp", 2),
    _fault("COMM_BOUND", "comm_chatty", 4),
    _fault("CHECKPOINT_HEAVY", "checkpoint_often"),
    _fault("CHECKPOINT_HEAVY", "checkpoint_slow"),
    _fault("EVALUATION_HEAVY", "evaluation_often"),
    _fault("EVALUATION_HEAVY", "evaluation_slow"),
    _fault("RESIDUAL_HEAVY", "residual_logging"),
    _fault("RESIDUAL_HEAVY", "residual_metrics"),
    _fault("RESIDUAL_HEAVY", "residual_named", names="`metrics`"),
    _fault("WORKER_STARTUP", "startup_spawn", also=_LOADED),
    _fault("WORKER_STARTUP", "startup_initialise", also=_LOADED),
    _fault("SLOW_ITEMS", "items_few", also=_LOADED, names="42", quick=True),
    _fault("SLOW_ITEMS", "items_workers", also=_LOADED, names="17"),
    _fault("SLOW_FILE", "files_slow", also=(*_LOADED, "SLOW_ITEMS"), names="slow.bin"),
    _fault("SMALL_READS", "files_small_reads", also=_LOADED),
    _fault("FILE_REOPENED", "files_reopened", also=_LOADED, names="points.npy"),
    _fault("COLD_READS", "files_cold", also=_LOADED, names="first epoch"),
    _fault("SLOW_ITEMS", "files_large", also=_LOADED, names="42.npy", quick=True),
    _healthy("files_healthy"),
    _fault("STEP_SPIKES", "spikes_forward"),
    _fault("STEP_SPIKES", "spikes_logging"),
    _fault("RECOMPILING", "recompiling_shapes", also=("STEP_SPIKES",), names="size mismatch"),
    _fault("RECOMPILING", "recompiling_number", also=("STEP_SPIKES",), names="self.rate"),
    _fault("STEP_DRIFT", "drift_hooks"),
    _fault("STEP_DRIFT", "drift_history", also=("RESIDUAL_HEAVY",)),
    _fault("GC_PAUSES", "gc_forced", also=("RESIDUAL_HEAVY",)),
    _fault("GC_PAUSES", "gc_threshold", also=("RESIDUAL_HEAVY",)),
    _fault("CPU_OVERSUBSCRIBED", "oversubscribed_threads"),
    _fault("CPU_OVERSUBSCRIBED", "oversubscribed_ranks", 4),
    _fault("INPUT_STRAGGLER", "straggler_input", 2, _LATE, names="rank 1"),
    _fault("INPUT_STRAGGLER", "straggler_input", 4, _LATE, names="rank 3"),
    _fault("COMPUTE_STRAGGLER", "straggler_compute", 2, _LATE, names="rank 1"),
    _fault("COMPUTE_STRAGGLER", "straggler_compute", 4, _LATE, names="rank 3"),
    _fault("STRAGGLER", "straggler_other", 2, _LATE, names="rank 1"),
    _fault("STRAGGLER", "straggler_other", 4, _LATE, names="rank 3"),
    _fault("MEMORY_CREEP", "memory_history"),
    _fault("MEMORY_CREEP", "memory_graph"),
    _fault("MEMORY_PRESSURE", "memory_limit", limit_mb=600),
    _fault("NON_FINITE", "nonfinite_rate"),
    _fault("NON_FINITE", "nonfinite_item", names="106", quick=True),
    _fault("KILLED", "killed_itself", fails=True, names="9", quick=True),
    _fault(
        "KILLED", "killed_memory", also=("MEMORY_CREEP", "MEMORY_PRESSURE"), fails=True, limit_mb=600, names="memory"
    ),
    _fault("KILLED", "killed_fault", fails=True, names="11"),
    _fault("KILLED", "killed_rank", 2, ("CRASHED",), fails=True, names="rank 1"),
    _fault("CRASHED", "crashed_loop", fails=True, names="KeyError"),
    _fault("CRASHED", "crashed_shape", fails=True, names="RuntimeError"),
    _fault("CRASHED", "crashed_worker", fails=True, names="777", quick=True),
    _fault("CRASHED", "crashed_rank", 2, fails=True, names="rank 1"),
    _fault("HUNG", "hung_lock", hangs=True, fails=True),
    _fault("HUNG", "hung_rank", 2, hangs=True, fails=True, names="rank 1"),
    _fault("INSUFFICIENT_DATA", "few_steps", severities=NOTE),
    _fault("INSUFFICIENT_DATA", "no_steps", severities=NOTE),
    _healthy("healthy_memory", quick=True),
    _healthy("healthy_images"),
    _healthy("healthy_ranks", 2),
    _healthy("healthy_device", 4),
    _healthy("healthy_accumulate"),
    _healthy("healthy_iterable"),
    _healthy("healthy_evaluation"),
    _healthy("healthy_checkpoint"),
    _healthy("healthy_custom"),
    _healthy("healthy_recurrent"),
    _healthy("healthy_transformer"),
    _healthy("healthy_tiny"),
    _healthy("healthy_adversarial"),
    _healthy("healthy_compiled"),
    *_lessons(learning.FIRST, 1),
    *_lessons(learning.SECOND, 2),
)
