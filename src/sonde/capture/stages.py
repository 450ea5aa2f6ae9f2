"""The stages of a pipeline, in order: what a captured call may be filed under."""

from __future__ import annotations

from sonde.errors import SettingError, nearest

DEFAULT_STAGES = ("dataset_getter", "resolve_data", "collate", "prepare_inputs", "evaluation")

# What a TraceResult has of its own: a stage of such a name could not be reached as an attribute.
RESERVED = (
    "add",
    "calls",
    "diff",
    "extend",
    "findings",
    "item",
    "items",
    "known_items",
    "notes",
    "reset",
    "save",
    "source",
    "stages",
    "to_html",
    "trace_batch_size",
)

_declared = list(DEFAULT_STAGES)


def stage_names() -> tuple[str, ...]:
    """All stages, in display order."""
    return tuple(_declared)


def declare_stage(name: str, after: str | None = None) -> None:
    """Add a stage after the stage `after`, or at the end. Declaring it again has no effect."""
    _check_new(name)
    if after is not None:
        check_stage(after)
    if name in _declared:
        return
    _declared.insert(len(_declared) if after is None else _declared.index(after) + 1, name)


def check_stage(name: object) -> str:
    """`name`, if it is a stage; else an error that lists the stages there are."""
    if isinstance(name, str) and name in _declared:
        return name
    raise SettingError(
        f"No stage {name!r}. {nearest(str(name), list(_declared))} Declare a new one with "
        "sonde.flow.declare_stage(name)."
    )


def _check_new(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise SettingError(f"{name!r} is not a valid stage name. Use a Python name without a leading underscore.")
    if name in RESERVED:
        raise SettingError(
            f"{name!r} is not a valid stage name: TraceResult already has an attribute with that name. Choose another."
        )
