"""Programs that train without a torch optimizer have steps too."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.integration.launching import run, script

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

HAND_WRITTEN = """
    import torch
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 1)
    for epoch in range(3):
        net.train()
        for _ in range(10):
            net.zero_grad()
            loss = torch.nn.functional.mse_loss(net(torch.randn(16, 8)), torch.zeros(16, 1))
            loss.backward()
            for weight in net.parameters():
                weight.data.add_(weight.grad, alpha=-0.1)
        net.eval()
        with torch.no_grad():
            net(torch.randn(64, 8))
"""

WITHOUT_A_MODEL = """
    import torch
    weight = torch.zeros(8, requires_grad=True)
    for _ in range(30):
        (torch.randn(16, 8) @ weight - 1).pow(2).mean().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad.zero_()
"""

KERAS = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import keras, numpy
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="adam")
    x, y = numpy.random.rand(400, 8), numpy.random.rand(400, 1)
    model.fit(x, y, batch_size=36, epochs=3, validation_split=0.1, verbose=0)
"""

STEPS = "select count(*), count(loss), count(forward_ns), count(backward_ns), count(optimizer_ns) from steps"


@pytest.mark.parametrize("program", [HAND_WRITTEN, WITHOUT_A_MODEL, KERAS], ids=["module", "tensors", "keras"])
def test_a_program_without_a_torch_optimizer_has_steps_and_a_verdict(programs: Programs, program: str) -> None:
    """A step ends at the last backward before the next training forward, and the card says so."""
    if program is KERAS and find_spec("keras") is None:
        pytest.skip("there is no Keras here")
    done = run(programs, str(script(programs.folder, program)))
    forwards = 0 if program is WITHOUT_A_MODEL else 30
    assert programs.rows(STEPS) == [(30, 30, forwards, 30, 0)]
    said = " ".join(done.stderr.split())
    assert "30 steps" in said
    assert "INSUFFICIENT_DATA" not in said
    assert "a step ends at the last backward before the next training forward" in said


def test_the_update_by_hand_is_no_wait_for_data(programs: Programs) -> None:
    """It lies between the backward pass and the next forward, where other programs wait."""
    run(programs, str(script(programs.folder, HAND_WRITTEN)))
    assert programs.rows("select count(input_wait_ns), count(residual_ns) from steps") == [(0, 30)]


def test_an_evaluation_belongs_to_the_step_after_it(programs: Programs) -> None:
    """As where an optimizer ends steps."""
    run(programs, str(script(programs.folder, HAND_WRITTEN)))
    assert programs.rows("select step from steps where evaluation_ns > 0 order by step") == [(10,), (20,)]


def test_an_optimizer_that_was_made_before_the_recording_ends_the_steps(programs: Programs) -> None:
    """Micro-batches before its first update are no steps."""
    program = """
        import torch
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        import sonde
        sonde.init()
        for batch in range(12):
            net(torch.ones(2, 4)).sum().backward()
            if batch % 4 == 3:
                optimizer.step()
    """
    programs.run(program)
    assert programs.rows("select count(*), min(micro_batches) from steps") == [(3, 4)]
