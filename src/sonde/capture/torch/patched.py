"""Functions of datasets and transforms that are patched on their classes while a trace runs, and how their calls are noted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.capture import tape as tapes
from sonde.capture.context import text_of
from sonde.guard import guard
from sonde.hooks import patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.capture.context import UnfinishedBatch
    from sonde.capture.decorate import Noted

REASON = "to capture dataset items"

followed: list[type] = []  # classes that are patched, or need not be
_patches: list[patches.Patch] = []


def patchable(kind: type) -> bool:
    """A class written in Python, which takes new attributes."""
    return bool(kind.__flags__ & (1 << 9)) and not kind.__flags__ & (1 << 8)


def is_module(thing: object) -> bool:
    """A module of torch, whose calls are seen anyway; or a module of Python, which is the owner of its functions."""
    kinds = [getattr(sys.modules.get("torch.nn"), "Module", None), type(sys)]
    return any(kind is not None and isinstance(thing, kind) for kind in kinds)


def patch_class(kind: type, name: str, make: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace a function of this class until `restore`."""
    with guard("capturing the getters of a dataset"):
        patch = patches.replace(kind, name, make, REASON)
        if patch is not None:
            _patches.append(patch)


def restore() -> None:
    """Put back what was patched on datasets and transforms."""
    while _patches:
        with guard("restoring the getters of a dataset"):
            patches.restore(_patches.pop())
    followed.clear()


def current_fetch() -> UnfinishedBatch | None:
    """The fetch that runs in this thread."""
    tape = tapes.current()
    return None if tape is None else tape.place.thread.fetch


def _automatic() -> bool:
    tape = tapes.current()
    return tape is not None and tape.plan.automatic


@guard("finding the id of an item")
def name_item(fetch: UnfinishedBatch, frame: tapes.CallFrame | None, item: Any) -> None:
    """Note the id that an item says it has."""
    fetch.named(item)
    if frame is not None:
        frame.call.about.items = fetch.here()


def note_calls(function: Callable[..., Any], noted: Noted, id_field: str | None = None) -> Callable[..., Any]:
    """A handler that notes a call if it is made for a batch that is captured."""

    def handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fetch = current_fetch()
        if fetch is None or not fetch.wanted or not _automatic():
            return function(*args, **kwargs)
        frame = noted.enter(args, kwargs)
        result = tapes.finish_call(frame, lambda: function(*args, **kwargs))
        if id_field is not None and frame is not None:
            name_item(fetch, frame, {id_field: text_of(result)})
        return result

    return handler
