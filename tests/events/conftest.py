"""Each test here runs over every core that can be loaded, or over the one that SONDE_CORE names."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.events.harness import PLENTY, FolderHost, Process, process

from sonde import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODULES = {"c": "sonde.native.core", "python": "sonde.events.twin"}


def _cores() -> list[str]:
    wanted = os.environ.get("SONDE_CORE", "auto")
    if wanted in MODULES:
        return [wanted]
    return ["python"] if native.MISSING else list(MODULES)


@pytest.fixture(params=_cores(), scope="session")
def core_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def core(core_name: str) -> Iterator[Any]:
    """The core, not recording; a test that leaves it recording, or with a clock of its own, does no harm."""
    module: Any = importlib.import_module(MODULES[core_name])
    yield module
    module.end()
    module.task_mode(False)
    module.set_clock(None)
    module.set_context(-1, -1)


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    return FolderHost(tmp_path)


@pytest.fixture
def recording(core: Any, host: FolderHost) -> Any:
    """The core, recording into `host`."""
    core.begin(host, PLENTY)
    return core


@pytest.fixture
def done(core: Any, tmp_path: Path) -> Callable[[], Process]:
    """Ends the recording and reads it."""

    def read() -> Process:
        core.end()
        return process(tmp_path)

    return read


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(core: Any) -> Clock:
    fake = Clock()
    core.set_clock(fake)
    return fake
