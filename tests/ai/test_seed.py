"""Every snippet of the AI/ML tracing guide, top to bottom, with only its import changed; each asserts what was recorded.

Where a snippet leaves names undefined or could not run, the lines above it supply them. The snippets that start the
logger (1, 10) and the two outputs in DFTracer's format (26, 27) are in `tests/compat/test_seed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sonde import ai
from sonde.ai.vocabulary import TABLE

if TYPE_CHECKING:
    from tests.ai.conftest import Recording


MS = 1_000_000


class Loss:
    """Stands in for a loss tensor: its backward takes a while."""

    def backward(self) -> None:
        sleep(0.002)


class Model:
    """Stands in for a network."""

    def __call__(self, x: Any) -> Any:
        sleep(0.002)
        return x

    def state_dict(self) -> dict[str, int]:
        return {"weight": 1}


def test_02_a_decorated_method_records_each_read(recording: Recording, tmp_path: Path) -> None:
    """Snippet 2, tracing data loading: the read is an event of data, the write is none."""

    class IOHandler:
        @ai.data.item
        def read(self, filename: str) -> Any:
            return np.load(filename)

        def write(self, filename: str, data: Any) -> None:
            with open(filename, "wb") as f:
                np.save(f, data)

    io = IOHandler()
    io.write(str(tmp_path / "data.npy"), np.arange(3))
    data = io.read(str(tmp_path / "data.npy"))
    assert data.tolist() == [0, 1, 2]
    assert recording.shape() == [("data", "item", None)]
    assert recording.one("item").dur_ns > 0
    assert recording.one("item").args == {}


def test_03_a_generator_is_recorded_for_its_life_and_its_batches_by_iter(recording: Recording) -> None:
    """Snippet 3, dataloader integration: one fetch over all batches, an iter and a block for each of them."""

    class IOHandler:
        @ai.data.item
        def read(self, filename: str) -> str:
            sleep(0.001)
            return filename

    io = IOHandler()

    @ai.dataloader.fetch
    def read_batch(data_dir: str, num_files: int) -> Iterator[str]:
        for i in range(num_files):
            yield io.read(f"{data_dir}/{i}.npy")

    # Iterate over batches with tracing
    seen = []
    for step, data in ai.dataloader.fetch.iter(enumerate(read_batch("/data", 100))):
        seen.append((step, data))

    assert seen == [(i, f"/data/{i}.npy") for i in range(100)]
    assert recording.counts() == {"fetch": 1, "item": 100, "fetch.iter": 100, "fetch.block": 100}
    assert [event.key for event in recording.named("fetch.iter")] == list(range(1, 101))
    assert [event.key for event in recording.named("fetch.block")] == list(range(1, 101))
    assert recording.parents("item") == {"fetch"}
    assert recording.one("fetch").dur_ns >= 100 * MS
    assert all(event.dur_ns >= MS for event in recording.named("fetch.iter"))


def test_04_derived_profilers_name_their_functions(recording: Recording) -> None:
    """Snippet 4, data preprocessing: derive gives preprocess.collate and preprocess.augment."""
    raw_data = [1, 2]

    @ai.data.preprocess.derive(name="collate")
    def collate(data: list[int]) -> list[int]:
        # Collate batch data
        return data

    @ai.data.preprocess.derive(name="augment")
    def augment(data: list[int]) -> list[int]:
        # Apply data augmentation
        return data

    # Use in your pipeline
    processed_data = collate(raw_data)
    augmented_data = augment(processed_data)
    assert augmented_data is raw_data
    assert recording.shape() == [("data", "preprocess.collate", None), ("data", "preprocess.augment", None)]


def test_05_a_transfer_is_recorded(recording: Recording) -> None:
    """Snippet 5, device operations: a decorated function gives one event and its result back."""
    cpu_data = object()

    @ai.device.transfer
    def transfer_to_gpu(data: object) -> object:
        # Transfer data to GPU
        # In real code: return data.cuda()
        return data

    # Traced transfer
    gpu_data = transfer_to_gpu(cpu_data)
    assert gpu_data is cpu_data
    assert recording.shape() == [("device", "transfer", None)]


def test_06_forward_and_backward_are_recorded(recording: Recording) -> None:
    """Snippet 6, compute operations: a forward and a backward, one after the other, as long as they took."""
    model, batch, labels = Model(), 1, 1

    def criterion(output: Any, labels: Any) -> Loss:
        return Loss()

    @ai.compute.forward
    def forward(model: Model, data: int) -> int:
        return int(model(data))

    @ai.compute.backward
    def backward(loss: Loss) -> None:
        loss.backward()

    # Use in training loop
    output = forward(model, batch)
    loss = criterion(output, labels)
    backward(loss)
    assert recording.shape() == [("compute", "forward", None), ("compute", "backward", None)]
    assert recording.one("forward").dur_ns >= 2 * MS
    assert recording.one("backward").dur_ns >= 2 * MS
    assert recording.one("backward").start_ns >= recording.one("forward").end_ns


def test_07_start_and_stop_from_two_methods_are_one_step(recording: Recording) -> None:
    """Snippet 7, optimization steps: what lies between start and stop is inside the step."""

    class Hook:
        def before_step(self) -> None:
            ai.compute.step.start()

        def after_step(self) -> None:
            ai.compute.step.stop()

    hook = Hook()

    # In training loop
    hook.before_step()
    # ... forward, backward, optimizer.step()
    with ai.compute.forward:
        sleep(0.002)
    hook.after_step()
    assert recording.shape() == [("compute", "step", None), ("compute", "forward", "step")]
    assert recording.one("step").dur_ns >= recording.one("forward").dur_ns >= 2 * MS


def test_08_communication_is_a_child_of_the_backward_and_can_be_left_out(recording: Recording) -> None:
    """Snippet 8, distributed training: the all_reduce lies in the backward; with enable=False there is none."""
    loss = Loss()

    @ai.compute.backward
    def backward_with_sync() -> None:
        loss.backward()
        # Trace distributed communication
        with ai.comm.all_reduce():
            # All-reduce gradients
            pass

    backward_with_sync()
    # Can also disable tracing for specific operations
    with ai.comm.all_reduce(enable=False):
        # This won't be traced
        pass
    assert recording.shape() == [("compute", "backward", None), ("comm", "all_reduce", "backward")]


def test_09_a_checkpoint_class_records_its_constructor_and_its_methods(recording: Recording) -> None:
    """Snippet 9, model checkpoints: checkpoint.init, restart and capture, in the order of the calls."""
    model = Model()

    class Checkpoint:
        @ai.checkpoint.init
        def __init__(self) -> None:
            # Initialize checkpoint system
            pass

        @ai.checkpoint.capture
        def save(self, state: Any) -> Any:
            # Save model checkpoint
            return state

        @ai.checkpoint.restart
        def load(self, checkpoint_path: str) -> dict[str, Any]:
            # Load model checkpoint
            return {}

    checkpoint = Checkpoint()
    assert checkpoint.load("checkpoint.pt") == {}
    # ... training ...
    assert checkpoint.save({"model": model.state_dict()}) == {"model": {"weight": 1}}
    assert recording.shape() == [
        ("checkpoint", "checkpoint.init", None),
        ("checkpoint", "restart", None),
        ("checkpoint", "capture", None),
    ]


def test_11_metadata_marks_stand_around_each_epoch(recording: Recording) -> None:
    """Snippet 11, metadata and custom tags: a start and an end mark for each epoch, no span; steps and epochs are set."""
    num_epochs, num_steps = 2, 3

    # Start/stop epochs with metadata logging
    for epoch in range(num_epochs):
        ai.pipeline.epoch.start(metadata=True)

        # Training code
        for step in range(num_steps):
            ai.update(step=step, epoch=epoch)
            # ... training code ...
            with ai.compute.step:
                pass

        ai.pipeline.epoch.stop(metadata=True)

    assert recording.counts() == {"epoch.start": 2, "epoch.end": 2, "step": 6}
    assert all(event.kind == "mark" and event.cat == "pipeline" for event in recording.named("epoch.start"))
    assert [(event.epoch, event.step) for event in recording.named("step")] == [
        (epoch, step) for epoch in range(2) for step in range(3)
    ]


def test_12_a_custom_category(recording: Recording) -> None:
    """Snippet 12, custom categories: its events carry the epoch and the step that it was made with."""
    from sonde.compat.dftracer import DFTracerAI

    # Create custom AI tracer
    custom_tracer = DFTracerAI(cat="custom_category", name="my_operation", epoch=1, step=100, enable=True)
    with custom_tracer:
        pass
    assert recording.shape() == [("custom_category", "my_operation", None)]
    assert recording.one("my_operation").args == {"epoch": 1, "step": 100}


def test_13_disabling_everything_or_single_categories(recording: Recording) -> None:
    """Snippet 13, disabling specific categories: after each call exactly the named ones are silent."""
    nodes = (
        ai.data.item,
        ai.dataloader.fetch,
        ai.device.transfer,
        ai.compute.forward,
        ai.comm.send,
        ai.checkpoint.capture,
    )

    def everything() -> list[str]:
        before = len(recording.events)
        for node in nodes:
            with node:
                pass
        return [event.name for event in recording.events[before:]]

    # Disable all AI tracing
    ai.disable()
    assert everything() == []
    ai.enable()
    assert everything() == ["item", "fetch", "transfer", "forward", "send", "capture"]

    # Or disable specific categories
    ai.dataloader.disable()
    assert everything() == ["item", "transfer", "forward", "send", "capture"]
    ai.device.disable()
    ai.compute.disable()
    ai.comm.disable()
    ai.checkpoint.disable()
    assert everything() == ["item"]


CONVENTIONS = {
    "compute": "forward backward step",
    "data": "preprocess item",
    "dataloader": "fetch",
    "comm": "send receive barrier bcast reduce all_reduce gather all_gather scatter reduce_scatter all_to_all",
    "device": "transfer",
    "checkpoint": "capture restart",
    "pipeline": "epoch train evaluate test",
}


@pytest.mark.parametrize(("cat", "name"), [(cat, name) for cat, names in CONVENTIONS.items() for name in names.split()])
def test_14_each_access_path_of_the_conventions_records_its_event(recording: Recording, cat: str, name: str) -> None:
    """Table 14, the logging conventions: `ai.<category>.<name>` records `name` with that category."""
    with getattr(getattr(ai, cat), name):
        pass
    assert recording.shape() == [(cat, name, None)]


def test_14_the_table_holds_all_conventions() -> None:
    """Table 14: nothing of the guide is missing from the vocabulary."""
    rows = {(row.cat, row.name) for row in TABLE}
    assert {(cat, name) for cat, names in CONVENTIONS.items() for name in names.split()} <= rows


def test_15_a_decorator_without_arguments(recording: Recording) -> None:
    """Snippet 15: the event has the profiler's name and no arguments."""

    @ai.compute.forward
    def forward(model: Model, x: int) -> Any:
        loss = model(x)
        return loss

    assert forward(Model(), x=3) == 3
    assert recording.shape() == [("compute", "forward", None)]
    assert recording.one("forward").args == {}


