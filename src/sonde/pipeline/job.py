"""One run of a verb: its own copy of the config, how many items it may touch, its folder, and how it reports progress.

@verb
def infer(job: Job) -> Path: ...

infer(config)             runs, and returns what the function returns
infer(config, trace=2)    runs on 2 items without leaving anything behind, and returns what was captured
"""

from __future__ import annotations

import logging
import secrets
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from sonde.capture.tape import reset_trace
from sonde.capture.trace import trace as start_trace
from sonde.errors import ConfigError, SettingError
from sonde.events import get_context, set_context
from sonde.pipeline import folder as folders
from sonde.pipeline.data.provider import DataProvider
from sonde.pipeline.progress import SILENT
from sonde.pipeline.tracing import limited, note
from sonde.pipeline.training import distributed
from sonde.pipeline.training.distributed import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from sonde.capture.result import TraceResult
    from sonde.pipeline.config import Config
    from sonde.pipeline.folder import RunFolder
    from sonde.pipeline.progress import Progress
    from sonde.pipeline.training.distributed import World

log = logging.getLogger("sonde.pipeline")


class Job:
    """One run of a verb."""

    def __init__(self, verb: str, config: Config, progress: Progress, items: int | None = None) -> None:
        self.verb = verb
        self.config = config
        self.progress = progress
        self.items = items  # trace=N: one batch of that many items; None: all of them

        if config["general"]["seed"] < 0:
            config["general"]["seed"] = secrets.randbits(31)  # the config that is saved says which it was
        self.seed: int = config["general"]["seed"]

    @property
    def traced(self) -> bool:
        """Is this a traced run, which leaves nothing behind?"""
        return self.items is not None

    def provider(self, group: str, *, augment: bool = True) -> DataProvider:
        """The data of a group."""
        made = DataProvider(self.config, group, augment=augment)
        log.info("%s of %s:\n%s", group, self.verb, made.describe())
        return made

    def indices(self, provider: DataProvider) -> range:
        """The items that this run visits, in order: all of them, or the first few."""
        count = len(provider)
        if self.items is not None and count < self.items:
            note(f"The group {provider.group} has only {count} of the {self.items} requested items.")
        return range(count if self.items is None else min(self.items, count))

    def number(self, table: str, key: str, least: int = 1) -> int:
        """A whole number of the config, which must be at least this."""
        found: int = self.config[table][key]
        if found < least:
            raise ConfigError(f"{table}.{key} is {found}. Give a whole number, at least {least}.")
        return found

    def say(self, line: str) -> None:
        """Tell the user."""
        log.info(line)
        self.progress.say(line)

    @contextmanager
    def folder(self, world: World = ALONE) -> Iterator[RunFolder | None]:
        """The folder of this run, for the time of the block; None for a traced run, and for ranks other than the first."""
        if self.traced or not world.first:
            yield None
            return
        with folders.running(self.config["general"]["results_dir"], self.verb, self.config) as made:
            yield made

    @contextmanager
    def together(self, device: torch.device) -> Iterator[World]:
        """The ranks that torchrun has started, for the time of a block: one seed for all, and the first reports progress."""
        with nullcontext(ALONE) if self.traced else distributed.joined(gpu=device.type == "cuda") as world:
            self.progress = self.progress if world.first else SILENT
            self.seed = distributed.gathered(self.seed, world)[0]
            yield world

    def begin(self) -> None:
        """The preparations are over: what a trace has captured of them is not part of the run."""
        if self.traced:
            reset_trace()


class Verb(Protocol):
    """A verb as the pipeline and the command line call it."""

    def __call__(
        self, config: Config, *, trace: int | None = None, progress: Progress = SILENT, **arguments: Any
    ) -> Any:
        """Run on a copy of the config. With `trace=N` on N items, with the TraceResult as the result."""


def verb(body: Callable[..., Any]) -> Verb:
    """Make a verb of a function that takes a Job."""
    name = body.__name__.replace("_", "-")

    @wraps(body)
    def run(config: Config, *, trace: int | None = None, progress: Progress = SILENT, **arguments: Any) -> Any:
        before = get_context()
        try:
            if trace is None or trace is False or (type(trace) is int and trace == 0):
                return body(Job(name, config.copy(), progress), **arguments)
            return _traced(name, body, config, trace, progress, arguments)
        finally:
            set_context(*(-1 if one is None else one for one in before))  # step and epoch were those of this run

    return run


def _traced(
    name: str, body: Callable[..., Any], config: Config, count: Any, progress: Progress, arguments: dict[str, Any]
) -> TraceResult:
    try:
        tracing = start_trace(items=count, automatic=False)
    except SettingError as error:  # before anything is made
        raise SettingError(str(error).replace("items is", "trace is", 1)) from None
    items = tracing.result.items
    assert items is not None
    with tracing as result:
        body(Job(name, limited(config.copy(), items), progress, items), **arguments)
    return result
