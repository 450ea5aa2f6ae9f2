"""A look at a batch: its parts, its size, and a digest that tells whether it was changed."""

from __future__ import annotations

import weakref
from collections import UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings, strategies
from tests.hooks.torch.data import read_in_c

from sonde.blackbox import checksum
from sonde.blackbox.checksum import MOST_ROW, WHOLE, changed, glance, look, quick
from sonde.values.nested import FIRST, MOST_DEPTH, MOST_PARTS, parts_of

x = torch.arange(24).reshape(4, 6)
Pair = namedtuple("Pair", "image label")  # noqa: PYI024  as programs have it


@dataclass
class Labelled:
    """A batch as a class of the program."""

    kind: ClassVar[str] = "survey"
    image: Any
    patient: Any = None
    later: Any = field(init=False)


@dataclass(frozen=True, slots=True)
class Named:
    """One without a dictionary."""

    ids: list[str]


def ways(data: Any, *exclude: str) -> list[tuple[Any, ...]]:
    """The ways to the parts of a batch."""
    return [way for way, _ in parts_of(data, exclude)]


def test_parts_are_found_in_the_usual_containers() -> None:
    """Tuples, lists, dicts, what is like a dict, and named tuples; lists of texts are one part."""
    x = torch.ones(2)
    assert ways([x, x]) == [(0,), (1,)]
    assert ways((7, x)) == [(0,), (1,)]
    assert ways({"a": x, "ids": ["p", "q"]}) == [("a",), ("ids",)]
    assert ways(UserDict(a=x)) == [("a",)]
    assert ways(Pair(x, [x])) == [("image",), ("label", 0)]
    assert ways(x) == [()]
    assert ways(["p", "q"]) == [()]


def test_the_fields_of_dataclasses_are_parts() -> None:
    """At any depth, without those that are excluded; a change of one is seen."""
    batch = Labelled(torch.ones(2), [Named(["a"])])
    assert ways(batch) == [("image",), ("patient", 0, "ids"), ("later",)]
    assert ways([batch], "patient") == [(0, "image"), (0, "later")]
    parts, seen = glance(batch)
    assert seen.whole
    assert changed(parts, seen) is False
    batch.patient[0].ids[0] = "b"
    assert changed(parts, seen) is True


def test_excluded_names_are_left_out_at_any_depth() -> None:
    """Their values are not looked at."""
    assert ways({"a": {"patient": torch.ones(1), "b": 1}, "patient": 2}, "patient") == [("a", "b")]


def test_parts_are_bounded() -> None:
    """However many there are, and however deep."""
    deep: Any = [torch.ones(1)]
    for _ in range(50):
        deep = [deep]
    assert len(parts_of(deep)) == 1
    assert len(parts_of([torch.ones(1)] * 1000)) == MOST_PARTS


def test_a_small_batch_is_read_whole_and_a_large_one_by_a_sample() -> None:
    """The look says which."""
    small, large = look(parts_of([torch.ones(10)])), look(parts_of([torch.ones(WHOLE)]))
    assert (small.whole, small.size) == (True, 40)
    assert (large.whole, large.size) == (False, 4 * WHOLE)
    assert None not in (small.digest, large.digest)


@pytest.mark.parametrize("place", [0, 5, -1])
def test_any_change_of_a_small_array_is_seen(place: int) -> None:
    """Also one of which torch knows nothing."""
    memory = np.arange(100.0)
    parts = parts_of({"a": torch.from_numpy(memory), "b": 3})
    before = look(parts)
    assert changed(parts, before) is False
    memory[place] += 1
    assert changed(parts, before) is True


