"""The snippets of the AI/ML tracing guide that start the logger, and the outputs that it shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.compat.conftest import Program


def spans(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((line for line in lines if line["ph"] == "X"), key=lambda line: int(line["id"]))


def test_01_basic_setup(program: Program, tmp_path: Path) -> None:
    """Snippet 1: with DFTRACER_ENABLE=1 the file is there after finalize, with what was recorded in between."""
    lines = program(
        """
        from sonde.compat.dftracer import dftracer, ai
        import numpy as np

        # Initialize logger
        df_logger = dftracer.initialize_log("ai_trace.pfw", "/tmp/data", -1)

        # Your AI/ML code here
        with ai.compute.forward:
            np.zeros(3)

        # Finalize when done
        df_logger.finalize()
        """,
        pfw="ai_trace.pfw",
    )
    (event,) = spans(lines)
    assert (event["name"], event["cat"]) == ("forward", "compute")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ai_trace.pfw", "program.py", "sonde-runs"]


def test_01_without_the_switch_there_is_nothing(program: Program, tmp_path: Path) -> None:
    """Snippet 1 without DFTRACER_ENABLE: the program runs, and leaves no file."""
    program(
        """
        from sonde.compat.dftracer import dftracer, ai
        df_logger = dftracer.initialize_log("ai_trace.pfw", "/tmp/data", -1)
        with ai.compute.forward:
            pass
        df_logger.finalize()
        """,
        DFTRACER_ENABLE="0",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


TRAINING = """
    from sonde.compat.dftracer import dftracer, ai
    import numpy as np

    # What the guide leaves to the reader
    model, loss = object(), object()
    load_batch = ai.data.item(lambda step: step)
    transfer = ai.device.transfer(lambda batch: batch)
    forward = ai.compute.forward(lambda model, batch: batch)
    backward = ai.compute.backward(lambda loss: None)

    # Initialize logger
    df_logger = dftracer.initialize_log("training.pfw", "/tmp/data", -1)

    @ai.pipeline.train
    def train(num_epochs, num_batches):
        # Training loop with epoch tracing
        for epoch in ai.pipeline.epoch.iter(range(num_epochs)):
            for step, data in ai.dataloader.fetch.iter(enumerate(range(num_batches))):
                # Update current step and epoch
                ai.update(step=step, epoch=epoch)

                # Data loading
                batch = load_batch(step)

                # Transfer to device
                batch = transfer(batch)

                # Forward pass
                output = forward(model, batch)

                # Backward pass
                backward(loss)

    train(num_epochs=5, num_batches=100)
    df_logger.finalize()
"""


def test_10_the_complete_training_loop(program: Program) -> None:
    """Snippet 10 (with the missing `enumerate`): every event, with its parent, epoch, step and count."""
    found = spans(program(TRAINING, pfw="training.pfw"))
    assert Counter(event["name"] for event in found) == {
        "train": 1,
        "epoch.iter": 5,
        "epoch.block": 5,
        "fetch.iter": 500,
        "fetch.block": 500,
        "item": 500,
        "transfer": 500,
        "forward": 500,
        "backward": 500,
    }
    names = {event["id"]: event["name"] for event in found}
    parents = {(event["name"], names.get(event["args"]["p_idx"])) for event in found}
    assert parents == {
        ("train", None),
        ("epoch.iter", "train"),
        ("epoch.block", "train"),
        ("fetch.iter", "epoch.block"),
        ("fetch.block", "epoch.block"),
        ("item", "fetch.block"),
        ("transfer", "fetch.block"),
        ("forward", "fetch.block"),
        ("backward", "fetch.block"),
    }
    forwards = [(event["args"]["epoch"], event["args"]["step"]) for event in found if event["name"] == "forward"]
    assert forwards == [(epoch, step) for epoch in range(5) for step in range(100)]
    counts = [int(event["args"]["count"]) for event in found if event["name"] == "fetch.iter"]
    assert counts == [*range(1, 101)] * 5
    train = found[0]
    assert all(
        train["ts"] <= event["ts"] and event["ts"] + event["dur"] <= train["ts"] + train["dur"] for event in found
    )


MODES = """
    from time import sleep
    from sonde.compat.dftracer import dftracer, ai
    num_epochs, num_steps = 1, 2
    df_logger = dftracer.initialize_log("trace.pfw", "/tmp/data", -1)

    # Regular mode
    for epoch in ai.pipeline.epoch.iter(range(num_epochs)):
        for step in range(num_steps):
            # Do work
            sleep(0.001)

    # Metadata mode
    for epoch in range(num_epochs):
        ai.pipeline.epoch.start(metadata=True)
        for step in range(num_steps):
            # Do work
            pass
        ai.pipeline.epoch.stop(metadata=True)

    class Checkpoint:
        @ai.checkpoint.init
        def __init__(self):
            # Initialize something
            sleep(0.001)

    Checkpoint()
    df_logger.finalize()
"""


def test_26_the_output_of_the_regular_mode(program: Program) -> None:
    """Output 26: `epoch.block` as the guide shows it, field by field."""
    (block,) = [line for line in program(MODES) if line["name"] == "epoch.block"]
    assert set(block) == {"id", "name", "cat", "pid", "tid", "ts", "dur", "ph", "args"}
    assert (block["cat"], block["ph"]) == ("pipeline", "X")
    assert block["dur"] >= 2000
    assert {key: block["args"][key] for key in ("p_idx", "count", "level")} == {"p_idx": 0, "count": "1", "level": 1}
    assert len(block["args"]["hhash"]) == 16


def test_27_the_output_of_the_metadata_mode(program: Program) -> None:
    """Output 27: `epoch.start` and `epoch.end` as metadata lines, with the time in microseconds as their value."""
    marks = [line for line in program(MODES) if line["name"] == "CM"]
    assert [(line["cat"], line["ph"], line["args"]["name"]) for line in marks] == [
        ("dftracer", "M", "epoch.start"),
        ("dftracer", "M", "epoch.end"),
    ]
    start, end = (int(line["args"]["value"]) for line in marks)
    assert 1_700_000_000_000_000 < start <= end


def test_28_the_output_of_an_init_event(program: Program) -> None:
    """Output 28: `checkpoint.init` of the category checkpoint, as long as the constructor took."""
    (init,) = [line for line in program(MODES) if line["name"] == "checkpoint.init"]
    assert (init["cat"], init["ph"]) == ("checkpoint", "X")
    assert init["dur"] >= 1000
