"""What the probes write and the tables read: categories, names, and the meaning of keys. Part of the store's contract.

`docs/tables.md` says which records are made of what.
"""

from __future__ import annotations

from typing import NamedTuple

PROBE = "probe"
OFF = "probe.off"  # a probe that switched itself off; the name is the probe's, the argument `reason` says why
MEMORY = "memory"
SYSTEM = "system"
LAYER = "layer"
LAYER_BACKWARD = "layer.backward"
LAYER_INFO = "layer.info"
PROCESS = "process"

INPUT_WAIT = "input_wait"
FETCH = "fetch"
ITEM = "item"
ITER = "iter"
SAMPLES = "samples"
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
UPDATE = "update"
STEP = "step"
H2D = "h2d"
COMMUNICATION = "communication."  # and the name of the operation
DDP = "ddp."  # and what DistributedDataParallel measured
CHECKPOINT = "checkpoint"
EVALUATION = "evaluation"
LOSS = "loss"
GC = "gc"
EXIT = "exit"

# Bits of the key of a forward.
FORWARD_TRAINING = 1  # the module was in training mode
FORWARD_GRAD = 2  # gradients were switched on
FORWARD_LOSS = 4  # it was a loss function

# Bits of the key of an update.
UPDATE_SKIPPED = 1  # the gradient scaler found an overflow: no parameter changed
UPDATE_EXPLICIT = 2  # the end of a `trace_step` block
UPDATE_ABORTED = 4  # the step did not come to its end

_NUMBER_BITS = 28
_ROUND_BITS = 16
_LOADER_BITS = 16


class BatchKey(NamedTuple):
    """Which batch an event is about: the loader (in order of first use), how often it was iterated, the batch's number."""

    loader: int
    round: int
    number: int


def batch_key(loader: int | None, round: int | None, number: int | None) -> int:
    """The three in one integer. What is not known counts as 0; what is too large for its place keeps its lowest bits."""
    return (
        _low(loader, _LOADER_BITS) << (_NUMBER_BITS + _ROUND_BITS)
        | _low(round, _ROUND_BITS) << _NUMBER_BITS
        | _low(number, _NUMBER_BITS)
    )


def read_batch_key(key: int) -> BatchKey:
    """The loader, the round and the number that a key was made of."""
    return BatchKey(
        _low(key >> (_NUMBER_BITS + _ROUND_BITS), _LOADER_BITS),
        _low(key >> _NUMBER_BITS, _ROUND_BITS),
        _low(key, _NUMBER_BITS),
    )


def _low(number: int | None, bits: int) -> int:
    return (number or 0) & ((1 << bits) - 1)