def test_16_a_decorator_with_arguments(recording: Recording) -> None:
    """Snippet 16: the arguments are on each event of this function and on no other."""

    @ai.compute.forward(args={"arg1": "value1", "arg2": "value2"})
    def forward(model: Model, x: int) -> Any:
        loss = model(x)
        return loss

    assert forward(Model(), 3) == 3
    assert forward(Model(), 4) == 4
    with ai.compute.forward:
        pass
    both = {"arg1": "value1", "arg2": "value2"}
    assert [event.args for event in recording.named("forward")] == [both, both, {}]


def test_17_a_context_manager_without_arguments(recording: Recording) -> None:
    """Snippet 17: the block is one event."""
    model, x = Model(), 1
    with ai.compute.forward:
        loss = model(x)
    assert loss == 1
    assert recording.shape() == [("compute", "forward", None)]
    assert recording.one("forward").dur_ns >= 2 * MS


def test_18_a_context_manager_with_arguments(recording: Recording) -> None:
    """Snippet 18: the arguments are on this event and on no later one."""
    model, x = Model(), 1
    with ai.compute.forward(args={"arg1": "value1", "arg2": "value2"}):
        loss = model(x)
    with ai.compute.forward:
        pass
    assert loss == 1
    assert [event.args for event in recording.named("forward")] == [{"arg1": "value1", "arg2": "value2"}, {}]


