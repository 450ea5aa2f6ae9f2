"""What the probes write and the tables read: categories, names, and the meaning of keys. Part of the store's contract.

`docs/reference/tables.md` says which records are made of what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROBE = "probe"
OFF = "probe.off"  # a probe that switched itself off; the name is the probe's, the argument `reason` says why
MEMORY = "memory"
SYSTEM = "system"
ENERGY = "energy"  # a counter: joules that a processor package has used since the first look; the key is its number
GPU_ENERGY = "gpu.energy"  # the same of a device, since its driver was loaded
GPU_THROTTLED = "gpu.throttled"  # the bits of NVML that say why the clocks of a device are held back
WAITED = "cpu.waited"  # a counter: ns that the thread that trains has waited for a core, since it began
LAYER = "layer"
LAYER_BACKWARD = "layer.backward"
LAYER_INFO = "layer.info"
PROCESS = "process"
# The category of marks that say what a run was made with: `environment` when training begins, `optimizer.settings` when one first steps
# (its key is the optimizer's number), `model` in the second step (its key is the model's), `git` by the launcher. The arguments are
# the facts.
SETUP = "setup"
ENVIRONMENT = "environment"
OPTIMIZER_SETTINGS = "optimizer.settings"
# Written when training begins. Arguments: `age_ns` of the process (missing: it was there for something else before), and `imports`, how
# long the import of each library that Sonde follows took.
STARTUP = "startup"
GIT = "git"
MODEL = "model"
# A mark: the birth of a non-finite value; the name is the place (a layer, or `loss`, `data`, ...), the arguments are the
# certificate, the key is that of the batch.
NONFINITE = "nonfinite"
# A mark: a part of a model, named by it, that torch.compile took: the watch sees only what it gives as a whole.
NONFINITE_UNSEEN = "nonfinite.unseen"
# A mark: the last birth of this process, named by its layer, has come to nothing: the backward pass after it has ended well.
NONFINITE_UNUSED = "nonfinite.unused"
PERHAPS = "perhaps "  # in a certificate, before an operation that was identified by its name alone

# Waiting for a batch. `input_wait` is written by the main thread of a process that is no loader worker, outside of any other
# wait; `prefetch` is the same anywhere else: in another thread, in a worker, or for a loader inside a dataset. Who waits is
# settled when reading, by the thread: only waits of the thread that has the updates are waiting time, whatever their name
# (training may run in a side thread); those of other threads, and what lies inside another wait, are not.
INPUT_WAIT = "input_wait"
PREFETCH = "prefetch"
# A batch being made, with its items inside. The key is that of the batch, or none where that is not known. Items that cannot
# be seen one by one are among the arguments of the fetch: `indices` (the first of them) and `count` (how many they are).
FETCH = "fetch"
ITEM = "item"
# Finding out that there is no further batch, which ends the workers: a wait as well, but for no batch. Written of loaders with
# workers, and of iterable datasets; others need no time for it. The key is that of the first batch of the iterator.
ITER_END = "iter_end"
ITER = "iter"  # the arguments `workers`, `batch_size`, `dataset` (its type), `length` (of the loader), ...; null: not known
SAMPLES = "samples"
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
UPDATE = "update"
STEP = "step"
MANUAL = "manual"  # a mark: the program has no torch optimizer, so its backward passes end its steps
H2D = "h2d"
COMMUNICATION = "communication."  # and the name of the operation
DDP = "ddp."  # and what DistributedDataParallel measured
PROFILER = "profiler"  # torch.profiler being made ready, or writing its trace
DEVICE = "device."  # and the phase: a counter, nanoseconds on the stream of a device
DEVICE_PEAK = (
    "device_peak"  # a counter: the most bytes that were allocated on a device, its key, since the last such look
)
CHECKPOINT = "checkpoint"
LOADED = "checkpoint.loaded"  # a mark: a checkpoint, or other weights, were read; the argument `file` is its name
EVALUATION = "evaluation"
# A counter: the key n > 1 says that the value was divided by n just before its backward pass, -n that the framework did so since a
# step has n micro-batches; 0: neither.
LOSS = "loss"
# A counter, written when it changes: the learning rate that an update used. The key is the optimizer << 16 | its parameter group.
RATE = "lr"
GROUP_BITS = 16
# A category, and the direction (input, forward, backward, update) behind it: a counter, the fingerprint of a tensor; named by the
# layer or the parameter. The value is the sum of the tensor, the key a digest of its bits, with this bit if it is of a device.
FINGERPRINT = "fingerprint."
FINGERPRINT_DEVICE = 1 << 61
# What `--learning` records in the steps that it samples. A category and what was measured behind it: a counter.
# Of gradients and weights (norm, zeros, nonfinite, weight, update) by layer: named "model/layer", the key as that of a rate.
GRADIENT = "gradient."
# Of the results of a layer (mean, std, zeros, saturated, dead): named the same way, the key is how often the layer was called.
ACTIVATION = "activation."
# Of a field of a batch (mean, std, low, high, nonfinite, distinct, padding, tokens, size): the key is that of the batch.
FIELD = "field."
# Counters: `scale` of a gradient scaler when it changes, `clip.norm` and `clip.limit` of `clip_grad_norm_`; by optimizer (the key)
# `carried`, the share of looked-at gradients that were not zero when the first backward pass of the step began, and `compared`, how
# many weights were compared with what the last update had left.
LEARNING = "learning"
# A counter named "model/layer": weights have changed between two updates; the change relative to their norm, NaN if it is not known.
CHANGED = "learning.changed"
# Marks with facts as arguments, written when these change: of a model, and of its layers with parameters ("model/layer").
LEARNING_MODEL = "learning.model"
LEARNING_LAYER = "learning.layer"
# A category: marks, the values of a call of `sonde.log_items`, named by what was logged. The arguments: `call` (its number), `count` (of
# values), `first` (place of the first one here), `ago` (ns since the call) and `values` (base64 of little-endian float32).
ITEM_VALUES = "item.values"
# A category: a counter `step`, the floating-point operations of that step; or a mark `uncounted`, whose argument `why` says why there is none.
FLOPS = "flops"
# What `--io` records. Marks: `file`, whose key is a number of this process, with `path` and `size`; and `read`, a file in one item (or
# outside of items): the key is that of the batch, the arguments are `file` (that number), `position` in the batch, `opens`, `calls`,
# `bytes`, `ns`, `native` (read by native code) and `disk` (bytes that came from a device). One that is missing is not known.
IO = "io"
FILE = "file"
READ = "read"
# What `--sample` records. A counter `stack`: the ns that a thread spent where it was seen; the key is the thread's number in this process
# << SAMPLE_THREAD_BITS | the node of its stack. Marks: `frame`, a node (the key): `function`, `file`, `line`, `own` (no library), and
# `caller`, the node that called it (0: none); and `thread`, a number (the key): `tid` and `name`, null if not known.
SAMPLE = "sample"
SAMPLE_STACK = "stack"
SAMPLE_FRAME = "frame"
SAMPLE_THREAD = "thread"
SAMPLE_THREAD_BITS = 32
# A category, and the framework behind it: a counter, a loss or a metric that it has logged. The key: 1 of an evaluation, 0 of training;
# none: its name tells.
METRIC = "metric."
# A mark in a category of its own: steps that are recorded deep, or were, if `state` is `done`; the key is the first step. The other
# arguments: `last`, `parts`, `refused` (those that were on already) and `why`.
DEEPEN = "deepen"
LOG = "log"  # the category of what `sonde.log` is given
# A mark `recompile` of this category: torch.compile compiles a function again; the arguments `function`, `file`, `line`, `reason`.
RECOMPILE = "recompile"
GC = "gc"
# A mark: the stacks of all threads were written into `file`, in the run folder (stacks-<host>-<pid>.txt). A process that is
# being recorded writes them when it gets `stacks_signal()`, and when it makes no progress for minutes.
STACKS = "stacks"
# A mark: a process, the key, has ended; the arguments `code`, or `signal`. `by`: "parent" if the program that had started it
# asked it to end, and it ended so.
EXIT = "exit"
EXIT_BY = "by"
PARENT = "parent"
START = "start"  # of a program, by its launcher; the argument `command`
EXCEPTION = "exception"  # one that ends its process; the argument `type`
DUMP = "dump"  # a mark: the black box was written; the arguments `folder` (in RUN/blackbox) and `reason`
UNSEEN = "unseen"  # a process that Sonde does not reach; the arguments `command` and `reason`

# Bits of the key of a forward.
FORWARD_TRAINING = 1  # the module was in training mode
FORWARD_GRAD = 2  # gradients were switched on
FORWARD_LOSS = 4  # it was a loss function
FORWARD_LEARNED = (
    8  # without gradients, but the module went forward in training and with them before, as no teacher does
)

# Bits of the key of an update.
UPDATE_SKIPPED = 1  # the gradient scaler found an overflow: no parameter changed
UPDATE_EXPLICIT = 2  # the end of a `trace_step` block
UPDATE_ABORTED = 4  # the step did not come to its end
# That it was one was seen later: what was recorded from it on, until that was seen, has the number of the first such step.
UPDATE_LATE = 8
# The program has no torch optimizer: this is the end of the last backward pass before a training forward.
UPDATE_BACKWARD = 16

_NUMBER_BITS = 28
_ROUND_BITS = 16
_LOADER_BITS = 16
_NUMBERS, _ROUNDS, _LOADERS = (1 << _NUMBER_BITS) - 1, (1 << _ROUND_BITS) - 1, (1 << _LOADER_BITS) - 1
HIGHEST_NUMBER = _NUMBERS  # of a batch; a number above it keeps its lowest bits


class BatchKey(NamedTuple):
    """Which batch an event is about: the loader (in order of first use), how often it was iterated, the batch's number."""

    loader: int
    round: int
    number: int


