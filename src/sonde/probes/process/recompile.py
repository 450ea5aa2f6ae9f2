"""The probe of recompiles: which function torch.compile compiles again, and which guard failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch.recompile import recompiled
from sonde.store.probe import RECOMPILE
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

LONGEST = 400  # characters of a reason


def install(_settings: Settings) -> Callable[[], None]:
    """Record recompiles until the returned function is called."""
    return recompiled.subscribe(_Recompiles())


class _Recompiles:
    """Subscribes to each recompile."""

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The frame of the function."""
        return None if kwargs.get("skip_logging") else kwargs.get("frame", args[1] if len(args) > 1 else None)

    def after(self, frame: Any, reasons: Any, error: BaseException | None) -> None:
        """Its reasons are known."""
        if frame is None or error is not None:
            return
        code = frame.f_code
        reason = str(reasons[0]) if reasons else None
        facts = {
            "function": code.co_name,
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "reason": reason and reason[:LONGEST],
        }
        core.mark("recompile", RECOMPILE, None, facts, ESSENTIAL)