def test_a_change_by_torch_is_seen_wherever_it_is() -> None:
    """A sample would miss it; the count of changes does not."""
    x = torch.zeros(WHOLE * 10)
    parts = parts_of([x])
    before = look(parts)
    x[WHOLE // 2 + 1] = 1
    assert look(parts).digest == before.digest
    assert changed(parts, before) is True


def test_a_buffer_that_is_filled_anew_is_seen_by_the_sample() -> None:
    """As by a loader of one's own that uses its memory again."""
    memory = np.zeros(WHOLE * 10, np.float32)
    parts = parts_of([torch.from_numpy(memory)])
    before = look(parts)
    memory[:] = 1
    assert changed(parts, before) is True


def test_tensors_of_all_kinds_are_taken() -> None:
    """What cannot be read has no digest, and does not fail."""
    with torch.inference_mode():
        quiet = torch.ones(3)
    unusual = [
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, 3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(4, 4).t(),
        torch.tensor(1.0),
        torch.empty(0),
        torch.nn.Parameter(torch.ones(2)),
        quiet,
        np.array(["a", None], dtype=object),
        np.ones((4, 4))[:, ::2],
    ]
    for one in unusual:
        seen = look(parts_of([one]))
        assert changed(parts_of([one]), seen) in (False, None)
    assert look(parts_of([torch.ones(3, dtype=torch.bfloat16)])).digest is not None
    assert look(parts_of([torch.ones(3, requires_grad=True)])).digest is not None
    assert look(parts_of([torch.ones(3, device="meta")])).elsewhere


def test_where_nothing_can_be_read_nothing_can_be_told() -> None:
    """No digest is not the same as an equal one."""
    parts = parts_of({"thing": object(), "none": None})
    assert look(parts).digest is None
    assert changed(parts, look(parts)) is None


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
def test_tensors_that_fill_their_memory_in_another_order_are_read_whole(kind: torch.dtype) -> None:
    """As images whose channels come last; a change of any element is seen, and so is another order."""
    for turned in ([0, 3, 1, 2], [3, 2, 1, 0]):
        plain = torch.zeros(2, 3, 3, 4, dtype=kind)
        batch = plain.permute(turned)
        seen = glance([batch])[1]
        assert seen.whole
        assert seen.digest not in (None, glance([plain])[1].digest, glance([plain.permute(0, 2, 1, 3)])[1].digest)
        plain.view(torch.uint8).numpy().reshape(-1)[-5] = 1
        assert glance([batch])[1].digest != seen.digest


def test_an_array_of_numpy_in_another_order_is_read_as_a_tensor_is() -> None:
    """The digest is that of the tensor made of it."""
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    assert glance([array])[1][:2] == glance([torch.from_numpy(array)])[1][:2]
    assert glance([np.array(["2020-01-01"], "datetime64[D]")])[1].digest is not None


def test_texts_and_numbers_are_read() -> None:
    """One by one, in lists, and of a long one a sample."""
    batches: list[Any] = [
        ["a", "b"],
        ["ab"],
        ["b", "a"],
        ["a", None],
        [None, "a"],
        [b"a", 1],
        [1, 2.5],
        {"a": "\ud800"},
        "x" * WHOLE,
    ]
    seen = [glance(batch)[1] for batch in batches]
    assert all(one.whole for one in seen)
    assert len({one.digest for one in seen} - {None}) == len(batches)
    long = glance(["y" * (WHOLE + 1)])[1]
    assert not long.whole
    assert long.digest not in (None, glance(["z" * (WHOLE + 1)])[1].digest)


UNREAD: dict[str, Callable[[], Any]] = {
    "every second column": lambda: torch.ones(4, 4)[:, ::2],
    "the same memory again": lambda: torch.ones(1, 3).expand(4, 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "nowhere": lambda: torch.ones(3, device="meta"),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "objects": lambda: np.array(["a", None], dtype=object),
    "an array turned round": lambda: np.ones(5)[::-1],
    "a number of NumPy": lambda: np.float32(1),
    "an object": object,
    "a large number": lambda: 2**63,
    "too deep": lambda: [[[[[torch.ones(1)]]]]],
    "a dictionary that is too deep": lambda: [[[[{"a": 1}]]]],
    "a tensor after many numbers": lambda: [*range(FIRST), torch.ones(1)],
    "a long list": lambda: [1] * (MOST_ROW + 1),
    "many": lambda: [torch.ones(1)] * MOST_PARTS,
    "many under keys": lambda: dict.fromkeys(range(MOST_PARTS), torch.ones(1)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_is_no_whole(name: str) -> None:
    """The digest is of the rest, and the look says so."""
    seen = glance([torch.ones(2), UNREAD[name]()])[1]
    assert seen.digest is not None
    assert not seen.whole


@pytest.mark.parametrize("data", [[x, None, [], {}, ()], [[[[[], {}]]], x], [torch.empty(0, 3).half(), x]])
def test_what_holds_nothing_is_whole(data: Any) -> None:
    """There is nothing that could have been read."""
    assert glance(data)[1].whole


def test_digests_of_plain_tensors_are_those_of_earlier_runs() -> None:
    """They stand in ledgers, and are compared by replay."""
    data = [
        torch.arange(24.0).reshape(2, 3, 4),
        torch.arange(20_000),
        np.arange(7, dtype=np.int32),
        torch.ones(3).bfloat16(),
    ]
    assert [glance(data[:1])[1].digest, glance(data)[1].digest] == [18323577631102624310, 2096332288433991404]


# ── the same in C ────────────────────────────────────────────────────────────────────────────────────────────────────

in_c = pytest.mark.skipif(checksum.native is None, reason="the C part was not built")


def _nested() -> Any:
    """Two rows of different lengths."""
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


PLAIN = {
    "a list of two": [x.float(), x[:, 0]],
    "a dictionary": {"image": x.double(), "name": ["a", "b"], 7: x > 3},
    "numbers and texts": [x, 1, 2.5, "a", b"b", None, True],
    "one tensor": x,
    "not in order": [x.t(), x[::2], x.expand(3, 4, 6)],
    "with a gradient": [torch.ones(3, requires_grad=True)],
    "bfloat16": [torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.float16)],
    "nothing but texts": ["a", "b"],
    "empty containers": [x, [], {}, ()],
    "deep": [[[[[x]]]]],
    "as much as is read whole": [torch.ones(WHOLE, dtype=torch.uint8)],
    "one byte more": [torch.arange(WHOLE + 1).to(torch.uint8), x],
    "long": [torch.arange(100_003, dtype=torch.int16)],
    "many": [x] * (MOST_PARTS + 5),
    "just as many as are taken": [x] * MOST_PARTS,
    "many of which some are excluded": dict.fromkeys([*range(MOST_PARTS), "patient"], x),
    "channels last": [torch.arange(96.0).reshape(2, 3, 4, 4).to(memory_format=torch.channels_last), x[:1].t()],
    "long and not in order": [torch.arange(60_000.0).reshape(200, 300).t()],
    "texts": {"text": ["ä" * 9000, "", "\U0001f600"], "one": "b" * 20_000, "bytes": [b"", b"c" * WHOLE]},
    "numbers": [[0, -1, 2**63 - 1, -(2**63), 2**63], [1.5, float("nan"), -0.0], [True, None]],
    "a long list": [x, [1] * (MOST_ROW + 1)],
    "a dictionary that is too deep": [[[[{"a": 1}, {}], [[]]]]],
    "a tensor after many numbers": [*range(FIRST), x],
}
OTHERS: dict[str, Callable[[], Any]] = {
    "one number": lambda: [torch.tensor(1.5)],
    "empty": lambda: [torch.empty(0)],
    "complex": lambda: [torch.ones(3, dtype=torch.complex64).conj()],
    "negated": lambda: [torch.ones(1, dtype=torch.complex64).conj().imag],
    "sparse": lambda: [torch.eye(3).to_sparse()],
    "nested": lambda: [_nested()],
    "nowhere": lambda: [torch.ones(3, device="meta")],
    "a parameter": lambda: [torch.nn.Parameter(torch.ones(3))],
    "inference": lambda: [torch.inference_mode()(torch.ones)(3)],
    "an array": lambda: {"a": np.ones(3)},
    "a named tuple": lambda: Pair(x, x),
    "like a dictionary": lambda: UserDict(a=x),
    "a dataclass": lambda: Labelled(x, [Named(["a"])]),
    "dataclasses in a list": lambda: [Named(["a"]), x],
    "a key that is a tuple": lambda: {(1, 2): x},
    "a number of NumPy": lambda: [np.float32(1), x],
    "half a character": lambda: ["\ud800"],
}


def in_python(data: Any, exclude: frozenset[str] = frozenset()) -> checksum.Checksum:
    """The look without C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "quick", checksum._nothing)
        return glance(data, exclude)[1]


def same(data: Any, exclude: frozenset[str] = frozenset()) -> bool:
    """Did C look at it? Then with the same result as Python, part by part."""
    glance([x])  # from now on C knows torch
    found = quick(data, exclude)
    if found is None:
        return False
    parts = parts_of(data, exclude)
    assert [way for way, _ in found[0]] == [way for way, _ in parts]
    assert all(one is other for (_, one), (_, other) in zip(found[0], parts, strict=True))
    assert found[1] == in_python(data, exclude)
    assert isinstance(found[1], checksum.Checksum)
    return True


@in_c
@read_in_c
@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_batch_is_looked_at_in_c_with_the_same_result(name: str) -> None:
    """Parts, digest, size and counts of changes."""
    assert same(PLAIN[name], frozenset({"patient"}))


@in_c
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_to_python(name: str) -> None:
    """And the glance at it does not fail."""
    data = OTHERS[name]()
    assert not same(data)
    assert glance(data)[1] == in_python(data)


def test_excluded_names_are_left_out_of_a_glance() -> None:
    """Their values are not read."""
    data = {"a": {"patient": x, "b": x.float()}, "patient": x}
    parts, seen = glance(data, frozenset({"patient"}))
    assert [way for way, _ in parts] == [("a", "b")]
    assert seen == look(parts_of({"b": x.float()}))


def _tensor(shape: list[int], dtype: torch.dtype, back: bool, step: int) -> Any:
    """Numbers in this shape, the dimensions the other way round or not; of the last one each `step`th element."""
    made = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)
    made = made[..., ::step] if shape else made
    return made.permute(tuple(reversed(range(len(shape))))) if back else made


TENSORS = strategies.builds(
    _tensor,
    strategies.lists(strategies.integers(0, 5), min_size=0, max_size=3),
    strategies.sampled_from([torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.uint8, torch.complex64]),
    strategies.booleans(),
    strategies.sampled_from([1, 1, 2]),
)
LEAVES = TENSORS | strategies.text(max_size=3) | strategies.integers() | strategies.floats() | strategies.none()
BATCHES = strategies.recursive(
    LEAVES,
    lambda inner: (
        strategies.lists(inner, max_size=10)
        | strategies.lists(inner, max_size=4).map(tuple)
        | strategies.dictionaries(
            strategies.sampled_from(["a", "b", "c", "patient"]) | strategies.integers(0, 3), inner
        )
    ),
    max_leaves=20,
)


@in_c
@settings(max_examples=200, deadline=None)
@given(BATCHES)
def test_any_batch_is_the_same_in_c(data: Any) -> None:
    """Whatever lies in whatever."""
    same(data, frozenset({"patient"}))


@in_c
def test_a_glance_keeps_nothing_of_a_batch_that_is_let_go() -> None:
    """Neither of one that is plain nor of another."""
    for data in ({"a": [x.float()]}, {"a": [torch.ones(3, dtype=torch.complex64)]}):
        reference = weakref.ref(data["a"][0])
        glance(data)
        data.clear()
        assert reference() is None


@in_c
@read_in_c
def test_depth_and_number_are_bounded_as_in_python() -> None:
    """Both have the same limits."""
    deep: Any = x
    for _ in range(MOST_DEPTH + 2):
        deep = {"a": deep}
    assert same(deep)
    assert same([[x] * 40, [x] * 40])
