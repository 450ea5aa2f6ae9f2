"""trace=N for a program's own verbs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.flow.pipeline import loader, train

from sonde import flow
from sonde.errors import SettingError

pytestmark = pytest.mark.usefixtures("nothing_left")


class Program:
    """A program with verbs."""

    def __init__(self) -> None:
        self.config = {"epochs": 1}
        self.ran = 0

    @flow.trace_verb_data
    def train(self, epochs: int = 1) -> int:
        """Train."""
        self.ran += 1
        return len(train(loader(), epochs))

    def infer(self, trace: int | None = None) -> Any:
        """As the pattern is written by hand."""
        with flow.TraceContext(trace, self.config) as config:
            self.config = config
            value = len(train(loader(), self.config["epochs"]))
            return flow.get_trace() if trace else value


def test_with_trace_a_verb_returns_the_result() -> None:
    """Of one batch of that many items."""
    result = Program().train(trace=2)
    assert isinstance(result, flow.TraceResult)
    assert len(result.collate) == 1
    assert len(result.collate[0].samples) == 2


@pytest.mark.parametrize("off", [{}, {"trace": None}, {"trace": False}, {"trace": 0}])
def test_without_it_a_verb_runs_as_always(off: dict[str, Any]) -> None:
    """Nothing is traced, and its own value is returned."""
    assert Program().train(**off) == 7


@pytest.mark.parametrize("wrong", [True, -1, 2.5, "2"])
def test_a_wrong_count_is_refused_before_the_verb_runs(wrong: Any) -> None:
    """A clear error."""
    program = Program()
    with pytest.raises(SettingError, match="items"):
        program.train(trace=wrong)
    assert program.ran == 0


def test_the_pattern_by_hand() -> None:
    """The configuration is passed through as it is."""
    program = Program()
    assert program.infer() == 7
    assert len(program.infer(trace=3).collate[0].samples) == 3
    assert program.config == {"epochs": 1}


def test_the_verb_keeps_its_name() -> None:
    """And its text."""
    assert Program.train.__name__ == "train"
    assert Program.train.__doc__ == "Train."
