"""What the launcher sees of the processes of a program."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from sonde.launch import sampler


def test_the_memory_of_a_process_is_what_the_kernel_tells() -> None:
    """One that runs has some."""
    assert sampler._memory(psutil.Process(os.getpid())) > 1_000_000


def test_a_process_that_has_given_its_memory_back_is_gone_and_does_not_have_none() -> None:
    """While it ends, the kernel tells 0 bytes of a process that still runs: missing, not zero."""
    ending = cast("Any", SimpleNamespace(pid=7, memory_info=lambda: SimpleNamespace(rss=0)))
    with pytest.raises(sampler.GONE):
        sampler._memory(ending)
