"""Tensors: every layout, dtype and subclass is described, and neither graph nor program notices."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from sonde.capture.show.text import value_text
from sonde.values.note import ARRAY, MISSING, OBJECT, SCALAR, SEQUENCE, Note
from sonde.values.snapshot import OFF, SUMMARY, Keep, digest, freeze

INF = float("inf")
Tensor: Any = torch.Tensor  # its functions for subclasses have no types
DispatchMode: Any = torch.utils._python_dispatch.TorchDispatchMode


def note_of(value: object) -> Note:
    """The description of a value."""
    return freeze(value).note


class Tagged(Tensor):
    """A tensor class of a user, whose functions count."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def quantized() -> torch.Tensor:
    """A quantized tensor."""
    return torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.1, 0, torch.quint8)


SOME: dict[str, Callable[[], torch.Tensor]] = {
    "empty": lambda: torch.empty(0, 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "sparse columns": lambda: torch.eye(3).to_sparse_csc(),
    "sparse blocks": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "sparse blocks by column": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "float8": lambda: torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    "float8, wide range": lambda: torch.tensor([1.0, 2.0]).to(torch.float8_e5m2),
    "bfloat16": lambda: torch.tensor([1.0, 2.0]).bfloat16(),
    "float16": lambda: torch.tensor([1.0, 2.0]).half(),
    "uint16": lambda: torch.tensor([1, 2], dtype=torch.uint16),
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "negative bit": lambda: torch.tensor([1 + 2j]).conj().imag,
    "complex32": lambda: torch.tensor([1 + 2j]).to(torch.complex32),
    "requires grad": lambda: torch.tensor([1.0], requires_grad=True),
    "of a graph": lambda: torch.tensor([1.0], requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "quantized": quantized,
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "expanded": lambda: torch.ones(1).expand(5),
    "transposed": lambda: torch.ones(2, 3).T,
    "subclass": lambda: torch.ones(2).as_subclass(Tagged),
}
if hasattr(torch, "float4_e2m1fn_x2"):  # torch 2.8 and later
    SOME["float4"] = lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Several of these layouts are announced as new or as old when they are made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("keep", [Keep(), SUMMARY, OFF, Keep(limit=0)], ids=["full", "summary", "off", "no room"])
@pytest.mark.parametrize("name", SOME)
def test_any_tensor_freezes_and_prints(name: str, keep: Keep) -> None:
    """Shape, dtype and device are always there."""
    value = SOME[name]()
    note = freeze(value, keep).note
    assert (note.kind, note.shape) == (ARRAY, tuple(value.shape))
    assert (f"torch.{note.dtype}", note.device) == (str(value.dtype), str(value.device))
    assert value_text(note)


@pytest.mark.parametrize("name", [name for name in SOME if name not in ("meta", "quantized", "mkldnn", "float4")])
def test_copy_equals_the_tensor(name: str) -> None:
    """A copy is a plain tensor of the same dtype, without a graph."""
    value = SOME[name]()
    copy = freeze(value).value
    assert type(copy) is torch.Tensor
    assert (copy.dtype, copy.layout, copy.requires_grad) == (value.dtype, value.layout, False)
    if name in ("float8", "float8, wide range", "complex32"):
        copy, value = copy.to(torch.complex64), value.to(torch.complex64)
    assert torch.equal(copy.to_dense(), value.detach().to_dense())


def test_later_changes_do_not_show() -> None:
    """What is shown is what there was at the call."""
    value = torch.ones(3)
    kept = freeze(value)
    value.mul_(0)
    assert isinstance(kept.value, torch.Tensor)
    assert kept.value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.float64])
def test_statistics(dtype: torch.dtype) -> None:
    """Also of dtypes that NumPy does not have."""
    note = note_of(torch.tensor([1.0, 3.0, INF]).to(dtype))
    assert (note.low, note.high, note.mean, note.std, note.nonfinite) == (1, 3, 2, 1, 1)


def test_loss_shows_its_value() -> None:
    """A tensor of no dimensions prints as a number."""
    note = note_of(torch.tensor(2.3025851, requires_grad=True))
    assert (note.kind, note.text) == (SCALAR, "2.3025851")
    assert note.value == pytest.approx(2.3025851)
    assert note_of(torch.tensor(1.5).bfloat16()).text == "1.5"
    assert note_of(torch.tensor(True)).text == "True"
    assert freeze(torch.tensor(1.5).bfloat16()).value == torch.tensor(1.5).bfloat16()


def test_zeros_that_a_sparse_tensor_does_not_store_count() -> None:
    """Statistics are those of the dense tensor."""
    dense = torch.tensor([[0, -2.0, 0], [5.0, 0, 0]])
    for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        note = note_of(sparse)
        assert (note.low, note.high, note.mean) == (-2, 5, 0.5)
        assert note.std == pytest.approx(dense.std(correction=0).item())


def test_sparse_tensors_with_other_places_differ() -> None:
    """Places and values both count, the order in which they are stored does not."""

    def made(places: list[int], values: list[float]) -> torch.Tensor:
        return torch.sparse_coo_tensor(torch.tensor([places]), torch.tensor(values), (3,))

    assert digest(made([0, 1], [1, 2])) == digest(made([1, 0], [2, 1]))
    assert digest(made([0, 1], [1, 2])) != digest(made([0, 2], [1, 2]))


