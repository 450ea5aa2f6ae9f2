"""One captured call: what went in, what came out, how long it took, and where it belongs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any

from sonde.capture.show import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.values.note import CapturedValue, Item


NO_NAME = "return_value"


@dataclass(slots=True)
class About:
    """The facts about one call, as plain fields.

    Code that works on calls reads `call.about.batch`, not `call.batch`: there a captured value named "batch" comes first.
    """

    disp_name: str
    _: KW_ONLY
    func_name: str = ""
    stage_name: str = "evaluation"
    inputs: Sequence[CapturedValue] = ()
    output: CapturedValue | None = None  # None while it runs, and after an exception
    changed: Sequence[CapturedValue] = ()  # inputs that the call changed in place, as they were at its end
    result_name: str = ""  # under which the returned value is shown
    start_ns: int = 0
    duration_ns: int | None = None  # None while it runs
    seq: int = 0  # the order of calls, over all processes
    parent: int | None = None  # seq of the call in which this one ran
    pid: int = 0
    thread: str = ""
    worker: int | None = None  # number of the loader worker, None in the main process
    epoch: int | None = None
    step: int | None = None
    loader: int | None = None
    batch: int | None = None  # number of the batch within its loader
    items: Sequence[Item] = ()  # what the call was about: one item for a getter, all of the batch for collate
    error: str | None = None  # type name of the exception that it raised
    phase: str | None = None  # of a program that has several: "train", "validate"

    def __post_init__(self) -> None:
        self.func_name = self.func_name or self.disp_name.rpartition("__")[2] or self.disp_name
        self.result_name = self.result_name or (NO_NAME if self.output is None else self.output.name)
        self.inputs = list(self.inputs)
        self.changed = list(self.changed)
        self.items = tuple(self.items)

    def captured(self) -> list[CapturedValue]:
        """The captured values in the order of their numbers: inputs, then the output if there is one."""
        return [*self.inputs, *([] if self.output is None else [self.output])]


FIELDS = tuple(field.name for field in fields(About))


class TraceCall:
    """One call of a traced function.

    Get captured values by attribute, name or number (inputs first, then the output): `call.image`, `call["image"]`,
    `call[-1]`. If a name is both an input and the output, you get the pair (input, output). Facts about the call
    (`call.step`, `call.pid`, `call.items`, ...) are attributes too, unless a captured value has that name; `call.about`
    always has them.
    """

    __slots__ = ("about",)
    about: About

    def __init__(self, disp_name: str, **fields: Any) -> None:
        """The fields are those of `About`."""
        object.__setattr__(self, "about", About(disp_name, **fields))

    @classmethod
    def of(cls, about: About) -> TraceCall:
        """A call with these facts."""
        call = cls.__new__(cls)
        call.about = about
        return call

    @property
    def disp_name(self) -> str:
        """The display name, normally "<class>__<function>"."""
        return self.about.disp_name

    @property
    def func_name(self) -> str:
        """The name of the function itself."""
        return self.about.func_name

    @property
    def stage_name(self) -> str:
        """The stage of the call."""
        return self.about.stage_name

    @property
    def result_name(self) -> str:
        """The name of the returned value."""
        return self.about.result_name

    @property
    def duration_ns(self) -> int | None:
        """Duration of the call, including the calls inside it; None while it runs."""
        return self.about.duration_ns

    @duration_ns.setter
    def duration_ns(self, taken: int | None) -> None:
        self.about.duration_ns = taken

    @property
    def params(self) -> dict[str, Any]:
        """The captured arguments by name, as they were at the start of the call."""
        return {kept.name: kept.value for kept in self.about.inputs}

    @property
    def retval(self) -> Any:
        """The returned value; None if the call has not returned."""
        return None if self.about.output is None else self.about.output.value

    def __getitem__(self, key: int | str | slice) -> Any:
        """A captured value by number or name, or several by a slice of numbers."""
        captured = self.about.captured()
        if isinstance(key, str):
            return self._named(key)
        values = [kept.value for kept in captured]
        try:
            return values[key]
        except IndexError:
            raise IndexError(
                f"{self.disp_name} has no captured value number {key}: it has {len(values)}. {text.known('', self.names())}"
            ) from None

    def names(self) -> list[str]:
        """The names of the captured values, without repetition."""
        return list(dict.fromkeys(kept.name for kept in self.about.captured()))

    def _named(self, name: str) -> Any:
        found = [kept.value for kept in self.about.captured() if kept.name == name]
        if not found:
            raise KeyError(self._unknown(name))
        return found[0] if len(found) == 1 else tuple(found)

    def _unknown(self, name: str) -> str:
        return f"{self.disp_name} has no captured value {name!r}. {text.known(name, self.names())}"

    def __getattr__(self, name: str) -> Any:
        # Also asked on an empty object, by copy and pickle: then there is nothing to look into.
        if name == "about" or name.startswith("__"):
            raise AttributeError(name)
        if name in self.names():
            return self._named(name)
        if name in FIELDS:
            return getattr(self.about, name)
        raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Facts can be filled in later (`call.output = ...`); nothing else can be set."""
        if name == "about":
            object.__setattr__(self, name, value)
            return
        if name not in FIELDS:
            raise AttributeError(f"A call has no settable field {name!r}. {text.known(name, list(FIELDS))}")
        setattr(self.about, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.names(), *FIELDS, "about", "names", "params", "retval"})

    def __len__(self) -> int:
        return len(self.about.captured())

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return text.call_text(self.about)

    __repr__ = __str__
