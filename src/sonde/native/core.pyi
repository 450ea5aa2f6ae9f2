"""The native event core. `twin.py` is the same in Python: same names, same bytes on disk, same tests.

A core knows nothing of folders, settings or JSON. It takes records into per-thread rings, spills them, and asks its
`Host` (see `recorder.py`) for everything slow: opening files, encoding arguments, naming threads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")

KIND: str  # "c" or "python"

class Files(NamedTuple):
    """Descriptors of one process folder, opened by the host; the core owns them from then on."""

    rings: int  # -1: keep the rings in plain memory (block writes); a kill then loses what was not spilled
    seg: int
    args: int
    names: int

class Host(Protocol):
    """What a core asks of Python. None of these may raise (the host guards them)."""

    longest: int  # text among arguments that `encode` does not cut, in characters

    def open(self) -> Files | None: ...  # called at the first record of each process; None: not now, try again in 1 s
    def usage(self) -> int: ...  # the file that all processes of the run count in; -1: each counts for itself
    def torn(self) -> None: ...  # another program has truncated the rings, and recording has ended
    def encode(
        self, args: Mapping[str, object]
    ) -> tuple[bytes, bool]: ...  # one JSON object; True if something was cut
    def merge(self, outer: bytes, inner: bytes) -> bytes: ...  # of two encoded objects one; inner wins
    def name_line(self, id: int, cat: str, name: str) -> bytes: ...
    def thread_line(self, ordinal: int, tid: int) -> bytes: ...

class Span:
    """A named place in a program. Entering it takes a slot in the ring, leaving it completes the record.

    One object may be entered any number of times at once: recursion, threads, tasks.
    """

    def __init__(
        self,
        name: str,
        cat: str = "user",
        *,
        key: int | None = None,
        args: Mapping[str, object] | None = None,
        level: int = 1,
        base: Span | None = None,
        enable: bool | None = None,
    ) -> None:
        """With `base`, the switch and the shared arguments are those of `base`. `enable` overrides the switch."""
    @property
    def name(self) -> str: ...
    @property
    def cat(self) -> str: ...
    on: bool  # the switch; evaluated at each entry
    shared: Mapping[str, object] | None  # arguments of every event of this span and of those based on it
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def start(self, metadata: bool = False) -> None:
        """Enter. With metadata, calls `self.stamp("start")` instead (only subclasses that define it can do that)."""
    def stop(self, metadata: bool = False) -> None:
        """Leave the innermost entry of this span; none open: nothing happens. With metadata: `self.stamp("end")`."""
    def wrap(self, function: Callable[_P, _R], /) -> Wrapped[_P, _R]:
        """Record each call of a plain function, without a Python frame in between."""

class Wrapped(Generic[_P, _R]):
    """A recorded function: binds as a method, pickles by name, and looks like what it wraps."""

    __wrapped__: Callable[_P, _R]
    __name__: str
    __qualname__: str
    __module__: str
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., _R]: ...

class Life:
    """One entry of a span that runs in pieces: a generator or a coroutine.

    The record opens at the first `resume`; between `suspend` and `resume` the span is nobody's parent.
    """

    def __init__(self, span: Span, /) -> None: ...
    def resume(self) -> None: ...
    def suspend(self) -> None: ...
    def close(self, error: type[BaseException] | None = None, /) -> None: ...

class _Loop(Iterator[_T]):
    """What `iterate` and `iterate_keyed` return."""

    @property
    def count(self) -> int:
        """Number of items returned so far."""
    def __next__(self) -> _T: ...
    def close(self, error: type[BaseException] | None = None, /) -> None:
        """End the block that is open now: an iterator that a traceback keeps alive would end it much later."""

def iterate(iterable: Iterable[_T], wait: Span | None, block: Span | None, first: int = 1, /) -> _Loop[_T]:
    """Iterate; record each wait for an item as `wait` and the time the consumer holds it as `block`.

    Their key is `first`, and one more for each further item. The last, exhausted wait is no event. A block ends at the
    next request, at `break`, or at an exception (marked).
    """

def iterate_on(iterator: Iterator[_T], wait: Span, first: int, /) -> _Loop[_T]:
    """Go on with an iterator that is under way, and record each wait for an item, as `iterate` does.

    It is not asked for an iterator again: one that gives itself may begin anew then. Raises TypeError if it is none.
    """

def iterate_keyed(iterable: Iterable[_T], keys: Iterable[int | Span], block: Span, /) -> _Loop[_T]:
    """Iterate; record the time the consumer holds each item as `block`, with the key that belongs to it.

    In place of a key there may be a span: then that one is entered. An item beyond the last key is not recorded.
    """

def enter(span: Span, key: int | None = None, /) -> None:
    """Enter a span, with a key for this entry; None, or what is no 64-bit number: the span's own."""