def test_19_a_wrapped_iterable(recording: Recording) -> None:
    """Snippet 19: for each batch the wait for it and the use of it, with a count from 1."""

    def slow() -> Iterator[int]:
        for i in range(3):
            sleep(0.002)
            yield i

    dataloader = slow()
    for batch in ai.dataloader.fetch.iter(dataloader):
        # Process batch
        sleep(0.001 * batch)
    assert recording.counts() == {"fetch.iter": 3, "fetch.block": 3}
    assert [event.key for event in recording.named("fetch.iter")] == [1, 2, 3]
    assert all(event.dur_ns >= 2 * MS for event in recording.named("fetch.iter"))
    assert recording.named("fetch.block")[2].dur_ns >= 2 * MS
    assert {event.cat for event in recording.events} == {"dataloader"}


def test_20_a_constructor(recording: Recording) -> None:
    """Snippet 20, constructor hooking: `item.init`, and the object is made as ever."""

    class MyDataset:
        @ai.data.item.init  # special `init` event for this category
        def __init__(self, *names: str) -> None:
            # Initialization logic
            self.names = names

    assert MyDataset("a", "b").names == ("a", "b")
    assert recording.shape() == [("data", "item.init", None)]


def test_21_updated_epoch_and_step_are_on_the_events_that_follow(recording: Recording) -> None:
    """Snippet 21, updating arguments: each forward has the epoch and step of its turn."""
    model, num_epochs, dataloader = Model(), 2, ["a", "b", "c"]

    @ai.compute.forward
    def forward(model: Model, x: str) -> Any:
        loss = model(x)
        return loss

    for epoch in ai.pipeline.epoch.iter(range(num_epochs)):
        for step, batch in ai.dataloader.fetch.iter(enumerate(dataloader)):
            # Update metadata for the current context
            ai.compute.forward.update(epoch=epoch, step=step)
            forward(model, batch)

    assert [(event.epoch, event.step) for event in recording.named("forward")] == [
        (epoch, step) for epoch in range(2) for step in range(3)
    ]
    assert recording.counts() == {
        "epoch.iter": 2,
        "epoch.block": 2,
        "fetch.iter": 6,
        "fetch.block": 6,
        "forward": 6,
    }
    assert recording.parents("forward") == {"fetch.block"}
    assert recording.parents("fetch.block") == {"epoch.block"}
    assert recording.parents("fetch.iter") == {"epoch.block"}


