"""Follows what a training loop does with torch: delivered batches, transfers, models and losses, backward, optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.capture import tape as tapes, workers
from sonde.capture.context import items_of, rows
from sonde.capture.decorate import is_traced
from sonde.capture.definition import Arguments, TraceDef, shown_name
from sonde.capture.torch import limit, loaders
from sonde.hooks.torch import backward, loader, module, optimizer, private, transfer
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.capture.workers import Spool
    from sonde.values.note import Item

WRAPPERS = {"OptimizedModule": private.COMPILED, "DistributedDataParallel": "module", "DataParallel": "module"}
MAX_WRAPPERS = 4  # around each other
AHEAD = 2  # batches that a loop may fetch before it uses them

_forward = TraceDef(func_name="forward", result_name="output", stage_name="evaluation")
_module_transform = TraceDef(func_name="forward", result_name="output", stage_name="dataset_getter")
_backward = TraceDef("backward", "backward", stage_name="evaluation")
_step = TraceDef(func_name="step", stage_name="evaluation")
_moves = {name: TraceDef(shown_name("Tensor", name), name, None, "output", "prepare_inputs") for name in ("to", "cuda")}

_arguments: WeakTable[Arguments] = WeakTable()


def watch() -> Callable[[], None]:
    """Follow torch from now on, or from when the program imports it. Returns what ends it."""
    loaders.watch()
    undo = [
        loader.loader_iter.subscribe(_Loops()),
        loader.next_batch.subscribe(_BatchCalls()),
        module.module_call.subscribe(_Modules()),
        transfer.tensor_to.subscribe(_TransferCalls()),
        backward.backward.subscribe(_Backward()),
        optimizer.optimizer_step.subscribe(_StepCalls()),
        loader.loader_iter.replace(limit.limited_iter),
        loader.loader_len.replace(limit.limited_len),
    ]

    def leave() -> None:
        while undo:
            undo.pop()()
        loaders.unwatch()

    return leave


class _CallEnds:
    """What all subscribers do at the end of a call."""

    def after(self, frame: tapes.CallFrame | None, result: Any, error: BaseException | None) -> None:
        tapes.leave(frame, result, error)


class _Modules(_CallEnds):
    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tapes.CallFrame | None:
        tape = tapes.current()
        model = _inside(args[0])
        forward = getattr(type(model), "forward", None)
        if tape is None or (model is args[0] and is_traced(forward)):  # one that is decorated notes itself
            return None
        definition = _forward if tape.place.thread.fetch is None else _module_transform
        known = _arguments.get(type(model))
        if known is None:
            known = _arguments[type(model)] = Arguments(forward, bound=1, defaults=False)
        return tapes.follow(definition, tapes.name_of(model, "forward"), lambda: known.of(definition, args, kwargs))


def _inside(model: Any) -> Any:
    """The program's model in what torch puts around it, to compile or to distribute it."""
    for _ in range(MAX_WRAPPERS):
        name = WRAPPERS.get(type(model).__name__)
        held = None if name is None else getattr(model, name, None)
        if held is None:
            break
        model = held
    return model


class _TransferCalls(_CallEnds):
    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tapes.CallFrame | None:
        named = [("tensor", args[0]), *((f"arg{n}", _word(value)) for n, value in enumerate(args[1:], 1))]
        if len(named) > 1:
            named[1] = ("device", named[1][1])
        named += [(name, _word(value)) for name, value in kwargs.items()]
        definition = _moves["to" if len(args) > 1 or kwargs.get("device") or "other" in kwargs else "cuda"]
        return tapes.follow(definition, definition.disp_name, lambda: named)


def _word(value: Any) -> Any:
    """Devices and types as text; the rest as it is."""
    return value if isinstance(value, int | str | bool) or getattr(value, "shape", None) is not None else str(value)


class _Backward(_CallEnds):
    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tapes.CallFrame | None:
        loss = args[0] if args else kwargs.get("tensors")
        if isinstance(loss, tuple | list) and len(loss) == 1:
            loss = loss[0]
        return tapes.follow(_backward, "backward", lambda: [("loss", loss)])


