"""What is captured of a function: `TraceDef`, and how the arguments of one call get their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sonde.capture.stages import check_stage
from sonde.errors import SettingError, nearest

RESULT_NAME = "return_value"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY)


class TraceDef:
    """How calls of one function appear in a trace.

    `params_to_capture` selects arguments: a list of parameter names, or a dict of display name to position in the call
    (0 is `self` in a method). None or empty captures all arguments except `self`.
    """

    __slots__ = ("disp_name", "func_name", "params_to_capture", "result_name", "stage_name")

    def __init__(
        self,
        disp_name: str = "",
        func_name: str = "",
        params_to_capture: Mapping[str, int] | Iterable[str] | None = None,
        result_name: str | None = None,
        stage_name: str = "evaluation",
    ) -> None:
        """A wrong stage or a wrong position raises SettingError here, not at the first traced call."""
        self.disp_name = disp_name
        self.func_name = func_name or disp_name
        self.params_to_capture = _wanted(params_to_capture)
        self.result_name = _name(result_name)
        self.stage_name = check_stage(stage_name)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"TraceDef({fields})"


def _wanted(given: object) -> dict[str, int] | list[str] | None:
    if given is None:
        return None
    if isinstance(given, dict):
        for name, position in given.items():
            if not isinstance(name, str) or isinstance(position, bool) or not isinstance(position, int) or position < 0:
                raise SettingError(
                    f"params_to_capture has {name!r}: {position!r}. Give a name and its position in the call, from 0 "
                    "(self, in a method)."
                )
        return dict(given) or None
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise SettingError(
            f"params_to_capture is {given!r}. Give a dict of names and positions, or a list of parameter names."
        )
    names = list(given)
    if any(not isinstance(name, str) for name in names):
        raise SettingError(f"params_to_capture is {names!r}. A list must hold parameter names, as strings.")
    return names or None


def _name(given: object) -> str:
    if given is None:
        return RESULT_NAME
    if isinstance(given, str) and given:
        return given
    raise SettingError(f"result_name is {given!r}. Give a non-empty string, or omit it.")


class Arguments:
    """The parameters of a function, and the names for what one call gives it."""

    __slots__ = ("bound", "defaults", "parameters", "signature", "spread")

    def __init__(self, function: Callable[..., Any] | None, *, bound: int, defaults: bool = True) -> None:
        """`bound` is how many leading arguments are not the caller's: 1 for `self`. `defaults`: note those too."""
        self.bound = bound
        self.defaults = defaults
        try:
            self.signature: inspect.Signature | None = None if function is None else inspect.signature(function)
        except (TypeError, ValueError):  # functions written in C may have none
            self.signature = None
        self.parameters = [] if self.signature is None else list(self.signature.parameters.values())
        self.spread = {p.name for p in self.parameters if p.kind is inspect.Parameter.VAR_KEYWORD}

    def names(self) -> list[str]:
        """The names that a caller may ask for."""
        return [p.name for p in self.parameters[self.bound :]]

    def check(self, definition: TraceDef, what: str) -> None:
        """Raise SettingError if the definition asks for a parameter that the function does not have."""
        wanted = definition.params_to_capture
        if self.signature is None or self.spread or wanted is None:
            return
        if isinstance(wanted, dict):
            self._check_positions(wanted, what)
            return
        known = [p.name for p in self.parameters]
        for name in wanted:
            if name not in known:
                raise SettingError(f"{what} has no parameter {name!r} to capture. {nearest(name, self.names())}")

    def _check_positions(self, wanted: dict[str, int], what: str) -> None:
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self.parameters):
            return
        for name, position in wanted.items():
            if position >= len(self.parameters):
                raise SettingError(
                    f"{what} has no position {position} (for {name!r}). It takes {len(self.parameters)} arguments, "
                    f"numbered from 0: {', '.join(p.name for p in self.parameters)}."
                )

    def of(self, definition: TraceDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """The arguments of one call that are captured, each with its name."""
        wanted = definition.params_to_capture
        if isinstance(wanted, dict):
            found = [(name, self._at(position, args, kwargs)) for name, position in wanted.items()]
            return [(name, value) for name, value in found if value is not _ABSENT]
        named = self._all(args, kwargs)
        if wanted is None:
            return named
        whole = dict(self._all(args, kwargs, bound=0))
        return [(name, whole[name]) for name in wanted if name in whole]

    def _at(self, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if position < len(args):
            return args[position]
        if position >= len(self.parameters):
            return _ABSENT
        parameter = self.parameters[position]
        default = _ABSENT if parameter.default is inspect.Parameter.empty else parameter.default
        return kwargs.get(parameter.name, default)

    def _all(self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: int | None = None) -> list[tuple[str, Any]]:
        bound = self.bound if bound is None else bound
        given = self._bind(args, kwargs)
        if given is None:  # the call does not fit, or nobody knows how: numbers are the only names there are
            return [(f"arg{n}", value) for n, value in enumerate(args[bound:])] + list(kwargs.items())
        named: list[tuple[str, Any]] = []
        for parameter in self.parameters[bound:]:
            if parameter.name not in given:
                continue
            value = given[parameter.name]
            if parameter.kind in _NAMED:
                named.append((parameter.name, value))
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named += value.items()
            elif value:
                named.append((parameter.name, value))
        return named

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        if self.signature is None:
            return None
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:  # the function itself will say so
            return None
        if self.defaults:
            bound.apply_defaults()
        return bound.arguments


_ABSENT = object()


def is_method(function: Callable[..., Any]) -> bool:
    """Is the first argument of this function the object, or the class, that it is called on?"""
    if getattr(function, "__self__", None) is not None:  # it is bound already
        return False
    code = getattr(function, "__code__", None)
    return bool(code is not None and code.co_argcount and code.co_varnames[0] in ("self", "cls"))


def shown_name(owner: str, function: str) -> str:
    """The name in printed traces: "<class>__<function>", also for "__getitem__", which brings its own underscores."""
    if not owner:
        return function
    return owner + function if function.startswith("__") else f"{owner}__{function}"


def dotted_name(shown: str, function: str) -> str:
    """The name on pages and in findings, as Python writes it: `Galaxies.__getitem__` for `Galaxies__getitem__`."""
    owner = shown.removesuffix(function)
    owner = owner if function.startswith("__") else owner.removesuffix("__")
    return f"{owner}.{function}" if owner and shown == shown_name(owner, function) else shown