def test_22_single_events_are_forced_on_and_off(recording: Recording) -> None:
    """Snippet 22, force enable or disable: the override wins over the state of the category, both ways."""
    model, x, loss = Model(), 1, Loss()
    ai.compute.disable()  # Disable all compute events

    @ai.compute.forward(enable=True)  # Force-enable this specific event
    def forward(model: Model, x: int) -> Any:
        loss = model(x)
        return loss

    forward(model, x)
    with ai.compute.backward(enable=True):  # Force-enable this block
        loss.backward()
    with ai.compute.backward:
        loss.backward()
    assert recording.counts() == {"forward": 1, "backward": 1}

    ai.compute.enable()  # Enable all compute events

    @ai.compute.forward(enable=False)  # Force-disable this one
    def silent(model: Model, x: int) -> Any:
        loss = model(x)
        return loss

    silent(model, x)
    assert recording.counts() == {"forward": 1, "backward": 1}
    forward(model, x)
    assert recording.counts() == {"forward": 2, "backward": 1}


def test_23_a_session_hook(recording: Recording) -> None:
    """Snippet 23, hook style: an epoch from begin to end, a compute for each run inside it, with the global step."""

    class SessionRunHook:
        """Stands in for `tf.train.SessionRunHook`."""

    class training_util:  # noqa: N801  a module, in the guide
        """Stands in for TensorFlow's module of that name."""

        @staticmethod
        def _get_or_create_global_step_read() -> str:
            return "global_step"

    class Session:
        """Stands in for a session that runs tensors."""

        step = 41

        @property
        def session(self) -> Session:
            return self

        def run(self, tensor: str) -> int:
            self.step += 1
            return self.step

    class DFTracerProfilingHook(SessionRunHook):
        def begin(self) -> None:
            self._global_step_tensor = training_util._get_or_create_global_step_read()
            if self._global_step_tensor is None:
                raise RuntimeError("Global step should be created.")
            ai.pipeline.epoch.start()

        def end(self, session: Any) -> None:
            ai.pipeline.epoch.stop()

        def before_run(self, run_context: Any) -> None:
            global_step = run_context.session.run(self._global_step_tensor)
            ai.update(step=global_step)
            ai.compute.start()

        def after_run(self, run_context: Any, run_values: Any) -> None:
            ai.compute.stop()

    hook, context = DFTracerProfilingHook(), Session()
    hook.begin()
    for _ in range(3):
        hook.before_run(context)
        hook.after_run(context, None)
    hook.end(context)
    assert recording.shape() == [("pipeline", "epoch", None)] + [("compute", "compute", "epoch")] * 3
    assert [event.step for event in recording.named("compute")] == [42, 43, 44]