class _StepCalls:
    """Notes the steps of optimizers, and counts those of the first one."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> tuple[tapes.CallFrame | None, Any]:
        one = args[0]
        return tapes.follow(_step, tapes.name_of(one, "step"), lambda: _rates(one)), one

    def after(self, token: tuple[tapes.CallFrame | None, Any], result: Any, error: BaseException | None) -> None:
        frame, one = token
        tapes.leave(frame, result, error)
        tape = tapes.current()
        if tape is not None and error is None:
            tape.place.updated(id(one))
            if tape.spool is not None:
                _signal(tape, tape.spool, AHEAD)


def _rates(one: Any) -> list[tuple[str, Any]]:
    rates = [group.get("lr") for group in one.param_groups]
    return [("lr", rates[0] if len(rates) == 1 else rates)]


# ── loaders in the main process ──────────────────────────────────────────────────────────────────────────────────────


class _Loops:
    """Told of each loop over a loader."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        tape, one = tapes.current(), args[0]
        if tape is None:
            return
        tape.loops += 1
        number = tape.place.loader(loader.loader_number(one))
        tape.phases[number] = tape.phase
        old = private.living_iterator(one)
        if old is not None and tapes.limit() is None and id(old) not in tape.iterators:
            tape.note(
                f"The workers of loader {number} started before the trace (persistent_workers), so their calls are "
                "not captured."
            )
        if tape.spool is not None and one.num_workers:
            _signal(tape, tape.spool, one.num_workers * (one.prefetch_factor or 1) + AHEAD)

    def after(self, _token: None, result: Any, error: BaseException | None) -> None:
        tape = tapes.current()
        if tape is not None and error is None:
            tape.iterators.add(id(result))


def _signal(tape: tapes.Tape, spool: Spool, ahead: int) -> None:
    """Let workers begin to capture in time for the first step that is wanted, and stop after the last one."""
    steps, now = tape.plan.steps, tape.place.step() or 0
    if steps is None:
        return
    tape.ahead = max(tape.ahead, ahead)
    if now + tape.ahead >= min(steps) and workers.GO not in tape.signals:
        tape.signals.add(workers.GO)
        spool.signal(workers.GO)
    if now > max(steps) and workers.DONE not in tape.signals:
        tape.signals.add(workers.DONE)
        spool.signal(workers.DONE)


class _BatchCalls:
    """Told of each batch that a loader gives to the program."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        return args[0]

    def after(self, iterator: Any, value: Any, error: BaseException | None) -> None:
        tape = tapes.current()
        batch = loader.delivered(iterator)
        if tape is None:
            return
        if isinstance(error, StopIteration):
            _ended(tape, iterator)
            return
        place = tape.place
        if batch is None:
            place.arrived(None, None, None, [], value)
            return
        items = _items(iterator, batch, value, hides=tape.hides)
        delivery = place.arrived(place.loader(batch.loader), batch.number, batch.round, items, value)
        key = id(iterator)
        tape.given[key] = tape.given.get(key, 0) + len(delivery.where.items)


def _items(iterator: Any, batch: loader.Batch, value: Any, *, hides: bool) -> list[Item]:
    """The items of a delivered batch; of an iterable dataset, the last one may have fewer than were asked for."""
    indices = list(batch.indices or ())
    if not private.is_iterable(iterator):
        return items_of(loaders.original(private.dataset(iterator), indices), hides=hides)
    items = items_of(indices, batch.worker if private.num_workers(iterator) > 1 else None)
    return items[: rows(value, len(items))] if len(items) > 1 else items


def _ended(tape: tapes.Tape, iterator: Any) -> None:
    """A loop has come to its end: say so if it had fewer items than were asked for."""
    asked, given = tape.plan.items, tape.given.pop(id(iterator), None)
    if asked is not None and (given or 0) < asked and id(iterator) in tape.iterators:
        tape.note(f"A loader delivered only {given or 0} of the {asked} requested items: it has no more.")
