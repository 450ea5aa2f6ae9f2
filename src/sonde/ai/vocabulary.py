"""The vocabulary as one table: where each event stands in the tree, its name, its importance, and what it is for.

The category of an event is the first part of its path. `docs/reference/vocabulary.md` shows this table; a test compares the two.
"""

from __future__ import annotations

from typing import NamedTuple

from sonde.store.record import DETAIL, ESSENTIAL, NORMAL

ROOT = "ai_root"  # name and category of `ai` itself


class Row(NamedTuple):
    """One profiler: `ai.<path>` records events called `name`, of the category that the path begins with."""

    path: str
    name: str
    level: int
    about: str

    @property
    def cat(self) -> str:
        """The category: the first part of the path."""
        return self.path.partition(".")[0]

    @property
    def attribute(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


TABLE = (
    Row("compute", "compute", ESSENTIAL, "Work of the model, as a whole"),
    Row("compute.forward", "forward", ESSENTIAL, "Forward pass of the network"),
    Row("compute.backward", "backward", ESSENTIAL, "Backward pass: computing the gradients"),
    Row("compute.step", "step", ESSENTIAL, "Optimizer step: updating the parameters"),
    Row("data", "data", NORMAL, "Work on the data, as a whole"),
    Row("data.preprocess", "preprocess", NORMAL, "Preprocessing of a dataset or a batch"),
    Row("data.item", "item", DETAIL, "Loading or transforming one item"),
    Row("data.io", "data.io", DETAIL, "Input and output of the data"),
    Row("data.io.open", "data.io.open", DETAIL, "Opening a data file"),
    Row("data.io.read", "data.io.read", DETAIL, "Reading from a data file"),
    Row("data.io.write", "data.io.write", DETAIL, "Writing to a data file"),
    Row("data.io.close", "data.io.close", DETAIL, "Closing a data file"),
    Row("dataloader", "dataloader", NORMAL, "The loader, as a whole"),
    Row("dataloader.fetch", "fetch", NORMAL, "Fetching a batch from the loader"),
    Row("comm", "comm", NORMAL, "Communication between ranks, as a whole"),
    Row("comm.send", "send", NORMAL, "Point-to-point send"),
    Row("comm.receive", "receive", NORMAL, "Point-to-point receive"),
    Row("comm.barrier", "barrier", NORMAL, "Waiting for all ranks"),
    Row("comm.bcast", "bcast", NORMAL, "Broadcast (one to many)"),
    Row("comm.reduce", "reduce", NORMAL, "Reduce (many to one)"),
    Row("comm.all_reduce", "all_reduce", NORMAL, "All-reduce (many to many)"),
    Row("comm.gather", "gather", NORMAL, "Gather (many to one)"),
    Row("comm.all_gather", "all_gather", NORMAL, "All-gather (many to many)"),
    Row("comm.scatter", "scatter", NORMAL, "Scatter (one to many)"),
    Row("comm.reduce_scatter", "reduce_scatter", NORMAL, "Reduce-scatter (many to many)"),
    Row("comm.all_to_all", "all_to_all", NORMAL, "All-to-all (many to many)"),
    Row("device", "device", NORMAL, "Work between host and device, as a whole"),
    Row("device.transfer", "transfer", NORMAL, "Copy from host to device, or back"),
    Row("checkpoint", "checkpoint", ESSENTIAL, "Checkpointing, as a whole"),
    Row("checkpoint.capture", "capture", ESSENTIAL, "Saving a checkpoint of the model"),
    Row("checkpoint.restart", "restart", ESSENTIAL, "Starting again from a checkpoint"),
    Row("checkpoint.io", "checkpoint.io", DETAIL, "Input and output of checkpoints"),
    Row("checkpoint.io.open", "checkpoint.io.open", DETAIL, "Opening a checkpoint file"),
    Row("checkpoint.io.read", "checkpoint.io.read", DETAIL, "Reading from a checkpoint file"),
    Row("checkpoint.io.write", "checkpoint.io.write", DETAIL, "Writing to a checkpoint file"),
    Row("checkpoint.io.close", "checkpoint.io.close", DETAIL, "Closing a checkpoint file"),
    Row("pipeline", "pipeline", ESSENTIAL, "The run of a program, as a whole"),
    Row("pipeline.epoch", "epoch", ESSENTIAL, "One epoch of training or evaluation"),
    Row("pipeline.train", "train", ESSENTIAL, "The training phase"),
    Row("pipeline.evaluate", "evaluate", ESSENTIAL, "The evaluation or validation phase"),
    Row("pipeline.test", "test", ESSENTIAL, "The test or inference phase"),
    Row("other", "other", NORMAL, "Everything else"),
    Row("other.log", "other.log", NORMAL, "Writing logs and metrics"),
    Row("other.io", "other.io", DETAIL, "Input and output of anything else"),
    Row("other.io.open", "other.io.open", DETAIL, "Opening any other file"),
    Row("other.io.read", "other.io.read", DETAIL, "Reading from any other file"),
    Row("other.io.write", "other.io.write", DETAIL, "Writing to any other file"),
    Row("other.io.close", "other.io.close", DETAIL, "Closing any other file"),
)
