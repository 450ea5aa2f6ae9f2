"""Calls of modules: the outermost ones are told, and the program computes what it computed before."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


from tests.hooks.torch.told import Told, told  # noqa: E402

from sonde.hooks.torch import outermost  # noqa: E402
from sonde.hooks.torch.backward import backward  # noqa: E402
from sonde.hooks.torch.module import module_call  # noqa: E402

nn: Any = torch.nn
checkpoint: Any = pytest.importorskip("torch.utils.checkpoint").checkpoint

ORIGINAL = nn.Module.__call__


class Net(nn.Module):
    """A model with children, and an argument that is often given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, batch: Any, scale: float = 1.0) -> Any:
        """The usual."""
        return self.layers(batch) * scale


class Checkpointed(Net):
    """Computes its layers again in the backward pass."""

    reentrant = False

    def forward(self, batch: Any, scale: float = 1.0) -> Any:
        """The same, with less memory."""
        return checkpoint(self.layers, batch, use_reentrant=self.reentrant) * scale


class Failing(nn.Module):
    """Raises what it is given."""

    def forward(self, error: BaseException) -> None:
        """It fails."""
        raise error


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    assert nn.Module.__call__ is ORIGINAL


def test_outermost_calls_are_told_with_arguments_and_result() -> None:
    """The model and the loss, not the layers."""
    model, loss, batch = Net(), nn.MSELoss(), torch.ones(2, 4)
    with told(module_call) as (seen,):
        output = model(batch)
        loss(output, torch.zeros(2, 1))
    assert [call.of for call in seen.calls] == ["Net", "MSELoss"]
    assert seen.calls[0].args == (model, batch)
    assert seen.calls[0].result is output


def test_arguments_by_name_stay_arguments_by_name() -> None:
    """`model(batch=...)`."""
    model, batch = Net(), torch.ones(2, 4)
    with told(module_call) as (seen,):
        model(batch=batch, scale=2.0)
    assert seen.calls[0].args == (model,)
    assert seen.calls[0].kwargs == {"batch": batch, "scale": 2.0}


@pytest.mark.parametrize("error", [ValueError("theirs"), KeyboardInterrupt()])
def test_an_exception_passes_and_the_next_call_is_told(error: BaseException) -> None:
    """The same object; and the depth is right again."""
    with told(module_call) as (seen,):
        with pytest.raises(type(error)) as caught:
            nn.Sequential(Failing())(error)
        assert caught.value is error
        nn.ReLU()(torch.ones(1))
    assert [(call.of, call.error) for call in seen.calls] == [("Sequential", error), ("ReLU", None)]


