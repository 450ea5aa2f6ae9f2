"""All rules, one finding in each file; their order decides between findings of equal weight."""

from __future__ import annotations

from sonde.diagnosis.evidence import Rule
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules.balanced import balanced
from sonde.diagnosis.rules.checkpoint import checkpoint_heavy
from sonde.diagnosis.rules.communication import comm_bound
from sonde.diagnosis.rules.compute import compute_bound
from sonde.diagnosis.rules.computestraggler import compute_straggler
from sonde.diagnosis.rules.crashed import crashed
from sonde.diagnosis.rules.creep import memory_creep
from sonde.diagnosis.rules.drift import step_drift
from sonde.diagnosis.rules.evaluation import evaluation_heavy
from sonde.diagnosis.rules.garbage import gc_pauses
from sonde.diagnosis.rules.h2d import h2d_bound
from sonde.diagnosis.rules.hung import hung
from sonde.diagnosis.rules.input import input_bound
from sonde.diagnosis.rules.inputstraggler import input_straggler
from sonde.diagnosis.rules.insufficient import insufficient_data
from sonde.diagnosis.rules.interrupted import interrupted
from sonde.diagnosis.rules.items import slow_items
from sonde.diagnosis.rules.killed import killed
from sonde.diagnosis.rules.launch import launch_bound
from sonde.diagnosis.rules.nonfinite import non_finite
from sonde.diagnosis.rules.oversubscribed import cpu_oversubscribed
from sonde.diagnosis.rules.pressure import memory_pressure
from sonde.diagnosis.rules.reopened import file_reopened
from sonde.diagnosis.rules.residual import residual_heavy
from sonde.diagnosis.rules.slowfile import slow_file
from sonde.diagnosis.rules.smallreads import small_reads
from sonde.diagnosis.rules.spikes import step_spikes
from sonde.diagnosis.rules.startup import worker_startup
from sonde.diagnosis.rules.straggler import straggler

RULES = (
    Rule("KILLED", "killed", killed),
    Rule("HUNG", "hung", hung),
    Rule("CRASHED", "crashed", crashed),
    Rule("INTERRUPTED", "interrupted", interrupted),
    Rule("NON_FINITE", "non_finite", non_finite),
    Rule("WORKER_STARTUP", "worker_startup", worker_startup),
    Rule("SLOW_FILE", "slow_file", slow_file),
    Rule("SMALL_READS", "small_reads", small_reads),
    Rule("FILE_REOPENED", "file_reopened", file_reopened),
    Rule("SLOW_ITEMS", "slow_items", slow_items),
    Rule("INPUT_STRAGGLER", "straggler", input_straggler),
    Rule("COMPUTE_STRAGGLER", "straggler", compute_straggler),
    Rule("STRAGGLER", "straggler", straggler),
    Rule("INPUT_BOUND", "input_bound", input_bound),
    Rule("H2D_BOUND", "h2d_bound", h2d_bound),
    Rule("COMM_BOUND", "comm_bound", comm_bound),
    Rule("CHECKPOINT_HEAVY", "checkpoint_heavy", checkpoint_heavy),
    Rule("EVALUATION_HEAVY", "evaluation_heavy", evaluation_heavy),
    Rule("GC_PAUSES", "gc_pauses", gc_pauses),
    Rule("STEP_DRIFT", "step_drift", step_drift),
    Rule("RESIDUAL_HEAVY", "residual_heavy", residual_heavy),
    Rule("STEP_SPIKES", "step_spikes", step_spikes),
    Rule("CPU_OVERSUBSCRIBED", "cpu_oversubscribed", cpu_oversubscribed),
    Rule("MEMORY_CREEP", "memory_creep", memory_creep),
    Rule("MEMORY_PRESSURE", "memory_pressure", memory_pressure),
    Rule("LAUNCH_BOUND", "launch_bound", launch_bound),
    Rule("COMPUTE_BOUND", "compute_bound", compute_bound),
    Rule("INSUFFICIENT_DATA", "steps", insufficient_data),
    Rule("BALANCED", "steps", balanced),
)


def shared_parts(policy: Policy) -> list[str]:
    """The parts of the policy that belong to no single rule."""
    return [part for part in policy.parts if part not in {rule.part for rule in RULES}]
