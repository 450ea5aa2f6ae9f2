"""Profilers of the vocabulary: nodes of a tree, each of them a span, a decorator, a context manager and an iterator.

Entering and leaving a node is the core's work alone. What stands here runs when a tree is changed: `update`, `enable`,
`derive` write what the core will read at the next entry.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, overload

from sonde.events import Span, core
from sonde.guard import guard
from sonde.store.record import NORMAL

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_N = TypeVar("_N", bound="Node")

INIT = "init"
OPTIONAL = ("epoch", "step", "image_idx", "image_size")  # arguments that count as not given when they are None


class _Trees:
    """The lock for changes of trees. Reentrant: a signal handler may change one while its own thread does."""

    def __init__(self) -> None:
        self.renew_lock()

    def renew_lock(self) -> None:
        self.lock = threading.RLock()


_trees = _Trees()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_trees.renew_lock)


class Profiler(Span):
    """What a node and a node with arguments of its own have in common."""

    __slots__ = ()

    @overload
    def __call__(self, function: _F, /, **options: Any) -> _F: ...
    @overload
    def __call__(
        self,
        function: None = None,
        /,
        *,
        enable: bool | None = None,
        key: int | None = None,
        args: Mapping[str, object] | None = None,
        **more: object,
    ) -> Profiler: ...
    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        enable: bool | None = None,
        key: int | None = None,
        args: Mapping[str, object] | None = None,
        **more: object,
    ) -> Any:
        """Decorate a function, or make a profiler whose events carry these arguments.

        `args` and further keywords (also `epoch` and `step`) belong to the events of what is returned and to no others.
        `key` says what they are about. `enable` overrides the switch; without it the node's switch holds, at each entry.
        """
        profiler: Profiler = self
        if more or args is not None or enable is not None or key is not None:
            profiler = self._detach(arguments(args, more), enable, key)
        return profiler if function is None else Span.__call__(profiler, function)

    def _detach(self, args: dict[str, object], enable: bool | None, key: int | None) -> Profiler:
        """A profiler with these arguments of its own."""
        raise NotImplementedError

    def part(self, name: str) -> Span:
        """Another event of this profiler, under a name of its own."""
        raise NotImplementedError

    def derive(self, name: str) -> Node:
        """The child `<this name>.<name>` of the node."""
        raise NotImplementedError

    def update(
        self, *, epoch: Any = None, step: Any = None, args: Mapping[str, object] | None = None, **more: object
    ) -> Self:
        """Set the step and epoch of the process; other arguments go to the later events of the node and below it."""
        raise NotImplementedError

    @property
    def init(self) -> Node:
        """The event `<name>.init`, for constructors and set-up code: with and without parentheses."""
        return self.derive(INIT)

    def iter(
        self,
        iterable: Iterable[_T],
        include_block: bool = True,
        include_iter: bool = True,
        iter_name: str | None = None,
        block_name: str | None = None,
    ) -> Iterator[_T]:
        """Iterate, and record for each item `<name>.iter` (the wait for it) and `<name>.block` (the use of it).

        Both have the 1-based count of the item as their key. `iter_name` and `block_name` replace `<name>`.
        """
        wait = self.part(_ending(_text(iter_name or self.name), ".iter")) if include_iter else None
        block = self.part(_ending(_text(block_name or self.name), ".block")) if include_block else None
        return core.iterate(iterable, wait, block)

    def flush(self) -> None:
        """Leave the innermost entry now; the block that is still running is recorded up to here."""
        self.stop()

    def reset(self) -> None:
        """Leave the innermost entry, if there is one, and enter again: the time counts from here."""
        self.stop()
        self.start()


class Node(Profiler):
    """A profiler of the vocabulary. Its children are its attributes."""

    _weight: int
    _attribute: str
    _above: Node | None
    _below: dict[str, Node]
    _own: dict[str, object]
    _parts: dict[str, Span]

    def __init__(self, name: str, cat: str, *, level: int = NORMAL) -> None:
        super().__init__(name, cat, level=level)
        self._weight = level
        self._attribute = ""
        self._above = None
        self._below = {}
        self._own = {}
        self._parts = {}

    def _detach(self, args: dict[str, object], enable: bool | None, key: int | None) -> Detached:
        """A profiler that follows this node and has these arguments of its own."""
        return Detached(self, args, enable, key)

    def derive(self, name: str) -> Node:
        """The child `<this name>.<name>`; asked for again, it is the same one. It inherits switch and arguments."""
        name = _text(name)
        full = f"{self.name}.{name}"
        known = self._below.get(full)
        return self.adopt(name, Node(full, self.cat, level=self._weight)) if known is None else known

    def update(
        self, *, epoch: Any = None, step: Any = None, args: Mapping[str, object] | None = None, **more: object
    ) -> Self:
        """Set the step and epoch of the process; other arguments go to the later events of this node and below it.

        What a node was given itself wins over what those above it were given.
        """
        if step is not None or epoch is not None:
            core.set_context(step, epoch)
        if more or args is not None:
            with _trees.lock:
                self._own = {**self._own, **arguments(args, more)}
                self._spread()
        return self

    def enable(self) -> None:
        """Record this node and all below it, from the next entry on."""
        self._switch(True)

    def disable(self) -> None:
        """Record nothing of this node and of all below it, from the next entry on."""
        self._switch(False)

    def stamp(self, which: str) -> None:
        """Write the mark `<name>.<which>` at once; `start(metadata=True)` and `stop(metadata=True)` call this."""
        if self.on:
            core.mark(f"{self.name}.{which}", self.cat, args=self.shared, level=self._weight, metadata=True)

    def part(self, name: str) -> Span:
        """An event that follows this node's switch and carries its arguments."""
        known = self._parts.get(name)
        if known is None:
            known = Span(name, self.cat, level=self._weight, base=self)
            if name.startswith(f"{self.name}."):  # names of the user's making are not kept: there may be any number
                self._parts[name] = known
        return known

    def __repr__(self) -> str:
        return f"<sonde.ai profiler {self.name!r}, cat {self.cat!r}{'' if self.on else ', disabled'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A node travels to other processes as its place in the tree."""
        if self._above is None:
            return custom, (self.cat, self.name)
        return _child, (self._above, self._attribute)

    def adopt(self, key: str, child: Node) -> Node:
        """Make `child` a child, unless there is one of its name already; return the one that counts."""
        with _trees.lock:
            known = self._below.setdefault(child.name, child)
            if known is child:
                child._above, child._attribute = self, key
                child.on = self.on
                child._spread()
                if not hasattr(self, key):
                    setattr(self, key, child)
        return known

    def _spread(self) -> None:
        above = self._above.shared if self._above else None
        self.shared = {**(above or {}), **self._own} or None
        for child in self._below.values():
            child._spread()

    def _switch(self, on: bool) -> None:
        with _trees.lock:
            self.on = on
            for child in self._below.values():
                child._switch(on)