def test_forward_called_directly_shows_the_children() -> None:
    """Nobody passes `__call__` of the model then."""
    with told(module_call) as (seen,):
        Net().forward(torch.ones(2, 4))
    assert [call.of for call in seen.calls] == ["Sequential"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_modules_called_again_inside_backward_are_not_told(reentrant: bool) -> None:
    """Activation checkpointing; and its own backward pass inside the other is not told either."""
    model = Checkpointed()
    model.reentrant = reentrant
    with told(module_call, backward) as (calls, passes):
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert [call.of for call in calls.calls] == ["Checkpointed"]
    assert passes.begun == 1


def test_a_thread_in_backward_does_not_silence_the_others() -> None:
    """Each thread has its own outermost call, also while another one is inside of its own."""
    inside, done = threading.Event(), threading.Event()

    def wait(gradient: Any) -> None:
        inside.set()
        assert done.wait(30)

    def other() -> None:
        assert inside.wait(30)
        nn.Sequential(nn.ReLU())(torch.ones(1))
        done.set()

    with told(module_call) as (seen,):
        thread = threading.Thread(target=other)
        thread.start()
        output = Net()(torch.ones(2, 4))
        output.register_hook(wait)
        output.sum().backward()
        thread.join()
    assert [call.of for call in seen.calls] == ["Net", "Sequential"]


def test_two_threads_inside_their_models_at_once() -> None:
    """Neither takes the other for its outer call."""
    barrier = threading.Barrier(2, timeout=30)

    class Meeting(nn.Module):
        def forward(self, batch: Any) -> Any:
            barrier.wait()
            return nn.functional.relu(batch)

    with told(module_call) as (seen,):
        threads = [threading.Thread(target=nn.Sequential(Meeting()), args=(torch.ones(1),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [call.of for call in seen.calls] == ["Sequential", "Sequential"]


# ── what others do with models ───────────────────────────────────────────────────────────────────────────────────────


def test_models_are_copied_and_saved_without_a_trace_of_us() -> None:
    """A checkpoint made meanwhile loads without Sonde."""
    model = Net()
    file = io.BytesIO()
    with told(module_call):
        model(torch.ones(2, 4))
        twin = copy.deepcopy(model)
        data = pickle.dumps(model)
        torch.save(model, file)
    assert b"sonde" not in data + file.getvalue()
    again = pickle.loads(data)
    assert torch.equal(again(torch.ones(2, 4)), twin(torch.ones(2, 4)))
    assert set(vars(model)) == set(vars(Net()))


class Graphs:
    """A backend of torch.compile that counts the graphs."""

    def __init__(self) -> None:
        self.count = 0
        self.operations: list[int] = []

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.count += 1
        self.operations.append(len(list(graph.graph.nodes)))
        return graph.forward


@pytest.fixture
def graphs() -> Any:
    """A counting backend, on a compiler that remembers nothing."""
    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("inside", [False, True], ids=["compiled-before", "compiled-inside"])
def test_compiled_models_are_told_and_stay_one_graph(inside: bool, graphs: Graphs) -> None:
    """The compiler sees the same operations as without us, and compiles again at most once, when we have left."""
    model, batch = Net(), torch.ones(2, 4)
    plain_graphs = Graphs()
    expected = torch.compile(model, backend=plain_graphs, fullgraph=True)(batch)
    torch._dynamo.reset()
    compiled = None if inside else torch.compile(model, backend=graphs, fullgraph=True)
    with told(module_call) as (seen,):
        compiled = torch.compile(model, backend=graphs, fullgraph=True) if compiled is None else compiled
        results = [compiled(batch) for _ in range(3)]
    assert graphs.operations == plain_graphs.operations
    for _ in range(3):
        leave = module_call.subscribe(Told())
        results.append(compiled(batch))
        leave()
        results.append(compiled(batch))
    assert [call.of for call in seen.calls] == ["OptimizedModule"] * 3
    assert all(torch.equal(result, expected) for result in results)
    assert graphs.count <= 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_was_compiled_before_is_not_compiled_again(graphs: Graphs) -> None:
    """However often we come and go."""
    compiled, batch = torch.compile(Net(), backend=graphs, fullgraph=True), torch.ones(2, 4)
    compiled(batch)
    for _ in range(10):
        with told(module_call) as (seen,):
            compiled(batch)
        compiled(batch)
        assert seen.begun == 1
    assert graphs.count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_older_compiler_reads_a_function(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.10 it fails on any other object in the place of `Module.__call__`."""
    monkeypatch.setattr(outermost, "reads_objects", lambda: False)
    model, batch = Net(), torch.ones(2, 4)
    with told(module_call) as (seen,):
        assert isinstance(nn.Module.__call__, FunctionType)
        torch.compile(model, backend=graphs, fullgraph=True)(batch)
        model(batch)
    assert [call.of for call in seen.calls] == ["OptimizedModule", "Net"]
    assert graphs.count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_that_calls_a_model(graphs: Graphs) -> None:
    """The call is inside of the graph, and not seen."""
    model, batch = Net(), torch.ones(2, 4)

    def plus_one(batch: Any) -> Any:
        return model(batch) + 1

    step = torch.compile(plus_one, backend=graphs, fullgraph=True)

    with told(module_call) as (seen,):
        results = [step(batch) for _ in range(3)]
    assert graphs.count == 1
    assert seen.begun == 0
    assert torch.equal(results[0], model(batch) + 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_on_the_model_itself(graphs: Graphs) -> None:
    """`model.compile()` keeps its class."""
    model = Net()
    model.compile(backend=graphs, fullgraph=True)
    with told(module_call) as (seen,):
        for _ in range(3):
            model(torch.ones(2, 4))
    assert [call.of for call in seen.calls] == ["Net"] * 3
    assert graphs.count == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler")
def test_the_real_compiler_gives_the_same_numbers() -> None:
    """Through inductor."""
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.GELU(), nn.Tanh()), torch.randn(2, 4)
    results = []
    for subscribed in (False, True):
        torch._dynamo.reset()
        with told(module_call) if subscribed else nullcontext(), torch.no_grad():
            compiled = torch.compile(model, fullgraph=True)
            results += [compiled(batch), compiled(batch)]
    torch._dynamo.reset()
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_tracing_and_scripting_work() -> None:
    """torch.jit and torch.fx read models too."""
    model, batch = Net().layers, torch.ones(2, 4)
    expected = model(batch)
    with told(module_call):
        made = [torch.jit.trace(model, batch), torch.jit.script(model), torch.fx.symbolic_trace(model)]
        assert all(torch.equal(one(batch), expected) for one in made)
    assert all(torch.equal(one(batch), expected) for one in made)


def test_functional_calls_and_transforms_work() -> None:
    """torch.func runs models with other parameters."""
    model, batch = Net(), torch.ones(2, 4)
    parameters = dict(model.named_parameters())

    def loss(parameters: Any) -> Any:
        return torch.func.functional_call(model, parameters, (batch,)).sum()

    expected = torch.func.grad(loss)(parameters)
    with told(module_call) as (seen,):
        found = torch.func.grad(loss)(parameters)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [call.of for call in seen.calls] == ["Net"]


RANK = """
import os, sys, time, torch
from torch.nn.parallel import DistributedDataParallel
from sonde.hooks.torch.module import module_call
rank, meeting = int(sys.argv[1]), sys.argv[2]
class Told(list):
    def before(self, args, kwargs): return type(args[0]).__name__
    def after(self, name, result, error): self.append(name)
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
for subscribed in (False, True):
    told = Told()
    leave = module_call.subscribe(told) if subscribed else lambda: None
    model.zero_grad()
    for step in range(3):
        model(torch.full((1, 2), float(rank + 1))).sum().backward()
    leave()
    print(told, [parameter.grad.tolist() for parameter in model.parameters()], flush=True)
# Together and at once: gloo's threads may abort a rank that takes its group down while the other one leaves.
open(f"{meeting}.{rank}", "w").close()
while not all(os.path.exists(f"{meeting}.{other}") for other in range(2)):
    time.sleep(0.01)
os._exit(0)
"""


def test_a_distributed_model_is_one_call_per_step(tmp_path: Path) -> None:
    """Two ranks; the gradients are the same with and without us."""
    command = [sys.executable, "-W", "ignore", "-c", RANK]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=120)[0].splitlines() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0]
    for plain, seen in (lines[-2:] for lines in outputs):  # Gloo in torch 2.10 prints lines of its own before
        assert seen == f"{['DistributedDataParallel'] * 3}{plain.removeprefix('[]')}"
