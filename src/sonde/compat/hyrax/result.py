"""What a trace looks like in Hyrax: a result with stages, a stage with calls, a call with dicts of values."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from sonde.capture import result as captured
from sonde.capture.decorate import is_traced, traced
from sonde.capture.definition import TraceDef
from sonde.capture.show import text
from sonde.values.snapshot import freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sonde.values.note import CapturedValue

__all__ = ["TraceCall", "TracePrintable", "TraceResult", "TraceStage"]

INHERITED = object()  # the class had no member of its own


class TracePrintable(ABC):
    """What results, stages and calls have in common: an attribute is an item, and they show as their text."""

    def __repr__(self) -> str:
        return str(self)

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("_") or attr == "captured":  # asked by copy and notebooks, on an empty object too
            raise AttributeError(attr)
        try:
            return self[attr]
        except KeyError as error:
            raise AttributeError(*error.args) from None

    def __dir__(self) -> list[str]:
        return self._valid_keys()

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def __getitem__(self, idx: Any) -> Any: ...

    @abstractmethod
    def _valid_keys(self) -> list[str]: ...


class TraceCall(TracePrintable):
    """One call. `params` and `retval` are dicts of name to value."""

    def __init__(
        self,
        disp_name: str,
        func_name: str = "",
        params: Mapping[str, Any] | None = None,
        retval: Mapping[str, Any] | None = None,
        duration_ns: int | None = None,
    ) -> None:
        given = [freeze(value, name=name) for name, value in (params or {}).items()]
        self.captured = captured.TraceCall(disp_name, func_name=func_name, inputs=given, duration_ns=duration_ns)
        if retval:
            self.retval = dict(retval)

    @classmethod
    def of(cls, call: captured.TraceCall) -> TraceCall:
        """Sonde's call, shown in this way."""
        made = cls.__new__(cls)
        made.captured = call
        return made

    @property
    def disp_name(self) -> str:
        """The display name, normally "<class>__<function>"."""
        return self.captured.about.disp_name

    @property
    def func_name(self) -> str:
        """The name of the function itself."""
        return self.captured.about.func_name

    @property
    def params(self) -> dict[str, Any]:
        """The captured arguments by name."""
        return self.captured.params

    @property
    def retval(self) -> dict[str, Any]:
        """The returned value under its name; empty if the call has not returned."""
        output = self.captured.about.output
        return {} if output is None else {output.name: output.value}

    @retval.setter
    def retval(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            self.captured.about.output, self.captured.about.result_name = freeze(value, name=name), name

    @property
    def duration_ns(self) -> int | None:
        """Duration of the call; None while it runs."""
        return self.captured.about.duration_ns

    @duration_ns.setter
    def duration_ns(self, taken: int | None) -> None:
        self.captured.about.duration_ns = taken

    def __getitem__(self, key: int | str) -> Any:
        """A captured value by number or name; the pair (input, output) if the name is both."""
        return self.captured[key]

    def _valid_keys(self) -> list[str]:
        return self.captured.names()

    def _repr_value(self, param_value: Any) -> str:
        kept: CapturedValue = freeze(param_value)
        return text.value_text(kept.note)

    def __str__(self) -> str:
        return str(self.captured)


class TraceStage(TracePrintable):
    """The calls of a stage, in call order."""

    def __init__(self) -> None:
        self.captured = captured.TraceStage()

    @classmethod
    def of(cls, stage: captured.TraceStage) -> TraceStage:
        """Sonde's stage, shown in this way."""
        made = cls.__new__(cls)
        made.captured = stage
        return made

    @property
    def calls(self) -> list[TraceCall]:
        """All calls."""
        return [TraceCall.of(call) for call in self.captured.calls]

    @property
    def func_dict(self) -> dict[str, list[TraceCall]]:
        """The calls by the display name of their function."""
        return {name: [TraceCall.of(call) for call in calls] for name, calls in self.captured.func_dict.items()}

    def append(self, call_record: TraceCall) -> None:
        """Add a call at the end."""
        self.captured.append(call_record.captured)

    def __getitem__(self, idx_or_func_name: int | str) -> Any:
        """A call by its number; a list of calls by the name of their function."""
        try:
            number = int(idx_or_func_name)
        except ValueError:
            return [TraceCall.of(call) for call in self.captured[str(idx_or_func_name)]]
        return TraceCall.of(self.captured[number])

    def _valid_keys(self) -> list[str]:
        return self.captured.names()

    def __len__(self) -> int:
        return len(self.captured)

    def __iter__(self) -> Iterator[TraceCall]:
        return iter(self.calls)

    def __str__(self) -> str:
        return str(self.captured)

    def _repr_calls(self) -> str:
        return "\n".join(map(str, self.calls))

    def _repr_html_(self) -> str:
        return self.captured._repr_html_()


class TraceResult(TracePrintable):
    """The stages of a trace, by attribute or by name."""

    def __init__(self, trace_batch_size: int) -> None:
        self.captured = captured.TraceResult(items=trace_batch_size)
        self.shimmed_funcs: list[tuple[type, str, Any]] = []

    @classmethod
    def of(cls, result: captured.TraceResult) -> TraceResult:
        """Sonde's result, shown in this way."""
        made = cls.__new__(cls)
        made.captured, made.shimmed_funcs = result, []
        return made

    @property
    def trace_batch_size(self) -> int | None:
        """Number of items that the trace was limited to."""
        return self.captured.items

    def reset(self) -> None:
        """Delete all calls."""
        self.captured.reset()

    def __getitem__(self, ref: str) -> TraceStage:
        return TraceStage.of(self.captured[ref])

    def _valid_keys(self) -> list[str]:
        return list(self.captured.stages)

    def __str__(self) -> str:
        return str(self.captured)

    def _repr_html_(self) -> str:
        return self.captured._repr_html_()

    def trace_call(self, trace_def: TraceDef, *args: Any) -> TraceCall:
        """Note a call with these arguments, and return it: fill in `retval` and `duration_ns` when it has returned."""
        wanted = trace_def.params_to_capture
        given = [(f"{place:03}_call", value) for place, value in enumerate(args)]
        if isinstance(wanted, dict):
            given = [(name, args[place]) for name, place in wanted.items()]
        call = TraceCall(trace_def.disp_name, trace_def.func_name, dict(given))
        call.captured.about.stage_name = trace_def.stage_name
        call.captured.about.result_name = trace_def.result_name
        self.captured.add(call.captured)
        return call

    # ── classes: undone by `remove_class_level_shims` ──

    def reduce_len(self, cls: type) -> None:
        """Let `len()` of this class's objects be at most `trace_batch_size`."""
        most, length = self.trace_batch_size, inspect.getattr_static(cls, "__len__")

        def reduced(self: Any) -> int:
            found: int = length(self)
            return found if most is None else min(most, found)

        self._replace(cls, "__len__", reduced)

    def instrument_class_data_handler(self, cls: type, trace_def: TraceDef) -> None:
        """Capture the calls of a method on all objects of a class."""
        original = inspect.getattr_static(cls, trace_def.func_name)
        self._replace(cls, trace_def.func_name, self._make_shim(original, trace_def))

    def _replace(self, cls: type, name: str, member: Any) -> None:
        self.shimmed_funcs.append((cls, name, vars(cls).get(name, INHERITED)))
        setattr(cls, name, member)

    def remove_class_level_shims(self) -> None:
        """Restore the patched classes, newest change first."""
        while self.shimmed_funcs:
            cls, name, original = self.shimmed_funcs.pop()
            if original is INHERITED:
                delattr(cls, name)
            else:
                setattr(cls, name, original)

    # ── objects: the change lives as long as they do ──

    def instrument_instance_data_handler(
        self, obj: Any, original_member: Callable[..., Any], trace_def: TraceDef
    ) -> Any:
        """Capture the calls of a method of one object; returns the function that was put on it."""
        shim = self._make_shim(original_member, trace_def)
        setattr(obj, trace_def.func_name, shim)
        return shim

    def instrument_prepare_inputs(self, model: Any) -> None:
        """Capture `prepare_inputs` of a model."""
        name = f"{type(model).__name__}_inst_prepare_inputs"
        self._instrument(model, "prepare_inputs", name, "batch_dict", "batch_ndarray", "prepare_inputs")

    def instrument_prepare_inputs_fn(self, prepare_inputs_fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its calls captured."""
        wanted = {"batch_dict": 0}
        definition = TraceDef("saved__prepare_inputs", "prepare_inputs", wanted, "batch_ndarray", "prepare_inputs")
        shim: Callable[..., Any] = self._make_shim(prepare_inputs_fn, definition)
        return shim

    def instrument_dataset_getter(
        self, dataset: Any, getter: Callable[..., Any], friendly_name: str, field_name: str
    ) -> Callable[..., Any]:
        """Capture a getter of a dataset."""
        name = f"get_{field_name}"
        definition = TraceDef(f"{friendly_name}__{name}", name, {"index": 0}, field_name, "dataset_getter")
        shim: Callable[..., Any] = self.instrument_instance_data_handler(dataset, getter, definition)
        return shim

    def instrument_dataset_collate(
        self, dataset: Any, collate_fn: Callable[..., Any], friendly_name: str
    ) -> Callable[..., Any]:
        """Capture `collate` of a dataset."""
        definition = TraceDef(f"{friendly_name}__collate", "collate", {"samples": 0}, "batch_dict", "collate")
        shim: Callable[..., Any] = self.instrument_instance_data_handler(dataset, collate_fn, definition)
        return shim

    def instrument_dataprovider(self, dataprovider: Any) -> None:
        """Capture `resolve_data`, `collate` and `handle_nans` of a data provider."""
        for name, argument, output, stage in (
            ("resolve_data", "index", "data_dict", "resolve_data"),
            ("collate", "batch_dicts", "batch_dict", "collate"),
            ("handle_nans", "batch_dict", "batch_dict_no_nan", "collate"),
        ):
            self._instrument(dataprovider, name, f"DataProvider__{name}", argument, output, stage)

    def instrument_engine_verb(self, engine_verb: Any) -> None:
        """Capture `create_ort_inputs` and `run_onnx_batch` of an engine."""
        for name, argument, output in (
            ("create_ort_inputs", "prepared_batch", "ort_inputs"),
            ("run_onnx_batch", "ort_inputs", "onnx_results"),
        ):
            self._instrument(engine_verb, name, f"Engine__{name}", argument, output, "evaluation")

    def _instrument(self, obj: Any, name: str, shown: str, argument: str, output: str, stage: str) -> None:
        if hasattr(obj, name):
            definition = TraceDef(shown, name, {argument: 0}, output, stage)
            self.instrument_instance_data_handler(obj, getattr(obj, name), definition)

    @staticmethod
    def _make_shim(original_func: Any, trace_def: TraceDef) -> Any:
        """The function, with its calls captured while a trace is active; itself if they are already."""
        return original_func if is_traced(original_func) else traced(original_func, trace_def)