class Detached(Profiler):
    """A node with arguments of its own: what `node(args=...)` returns. It follows the node, except where it says so."""

    __slots__ = ("_about", "_forced", "_given", "_node")

    def __init__(self, node: Node, args: dict[str, object], enable: bool | None, key: int | None) -> None:
        super().__init__(node.name, node.cat, key=key, args=args or None, level=node._weight, base=node, enable=enable)
        self._node = node
        self._given = args
        self._forced = enable
        self._about = key

    def _detach(self, args: dict[str, object], enable: bool | None, key: int | None) -> Detached:
        """The same with further arguments."""
        enable = self._forced if enable is None else enable
        key = self._about if key is None else key
        return Detached(self._node, {**self._given, **args}, enable, key)

    def derive(self, name: str) -> Node:
        """The child of the node that this profiler was made from."""
        return self._node.derive(name)

    def update(
        self, *, epoch: Any = None, step: Any = None, args: Mapping[str, object] | None = None, **more: object
    ) -> Self:
        """Update the node that this profiler was made from."""
        self._node.update(epoch=epoch, step=step, args=args, **more)
        return self

    def stamp(self, which: str) -> None:
        """Write the mark `<name>.<which>` at once."""
        if self._node.on if self._forced is None else self._forced:
            args = {**(self._node.shared or {}), **self._given} or None
            core.mark(f"{self.name}.{which}", self.cat, self._about, args, self._node._weight, metadata=True)

    def part(self, name: str) -> Span:
        """An event with the same arguments."""
        args = self._given or None
        return Span(name, self.cat, args=args, level=self._node._weight, base=self._node, enable=self._forced)

    def __reduce__(self) -> tuple[Any, ...]:
        return Detached, (self._node, self._given, self._forced, self._about)


_roots: dict[tuple[str, str], Node] = {}


def custom(cat: str, name: str | None = None) -> Node:
    """The root of a tree: one for each category and name."""
    cat = _text(cat)
    name = cat if name is None else _text(name)
    with _trees.lock:
        return _roots.get((cat, name)) or plant(Node(name, cat))


def plant(root: _N) -> _N:
    """Make a node known as the root of a tree, so that it is found again by category and name."""
    _roots[root.cat, root.name] = root
    return root


def _child(parent: Node, key: str) -> Node:
    found = getattr(parent, key, None)
    return found if isinstance(found, Node) else parent.derive(key)


def _text(name: object) -> str:
    """A name as text; what is no text is a mistake that must not stop a program."""
    if not isinstance(name, str):
        with guard("reading the name of a profiler"):
            return str(name)
        return f"<unprintable {type(name).__name__}>"
    return name


def _ending(name: str, suffix: str) -> str:
    return name if name.endswith(suffix) else name + suffix


def arguments(args: Any, more: dict[str, object]) -> dict[str, object]:
    """One dictionary of the two ways to give arguments."""
    given = {name: value for name, value in more.items() if value is not None or name not in OPTIONAL}
    if args is None:
        return given
    return {**(args if isinstance(args, Mapping) else {"args": args}), **given}