def batch_key(loader: int | None, round: int | None, number: int | None) -> int:
    """The three in one integer. What is not known counts as 0; what is too large for its place keeps its lowest bits."""
    return (
        ((loader or 0) & _LOADERS) << (_NUMBER_BITS + _ROUND_BITS)
        | ((round or 0) & _ROUNDS) << _NUMBER_BITS
        | ((number or 0) & _NUMBERS)
    )


def read_batch_key(key: int) -> BatchKey:
    """The loader, the round and the number that a key was made of."""
    return BatchKey(key >> (_NUMBER_BITS + _ROUND_BITS) & _LOADERS, key >> _NUMBER_BITS & _ROUNDS, key & _NUMBERS)


Keys = TypeVar("Keys", int, "NDArray[np.int64]")


def loader_of(keys: Keys) -> Keys:
    """The loader of one key, or of an array of keys."""
    return keys >> (_NUMBER_BITS + _ROUND_BITS)


def iteration_of(keys: Keys) -> Keys:
    """The loader and the round of keys as one number: an iteration over a loader."""
    return keys >> _NUMBER_BITS


def number_of(keys: Keys) -> Keys:
    """The numbers of the batches."""
    return keys & _NUMBERS


def key_columns(key: str) -> dict[str, str]:
    """The columns `loader`, `round` and `batch` in SQL, of the column that holds the key."""
    return {
        "loader": f"{key} >> {_NUMBER_BITS + _ROUND_BITS}",
        "round": f"({key} >> {_NUMBER_BITS}) & {_ROUNDS}",
        "batch": f"{key} & {_NUMBERS}",
    }


def stacks_signal() -> int | None:
    """The signal that asks a recorded process for the stacks of its threads; None where there is none to spare."""
    import signal

    last = getattr(signal, "SIGRTMAX", None)
    return None if last is None else int(last) - 3