def test_24_derivation(recording: Recording) -> None:
    """Snippet 24: a derived profiler is the same object each time, and its parent's update reaches it."""
    epoch = 7

    class Dataset:
        def __getitem__(self, idx: int) -> int:
            data = idx
            with ai.data.preprocess:
                # Process data
                pass
            return data

    # This becomes name="preprocess.collate" with cat="data"
    @ai.data.preprocess.derive(name="collate")
    def collate(batch: list[int]) -> list[int]:
        return batch

    # Or (context-manager style)
    profiler_collate = ai.data.preprocess.derive(name="collate")

    def collate_fn(batch: list[int]) -> list[int]:
        with profiler_collate:
            return collate(batch)

    assert collate_fn([Dataset()[0]]) == [0]
    # Update derived profiler
    profiler_collate.update(epoch=epoch)
    collate([])

    # This also updates all children of ai.data.preprocess
    ai.data.preprocess.update(epoch=epoch + 1)
    collate([])
    assert recording.shape() == [
        ("data", "preprocess", None),
        ("data", "preprocess.collate", None),
        ("data", "preprocess.collate", "preprocess.collate"),
        ("data", "preprocess.collate", None),
        ("data", "preprocess.collate", None),
    ]
    assert [event.epoch for event in recording.named("preprocess.collate")] == [None, None, 7, 8]


def test_25_regular_and_metadata_mode(recording: Recording) -> None:
    """Snippet 25, metadata / streaming style: spans in the one, marks in the other."""
    num_epochs, num_steps = 2, 2
    # Regular mode
    for _epoch in ai.pipeline.epoch.iter(range(num_epochs)):
        for _step in range(num_steps):
            # Do work
            pass
    assert recording.counts() == {"epoch.iter": 2, "epoch.block": 2}

    # Metadata mode
    for _epoch in range(num_epochs):
        ai.pipeline.epoch.start(metadata=True)
        for _step in range(num_steps):
            # Do work
            pass
        ai.pipeline.epoch.stop(metadata=True)
    assert recording.counts() == {"epoch.iter": 2, "epoch.block": 2, "epoch.start": 2, "epoch.end": 2}


def test_28_init_as_decorator_and_as_context(recording: Recording) -> None:
    """Snippet 28, init events: both ways record `checkpoint.init`."""

    class Checkpoint:
        @ai.checkpoint.init
        def __init__(self) -> None:
            # Initialize something
            pass

    Checkpoint()
    # Or
    with ai.checkpoint.init:
        # Initialize something
        sleep(0.002)
    assert recording.shape() == [("checkpoint", "checkpoint.init", None)] * 2
    assert recording.events[1].dur_ns >= 2 * MS


def test_29_disable_after_a_definition_without_parentheses(recording: Recording) -> None:
    """Snippet 29, call ordering: the switch counts at the call."""

    class Checkpoint:
        @ai.checkpoint.init  # Instance tracked internally
        def __init__(self) -> None:
            pass

    ai.checkpoint.disable()  # Disables all checkpoint events
    Checkpoint()
    assert recording.events == []


def test_30_disable_after_a_definition_with_parentheses(recording: Recording) -> None:
    """Snippet 30, which does not work in DFTracer: here the switch counts at the call as well."""

    class Checkpoint:
        @ai.checkpoint.init()  # Parentheses make no difference
        def __init__(self) -> None:
            pass

    ai.checkpoint.disable()
    Checkpoint()
    assert recording.events == []
    ai.checkpoint.enable()
    Checkpoint()
    assert recording.shape() == [("checkpoint", "checkpoint.init", None)]
