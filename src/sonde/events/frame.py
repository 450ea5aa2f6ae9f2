"""Open spans of the Python core, and which of them is the innermost: per thread, or per task of an event loop."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from sonde.events.ring import LOST
from sonde.store.record import DEEPEST, NO_EPOCH, NO_KEY, NO_STEP

if TYPE_CHECKING:
    from sonde.events.ring import Recording, ThreadRing

CLOSED = -1  # in place of an index, as LOST: left already


class Frame:
    """An open span: where its record is, and what stands in it."""

    __slots__ = (
        "args", "blob", "depth", "dur", "epoch", "flags", "identity", "index", "key", "name", "parent", "ring", "seq", "start", "step", "up",
    )  # fmt: skip

    def __init__(self, up: Frame | None, identity: object, ring: ThreadRing) -> None:
        self.up = up  # what was innermost at the entry
        self.identity = identity  # the span object that an exit looks for; None: the frame's maker leaves it itself
        self.ring = ring
        self.index = LOST  # of its record among those of the ring
        self.start, self.key, self.name, self.args, self.flags = 0, NO_KEY, 0, 0, 0
        self.seq = self.parent = self.dur = 0
        self.depth = -1
        self.step, self.epoch = NO_STEP, NO_EPOCH
        self.blob: bytes | None = None  # its encoded arguments

    def fields(self, flags: int) -> tuple[int, ...]:
        """What stands in its record."""
        return (
            self.start, self.dur, self.key, self.name, self.args, self.seq, self.parent, self.step, self.epoch, flags, self.depth,
        )  # fmt: skip

    def below(self) -> tuple[int, int]:
        """Parent and depth of a record inside it."""
        return self.seq, min(self.depth + 1, DEEPEST)


def first_open(frame: Frame | None) -> Frame | None:
    """This frame, or the next one outside of it that is open."""
    while frame is not None and frame.index == CLOSED:
        frame = frame.up
    return frame


def of_task(recording: Recording) -> Frame | None:
    """The frame that this task entered last. A program may set any variable to anything."""
    frame = None if recording.innermost is None else recording.innermost.get(None)
    return frame if isinstance(frame, Frame) else None


def head(recording: Recording, ring: ThreadRing) -> Frame | None:
    """The innermost open frame: of this task if a loop runs here and the task has one, else of this thread."""
    return first_open((of_task(recording) if ring.tasks else None) or ring.top)


def set_head(recording: Recording, ring: ThreadRing, frame: Frame | None) -> None:
    """Make it the innermost."""
    if not ring.tasks:
        ring.top = frame
        return
    if recording.innermost is None:
        recording.innermost = ContextVar("sonde.innermost")
    recording.innermost.set(frame)


def search(frame: Frame | None, span: object) -> Frame | None:
    """The first open frame of this span object, from `frame` outwards."""
    while frame is not None and (frame.identity is not span or frame.index == CLOSED):
        frame = frame.up
    return frame


def find(recording: Recording, ring: ThreadRing, span: object) -> Frame | None:
    """The innermost open frame of this very span object: in this task or thread, else the newest of this thread."""
    frame = search(head(recording, ring), span)
    if frame is None:
        loose: Frame
        for loose in reversed(list(ring.loose.values())):
            if loose.identity is span and loose.index != CLOSED:
                return loose
        frame = search(ring.top, span)
    return frame


def unlink(recording: Recording, ring: ThreadRing, frame: Frame) -> None:
    """Take a closed frame from the end of the chains it ends; further in, it is passed over."""
    if frame.ring.loose.get(frame.seq) is frame:
        del frame.ring.loose[frame.seq]
    ring.top = first_open(ring.top)
    if ring.tasks and of_task(recording) is frame:
        set_head(recording, ring, first_open(frame))
