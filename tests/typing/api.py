"""Example calls of the vocabulary, for the type checker: this file is checked by mypy and never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import sonde.ai
from sonde import ai
from sonde.ai.node import Node, Profiler
from sonde.compat.dftracer import DFTracerAI, dft_fn, dftracer

assert_type(ai.compute.forward, Node)
assert_type(ai.data.io.read, Node)
assert_type(sonde.ai.comm.all_reduce, Node)
assert_type(ai.data.item.init, Node)
assert_type(ai.data.preprocess.derive(name="collate").derive("deep"), Node)
assert_type(ai.custom(cat="sim", name="solve", solver="cg", enable=True), Node)
assert_type(ai.compute.forward(args={"a": 1}, enable=False, key=3, epoch=1), Profiler)
assert_type(DFTracerAI(cat="sim", name="solve", epoch=1), DFTracerAI)


@ai.compute.forward
def bare(x: int) -> str:
    return str(x)


@ai.compute.forward(args={"a": 1})
def called(x: int, *, y: float = 0) -> str:
    return f"{x}{y}"


@ai.dataloader.fetch
def batches(n: int) -> Iterator[int]:
    yield n


@ai.data.item
async def load(n: int) -> bytes:
    return bytes(n)


@ai.data.item
async def stream(n: int) -> AsyncIterator[int]:
    yield n


@ai
def root() -> None: ...


class Dataset:
    """Methods and constructors."""

    @ai.data.item.init
    def __init__(self, size: int) -> None:
        self.size = size

    @ai.data.item
    def read(self, index: int) -> str:
        return str(index)

    @staticmethod
    @ai.data.item
    def below(index: int) -> str:
        return str(index)


assert_type(bare(1), str)
assert_type(called(1, y=2.0), str)
assert_type(batches(1), Iterator[int])
assert_type(Dataset(1).read(2), str)
assert_type(Dataset.below(2), str)
assert_type(ai.compute.forward(bare, enable=True)(1), str)


async def awaited() -> None:
    assert_type(await load(1), bytes)
    async for item in stream(1):
        assert_type(item, int)


with ai, ai.compute, ai.compute.forward, ai.compute.forward(), ai.checkpoint.init, ai.checkpoint.init():
    pass
with ai.comm.send(to=1) as profiler:
    assert_type(profiler, Profiler)
    assert_type(profiler.update(step=1), Profiler)

for step, text in ai.dataloader.fetch.iter(enumerate(["a"])):
    assert_type(step, int)
    assert_type(text, str)

assert_type(ai.compute.forward.update(epoch=1, step=2, image_idx=3, args={"a": 1}, anything="b"), Node)
ai.update(step=1)
ai.disable()
ai.compute.enable()
ai.pipeline.epoch.start(metadata=True)
ai.pipeline.epoch.stop(metadata=True)

bare("x")  # type: ignore[arg-type]
ai.compute.forwrd  # type: ignore[attr-defined]  # noqa: B018

log = dftracer.initialize_log("trace.pfw", "/data", -1)
assert_type(log, dftracer)
fn = dft_fn("io", name="read")


@fn.log
def logged(x: int) -> str:
    return str(x)


@fn.log(name="other")
def renamed(x: int) -> str:
    return str(x)


assert_type(logged(1), str)
assert_type(renamed(1), str)
with fn as block:
    assert_type(block.update(step=1), dft_fn)
log.finalize()