def test_sparse_tensor_beyond_the_limit_is_not_kept() -> None:
    """There are no leading rows to keep."""
    kept = freeze(torch.eye(10).to_sparse(), Keep(limit=10))
    assert (kept.value, kept.note.cut) == (MISSING, True)


def test_nested_tensor_shows_its_parts() -> None:
    """Tensors of different lengths as one."""
    parts = [torch.ones(2), torch.ones(3)]
    for layout in (torch.strided, torch.jagged):
        note = note_of(torch.nested.nested_tensor(parts, layout=layout))
        assert (note.kind, [part.shape for _, part in note.children]) == (SEQUENCE, [(2,), (3,)])


def test_parameter_without_a_shape_yet() -> None:
    """A lazy layer has not seen its first batch."""
    note = note_of(torch.nn.LazyLinear(3).weight)
    assert (note.kind, note.text) == (OBJECT, "<UninitializedParameter>")


def test_bytes_of_dtypes_that_numpy_does_not_have() -> None:
    """The digest goes by name and bits."""
    value = torch.tensor([1.0, 2.0])
    found = {digest(value.to(dtype)) for dtype in (torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int16)}
    assert len(found) == 4
    assert digest(value.bfloat16()) == digest(value.bfloat16().clone())


def test_graph_is_not_touched() -> None:
    """Version counters, gradients and the graph stay as they are."""
    leaf = torch.ones(3, requires_grad=True)
    value = leaf * 2
    before = (value._version, value.grad_fn)
    freeze({"a": value, "b": leaf})
    torch.autograd.backward(value.sum())
    assert (value._version, value.grad_fn) == before
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2, 2, 2]


def test_random_numbers_are_not_used() -> None:
    """The program draws the same numbers as without us."""
    state = torch.random.get_rng_state()
    freeze([make() for make in SOME.values()])
    assert torch.equal(state, torch.random.get_rng_state())


def test_functions_of_a_subclass_are_not_called() -> None:
    """A user's class does not see that it is looked at."""
    value = torch.ones(2).as_subclass(Tagged)
    Tagged.calls = 0
    freeze(value)
    assert Tagged.calls == 0


def test_modes_around_us_do_not_see_us() -> None:
    """A function mode of the user counts his calls only."""

    class Count(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    value = torch.ones(2)
    with Count() as mode:
        freeze(value)
    assert mode.calls == 0


def test_dispatch_modes_around_us_do_not_see_us() -> None:
    """A counter of operations counts those of the program."""

    class Count(DispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    value = torch.ones(2)
    with Count() as mode:
        note = note_of(value)
    assert mode.calls == 0
    assert note.digest == digest(value)


def test_copy_made_in_inference_mode_is_an_ordinary_tensor() -> None:
    """It can be used for anything later."""
    with torch.inference_mode():
        copy = freeze(torch.ones(2)).value
    assert isinstance(copy, torch.Tensor)
    assert not copy.is_inference()


def test_inside_a_transformation_only_the_shape_is_known() -> None:
    """Under vmap and grad a tensor has no content of its own."""
    seen: list[Note] = []

    def function(value: torch.Tensor) -> torch.Tensor:
        seen.append(note_of(value))
        return value.sum()

    torch.func.vmap(function)(torch.ones(2, 3))
    torch.func.grad(function)(torch.ones(3))
    assert [(note.shape, note.digest) for note in seen] == [((3,), None), ((3,), None)]


def test_fake_tensor_is_a_shape() -> None:
    """A compiler's stand-ins have no content."""
    with torch._subclasses.fake_tensor.FakeTensorMode():
        note = note_of(torch.ones(2, 3))
    assert (note.shape, note.digest) == ((2, 3), None)


def test_expanded_tensor_larger_than_any_memory() -> None:
    """It is read once."""
    note = freeze(torch.full((1,), 3.0).expand(10**12), SUMMARY).note
    assert (note.low, note.high, note.digest) == (3, 3, None)


def test_tensor_beyond_the_limit_keeps_its_leading_rows() -> None:
    """As arrays do, of every dtype."""
    kept = freeze(torch.arange(10).bfloat16(), Keep(limit=8))
    assert isinstance(kept.value, torch.Tensor)
    assert (kept.value.tolist(), kept.note.cut) == ([0, 1, 2, 3], True)


def test_same_tensor_has_the_same_number() -> None:
    """The object itself can be told from a copy with the same content."""
    value = torch.ones(2)
    assert note_of(value).identity == note_of(value).identity != note_of(value.clone()).identity


def test_array_that_shares_its_memory_is_equal_but_another_object() -> None:
    """An ndarray and its tensor have one digest."""
    array = numpy.ones((2, 3), numpy.float32)
    assert note_of(array).digest == note_of(torch.from_numpy(array)).digest


def test_torch_imported_after_us_is_understood() -> None:
    """Handlers are looked for when a value comes."""
    code = (
        "from sonde.values.snapshot import freeze; freeze(1); import torch;"
        "print(freeze(torch.ones(2)).note.dtype, freeze(torch.ones(2).numpy()).note.dtype)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "float32 float32\n"
