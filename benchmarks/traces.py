"""Large trace files as torch.profiler and DFTracer write them: made-up steps, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

LAYERS = 40
STEP_US = 20_000
BEGIN_US = 1_712_195_495_000_000
OPERATORS = ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::native_layer_norm", "aten::gelu", "aten::empty")
KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)>",
    "ampere_sgemm_128x64_tn",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)",
)
HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "made up", "computeMajor": 8, "computeMinor": 0}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "record_shapes": 1,
  "traceEvents": ["""


def profile(path: Path, size: int) -> int:
    """A trace of torch.profiler of about `size` bytes; how many events it has."""
    count = 0
    with path.open("w") as file:
        file.write(HEAD)
        for step in range(1_000_000_000):
            events = [*_step(step)]
            count += len(events)
            file.write(("," if step else "") + ",".join(events))
            if file.tell() > size:
                break
        file.write('\n  ],\n  "traceName": "made-up.json"\n}\n')
    return count


def _step(step: int) -> Iterator[str]:
    begin, number = BEGIN_US + step * STEP_US, step * LAYERS * 16
    yield _span("user_annotation", f"ProfilerStep#{step}", 7, 7, begin, STEP_US - 1, f'"External id": {number}')
    yield _span(
        "user_annotation", "enumerate(DataLoader)#_Iter.__next__", 7, 7, begin + 1, 900.5, f'"Ev Idx": {number}'
    )
    for layer in range(LAYERS):
        at = begin + 1000 + layer * 200
        for place, name in enumerate(OPERATORS):
            shapes = '"Input Dims": [[64, 512], [512, 512]], "Input type": ["float", "float"]'
            args = f'"External id": {number + place},"Sequence number": {layer}, {shapes}, "Ev Idx": {number + place}'
            yield _span("cpu_op", name, 7, 7, at + place * 10, 150.125 - 20 * place, args)
        for place, name in enumerate(KERNELS):
            link = number + 8 + place
            yield _span(
                "cuda_runtime",
                "cudaLaunchKernel",
                7,
                7,
                at + 160 + place * 8,
                5.062,
                f'"cbid": 211, "correlation": {link}',
            )
            grid = (
                '"queued": 0, "device": 0, "context": 1, "stream": 7, "registers per thread": 32, "grid": [128, 1, 1]'
            )
            yield _span(
                "kernel",
                name,
                0,
                7,
                at + 170 + place * 9,
                8.75,
                f'"External id": {link}, {grid}, "correlation": {link}',
            )
            yield _flow("s", link, 7, 7, at + 160 + place * 8)
            yield _flow("f", link, 0, 7, at + 170 + place * 9)
        number += 16
    yield _span(
        "cpu_op",
        "autograd::engine::evaluate_function: AddmmBackward0",
        7,
        8,
        begin + 10_000,
        7000,
        '"Sequence number": 1',
    )
    yield _span("user_annotation", "Optimizer.step#AdamW.step", 7, 7, begin + 18_000, 1500.75, '"Ev Idx": 1')


def _span(cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: str) -> str:
    return (
        f'\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(kind: str, link: int, pid: int, tid: int, ts: float) -> str:
    return (
        f'\n  {{\n    "ph": "{kind}", "id": {link}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
    )


def lines(path: Path, size: int) -> int:
    """A trace of DFTracer 2.2 of about `size` bytes, with the metadata that it can write; how many events it has."""
    about = {"hhash": "3a9b2", "epoch": 1, "step": 0, "p_idx": 4}
    names = (("forward", "compute"), ("backward", "compute"), ("fetch.iter", "dataloader"), ("item", "data"))
    count = 0
    with path.open("w") as file:
        while file.tell() < size:
            for name, cat in names:
                args = about | {"step": count // 4}
                line = {
                    "id": count,
                    "name": name,
                    "cat": cat,
                    "type": 6,
                    "pid": 77,
                    "tid": 77,
                    "ts": BEGIN_US + 30 * count,
                }
                file.write(json.dumps(line | {"dur": 25, "ph": 1, "args": args}, separators=(",", ":")) + "\n")
                count += 1
    return count


FORMATS: dict[str, Callable[[Path, int], int]] = {"torch.profiler": profile, "DFTracer": lines}
