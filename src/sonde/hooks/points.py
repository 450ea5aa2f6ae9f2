"""A point: one function of a library, patched once, with any number of subscribers to its calls.

    point = Point("json.dumps", "to see what is written").install(json, "dumps")
    unsubscribe = point.subscribe(subscriber)      # the first one patches the function
    ...
    unsubscribe()                                  # the last one puts the original back

A subscriber has two methods. `before(args, kwargs)` returns a token; `after(token, result, error)` gets it back when the
call has ended, with its result, or with the exception it raised. Both run under the guard: whatever they do, the caller
gets the result or the exception of the original. What they call in turn reaches no subscriber. After a `before` that
failed there is no `after`. Of several subscribers, the one that began last ends first.
"""

from __future__ import annotations

import os
import threading
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Protocol

from sonde.guard import guard
from sonde.hooks import finder, patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    Attribute = tuple[Any, str]
    Arguments = tuple[Any, ...]
    Keywords = dict[str, Any]


class Subscriber(Protocol):
    """Is called before and after calls of the function."""

    def before(self, args: Arguments, kwargs: Keywords, /) -> object:
        """A call begins. What is returned comes back in `after`."""

    def after(self, token: Any, result: Any, error: BaseException | None, /) -> None:
        """The call has ended."""


class _Thread(threading.local):
    notifying = False  # a subscriber is at work in this thread, or `quiet` was asked for


class Link:
    """What a replacement and its point know of each other. One that could not be taken away is not `on`: it passes on."""

    __slots__ = ("fast", "inner", "on", "original", "replacement")

    def __init__(self, original: Callable[..., Any]) -> None:
        self.on = True
        self.original = original
        self.inner = original  # what is called in the end: the original, or what stands in its place for some calls
        self.fast: Callable[..., Any] | None = None  # the fast path
        self.replacement: Any = None


_thread = _Thread()


