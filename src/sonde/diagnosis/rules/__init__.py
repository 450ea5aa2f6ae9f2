"""All rules, one finding in each file; their order decides between findings of equal weight."""

from __future__ import annotations

from sonde.diagnosis.evidence import Rule
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules.balanced import balanced
from sonde.diagnosis.rules.checkpoint import checkpoint_heavy
from sonde.diagnosis.rules.coldreads import cold_reads
from sonde.diagnosis.rules.communication import comm_bound
from sonde.diagnosis.rules.compute import compute_bound
from sonde.diagnosis.rules.computestraggler import compute_straggler
from sonde.diagnosis.rules.crashed import crashed
from sonde.diagnosis.rules.creep import memory_creep
from sonde.diagnosis.rules.drift import step_drift
from sonde.diagnosis.rules.evaluation import evaluation_heavy
from sonde.diagnosis.rules.garbage import gc_pauses
from sonde.diagnosis.rules.gpu.imbalance import gpu_imbalance
from sonde.diagnosis.rules.gpu.throttled import gpu_throttled
from sonde.diagnosis.rules.gpu.underused import gpu_underused
from sonde.diagnosis.rules.gpu.unusedmemory import gpu_memory_unused
from sonde.diagnosis.rules.h2d import h2d_bound
from sonde.diagnosis.rules.hung import hung
from sonde.diagnosis.rules.input import input_bound
from sonde.diagnosis.rules.inputstraggler import input_straggler
from sonde.diagnosis.rules.insufficient import insufficient_data
from sonde.diagnosis.rules.interrupted import interrupted
from sonde.diagnosis.rules.items import slow_items
from sonde.diagnosis.rules.killed import killed
from sonde.diagnosis.rules.launch import launch_bound
from sonde.diagnosis.rules.learning.accumulation import gradient_accumulation
from sonde.diagnosis.rules.learning.changed import weights_changed
from sonde.diagnosis.rules.learning.dead import dead_relu
from sonde.diagnosis.rules.learning.evaluated import evaluated_in_training_mode
from sonde.diagnosis.rules.learning.exploding import exploding_gradients
from sonde.diagnosis.rules.learning.oneclass import one_class
from sonde.diagnosis.rules.learning.overfitting import overfitting
from sonde.diagnosis.rules.learning.plateau import loss_not_decreasing
from sonde.diagnosis.rules.learning.rate import learning_rate
from sonde.diagnosis.rules.learning.saturated import saturated
from sonde.diagnosis.rules.learning.spike import loss_spike
from sonde.diagnosis.rules.learning.still import layer_not_learning
from sonde.diagnosis.rules.learning.trained import trained_in_evaluation_mode
from sonde.diagnosis.rules.learning.update import update_ratio
from sonde.diagnosis.rules.learning.vanishing import vanishing_gradients
from sonde.diagnosis.rules.nonfinite import non_finite
from sonde.diagnosis.rules.oversubscribed import cpu_oversubscribed
from sonde.diagnosis.rules.pressure import memory_pressure
from sonde.diagnosis.rules.recompiling import recompiling
from sonde.diagnosis.rules.reopened import file_reopened
from sonde.diagnosis.rules.residual import residual_heavy
from sonde.diagnosis.rules.slowfile import slow_file
from sonde.diagnosis.rules.smallreads import small_reads
from sonde.diagnosis.rules.spikes import step_spikes
from sonde.diagnosis.rules.startup import worker_startup
from sonde.diagnosis.rules.straggler import straggler

LEARNING = (
    Rule("LEARNING_RATE", "learning_rate", learning_rate),
    Rule("GRADIENT_ACCUMULATION", "gradient_accumulation", gradient_accumulation),
    Rule("WEIGHTS_CHANGED", "weights_changed", weights_changed),
    Rule("ONE_CLASS", "one_class", one_class),
    Rule("TRAINED_IN_EVALUATION_MODE", "trained_in_evaluation_mode", trained_in_evaluation_mode),
    Rule("DEAD_RELU", "dead_relu", dead_relu),
    Rule("SATURATED", "saturated", saturated),
    Rule("LAYER_NOT_LEARNING", "layer_not_learning", layer_not_learning),
    Rule("VANISHING_GRADIENTS", "vanishing_gradients", vanishing_gradients),
    Rule("EXPLODING_GRADIENTS", "exploding_gradients", exploding_gradients),
    Rule("UPDATE_RATIO", "update_ratio", update_ratio),
    Rule("EVALUATED_IN_TRAINING_MODE", "evaluated_in_training_mode", evaluated_in_training_mode),
    Rule("OVERFITTING", "overfitting", overfitting),
    Rule("LOSS_SPIKE", "loss_spike", loss_spike),
    Rule("LOSS_NOT_DECREASING", "loss_not_decreasing", loss_not_decreasing),
)

RULES = (
    Rule("KILLED", "killed", killed),
    Rule("HUNG", "hung", hung),
    Rule("CRASHED", "crashed", crashed),
    Rule("INTERRUPTED", "interrupted", interrupted),
    Rule("NON_FINITE", "non_finite", non_finite),
    *LEARNING,
    Rule("WORKER_STARTUP", "worker_startup", worker_startup),
    Rule("SLOW_FILE", "slow_file", slow_file),
    Rule("SMALL_READS", "small_reads", small_reads),
    Rule("FILE_REOPENED", "file_reopened", file_reopened),
    Rule("COLD_READS", "cold_reads", cold_reads),
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
    Rule("RECOMPILING", "recompiling", recompiling),
    Rule("STEP_SPIKES", "step_spikes", step_spikes),
    Rule("CPU_OVERSUBSCRIBED", "cpu_oversubscribed", cpu_oversubscribed),
    Rule("MEMORY_CREEP", "memory_creep", memory_creep),
    Rule("MEMORY_PRESSURE", "memory_pressure", memory_pressure),
    Rule("LAUNCH_BOUND", "launch_bound", launch_bound),
    Rule("GPU_THROTTLED", "gpu_throttled", gpu_throttled),
    Rule("GPU_IMBALANCE", "gpu_imbalance", gpu_imbalance),
    Rule("GPU_UNDERUSED", "gpu_underused", gpu_underused),
    Rule("GPU_MEMORY_UNUSED", "gpu_memory_unused", gpu_memory_unused),
    Rule("COMPUTE_BOUND", "compute_bound", compute_bound),
    Rule("INSUFFICIENT_DATA", "steps", insufficient_data),
    Rule("BALANCED", "steps", balanced),
)


def shared_parts(policy: Policy) -> list[str]:
    """The parts of the policy that belong to no single rule."""
    return [part for part in policy.parts if part not in {rule.part for rule in RULES}]
