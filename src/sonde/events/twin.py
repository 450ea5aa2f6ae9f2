"""The event core in Python, for platforms without the C core: same names as `native/core.pyi`, same bytes, same tests."""

from __future__ import annotations

import os
import struct
import sys
import threading
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from sonde.events.frame import CLOSED, Frame, find, first_open, head, set_head, unlink
from sonde.events.plain import as_context, as_dict, as_key, as_number, as_text
from sonde.events.ring import LOST, LOST_ARGS, LOST_CAP, LOST_RING, LOST_SPACE, RINGS, Files, Recording, ThreadRing
from sonde.events.wraps import dress
from sonde.guard import guard
from sonde.store import record as _layout
from sonde.store.record import (
    AGAIN,
    COUNTER,
    CUT,
    DETAIL,
    ERROR,
    ESSENTIAL,
    MARK,
    MAX_NAMES,
    MAX_NAMES_CHARS,
    META,
    NO_EPOCH,
    NO_KEY,
    NO_STEP,
    NORMAL,
    OPEN,
    OVERFLOW_NAME,
    SPAN,
    VOID,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType, TracebackType
    from typing import Self

    from sonde.native.core import Host

__all__ = [
    "KIND", "Files", "Life", "Span", "Wrapped", "advance", "begin", "cancel", "count_steps", "counter", "end",
    "enter", "flush", "get_context", "info", "is_main", "iterate", "iterate_keyed", "iterate_on", "layout", "leave", "mark", "note",
    "set_clock", "set_context", "task_mode", "turn",
]  # fmt: skip

_T = TypeVar("_T")
_F = TypeVar("_F", bound="Callable[..., Any]")

KIND = "python"
Wrapped = type(dress)  # a recorded function is a plain function here

_as_integer = struct.Struct("=q").unpack
_as_float = struct.Struct("=d").pack
_UNSET: Any = object()

_recording: Recording | None = None
_clock: Callable[[], int] = monotonic_ns
_step = NO_STEP
_epoch = NO_EPOCH
_steps_set = _epochs_set = 0  # how often the program has set them
_counted = False  # the step was set by count_steps, and by nobody since
_modes = threading.local()  # .tasks: an event loop runs in this thread
_ids: dict[tuple[str, str], int] = {}
_names: list[tuple[str, str]] = []
_names_chars = 0
_names_lock = threading.RLock()


# ── open spans ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _ring_of(recording: Recording) -> ThreadRing:
    """This thread's ring in the recording."""
    try:
        ring: ThreadRing = recording.local.ring
    except AttributeError:
        ring = recording.new_ring(getattr(_modes, "tasks", False))
    return ring


def _enter(span: Span, key: int, identity: object) -> Frame | None:
    """Open a span. None: nothing is being recorded."""
    recording = _recording
    if recording is None:
        return None
    ring = _ring_of(recording)
    if span._token is not recording.token:
        _prepare(span, recording)
    up = head(recording, ring)
    frame = Frame(up, identity, ring)
    frame.parent, frame.depth = (0, 0) if up is None else up.below()
    frame.key, frame.name, frame.args, frame.flags, frame.blob = key, span._id, span._blob_id, span._flags, span._blob
    frame.step, frame.epoch = _step, _epoch
    frame.seq = recording.take_seq()
    frame.start = _clock()
    if span._level > recording.level:
        recording.lose(LOST_CAP)
    else:
        frame.index = recording.put(ring, *frame.fields(frame.flags))
        if frame.index == LOST:
            recording.lose(LOST_RING)
    if ring.tasks:
        ring.loose[frame.seq] = frame
    set_head(recording, ring, frame)
    return frame


def _pass(span: Span) -> None:
    """Enter a span that is switched off: leaving it must close neither an outer entry of its own nor that of another task."""
    recording = _recording
    if recording is None:
        return
    ring = _ring_of(recording)
    if not ring.tasks and find(recording, ring, span) is None:
        return
    up = head(recording, ring)
    frame = Frame(up, span, ring)
    if up is not None:
        frame.seq, frame.depth = up.seq, up.depth
    set_head(recording, ring, frame)


def _open_entry(span: object) -> Frame | None:
    """The innermost open frame of this span object; None: there is none, or nothing is recorded."""
    recording = _recording
    ring: ThreadRing | None = None if recording is None else getattr(recording.local, "ring", None)
    return None if recording is None or ring is None else find(recording, ring, span)


# ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _leave(recording: Recording, ring: ThreadRing, frame: Frame, dur: int, flags: int) -> None:
    """Complete the record of a frame: in the ring if it is still there, else by writing it again."""
    index = frame.index
    if index == CLOSED:
        return
    frame.index, frame.dur, frame.flags = CLOSED, dur, flags
    here = frame.ring is ring and index >= ring.claim
    if here:
        recording.change(ring, index, *frame.fields(flags))
    if index != LOST and (not here or index < ring.claim):  # flush() in another thread may have copied it meanwhile
        recording.put(ring, *frame.fields(flags | AGAIN))
    unlink(recording, ring, frame)


def _finish(frame: Frame | None, kind: type[BaseException] | None, *, failed: bool = False) -> None:
    """Leave a frame, by an exception of this type or of one that is not known; one of an earlier recording is left alone."""
    if frame is None or frame.ring.recording is not _recording:
        return
    recording = frame.ring.recording
    dur, flags = max(_clock() - frame.start, 0), frame.flags & ~OPEN
    if failed or kind not in (None, GeneratorExit):
        flags |= ERROR | _note_error(recording, frame, kind)
    _leave(recording, _ring_of(recording), frame, dur, flags)


def _note_error(recording: Recording, frame: Frame, kind: type[BaseException] | None) -> int:
    """Add the type of an exception to the arguments of a frame; CUT if something of them was cut."""
    if frame.index in (CLOSED, LOST) or kind is None:
        return 0
    blob, cut = recording.host.encode({"error": kind.__name__})
    if frame.blob is not None:
        blob = recording.host.merge(frame.blob, blob)
    frame.args = recording.blob(blob) or frame.args
    return CUT if cut else 0


def _cancel(frame: Frame | None) -> None:
    """Leave a frame that turned out to be nothing."""
    if frame is not None and frame.ring.recording is _recording:
        _leave(frame.ring.recording, _ring_of(frame.ring.recording), frame, 0, VOID)


# ── names and arguments ──────────────────────────────────────────────────────────────────────────────────────────────


def _name_id(cat: object, name: object) -> tuple[int, bool]:
    """The id of a name, and whether it is the one that stands for all that are too many."""
    global _names_chars
    pair = (as_text(cat), as_text(name))
    known = _ids.get(pair)
    if known is not None:
        return known, False
    with _names_lock:
        full = len(_names) >= MAX_NAMES or _names_chars >= MAX_NAMES_CHARS
        if full:
            pair = ("sonde", OVERFLOW_NAME)
        if pair not in _ids:
            _names.append(pair)
            _ids[pair] = len(_names)
            _names_chars += len(pair[0]) + len(pair[1])
        known = _ids[pair]
    if _recording is not None:
        _recording.note(b"")
    return known, full


def _encode(recording: Recording, parts: Sequence[Mapping[str, object]]) -> tuple[bytes | None, bool]:
    """The arguments of one event, the outermost first, and whether something was cut."""
    whole, cut = None, False
    for part in parts:
        if part:
            blob, was_cut = recording.host.encode(part)
            whole = blob if whole is None else recording.host.merge(whole, blob)
            cut = cut or was_cut
    return whole, cut


def _prepare(span: Span, recording: Recording) -> None:
    """Encode and write the arguments of a span, once until any shared ones change."""
    token = recording.token
    parts = [part for part in (span._args, span._shared) if part]
    base = span._base
    while base is not None:
        if base._shared:
            parts.append(base._shared)
        base = base._base
    blob, cut = _encode(recording, parts[::-1])
    span._blob = blob
    span._blob_id = 0 if blob is None else recording.blob(blob)
    span._flags = SPAN | OPEN | (CUT if cut and span._blob_id else 0)
    if blob is None or span._blob_id:  # else it is tried again at the next entry
        span._token = token


# ── spans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Span:
    """A named place in a program. Entering it takes a slot in the ring, leaving it completes the record."""

    __slots__ = (
        "_args", "_base", "_blob", "_blob_id", "_flags", "_gate", "_id", "_key", "_level", "_on", "_shared", "_token",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        cat: str = "user",
        *,
        key: int | None = None,
        args: Mapping[str, object] | None = None,
        level: int = NORMAL,
        base: Span | None = None,
        enable: bool | None = None,
    ) -> None:
        if base is not None and not isinstance(base, Span):
            raise TypeError(f"base must be a Span, not {base!r}")
        self._id, full = _name_id(cat, name)
        self._args = None if args is None else as_dict(args)
        number = as_key(key)
        self._key = NO_KEY if number is None else number
        more = {**({"key": key} if number is None else {}), **({"name": name} if full else {})}
        if more:
            self._args = {**(self._args or {}), **more}
        self._level = min(max(level, ESSENTIAL), DETAIL)
        self._base = base
        self._on = True
        self._gate: Span | _FixedSwitch = self if base is None else base._gate
        if enable is not None:
            self._gate = _ALWAYS if enable else _NEVER
        self._shared: dict[str, object] | None = None
        self._blob: bytes | None = None
        self._blob_id = 0
        self._flags = SPAN | OPEN
        self._token: object = None

    @property
    def name(self) -> str:
        """The name its events have."""
        return _names[self._id - 1][1]

    @property
    def cat(self) -> str:
        """The category its events have."""
        return _names[self._id - 1][0]

    @property
    def on(self) -> bool:
        """The switch; evaluated at each entry."""
        return self._gate._on

    @on.setter
    def on(self, value: bool) -> None:
        self._on = bool(value)

    @property
    def shared(self) -> Mapping[str, object] | None:
        """Arguments of all its events, and of the spans based on it."""
        return self._shared

    @shared.setter
    def shared(self, value: Mapping[str, object] | None) -> None:
        self._shared = None if value is None else as_dict(value)
        if _recording is not None:
            _recording.token = object()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.cat}.{self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: the ids of names are those of this process. A subclass keeps the arguments."""
        key = None if self._key == NO_KEY else self._key
        enable = None if isinstance(self._gate, Span) else self._gate._on
        made_of = (
            type(self),
            self.name,
            self.cat,
            key,
            self._args,
            self._level,
            self._base,
            enable,
            self._on,
            self._shared,
        )
        return _remake, made_of

    def __enter__(self) -> Self:
        if _recording is not None:
            if self._gate._on:
                _enter(self, self._key, self)
            else:
                _pass(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        _finish(_open_entry(self), kind)

    def start(self, metadata: bool = False) -> None:
        """Enter. With metadata, calls `self.stamp("start")` instead (only subclasses that define it can do that)."""
        if metadata:
            _stamp(self, "start")
        else:
            self.__enter__()

    def stop(self, metadata: bool = False) -> None:
        """Leave the innermost entry of this span; none open: nothing happens. With metadata: `self.stamp("end")`."""
        if metadata:
            _stamp(self, "end")
        else:
            Span.__exit__(self, None, None, None)

    def wrap(self, function: _F, /) -> _F:
        """Record each call of a plain function."""
        if not callable(function):
            raise TypeError(f"a span decorates a function, not {function!r}")
        span = self
        gate = self._gate

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if _recording is None or not gate._on:
                return function(*args, **kwargs)
            frame = _enter(span, span._key, None)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                _finish(frame, type(error))
                raise
            _finish(frame, None)
            return result

        return dress(wrapped, function)  # type: ignore[return-value]


def _remake(
    kind: type[Span], name: str, cat: str, key: int | None, args: Mapping[str, object] | None, level: int,
    base: Span | None, enable: bool | None, on: bool, shared: Mapping[str, object] | None,
) -> Span:  # fmt: skip
    span = kind(name, cat, key=key, args=args, level=level, base=base, enable=enable)
    span.on = on
    span.shared = shared
    return span


class _FixedSwitch:
    """A switch that `enable=` has fixed."""

    __slots__ = ("_on",)

    def __init__(self, on: bool) -> None:
        self._on = on


_ALWAYS, _NEVER = _FixedSwitch(on=True), _FixedSwitch(on=False)


@guard("stamping the start or end of a span")
def _stamp(span: Span, which: str) -> None:
    stamp = getattr(span, "stamp", None)
    if stamp is not None:
        stamp(which)


# ── spans that run in pieces ─────────────────────────────────────────────────────────────────────────────────────────


class Life:
    """One entry of a span that runs in pieces: a generator or a coroutine.

    The record opens at the first `resume`; between `suspend` and `resume` the span is nobody's parent.
    """

    __slots__ = ("_frame", "_inside", "_outside", "_running", "_span", "_started")

    def __init__(self, span: Span, /) -> None:
        if not isinstance(span, Span):
            raise TypeError(f"a life needs a Span, not {span!r}")
        self._span = span
        self._frame: Frame | None = None
        self._inside: Frame | None = None  # innermost frame of the generator while it is suspended
        self._outside: Frame | None = None  # innermost frame of the consumer while the generator runs
        self._started = False
        self._running = False

    def resume(self) -> None:
        """It runs (again): open the record, be the parent of what comes."""
        recording = _recording
        if self._running or recording is None:
            self._started = True
            return
        ring = _ring_of(recording)
        outside = head(recording, ring)
        if not self._started:
            self._started = True
            if self._span._gate._on:
                self._frame = _enter(self._span, self._span._key, None)
        elif self._is_open():
            set_head(recording, ring, first_open(self._inside))
        else:
            self._frame = None
        self._running = self._frame is not None
        self._outside = outside if self._running else None

    def _is_open(self) -> bool:
        frame = self._frame
        return frame is not None and frame.index != CLOSED and frame.ring.recording is _recording

    def suspend(self) -> None:
        """It rests: be nobody's parent."""
        if not self._running:
            return
        self._running = False
        recording = _recording
        if recording is not None and self._is_open():
            ring = _ring_of(recording)
            self._inside = head(recording, ring)
            set_head(recording, ring, first_open(self._outside))
        self._outside = None

    def close(self, error: type[BaseException] | None = None, /) -> None:
        """It ended, perhaps by an exception of this type."""
        self.suspend()
        frame, self._frame, self._inside = self._frame, None, None
        _finish(frame, error)

    def __del__(self) -> None:
        if getattr(self, "_frame", None) is not None:
            self.close()


class _Loop:
    """An iterator that records how long each item was waited for, and how long it was held."""

    __slots__ = ("_before", "_block", "_held", "_iterator", "_keys", "_set", "_wait", "_waited", "count")

    def __init__(
        self, iterator: Iterator[Any], wait: Span | None, block: Span | None, first: int, keys: Iterator[object] | None
    ) -> None:
        self._iterator = iterator
        self._wait = wait
        self._block = block
        self._keys = keys
        self._waited: tuple[Frame, int] | None = None  # the wait of this round, which is over, and its index
        self._set = (0, 0)  # how often step and epoch had been set when this round began
        self._held: Frame | None = None
        self._before = first - 1
        self.count = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self.close()
        number = self._before + self.count + 1
        self._set = _steps_set, _epochs_set
        frame = _enter_counted(self._wait, number)
        try:
            item = next(self._iterator)
        except StopIteration:
            _cancel(frame)
            raise
        except BaseException as error:
            _finish(frame, type(error))
            raise
        self._waited = None if frame is None else (frame, frame.index)
        _finish(frame, None)
        self.count += 1
        self._held = _enter_counted(self._block, number) if self._keys is None else self._hold_keyed(self._keys)
        return item

    def _hold_keyed(self, keys: Iterator[object]) -> Frame | None:
        with guard("reading the key of an item"):
            key = next(keys, _UNSET)
            if isinstance(key, Span):
                return _enter_counted(key, key._key)
            if key is not _UNSET:
                return _enter_counted(self._block, _key_of(key, NO_KEY))
        return None

    def __length_hint__(self) -> int:
        hint = getattr(type(self._iterator), "__length_hint__", None)
        return NotImplemented if hint is None else hint(self._iterator)

    def close(self, error: type[BaseException] | None = None, /) -> None:
        """End the block that is open, perhaps by an exception of this type."""
        frame, self._held = self._held, None
        self._stamp(frame)
        _finish(frame, error)

    def _stamp(self, held: Frame | None) -> None:
        """A round knows its step and epoch when it ends, if the program has set them in it."""
        waited, self._waited = self._waited, None
        if held is not None:
            self._restamp(held)
        if waited is None or waited[0].ring.recording is not _recording:
            return
        frame, index = waited
        if index != LOST and self._restamp(frame):
            recording = frame.ring.recording
            ring = _ring_of(recording)
            here = frame.ring is ring and index >= ring.claim
            if here:
                recording.change(ring, index, *frame.fields(frame.flags))
            if not here or index < ring.claim:
                recording.put(ring, *frame.fields(frame.flags | AGAIN))

    def _restamp(self, frame: Frame) -> bool:
        before = frame.step, frame.epoch
        frame.step = frame.step if self._set[0] == _steps_set else _step
        frame.epoch = frame.epoch if self._set[1] == _epochs_set else _epoch
        return before != (frame.step, frame.epoch)

    def __del__(self) -> None:
        """`break` and exceptions in the body end here, when the loop lets go of its iterator."""
        if not hasattr(self, "count"):  # torch.compile makes objects without calling their __init__
            return
        frame, self._held = self._held, None
        self._stamp(frame)
        if frame is not None:
            _finish(frame, None, failed=_is_unwinding(sys._getframe(1)))


def _enter_counted(span: Span | None, count: int) -> Frame | None:
    return None if span is None or not span._gate._on else _enter(span, count, None)


def _is_unwinding(code: FrameType | None) -> bool:
    """Is an exception leaving the code that drops us? Python does not say, so it is inferred from two signs.

    The exception's traceback holds the frame, which nobody else does in the usual case; and the instruction at which
    the frame stands is none of those that let go of an object on purpose (`break`, `return`, `del`, the loop's end).
    """
    if code is None or sys.getrefcount(code) <= 3:
        return False
    from opcode import opname  # only at a `break` in a frame that somebody holds, or at an exception

    at = code.f_lasti
    name = opname[code.f_code.co_code[at]] if 0 <= at < len(code.f_code.co_code) else "RESUME"
    return not name.startswith(("POP_", "END_", "DELETE_", "STORE_", "RETURN_", "FOR_ITER", "SWAP", "RESUME"))


def iterate(iterable: Iterable[_T], wait: Span | None, block: Span | None, first: int = 1, /) -> _Loop:
    """Iterate; record each wait for an item as `wait` and the time the consumer holds it as `block`, key = first, ..."""
    for span in (wait, block):
        if span is not None and not isinstance(span, Span):
            raise TypeError(f"iterate() takes an iterable and two spans (or None), not {span!r}")
    return _Loop(iter(iterable), wait, block, first, None)


def iterate_on(iterator: Iterator[_T], wait: Span, first: int, /) -> _Loop:
    """Go on with an iterator that is under way, which is not asked for one again, and record each wait for an item."""
    if not hasattr(type(iterator), "__next__"):
        raise TypeError(f"iterate_on() takes an iterator, a span and a number, not {iterator!r}")
    return _Loop(iterator, wait, None, first, None)


def iterate_keyed(iterable: Iterable[_T], keys: Iterable[int | Span], block: Span, /) -> _Loop:
    """Iterate; record the time the consumer holds each item as `block`, with the key that belongs to it."""
    if not isinstance(block, Span):
        raise TypeError(f"iterate_keyed() takes an iterable, keys and a span, not {block!r}")
    return _Loop(iter(iterable), None, block, 1, iter(keys))


# ── entries with keys of their own ───────────────────────────────────────────────────────────────────────────────────


def enter(span: Span, key: object = None, /) -> None:
    """Enter a span, with a key for this entry."""
    if _recording is None:
        return
    if span._gate._on:
        _enter(span, _key_of(key, span._key), span)
    else:
        _pass(span)


def leave(span: Span, key: object = None, error: type[BaseException] | None = None, /) -> None:
    """Leave the innermost entry of this span, perhaps with a key, or by an exception of this type."""
    frame = _open_entry(span)
    if frame is not None:
        frame.key = _key_of(key, frame.key)
        _finish(frame, error)


def cancel(span: Span, /) -> None:
    """Leave the innermost entry of this span as if it had never been entered."""
    _cancel(_open_entry(span))


def turn(span: object, into: object, key: object = None, /) -> None:
    """Leave the innermost entry of this span as one of another, with its name and key, or this key."""
    if not isinstance(span, Span) or not isinstance(into, Span):
        raise TypeError("turn() takes two Spans, and perhaps a key")
    frame = _open_entry(span)
    if frame is not None:
        frame.key, frame.name = _key_of(key, into._key), into._id
        _finish(frame, None)


def _key_of(key: object, otherwise: int) -> int:
    """The number in an object; `otherwise` if it is none that a record can hold."""
    number = None if key is None else as_key(key)
    return otherwise if number is None else number


# ── counters and marks ───────────────────────────────────────────────────────────────────────────────────────────────


def counter(
    name: str, value: float, cat: str = "user", key: int | None = None, args: Mapping[str, object] | None = None,
    level: int = NORMAL, step: int | None = None, epoch: int | None = None,
) -> None:  # fmt: skip
    """Record a number. Anything else is recorded as a mark, with the value among its arguments."""
    if _recording is None:
        return
    number = value if type(value) is float else as_number(value)
    if number is None:
        args = {**(as_dict(args) if args is not None else {}), "value": value}
        _point(MARK, 0, name, cat, key, args, level, step, epoch)
    else:
        _point(COUNTER, _as_integer(_as_float(number))[0], name, cat, key, args, level, step, epoch)


def mark(
    name: str, cat: str = "user", key: int | None = None, args: Mapping[str, object] | None = None,
    level: int = NORMAL, step: int | None = None, epoch: int | None = None, metadata: bool = False,
) -> None:  # fmt: skip
    """Record that something happened now."""
    _point(MARK | META if metadata else MARK, 0, name, cat, key, args, level, step, epoch)


def _point(
    kind: int, dur: int, name: str, cat: str, key: object, args: object, level: object, step: object, epoch: object,
    when: int | None = None,
) -> None:  # fmt: skip
    recording = _recording
    if recording is None:
        return
    if (level if type(level) is int else NORMAL) > recording.level:
        recording.take_seq()
        recording.lose(LOST_CAP)
        return
    ring = _ring_of(recording)
    name_id, full = _name_id(cat, name)
    number = as_key(key)
    blob_id = 0
    if args is not None or number is None or full:
        known = {} if args is None else as_dict(args)
        blob, cut = _encode(recording, [known, {"key": key} if number is None else {}, {"name": name} if full else {}])
        blob_id = 0 if blob is None else recording.blob(blob)
        kind |= CUT if cut and blob_id else 0
    at_step, at_epoch = as_context(step, NO_STEP, _step), as_context(epoch, NO_EPOCH, _epoch)
    up = head(recording, ring)
    parent, depth = (0, 0) if up is None else up.below()
    key = NO_KEY if number is None else number
    seq = recording.take_seq()
    start = when or _clock()
    if recording.put(ring, start, dur, key, name_id, blob_id, seq, parent, at_step, at_epoch, kind, depth) == LOST:
        recording.lose(LOST_RING)


# ── step and epoch ───────────────────────────────────────────────────────────────────────────────────────────────────


def note(span: Span, value: float | None = None, key: int | None = None, /) -> None:
    """A mark with the name, key and switch of a span; with a value, a counter. Another key may be given."""
    if _recording is None or not span._gate._on:
        return
    number = None if value is None else as_number(value)
    if value is not None and number is None:
        return
    kind, dur = (MARK, 0) if number is None else (COUNTER, _as_integer(_as_float(number))[0])
    _note(span, kind, dur, None, key)


def _note(span: Span, kind: int, dur: int, when: int | None, key: int | None = None) -> None:
    if key is None or as_key(key) is None:
        key = None if span._key == NO_KEY else span._key
    _point(kind, dur, span.name, span.cat, key, None, span._level, None, None, when)


def count_steps(step: int, /) -> None:
    """Set the step of this process, as one that is counted."""
    global _counted, _steps_set
    set_context(step, None)
    _steps_set -= 1  # not the program
    _counted = _step != NO_STEP


def advance(span: Span, when: int | None = None, /) -> bool:
    """Write a mark of this span, the end of a step, now or then. If steps are counted, go on to the next one."""
    if _recording is not None and span._gate._on:
        _note(span, MARK, 0, when)
    if _counted:
        count_steps(_step + 1)
        return True
    return False


def set_context(step: int | None, epoch: int | None, /) -> None:
    """Set the step and epoch of this process; None leaves it as it is, -1 unsets it. Out of range: unset."""
    global _step, _epoch, _counted, _steps_set, _epochs_set
    _steps_set += step is not None
    _epochs_set += epoch is not None
    _counted = _counted and step is None
    _step = as_context(step, NO_STEP, _step)
    _epoch = as_context(epoch, NO_EPOCH, _epoch)
    if _recording is not None:
        _recording.set_context(_step, _epoch)


def get_context() -> tuple[int | None, int | None]:
    """The step and epoch of this process; None where it is not set."""
    return (None if _step == NO_STEP else _step), (None if _epoch == NO_EPOCH else _epoch)


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────────────


def begin(host: Host, cap: int, /) -> None:
    """Record from now on, up to `cap` bytes for the run. The process folder is opened at the first record."""
    global _recording, _step, _counted
    end()
    if _counted:  # for another recording
        _step, _counted = NO_STEP, False
    _recording = Recording(host, cap, _names, (_step, _epoch))


def end() -> None:
    """Record no more, spill every ring, close the files. Open spans stay open in the file. Harmless when not begun."""
    global _recording
    recording, _recording = _recording, None
    if recording is not None:
        recording.close()


def flush() -> None:
    """Spill every ring, and go on."""
    if _recording is not None:
        _recording.flush()


def task_mode(on: bool, /) -> None:
    """Say whether an event loop runs in this thread: then the innermost span is kept per task, not per thread."""
    _modes.tasks = bool(on)
    if _recording is not None:
        _ring_of(_recording).tasks = bool(on)


def set_clock(clock: Callable[[], int] | None, /) -> None:
    """Replace the monotonic clock, for tests."""
    global _clock
    _clock = monotonic_ns if clock is None else clock


def info() -> dict[str, Any]:
    """recording, waiting, mapped, rings, threads, names, next_seq, step, epoch, lost_space, lost_cap, lost_ring, lost_args."""
    recording = _recording
    step, epoch = get_context()
    counts = None if recording is None else recording.counts
    lost = {"lost_space": LOST_SPACE, "lost_cap": LOST_CAP, "lost_ring": LOST_RING, "lost_args": LOST_ARGS}
    return {
        "recording": recording is not None,
        "waiting": recording is not None and recording.is_waiting(),
        "mapped": recording is not None and recording.mapped,
        "rings": 0 if recording is None else recording.smalls[RINGS],
        "threads": 0 if recording is None else recording.threads,
        "names": len(_names),
        "next_seq": 1 if recording is None else recording.next_seq,
        "step": step,
        "epoch": epoch,
        **{name: 0 if counts is None else counts[place] for name, place in lost.items()},
    }


def is_main() -> bool:
    """Each interpreter has a twin of its own."""
    return True


def layout() -> dict[str, Any]:
    """The numbers of `store/record.py` as this core has them, for the test that compares them."""
    plain = {
        name: value
        for name, value in vars(_layout).items()
        if name.isupper() and isinstance(value, int | float | bytes)
    }
    fields = {
        name: {field[0]: field[1] for field in getattr(_layout, name)} for name in ("HEADER_FIELDS", "RING_FIELDS")
    }
    return plain | fields


def _in_child() -> None:
    """After a fork: a recording of our own, with files that are opened at the first record."""
    global _recording, _names_lock
    _names_lock = threading.RLock()
    parent = _recording
    if parent is not None:
        _recording = Recording(parent.host, parent.cap, _names, (_step, _epoch), parent.usage)
        parent.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
