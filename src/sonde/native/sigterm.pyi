"""SIGTERM seen before whoever else waits for it, without a change to Python's own handlers; Linux only."""

from collections.abc import Callable
from types import FrameType

def watch(notify: int, seconds: int, /) -> bool:
    """Send this process the signal `notify` when SIGTERM comes, and nothing else; whether that is so now.

    Harmless when it is so already. To be called again now and then: who installs a handler takes the place of ours. Not where
    SIGTERM is ignored. If `pass_on` is not called within so many seconds, it happens by itself.
    """

def unwatch() -> None:
    """Put back what SIGTERM did before, unless somebody has changed it since."""

def pass_on() -> None:
    """Let the SIGTERM that came do what it does: call the handler of the program, or end the process."""

def handle(callback: Callable[[list[bool]], bool], number: int, frame: FrameType | None, /) -> None:
    """Call `callback` with a list of its own until it returns, and pass on unless it returned False. Then raise what it raised."""