class quiet:  # noqa: N801  it reads as a word in `with quiet():`
    """A block in which no point calls its subscribers, in this thread: for work of our own outside of `before` and `after`."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _thread.notifying
        _thread.notifying = True

    def __exit__(self, *_: object) -> None:
        _thread.notifying = self._outer


def notifying() -> bool:
    """Is a subscriber at work in this thread, so that no other is called?"""
    return _thread.notifying


class _Locks:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.changes = threading.RLock()


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.renew)  # another thread may have held it


class Point:
    """One patched function, possibly in several places; see the module's text."""

    def __init__(
        self,
        name: str,
        reason: str,
        *,
        library: str | None = None,
        find: Callable[[ModuleType], Iterable[Attribute]] | None = None,
        wanted: Callable[[Arguments, Keywords], bool] | None = None,
        keeper: Subscriber | None = None,
        needs: Sequence[Point] = (),
    ) -> None:
        """A point of `library` waits for its import, and then asks `find(module)` for its places.

        `wanted`: which calls subscribers see. `keeper`: does the bookkeeping for them, and is called before them at both ends.
        `needs`: points whose keepers have to be at work too.
        """
        self.name = name
        self.reason = reason
        self.subscribers: tuple[Subscriber, ...] = ()
        self._following = guard(f"following {name}")
        self._replacements: tuple[Callable[..., Any], ...] = ()
        self._fast_path: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
        self._links: list[Link] = []
        self._library = library
        self._find = find
        self._wanted = wanted
        self._keeper = keeper
        self._needs = tuple(needs)
        self._places: list[Attribute] = []
        self._undo: list[Callable[[], object]] = []
        self._holds = 0

    def __repr__(self) -> str:
        return f"<Point {self.name}: {len(self.subscribers)} subscribers>"

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def install(self, owner: Any, attribute: str) -> Point:
        """Name a place of the function: `owner.attribute`. It is patched while there are subscribers."""
        with _locks.changes:
            self._places.append((owner, attribute))
            if self._holds:
                self._patch(owner, attribute)
        return self

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Notify `subscriber` of calls from now on. Returns the function that ends it; a second call of that is harmless."""

        def add() -> None:
            self.subscribers += (subscriber,)
            self._changed()

        def remove() -> None:
            self.subscribers = _without(self.subscribers, subscriber)
            self._changed()

        return self._joined(add, remove)

    def replace(self, function: Callable[..., Any]) -> Callable[[], None]:
        """Call `function(original, *args, **kwargs)` in the place of the original, until the returned function is called.

        This, and only this, changes what the program gets; the exceptions of `function` reach it too. Of several, only
        the newest is called. Subscribers see what the program sees.
        """

        def add() -> None:
            self._replacements += (function,)
            self._changed()

        def remove() -> None:
            self._replacements = _without(self._replacements, function)
            self._changed()

        return self._joined(add, remove)

    def fast_path(self, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
        """Call `make(original)` in the place of the original, until the returned function is called.

        For a probe that sees every call of a long run. What `make` gives must pass on arguments, result and exceptions as
        they are, and guard itself. A point has one fast path; subscribers are called around it.
        """

        def change(fast: Callable[[Callable[..., Any]], Callable[..., Any]] | None) -> None:
            self._fast_path = fast
            for link in self._links:
                link.fast = fast and fast(link.inner)
            self._changed()

        return self._joined(lambda: change(make), lambda: change(None))

    def _changed(self) -> None:
        """Subscribers have changed."""
        for link in self._links:
            self.use_fast_path(link, None if self._crowded() else link.fast)

    def use_fast_path(self, link: Link, fast: Callable[..., Any] | None) -> None:
        """Calls that go through this link need to see nobody but `fast`; None: the others too."""

    def _crowded(self) -> bool:
        return bool(self.subscribers or self._replacements or self._keeper or self._wanted)

    def _joined(self, add: Callable[[], None], remove: Callable[[], None]) -> Callable[[], None]:
        with _locks.changes:
            self.hold()
            add()
        left = False

        def leave() -> None:
            nonlocal left
            with _locks.changes:
                if not left:
                    left = True
                    remove()
                    self.release()

        return leave

    def hold(self) -> None:
        """Patch the function, if nobody needed it until now."""
        with _locks.changes:
            self._holds += 1
            if self._holds == 1:
                for point in self._needs:
                    point.hold()
                with guard(f"patching {self.name}"):
                    self._open()

    def release(self) -> None:
        """Put the original back, if nobody needs the patch any more."""
        with _locks.changes:
            self._holds -= 1
            if self._holds == 0:
                while self._undo:
                    with guard(f"restoring {self.name}"):
                        self._undo.pop()()
                self._links.clear()
                for point in self._needs:
                    point.release()

    # ── patching ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        for owner, attribute in self._places:
            self._patch(owner, attribute)
        if self._library is not None:
            self._undo.append(finder.when_imported(self._library, self._arrived))

    def _arrived(self, module: ModuleType) -> None:
        with _locks.changes:
            if self._holds and self._find is not None:
                for owner, attribute in self._find(module):
                    self._patch(owner, attribute)

    def _patch(self, owner: Any, attribute: str) -> None:
        link: Link | None = None

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            nonlocal link
            link = self._link(original)
            replacement: Callable[..., Any] = link.replacement
            return replacement

        patch = patches.replace(owner, attribute, make, self.reason)
        if patch is None or link is None:
            return
        made = link

        def undo() -> None:
            made.on = False
            patches.restore(patch)

        self._undo.append(undo)

    def _link(self, original: Callable[..., Any]) -> Link:
        """The link of this function; one that stands in two places has one replacement: it is pickled by its name."""
        for link in self._links:
            if link.original is original:
                return link
        link = Link(original)
        link.replacement = self.made(original, link)
        link.fast = self._fast_path and self._fast_path(link.inner)
        self._links.append(link)
        self._changed()
        return link

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What takes the place of the original."""
        return dressed(self.around(original, link), original)

    def around(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """A function that calls the original, and the subscribers."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not link.on or _thread.notifying or not self._asks(args, kwargs):
                return original(*args, **kwargs)
            inner = link.fast or link.inner
            if not self._crowded():
                return inner(*args, **kwargs)
            begun: list[tuple[Subscriber, object]] = []
            result = error = None
            try:
                self.begin(begun, args, kwargs)
                result = self._replaced(inner)(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                self.end(begun, result, error)
                error = None  # a frame that knows its exception is a circle, which keeps the values of all its frames
            return result

        return call

    def _asks(self, args: Arguments, kwargs: Keywords) -> bool:
        if self._wanted is None:
            return True
        with guard(f"choosing calls of {self.name}"):
            return self._wanted(args, kwargs)
        return False

    def _replaced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return partial(self._replacements[-1], original) if self._replacements else original

    # ── notifying ────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, begun: list[tuple[Subscriber, object]], args: Arguments, kwargs: Keywords) -> None:
        """Call `before` of all; `begun` gets who was called, and its token."""
        outer, following = _thread.notifying, self._following
        _thread.notifying = True
        try:
            waiting = iter(self._subscribers())
            done = False
            while not done:
                with following:  # one that fails is left out, and the next ones are called
                    for subscriber in waiting:
                        begun.append((subscriber, subscriber.before(args, kwargs)))  # noqa: PERF401  one may fail
                    done = True
        finally:
            _thread.notifying = outer

    def end(self, begun: list[tuple[Subscriber, object]], result: Any, error: BaseException | None) -> None:
        """Call `after` of those whose `before` was called."""
        outer, following = _thread.notifying, self._following
        _thread.notifying = True
        try:
            while begun:
                with following:
                    while begun:
                        subscriber, token = begun.pop(0 if begun[0][0] is self._keeper else -1)
                        subscriber.after(token, result, error)
        finally:
            _thread.notifying = outer

    def _subscribers(self) -> tuple[Subscriber, ...]:
        return self.subscribers if self._keeper is None else (self._keeper, *self.subscribers)


def dressed(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement with name, text and signature of the original."""
    return update_wrapper(replacement, original, updated=())


def _without(group: tuple[Any, ...], member: object) -> tuple[Any, ...]:
    """The group without the newest mention of this member."""
    for place in reversed(range(len(group))):
        if group[place] is member:
            return group[:place] + group[place + 1 :]
    return group