def leave(span: Span, key: int | None = None, error: type[BaseException] | None = None, /) -> None:
    """Leave the innermost entry of this span; none open: nothing happens.

    A key replaces that of the entry: for what is known only at the end. With an error the record is marked.
    """

def cancel(span: Span, /) -> None:
    """Leave the innermost entry of this span as if it had never been entered: it turned out to be nothing."""

def turn(span: Span, into: Span, key: int | None = None, /) -> None:
    """Leave the innermost entry of this span as one of another, with its name and key, or this key: it turned out to be that.

    It keeps its own arguments.
    """

def counter(
    name: str,
    value: float,
    cat: str = "user",
    key: int | None = None,
    args: Mapping[str, object] | None = None,
    level: int = 1,
    step: int | None = None,
    epoch: int | None = None,
) -> None: ...
def mark(
    name: str,
    cat: str = "user",
    key: int | None = None,
    args: Mapping[str, object] | None = None,
    level: int = 1,
    step: int | None = None,
    epoch: int | None = None,
    metadata: bool = False,
) -> None: ...
def note(span: Span, value: float | None = None, key: int | None = None, /) -> None:
    """A mark with the name, key and switch of a span; with a value, a counter. Quicker than `mark` and `counter`.

    `key`: another than that of the span; None, or what is no 64-bit number: its own.
    """

def count_steps(step: int, /) -> None:
    """Set the step of this process, as one that is counted: until somebody else sets it, `advance` goes on from it."""

def advance(span: Span, when: int | None = None, /) -> bool:
    """Write a mark of this span, the end of a step. If steps are counted, go on to the next one. Returns whether it did.

    `when`: the end was then, on the monotonic clock, and is known only now.
    """

def set_context(step: int | None, epoch: int | None, /) -> None:
    """Set the step and epoch of this process; None leaves it as it is, -1 unsets it. Out of range: unset."""

def get_context() -> tuple[int | None, int | None]: ...
def begin(host: Host, cap: int, /) -> None:
    """Record from now on, up to `cap` bytes for the run. The process folder is opened at the first record.

    Steps that were counted before are forgotten; a step that somebody has set stays.
    """

def end() -> None:
    """Record no more, spill every ring, close the files. Open spans stay open in the file. Harmless when not begun."""

def flush() -> None:
    """Write out every ring."""

def task_mode(on: bool, /) -> None:
    """Say whether an event loop runs in this thread: then the innermost span is kept per task, not per thread."""

def set_clock(clock: Callable[[], int] | None, /) -> None:
    """Replace the monotonic clock, for tests."""

def info() -> dict[str, Any]:
    """recording, waiting (records that a kill would lose), mapped, rings, threads, names, next_seq, step, epoch, lost_space, lost_cap, lost_ring, lost_args."""

def is_main() -> bool:
    """Is this the main interpreter? Another one must not use the C core: there is one for the whole process."""

def layout() -> dict[str, Any]:
    """The numbers of `store/record.py` as this core has them, for the test that compares them."""
