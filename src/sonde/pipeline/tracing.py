"""What trace mode needs: a config for one small batch, and calls of our own and of the user's functions that note themselves.

Nothing is put on the user's classes and objects: the loops that call `train_batch` or `get_image` note the call, here.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from sonde.capture import tape as tapes
from sonde.capture.context import UnfinishedBatch, Where, items_of
from sonde.capture.decorate import is_traced
from sonde.capture.definition import TraceDef, shown_name
from sonde.capture.external import capture
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sonde.capture.external import Capture
    from sonde.pipeline.config import Config


def limited(config: Config, items: int) -> Config:
    """The config, changed for one batch of `items` items."""
    config["data_loader"]["batch_size"] = items
    config["data_loader"]["shuffle"] = False
    config["data_loader"]["drop_last"] = False
    config["data_loader"]["weight_field"] = config["data_loader"]["balance_field"] = ""
    config["data"]["cache_bytes"] = 0
    config["train"]["epochs"] = 1
    config["train"]["accumulate"] = 1
    config["train"]["validate_every"] = 1
    return config


def note(text: str) -> None:
    """Let the active trace, if there is one, say this below its stages."""
    tape = tapes.current()
    if tape is not None:
        tape.note(text)


class NotedFunction:
    """A function of one argument whose calls appear in traces under a name. It can be pickled if the function can be.

    A function that notes its calls itself, because its author has decorated it, is left to do so.
    """

    __slots__ = ("argument", "disp_name", "function", "name", "result_name", "silent", "stage_name")

    def __init__(
        self, function: Callable[..., Any], owner: str, name: str, argument: str, result_name: str, stage_name: str
    ) -> None:
        self.function = function
        self.name = name
        self.disp_name = shown_name(owner, name)
        self.argument = argument
        self.result_name = result_name
        self.stage_name = stage_name
        self.silent = is_traced(getattr(function, "__func__", function))

    def __call__(self, value: Any, *more: Any) -> Any:
        if self.silent or tapes.current() is None:
            return self.function(value, *more)
        definition = TraceDef(self.disp_name, self.name, None, self.result_name, self.stage_name)
        fetch = _placed(self.stage_name, value)
        frame = tapes.enter(definition, self.disp_name, lambda: [(self.argument, value)])
        try:
            result = self.function(value, *more)
        except BaseException as error:
            tapes.leave(frame, error=error)
            raise
        if fetch is not None and frame is not None:
            fetch.named(result)
            frame.call.about.items = fetch.here()
        tapes.leave(frame, result)
        return result


@guard("identifying the item of a call", default=None)
def _placed(stage: str, index: Any) -> UnfinishedBatch | None:
    """Say which item of the batch is at hand now: that with this index; or all of them, where they are collated."""
    tape = tapes.current()
    fetch = None if tape is None else tape.place.thread.fetch
    if fetch is None or stage not in ("resolve_data", "collate"):
        return None
    if stage == "collate":
        fetch.all = True
        return None
    fetch.position = next((item.position for item in fetch.items if item.index == index), fetch.position)
    return fetch


def fetched(number: int, indices: Sequence[int], make: Callable[[], Any]) -> Any:
    """A batch that is made without a loader: `make()`, with its items known to the active trace, if there is one."""
    tape = tapes.current()
    if tape is None:
        return make()
    place = tape.place
    fetch = UnfinishedBatch(Where(None, number, tuple(items_of(list(indices)))), wanted=True, hides=tape.hides)
    outer, place.thread.fetch = place.thread.fetch, fetch
    try:
        batch = make()
    finally:
        place.thread.fetch = outer
    place.arrived(None, number, 0, fetch.items, batch)
    return batch


def of_model(model: Any, name: str) -> Callable[[Any], Any]:
    """A method of a model that takes a batch: `train_batch` and its like."""
    result = "batch_results" if name in ("forward", "infer_batch") else "loss_dict"
    return NotedFunction(getattr(model, name), type(model).__name__, name, "batch", result, "evaluation")


def of_inputs(function: Callable[[Any], Any], model: str) -> Callable[[Any], Any]:
    """A model's `prepare_inputs`."""
    return NotedFunction(function, model, "prepare_inputs", "batch_dict", "batch_ndarray", "prepare_inputs")


def watch_forward(model: Any) -> Capture | None:
    """Capture the calls of `forward`, whoever makes them, until the trace ends. None if they are seen anyway."""
    if tapes.current() is None or is_traced(type(model).forward):
        return None
    name = shown_name(type(model).__name__, "forward")
    single = len(inspect.signature(model.forward).parameters) == 1
    wanted = {"batch": 1} if single else None  # several have names of their own
    return capture(
        model, "forward", stage_name="evaluation", params_to_capture=wanted, result_name="batch_results", disp_name=name
    )
