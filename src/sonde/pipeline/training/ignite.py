"""ignite, which runs the loops: loaded when it is needed, without the warnings that its own imports give."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from sonde.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

    from ignite.engine import Engine


def library() -> Any:
    """The package `ignite`, with its parts `engine` and `distributed`."""
    require_torch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it compiles something with torch.jit
            import ignite.distributed
            import ignite.engine
    except ModuleNotFoundError as error:
        if error.name != "ignite":
            raise
        raise MissingExtra.of("pytorch-ignite", "pipeline", "Running a model") from error
    return ignite


def require_torch() -> None:
    """Raise MissingExtra if there is no torch."""
    try:
        import torch  # noqa: F401  whether it is there is the question
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra.of("torch", "pipeline", "Running a model") from error


def engine(step: Callable[[Engine, Any], Any]) -> Engine:
    """An engine that calls `step` for each batch. It logs nothing: an exception that is raised need not be reported twice."""
    made: Engine = library().engine.Engine(step)
    made.logger = logging.getLogger("sonde.pipeline.ignite")
    made.logger.setLevel(logging.CRITICAL)
    return made
