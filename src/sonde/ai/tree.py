"""The tree of the vocabulary, built from the table, with a class for each category so that editors know its children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonde.ai import node as nodes
from sonde.ai.node import Node
from sonde.ai.vocabulary import ROOT, TABLE
from sonde.store.record import ESSENTIAL


class Io(Node):
    """Input and output of one category."""

    open: Node
    read: Node
    write: Node
    close: Node


class Compute(Node):
    """Work of the model."""

    forward: Node
    backward: Node
    step: Node


class Data(Node):
    """Work on the data."""

    preprocess: Node
    item: Node
    io: Io


class Dataloader(Node):
    """The loader."""

    fetch: Node


class Comm(Node):
    """Communication between ranks."""

    send: Node
    receive: Node
    barrier: Node
    bcast: Node
    reduce: Node
    all_reduce: Node
    gather: Node
    all_gather: Node
    scatter: Node
    reduce_scatter: Node
    all_to_all: Node


class Device(Node):
    """Work between host and device."""

    transfer: Node


class Checkpoint(Node):
    """Checkpointing."""

    capture: Node
    restart: Node
    io: Io


class PipelineNode(Node):
    """The run of a program."""

    epoch: Node
    train: Node
    evaluate: Node
    test: Node


class Other(Node):
    """Everything else."""

    log: Node
    io: Io


class Root(Node):
    """`ai` itself."""

    compute: Compute
    data: Data
    dataloader: Dataloader
    comm: Comm
    device: Device
    checkpoint: Checkpoint
    pipeline: PipelineNode
    other: Other

    def custom(
        self,
        cat: str,
        name: str | None = None,
        *,
        enable: bool | None = None,
        args: Mapping[str, object] | None = None,
        **more: Any,
    ) -> Node:
        """A profiler outside of the vocabulary: the root of a tree of its own, the same for the same category and name.

        `args` and further keywords (also `epoch` and `step`) go to all its events.
        """
        node = nodes.custom(cat, name)
        if enable is not None:
            node.enable() if enable else node.disable()
        return node.update(args=nodes.arguments(args, more))


KINDS: dict[str, type[Node]] = {
    "compute": Compute,
    "data": Data,
    "data.io": Io,
    "dataloader": Dataloader,
    "comm": Comm,
    "device": Device,
    "checkpoint": Checkpoint,
    "checkpoint.io": Io,
    "pipeline": PipelineNode,
    "other": Other,
    "other.io": Io,
}


def grow() -> Root:
    """A new tree of the whole table."""
    root = Root(ROOT, ROOT, level=ESSENTIAL)
    places: dict[str, Node] = {"": root}
    for row in TABLE:
        child = KINDS.get(row.path, Node)(row.name, row.cat, level=row.level)
        places[row.path] = places[row.path.rpartition(".")[0]].adopt(row.attribute, child)
    return root


ai = nodes.plant(grow())
