"""What stands in the way of torch's own calls, and must cost next to nothing. Each part does in C what Python code does too:
`torch/outermost.py` for `Gate`, and for a lane the function that it is given as `slow`, which also does all that is not plain.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

class Gate:
    """Calls `function` as if it stood there itself; for outermost calls in a thread, what `tell` or `route` named.

    Not while torch compiles (`compiler[flag]` is true), nor inside a backward pass (`task()` is not -1; None: there too). Gates
    with the same `number`, from 0 to 63, count as one. It binds as a method, pickles by name, and has the attributes of the
    function beside its own.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compiler: dict[str, Any],
        flag: str,
        task: Callable[[], int] | None,
        number: int,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., Any]: ...
    def tell(self, told: Callable[..., Any], /) -> None:
        """Say which function is called for outermost calls."""
    def route(self, quick: Callable[..., Any] | None, /) -> None:
        """Say which function is called instead of that; None: none."""
    def reach(self, inner: Callable[..., Any] | None, /) -> None:
        """Say which function is called in the place of `function` for calls inside others; None: `function` itself."""

class Block:
    """The block around a step of training: what `blocks` says happens where it is entered and left."""

    def __new__(cls, model: Any = None, *, step: int | None = None) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

Function: TypeAlias = Callable[..., Any]

def collecting(spans: tuple[Any, ...], /) -> Callable[[str, dict[str, int]], None]:
    """What records collections of garbage as one of `gc.callbacks`, with a span for each generation but 0."""

def forward(slow: Function, parts: tuple[tuple[Function, ...], Callable[[], bool], type, str], /) -> Function:
    """A lane for calls of modules: eight functions by state, the test of gradients, the class of losses, "training"."""

def backward(
    slow: Function,
    parts: tuple[Function, type, Callable[[Any, float], None], Any, Callable[[], None], tuple[str, ...]],
    /,
) -> Function:
    """A lane for backward passes.

    Its parts: the function, the class of tensors, what writes the loss, its span, what is called after a pass in which
    something unusual was seen, and the names of the operations after which the loss goes the slow way.
    """

def begins(
    slow: Function, parts: tuple[Callable[[], int], dict[str, Any], str, list[Callable[[], Any]]], /
) -> Function:
    """A lane for the begin of an optimizer's step.

    Its parts: which backward pass is under way, where the compiler's flag is and its name, and a list of what is called for the
    leader: at the begin, at the end, and after it (None: nothing).
    """

def ends(slow: Function, parts: tuple[Callable[[], int], dict[str, Any], str, list[Callable[[], Any]]], /) -> Function:
    """A lane for the end of an optimizer's step, with the same parts."""

def ended(slow: Function, parts: tuple[Callable[[Any], bool], Any, int], /) -> Function:
    """A lane for the end of a step of training: what writes it, its span; `slow` is called at most once in so many ns."""

def followed(slow: Function, parts: tuple[dict[int, Function], dict[str, Any], str], /) -> Function:
    """A lane for calls of some modules: the functions that are called for them, by address; where the compiler's flag is.

    Of a dict of a class of its own it remembers some of these functions: each change is to be told by `reroute`.
    """

def reroute(*_ignored: object) -> None:
    """Say that what is called for some module has changed."""

def way(name: str, function: Function, slow: Function, /) -> Gate:
    """What stands in the place of a function of a loader: the quick way of plain batches. All others go to `slow`.

    `name`: "next" (`__next__` of an iterator), "index" (it asks its sampler), "put" (it sends that to a worker), "fetch"
    (a batch is made). The latter three are quick only for a batch that is waited for on the quick way, "fetch" in workers too.
    """

def batches(parts: tuple[Any, ...] | None, /) -> None:
    """Say what happens on the quick way of batches; None: the slow ones are taken.

    A batch is plain if it is waited for in the main thread, outside of any other wait, while training goes on and is recorded
    whole (`ready`), and `judge(iterator)` says so. Its parts:

    - the highest number of a batch that is plain; the main thread; the class `Batch`; `judge`, which gives None if nothing can be said
      yet, or: a weak reference, the key of the first batch (-1: none is plain), the numbers of loader and round, what is filed for
      workers (None: there are none), what counts the items of an iterable dataset (None: it is none), the fetcher that makes batches
      here (None: none does), whether it is a subset, whether it asks for batches, how it makes them, torch's class of tensors;
      and what makes numbers of what a sampler gave (that, whether it is a batch);
    - an object with `listeners`, called with each batch, its key and its data, and `around`, called with what collates (or
      None); the book of the ledger;
    - of the event core: enter, leave, note, iterate_keyed, iterate_on; the spans of a wait, a size, a fetch and an item;
    - what gives the span of a batch that is made at once (numbers); numbers in the innermost dataset, of numbers and dataset; what writes
      into the ledger where C cannot (batch, key, flags); what a batch gets that turns out not to be plain (iterator, batch, data); a wait
      that failed (batch, exception); one that found no further batch (the key of the first one; None: that took no time); a fetch that
      failed (fetcher, what it was asked for, what was seen of it, key, type); what is called now and then, and how many ns it is not
      called again;
    - in a worker: an object whose `number` is that of the batch, the class of fetchers, and what gives the key of the first
      batch of a fetcher, or None if its batches are not plain; elsewhere three times None.
    """

def forget() -> None:
    """Judge every iterator anew: a loop over data has begun."""

def waiting() -> bool:
    """Is a plain batch waited for in this thread?"""

def coming() -> Any:
    """The plain batch that is being made for such a wait, as a `Batch`; None: there is none."""

def fetching() -> tuple[Any, Any] | None:
    """The fetcher that makes a plain batch in this thread, and what it was asked for; None: there is none."""

def blocks(parts: tuple[Any, ...], /) -> None:
    """Say what blocks do.

    The parts: a list whose only item is False outside of a block and True inside (any other value: the slow way); what enters a
    span, what leaves one, the span; what is called when a step has ended, and when it was left by an exception;
    `slow(step)`, which tells whether a step has begun, and `slow(kind)` for its end.
    """

def exchange(capsule: Any, copied_late: Callable[[Any], bool], /) -> None:
    """Say how numbers of tensors are read: torch's exchange of DLPack (None: it has none, and is asked for each), and what tells
    that a tensor is copied on write.
    """

def passes(on: bool, /) -> None:
    """Say whether forward and backward passes may go the quick way, where the plain case is at hand."""

def ready(on: bool, /) -> None:
    """Say whether the plain case is at hand: training goes on, and nothing unusual was seen."""

def mute(on: bool, /) -> None:
    """Say whether modules that are called in this thread go the slow way."""

def lead(optimizer: Any, /) -> None:
    """Say which optimizer's steps are plain; None: no one's. It is not kept alive."""

def take() -> Any:
    """The optimizer whose plain step runs in this thread, which is a plain one no more; None: none."""
