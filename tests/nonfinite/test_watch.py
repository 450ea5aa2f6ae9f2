"""The watch: every fault is found where it was made, with the items that carry it; and it is quiet where all is well."""

from __future__ import annotations

import copy
import io
import logging
from collections import UserDict
from typing import Any

import pytest
import torch
from tests.flow import faults
from tests.flow.faults import After, Between, InPlace, Items, Log, Pair, Root, RootLayer, Twice, birth, train
from torch import nn
from torch.utils.data import DataLoader, default_collate

import sonde
from sonde.analysis.postmortem.blackbox import black_box
from sonde.errors import NonFinite, SettingError, WrapRefused
from sonde.flow import watch_nonfinite
from sonde.nonfinite import check
from sonde.nonfinite.certificate import sentence
from sonde.nonfinite.watch import NonFiniteWatch
from sonde.store.probe import read_batch_key
from sonde.testing import Recorded, record
from sonde.views.blackbox import blackbox

pytestmark = [
    pytest.mark.usefixtures("watch_ended"),
    pytest.mark.skipif(check.native is None, reason="the C part was not built"),
]
functional: Any = nn.functional
script: Any = torch.jit.script
trace: Any = torch.jit.trace


@pytest.fixture
def watch() -> NonFiniteWatch:
    """A watch of all models, in no run."""
    return watch_nonfinite()


def marks(recorded: Recorded) -> list[dict[str, Any]]:
    """The certificates in a run."""
    return [event["args"] for event in recorded.events if event["cat"] == "nonfinite" and event["args"]]


def indices(facts: dict[str, Any]) -> list[Any]:
    """The items that are named."""
    return [item["index"] for item in facts["items"]]


# ── the data ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2])
def test_a_nan_in_one_pixel_is_of_the_dataset(workers: int) -> None:
    """The item is named, and that the dataset gave it, also by a worker."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with record(watch_nonfinite="record") as recorded:
        train(net, Items(13), shuffle=True, num_workers=workers)
    (facts,) = marks(recorded)
    assert (facts["where"], facts["stage"], facts["producer"], facts["before"]) == ("data", "dataset", True, "0")
    assert indices(facts) == [13]
    assert (facts["kind"], facts["count"], facts["total"], facts["items_total"]) == ("nan", 1, 32, 1)
    assert not list(recorded.path.glob(".nonfinite*"))


def test_a_nan_in_a_label_is_of_the_dataset_too() -> None:
    """The layers are fine, and what went into the loss was not."""
    with record(watch_nonfinite="record") as recorded:
        train(nn.Linear(4, 2), Items(20, label=True))
    (facts,) = marks(recorded)
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", "dataset", [20])


def test_a_collate_function_can_make_it() -> None:
    """Items were finite, and the batch was not."""

    def collate(samples: list[Any]) -> Any:
        images, targets = torch.utils.data.default_collate(samples)
        images[3] /= 0
        return images, targets

    with record(watch_nonfinite="record") as recorded:
        train(nn.Linear(4, 2), collate_fn=collate)
    (facts,) = marks(recorded)
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", "collate", [3])


@pytest.mark.parametrize(("box", "stage"), [(faults.Boxed, "dataset"), (faults.Closed, "loader")])
def test_a_batch_may_be_an_object(box: Any, stage: str) -> None:
    """A dataclass is looked into; of any other object nobody says that it left the loader finite."""
    net = nn.Linear(4, 2)
    with record(watch_nonfinite="record") as recorded:
        for batch in DataLoader(Items(bad=13), batch_size=8, collate_fn=lambda items: box(*default_collate(items))):
            functional.mse_loss(net(batch.image), batch.target).backward()
    facts = marks(recorded)[0]
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", stage, [13])


def test_the_loop_can_make_it() -> None:
    """The batch was finite when it left the loader, and not when it came to the model."""
    net: Any = nn.Linear(4, 2)
    with record(watch_nonfinite="record") as recorded:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for image, target in torch.utils.data.DataLoader(Items(), batch_size=8):
            image[5] = torch.log(image[5] - 100)
            functional.mse_loss(net(image), target).backward()
            optimizer.step()
    (facts,) = marks(recorded)
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", "loop", [5])
    assert facts["code"].startswith("test_watch.py:")


@pytest.mark.parametrize("box", [0, 3])
def test_a_loop_that_fetches_ahead_uses_the_batch_before(box: int) -> None:
    """As that of accelerate does: the batch that came last is not the one that is at fault."""
    with record(watch_nonfinite="record", blackbox=box) as recorded:
        faults.train_ahead(nn.Linear(4, 2), Items(bad=13))
    (facts,) = marks(recorded)
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", "dataset", [13])
    assert read_batch_key(facts["batch"]).number == 1


@pytest.mark.parametrize("box", [0, 3])
def test_what_a_layer_makes_in_such_a_loop_is_told_of_the_batch_that_it_was_given(box: int) -> None:
    """The last batches are known by their tensors."""
    with record(watch_nonfinite="record", blackbox=box) as recorded:
        faults.train_ahead(nn.Sequential(Log(), nn.Linear(4, 2)), faults.Negative())
    (facts,) = marks(recorded)
    assert (facts["where"], facts["layer"], indices(facts)) == ("forward", "0", [13])


def test_variables_that_read_what_they_give_are_left_alone() -> None:
    """As a file that looks like a dictionary does."""

    class File(UserDict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("nobody may read all of it")

    file, net = File(), nn.Sequential(nn.Linear(4, 4), RootLayer(), nn.Linear(4, 2))
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        for image, _ in DataLoader(Items(), batch_size=8):
            net(image).mean().backward()
    assert not file
    assert [facts["where"] for facts in marks(recorded)] == ["backward"]


def test_of_two_loaders_the_one_that_gave_it_is_meant() -> None:
    """The batch of the other one came later."""
    net = nn.Linear(4, 2)
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        loaders: Any = [DataLoader(Items(bad), batch_size=8, shuffle=True) for bad in (13, None)]
        for (image, target), (other, _) in zip(*loaders, strict=True):
            functional.mse_loss(net(image), target + net(other) * 0).backward()
    facts = marks(recorded)[0]
    assert (facts["where"], facts["stage"], indices(facts)) == ("data", "dataset", [13])


def test_an_item_is_told_where_the_loop_has_spread_it() -> None:
    """A mean over the batch makes NaN of all of it; the black box holds what the loader gave."""
    net = nn.Linear(4, 2)
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        for image, target in DataLoader(Items(bad=13), batch_size=8):
            functional.mse_loss(net((image - image.mean()) / image.std()), target).backward()
    assert indices(marks(recorded)[0]) == [13]


def test_numbers_are_those_of_the_innermost_dataset() -> None:
    """Of a subset, items have the numbers of the dataset that it is of."""
    with record(watch_nonfinite="record") as recorded:
        train(nn.Linear(4, 2), torch.utils.data.Subset(Items(30), range(16, 32)))
    (facts,) = marks(recorded)
    assert (indices(facts), facts["items"][0]["position"], facts["batch"] is not None) == ([30], 6, True)


# ── forwards ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_layer_in_the_middle_is_the_producer(watch: NonFiniteWatch) -> None:
    """Its inputs were finite, and are described."""
    train(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Log(), nn.Linear(4, 2)))
    facts = birth(watch)
    assert (facts["where"], facts["producer"], facts["layer"], facts["type"], facts["op"]) == (
        "forward", True, "2", "Log", "log",
    )  # fmt: skip
    (given,) = facts["inputs"]
    assert (given["shape"], given["finite"], given["min"] < 0) == ([8, 4], True, True)
    assert facts["inputs_known"]
    assert {item["index"] for item in facts["items"]} == {None}  # no run, no loader is followed


def test_infinity_after_log_is_born_there(watch: NonFiniteWatch) -> None:
    """log(0) is an infinity, of which a loss comes that is not finite."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Threshold(1e9, 0.0), Log(), nn.Linear(4, 2))
    train(net)
    facts = birth(watch)
    assert (facts["layer"], facts["type"], facts["kind"], facts["op"]) == ("3", "Log", "inf", "log")


def test_code_between_two_layers_is_named(watch: NonFiniteWatch) -> None:
    """The layers before and after it, the module that it is of, the operation, the line."""
    train(Between())
    facts = birth(watch)
    assert (facts["layer"], facts["after"], facts["before"], facts["op"]) == ("Between", "first", "second", "log")
    assert facts["producer"]
    assert facts["code"].startswith("faults.py:")
    assert facts["inputs"][0]["finite"]


def test_a_mask_is_blamed_for_what_it_fills_in(watch: NonFiniteWatch) -> None:
    """And not the product before it, which was finite."""
    train(faults.Masked())
    facts = birth(watch)
    assert (facts["kind"], facts["before"], facts["op"]) == ("inf", "soft", "masked_fill")


@pytest.mark.parametrize("dropout", [True, False])
def test_attention_to_nothing_is_made_by_its_softmax(dropout: bool) -> None:
    """Neither by the product before it, nor by the mask, nor by those that pass it on; and the line is one after it."""
    with record(watch_nonfinite="record") as recorded:
        train(faults.Attention(dropout), faults.Negative())
    facts = marks(recorded)[0]
    assert (facts["after"], facts["before"], facts["op"]) == ("mixed", "drop" if dropout else "last", "softmax")
    assert indices(facts) == [13]
    assert f", before {facts['code']}" in sentence(facts)


def test_a_quotient_by_zero_before_the_softmax_is_blamed(watch: NonFiniteWatch) -> None:
    """It was asked again."""
    train(faults.Attention(True, divided=0.0))
    assert birth(watch)["op"] == "div"


def test_an_exponential_is_blamed_for_what_others_make_of_its_infinities(watch: NonFiniteWatch) -> None:
    """And not the quotient, whose inputs were not finite."""
    train(faults.Exponential())
    assert (birth(watch)["op"], birth(watch)["kind"]) == ("exp", "nan")


def test_code_before_a_layer_that_only_uses_it_later_is_found(watch: NonFiniteWatch) -> None:
    """Other layers were called in between."""
    train(faults.Earlier())
    assert (birth(watch)["before"], birth(watch)["op"]) == ("second", "sqrt")


def test_an_operation_that_can_only_be_guessed_is_said_to_be_one(watch: NonFiniteWatch) -> None:
    """Two of them could have made it, and both have kept nothing."""
    function: Any = torch.autograd.Function

    class Log(function):
        @staticmethod
        def forward(_context: Any, given: Any) -> Any:
            return torch.log(given)

        @staticmethod
        def backward(_context: Any, gradient: Any) -> Any:
            return gradient

    class Exp(Log):
        pass

    class Net(Between):
        def forward(self, value: Any) -> Any:
            return self.second(Exp.apply(Log.apply(self.first(value) - 1e3) + 1))

    train(Net())
    assert birth(watch)["op"] == "perhaps exp"


def test_code_between_two_models_is_no_data() -> None:
    """Also where another backward pass lies between it and the model before."""
    first, second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(second.parameters(), lr=1e-3)
    with record(watch_nonfinite="record") as recorded:
        for image, target in DataLoader(Items(), batch_size=8):
            hidden = first(image)
            functional.mse_loss(second(hidden.detach()), target).backward()
            optimizer.step()
            functional.mse_loss(second(torch.sqrt(hidden - 1e3)), target).backward()
    facts = marks(recorded)[0]
    assert (facts["where"], facts["layer"], facts["before"], facts["op"]) == ("forward", None, "Sequential", "sqrt")


def test_code_after_the_last_layer_is_named(watch: NonFiniteWatch) -> None:
    """It is seen when the module that it is of has ended."""
    train(After())
    facts = birth(watch)
    assert (facts["layer"], facts["after"], facts["before"], facts["op"]) == ("After", "second", None, "sqrt")


def test_code_before_the_first_layer_is_named(watch: NonFiniteWatch) -> None:
    """The input of the model was finite, that of its first layer was not."""

    class Before(Between):
        def forward(self, value: Any) -> Any:
            return self.first(torch.log(value - 100))

    train(Before(), loss=lambda given, _: given.sum())
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["after"], facts["before"]) == ("forward", "Before", None, "first")


@pytest.mark.parametrize("place", ["weight", "running_var"])
def test_a_layer_whose_parameter_was_not_finite_already_says_so(watch: NonFiniteWatch, place: str) -> None:
    """Its inputs were finite: it is the producer, and no item of the batch is to be blamed."""
    layer: Any = nn.BatchNorm1d(4).eval()
    getattr(layer, place).data[2] = float("nan")
    nn.Sequential(nn.Linear(4, 4), layer)(torch.ones(3, 4))
    facts = birth(watch)
    assert (facts["layer"], facts["producer"], facts["parameters"], facts["items"]) == ("1", True, [place], [])
    assert f"but `{place}` of the layer was already non-finite" in repr(watch)


def test_a_row_of_single_numbers_names_its_items(watch: NonFiniteWatch) -> None:
    """One number for each item of a batch, in a tuple."""

    class Scores(faults.Module):
        def forward(self, value: Any) -> Any:
            return value, torch.log(value.sum(1))

    with record() as recorded:
        watch_nonfinite()
        rows: Any = torch.tensor([[1.0, 2.0], [3.0, 1.0], [-1.0, 0.0]])
        for values in torch.utils.data.DataLoader(rows, batch_size=3):
            Scores()(values)
    (facts,) = marks(recorded)
    assert (facts["layer"], facts["shape"], indices(facts)) == ("Scores", [3], [2])
    assert facts["code"].endswith("Scores.forward")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_result_is_told(watch: NonFiniteWatch, layout: str) -> None:
    """What it holds is counted; its rows are not told apart."""

    class Sparse(faults.Module):
        def forward(self, value: Any) -> Any:
            return getattr(torch.log(value), layout)()

    Sparse()(torch.tensor([[1.0, -1.0], [2.0, 3.0]]).to(torch.float64))
    facts = birth(watch)
    assert (facts["layer"], facts["count"], facts["items"]) == ("Sparse", 1, [])


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn, torch.bool, torch.complex64], ids=str)
def test_inputs_of_every_dtype_are_described(watch: NonFiniteWatch, dtype: Any) -> None:
    """Not each can be asked for its least value."""

    class Two(faults.Module):
        def forward(self, value: Any, other: Any) -> Any:
            return torch.log(value)

    Two()(torch.full((4, 2), -1.0), torch.ones(4).to(dtype))
    assert birth(watch)["inputs"][1]["max"] == (None if dtype in (torch.bool, torch.complex64) else 1)


@pytest.mark.parametrize("mapping", [False, True])
def test_tuples_and_dicts_are_looked_into(watch: NonFiniteWatch, mapping: bool) -> None:
    """A bad tensor in what a layer gives is found, however deep."""

    class Net(faults.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.pair = nn.Linear(4, 2), Pair(mapping)

        def forward(self, value: Any) -> Any:
            given = self.pair(self.first(value))
            return given["mean"] if mapping else given[0]

    train(Net())
    facts = watch.unused or {}  # the model leaves it out
    assert (facts["layer"], facts["type"], facts["kind"]) == ("pair", "Pair", "nan")


def test_an_in_place_module_is_the_producer(watch: NonFiniteWatch) -> None:
    """Its input is gone, and was finite when the layer before gave it."""
    train(nn.Sequential(nn.Linear(4, 4), InPlace(), nn.Linear(4, 2)))
    facts = birth(watch)
    assert (facts["layer"], facts["producer"], facts["inputs_known"]) == ("1", True, True)
    assert [one["max"] for one in facts["inputs"]] == [None]


def test_an_in_place_module_behind_other_code_may_be_none(watch: NonFiniteWatch) -> None:
    """Nobody saw its input: that is said."""

    class Net(Between):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, value: Any) -> Any:
            return self.second(self.act(torch.log(self.first(value) - 1e3)))

    train(Net())
    facts = birth(watch)
    assert (facts["layer"], facts["producer"], facts["inputs_known"], facts["op"]) == ("act", False, False, "log")


def test_a_module_used_twice_is_told_by_its_inputs(watch: NonFiniteWatch) -> None:
    """The call whose inputs were finite is the one; its numbers are those of that call."""
    train(Twice())
    facts = birth(watch)
    assert (facts["layer"], facts["producer"], facts["inputs"][0]["max"] < 0.0) == ("log", True, True)


def test_numbers_of_inputs_are_values() -> None:
    """They are not told where the setting says that values stay out of the run."""
    with record(watch_nonfinite="record", values="off") as recorded:
        train(nn.Sequential(nn.Linear(4, 4), Log(), nn.Linear(4, 2)))
    ((given,),) = (facts["inputs"] for facts in marks(recorded))
    assert (given["shape"], given["finite"], given["min"], given["max"], given["mean"]) == (
        [8, 4],
        True,
        None,
        None,
        None,
    )


def test_a_dataclass_is_looked_into(watch: NonFiniteWatch) -> None:
    """As what a layer gives."""
    train(faults.Taking(), faults.Negative())
    facts = birth(watch)
    assert (facts["layer"], facts["producer"]) == ("made", True)


def test_a_keyword_argument_is_named(watch: NonFiniteWatch) -> None:
    """Inputs have the names that they were given by."""
    layer = Log()
    layer(value=torch.full((4, 2), -1.0))
    assert [one["name"] for one in birth(watch)["inputs"]] == ["value"]


def test_evaluation_is_said(watch: NonFiniteWatch) -> None:
    """Without gradients it was an evaluation."""
    with torch.no_grad():
        nn.Sequential(nn.Linear(4, 4), Log())(torch.full((3, 4), -5.0) * 1e4)
    assert birth(watch)["evaluation"]


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["index", "twice", "select", "flip", "same", "features", "data"])
def test_an_item_is_told_where_the_model_puts_rows_into_another_order(how: str) -> None:
    """By the indices that autograd has kept; before the first layer by the batch itself."""
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        train(faults.Ordered(how), faults.Negative())
    assert indices(marks(recorded)[0]) == [13]


@pytest.mark.parametrize("how", ["mixed", "sort", "part", "write"])
def test_no_item_is_named_where_rows_were_moved_and_nobody_knows_how(how: str) -> None:
    """A wrong one would be worse."""
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        train(faults.Ordered(how), faults.Negative())
    assert (marks(recorded)[0]["kind"], indices(marks(recorded)[0])) == ("nan", [])


def test_a_gradient_of_rows_in_another_order_names_no_item() -> None:
    """What is known of it is only that the order was changed somewhere."""

    class Net(Between):
        def forward(self, value: Any) -> Any:
            hidden = self.first(value)[torch.arange(7, -1, -1)]
            return self.second(RootLayer()(hidden))

    with record(watch_nonfinite="record", blackbox=3) as recorded:
        train(Net())
    assert (marks(recorded)[0]["where"], indices(marks(recorded)[0])) == ("backward", [])


@pytest.mark.skipif(
    torch.__version__ < "2.10", reason="before torch 2.10, a node does not say that a checkpoint keeps for it"
)
@pytest.mark.parametrize("order", [False, True])
def test_a_checkpoint_computes_nothing_again_to_be_asked(watch: NonFiniteWatch, order: bool) -> None:
    """What it would have to compute is not known."""
    counted = []

    class Counted(Log):
        def forward(self, value: Any) -> Any:
            counted.append(1)
            return value * 2.0

    class Net(Between):
        def forward(self, value: Any) -> Any:
            hidden = torch.utils.checkpoint.checkpoint(nn.Sequential(Counted(), self.first), value, use_reentrant=False)
            return self.second(torch.log((hidden.flip(0) if order else hidden) - 1e3))

    train(Net())
    assert (birth(watch)["op"], birth(watch)["items_total"]) == ("log", 8)
    assert len(counted) == 2 * 4


def test_numbers_of_a_token_are_no_items() -> None:
    """Though there are as many of them as items."""
    with record(watch_nonfinite="record") as recorded:
        train(faults.Tokens(), faults.Negative())
    facts = marks(recorded)[0]
    assert (facts["shape"], facts["op"], indices(facts)) == ([24, 8], "log", [])


# ── loss and gradients ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_loss_by_a_module_is_a_loss(watch: NonFiniteWatch) -> None:
    """All layers were fine."""
    train(nn.Linear(4, 2), loss=nn.PoissonNLLLoss(log_input=False, eps=0.0))
    assert (birth(watch)["where"], birth(watch)["layer"]) == ("loss", "PoissonNLLLoss")


def test_the_mean_of_nothing_is_told(watch: NonFiniteWatch) -> None:
    """As where no value of a batch has a label."""
    train(nn.Linear(4, 2), loss=lambda made, wanted: ((made - wanted)[wanted > 5] ** 2).mean())
    facts = birth(watch)
    assert (facts["where"], facts["op"]) == ("loss", "mean")


def test_a_loss_by_functions_is_told_by_its_operation(watch: NonFiniteWatch) -> None:
    """The operation, and the items for which it went wrong."""
    net: Any = nn.Linear(4, 2)
    nn.init.zeros_(net.weight)
    values = torch.ones(8, 2)
    values[3, 1] = -1.0
    loss: Any = torch.log(net(torch.ones(8, 4)) * 0 + values).mean()
    loss.backward()
    facts = birth(watch)
    assert (facts["where"], facts["op"], facts["after"]) == ("loss", "log", "Linear")
    assert [item["position"] for item in facts["items"]] == [3]


@pytest.mark.parametrize("net", [Root, lambda: nn.Sequential(nn.Linear(4, 4), RootLayer(), nn.Linear(4, 2))])
def test_a_fault_only_in_backward_is_located(watch: NonFiniteWatch, net: Any) -> None:
    """The gradient of a root of zero: in code between layers, or in a layer."""
    train(net())
    facts = birth(watch)
    assert (facts["where"], facts["producer"], facts["op"]) == ("backward", True, "sqrt")
    if facts["layer"] is None:
        assert (facts["after"], facts["before"]) == ("first", "second")
    else:
        assert (facts["layer"], facts["type"]) == ("1", "RootLayer")


def test_a_gradient_of_autograd_grad_is_told_when_the_update_has_used_it() -> None:
    """One batch later, with the place and the batch of the gradient; not the layer whose parameters it has spoilt."""
    net = nn.Sequential(nn.Linear(4, 4), RootLayer(), nn.Linear(4, 2))
    weights = list(net.parameters())
    with record(watch_nonfinite="record") as recorded:
        for image, target in DataLoader(Items(), batch_size=8):
            slopes = torch.autograd.grad(functional.mse_loss(net(image), target), weights)
            with torch.no_grad():
                for weight, slope in zip(weights, slopes, strict=True):
                    weight.sub_(slope, alpha=0.1)
    (facts,) = marks(recorded)
    assert (facts["where"], facts["layer"], facts["parameters"]) == ("backward", "1", [])
    assert read_batch_key(facts["batch"]).number == 0


def test_a_checkpoint_is_blamed_for_what_it_computes_again(watch: NonFiniteWatch) -> None:
    """And not the layer behind it: the layers in it have no place among the others."""
    train(faults.Checkpointed(RootLayer()))
    facts = birth(watch)
    assert (facts["where"], facts["after"], facts["before"], facts["op"]) == (
        "backward",
        "first",
        "last",
        "checkpoint_function",
    )


def test_the_forward_pass_of_a_checkpoint_is_no_evaluation(watch: NonFiniteWatch) -> None:
    """Though it runs without gradients."""
    train(faults.Checkpointed(Log()))
    assert (birth(watch)["layer"], birth(watch)["evaluation"]) == ("body.1", False)


@pytest.mark.parametrize("net", [faults.Beside, faults.BesideLater])
def test_code_beside_a_layer_is_blamed_and_not_the_layer(watch: NonFiniteWatch, net: Any) -> None:
    """The gradient of what goes into both is the sum of two, and those of the layer's parameters are finite."""
    train(net())
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["op"]) == ("backward", None, "sqrt")


def test_a_layer_of_torch_without_parameters_is_located_in_backward(watch: NonFiniteWatch) -> None:
    """Between others that make nothing by themselves; and the pass, which runs without gradients, is no evaluation."""
    leaky = nn.LeakyReLU(1e38)
    net: Any = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), leaky, nn.MaxPool1d(2), nn.Linear(2, 2))
    for one in (net[0], net[4]):
        nn.init.zeros_(one.bias)
    nn.init.constant_(net[0].weight, -1e-5)
    nn.init.constant_(net[4].weight, 100.0)
    net(torch.ones(3, 4)).sum().backward()
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["type"]) == ("backward", "2", "LeakyReLU")
    assert not facts["evaluation"]


class _NanInBackward(torch.autograd.Function):
    """As ReLU, though the gradient of item 3 is NaN."""

    @staticmethod
    def forward(_context: Any, values: Any) -> Any:
        return values.clamp(min=0)

    @staticmethod
    def backward(_context: Any, *gradients: Any) -> Any:
        gradient = gradients[0].clone()
        gradient[3] = float("nan")
        return gradient


@pytest.mark.parametrize("where", range(5))
def test_a_fault_in_the_backward_pass_of_a_transformer_is_located(watch: NonFiniteWatch, where: int) -> None:
    """In each of its layers, with the item, though not every gradient between its sums is looked at."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
    net: Any = nn.TransformerEncoder(layer, 5, enable_nested_tensor=False)
    net.layers[where].activation = _NanInBackward.apply
    net(torch.randn(6, 4, 8)).sum().backward()
    facts = birth(watch)
    assert (facts["where"], facts["producer"]) == ("backward", True)
    assert (facts["after"], facts["before"]) == (f"layers.{where}.linear1", f"layers.{where}.dropout")
    assert [item["position"] for item in facts["items"]] == [3]


def test_a_gradient_that_is_sparse_is_told(watch: NonFiniteWatch) -> None:
    """Of an embedding, with the layer."""
    net: Any = nn.Embedding(10, 3, sparse=True)
    nn.init.zeros_(net.weight)
    net(torch.tensor([1, 4])).pow(2).sum(1).sqrt().sum().backward()
    facts = birth(watch)
    assert (facts["where"], facts["after"], facts["kind"]) == ("backward", "Embedding", "nan")


def test_the_norm_of_zero_in_a_loss_is_located(watch: NonFiniteWatch) -> None:
    """Between the last layer and the loss."""
    net: Any = nn.Linear(4, 2)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    net(torch.ones(3, 4)).pow(2).sum(1).sqrt().mean().backward()
    facts = birth(watch)
    assert (facts["where"], facts["after"], facts["before"], facts["op"]) == ("backward", "Linear", None, "sqrt")


def test_a_parameter_alone_is_found(watch: NonFiniteWatch) -> None:
    """One that no layer uses, whose gradient is not finite."""

    class Net(Between):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(1))

        def forward(self, value: Any) -> Any:
            return self.second(self.first(value)) + self.scale.sqrt()

    train(Net())
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["kind"]) == ("gradient", "Net", "inf")


# ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stop_raises_at_the_place() -> None:
    """In the forward call, before anything is made of it; the error carries the certificate."""
    net = Between()
    expected = pytest.raises(NonFinite, match=r"code between `first` and `second` in `Between` \(log")
    with expected as raised, watch_nonfinite(net, action="stop"):
        train(net)
    assert raised.value.certificate["op"] == "log"
    assert all(torch.isfinite(one).all() for one in net.parameters())


def test_the_sentence_says_no_more_than_is_known() -> None:
    """Of inputs that nobody has kept not that they were finite, of others also the least."""
    with watch_nonfinite() as watch:
        train(faults.Masked())
    assert "; inputs unknown. " in str(watch)
    with watch_nonfinite() as watch:
        train(nn.Sequential(nn.Linear(4, 4), Log(), nn.Linear(4, 2)))
    assert "; inputs finite, min -" in str(watch)


def test_stop_raises_out_of_backward() -> None:
    """Before the update."""
    net = Root()
    with pytest.raises(NonFinite, match="the backward pass"), watch_nonfinite(net, action="stop"):
        train(net)
    assert all(torch.isfinite(one).all() for one in net.parameters())


def test_warn_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """One sentence through the logger."""
    with caplog.at_level(logging.WARNING, "sonde"), watch_nonfinite(action="warn"):
        train(Between())
    assert [text.startswith("First NaN:") for text in caplog.messages] == [True]


def test_after_the_first_birth_losses_are_counted(watch: NonFiniteWatch) -> None:
    """There is one certificate, and a count of what came after."""
    train(Between(), epochs=2)
    assert watch.later == 7
    assert "Between" in repr(watch)


@pytest.mark.parametrize(
    ("net", "loss"),
    [
        (lambda: nn.Sequential(Log(), nn.Linear(4, 2)), nn.MSELoss()),  # of a layer whose input has no graph
        (lambda: nn.Sequential(nn.Linear(4, 4), Log(), nn.Linear(4, 2)), nn.MSELoss()),
        (lambda: faults.Frozen(False), nn.MSELoss()),
        (lambda: faults.Frozen(True), nn.MSELoss()),
        (lambda: nn.Linear(4, 2), faults.LogLoss()),  # by a module of torch for losses
        (lambda: nn.Linear(4, 2), lambda given, wanted: torch.log(given - 1e3).mean() + wanted.mean()),
        (lambda: nn.Linear(4, 2), lambda given, wanted: (given / 0).mean() + wanted.mean()),
        (lambda: nn.Sequential(nn.Linear(4, 4), faults.Infinite()), lambda given, _: given.mean()),
    ],
)
def test_the_loss_of_the_birth_is_none_of_those_after_it(net: Any, loss: Any) -> None:
    """Four batches, and all losses from that of the birth on are not finite."""
    with record(watch_nonfinite="record") as recorded:
        watch = watch_nonfinite()
        train(net(), faults.Negative(every=True), loss=loss)
        assert watch.later == 3
    assert len(marks(recorded)) == 1


def test_another_training_is_watched_again() -> None:
    """A second model that trains well for a while is judged anew."""
    with record(watch_nonfinite="record") as recorded:
        train(Between())
        second: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        train(second)
        second[1].weight.data.fill_(float("inf"))
        train(second)
    assert [facts["layer"] for facts in marks(recorded)] == ["Between", "1"]


def test_only_the_model_that_was_named_is_watched() -> None:
    """Others may do as they like."""
    net = nn.Linear(4, 2)
    with watch_nonfinite(net) as watch:
        Log()(torch.full((3,), -1.0))
        assert watch.birth is None
        net(torch.full((3, 4), float("nan")))
        assert watch.birth is not None


def test_wrong_arguments_are_refused() -> None:
    """With the valid ones."""
    with pytest.raises(SettingError, match="Did you mean 'stop'"):
        watch_nonfinite(action="stopp")
    with pytest.raises(WrapRefused, match="not list"):
        watch_nonfinite([])


# ── infinities ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_infinity_that_comes_to_nothing_is_forgiven(watch: NonFiniteWatch) -> None:
    """A layer that makes a mask of infinities is healthy; after some of them it is asked no more."""

    class Mask(faults.Module):
        def forward(self, value: Any) -> Any:
            return value.masked_fill(torch.ones_like(value).triu(1).bool(), float("-inf"))

    net = nn.Sequential(nn.Linear(4, 4), Mask(), nn.Softmax(dim=-1), nn.Linear(4, 2))
    train(net, epochs=3)
    assert watch.birth is None
    assert watch.forgiven == 3


class Side(faults.Module):
    """`log` gives NaN, which is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.log, self.last = nn.Linear(4, 4), Log(), nn.Linear(4, 2)
        self.apart = True  # no gradient goes through it
        self.left_out = True

    def forward(self, value: Any) -> Any:
        value = self.first(value)
        side = self.log(-(value.detach() if self.apart else value).abs() - 1)
        return self.last(torch.where(torch.full_like(value, self.left_out).bool(), value, side))


def fit(net: Any, until: int = 4, skipping: bool = False) -> None:
    """Train with some batches, with what is left out used from one of them on; `skipping` losses that are not finite."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for number, (image, target) in enumerate(DataLoader(Items(), batch_size=8)):
        net.left_out = number < until
        optimizer.zero_grad()
        loss = functional.mse_loss(net(image), target)
        if not skipping or torch.isfinite(loss):
            loss.backward()
            optimizer.step()


def test_a_nan_that_nobody_uses_is_taken_back() -> None:
    """Once the backward pass has ended well there is neither a birth nor a dump, but a note where it was."""
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        fit(Side())
        with sonde.open_run(recorded.path) as run:
            found = black_box(run)
            page = blackbox(run, found)
    assert (found.births, found.dumps, found.later) == ([], [], 0)
    (birth,) = found.unused
    assert (birth.certificate.layer, birth.certificate.step, birth.certificate.batch_number) == ("log", 0, 0)
    (note,) = page.notes
    assert note.startswith(
        "NaN in 32 of 32 values (8 x 4, float32) that never reached the loss or a gradient: layer `log`"
    )


def test_a_nan_is_a_birth_until_its_backward_pass_has_ended_well(watch: NonFiniteWatch) -> None:
    """A process that is killed in between leaves the certificate."""
    net = Side()
    loss = net(torch.ones(3, 4)).sum()
    assert birth(watch)["layer"] == "log"
    loss.backward()
    assert watch.birth is None


def test_a_nan_that_reaches_only_gradients_stands(watch: NonFiniteWatch) -> None:
    """As through `where`, where NaN comes of zero and NaN: the certificate is that of the layer that made it."""

    class SquareRoot(faults.Module):
        def forward(self, value: Any) -> Any:
            return torch.sqrt(value)

    net = Side()
    net.apart, net.log = False, SquareRoot()
    fit(net)
    facts = birth(watch)
    assert (facts["where"], facts["layer"]) == ("forward", "log")


def test_a_nan_that_is_used_after_others_that_were_not_is_found() -> None:
    """The watch goes on after what was taken back; there is one dump, of the true one."""
    with record(watch_nonfinite="record", blackbox=3) as recorded:
        fit(Side(), until=2)
        with sonde.open_run(recorded.path) as run:
            found = black_box(run)
    (birth,) = found.births
    assert (birth.certificate.layer, birth.certificate.step) == ("log", 2)
    assert [dump.name for dump in found.dumps] == [birth.dump]


def test_a_nan_whose_loss_the_program_skips_stands() -> None:
    """The next backward pass ends well, but is of another forward; there is no loader here by which to tell them apart."""
    first = nn.Linear(4, 4)
    net, data = nn.Sequential(first, Log()), torch.ones(3, 4)
    with watch_nonfinite(net) as watch:
        for number in range(3):
            with torch.no_grad():
                first.bias.fill_(-100.0 if number == 0 else 100.0)
            loss = net(data).sum()
            if torch.isfinite(loss):
                loss.backward()
        facts = birth(watch)
    assert (facts["layer"], watch.unused) == ("1", None)


def test_gradients_of_a_scaler_are_its_own_business(watch: NonFiniteWatch) -> None:
    """It finds the overflow, and skips the update."""
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for image, target in torch.utils.data.DataLoader(Items(), batch_size=8):
        optimizer.zero_grad()
        scaler.scale(functional.mse_loss(net(image * 100), target)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert watch.birth is None
    assert watch.forgiven >= 1
    assert all(torch.isfinite(one).all() for one in net.parameters())


def test_gradients_that_no_scale_makes_finite_are_an_alarm(watch: NonFiniteWatch) -> None:
    """The scaler skips every update, and lowers its scale without end."""
    net = Root()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(2):
        scaler.scale(net(torch.ones(8, 4)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert watch.birth is None
    scaler.scale(net(torch.ones(8, 4)).mean()).backward()
    assert (birth(watch)["where"], birth(watch)["op"], birth(watch)["scaled"]) == ("backward", "sqrt", True)


def test_the_forward_pass_of_a_scaled_training_is_not_its_business(watch: NonFiniteWatch) -> None:
    """A NaN there is an alarm."""
    scaler: Any = torch.amp.GradScaler("cpu")
    scaler.scale(Between()(torch.ones(8, 4)).sum()).backward()
    assert birth(watch)["layer"] == "Between"


# ── the model is left alone ──────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_the_same_to_the_bit() -> None:
    """With and without the watch."""

    def net() -> Any:
        torch.manual_seed(3)
        parts = [nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Flatten()]
        return nn.Sequential(nn.Unflatten(1, (1, 4)), *parts, nn.Linear(16, 2))

    bare = train(net(), epochs=3)
    with watch_nonfinite():
        watched = train(net(), epochs=3)
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))


def test_copies_and_files_of_a_model_know_nothing_of_it(watch: NonFiniteWatch) -> None:
    """deepcopy, save and load in the middle of a training; and tensors have no hooks."""
    net = nn.Sequential(nn.Linear(4, 4), Log(), nn.Linear(4, 2))
    given = net(torch.ones(2, 4))
    assert given._backward_hooks is None
    twin = copy.deepcopy(net)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    for one in (*net.modules(), *twin.modules(), *again.modules()):
        assert not one._forward_hooks
        assert not one._backward_hooks
        assert "__call__" not in vars(one)


def test_a_compiled_part_is_reported_as_not_visible() -> None:
    """What it gives as a whole is looked at, and the run says that its layers are not."""
    net = Between()
    with record(watch_nonfinite="record") as recorded:
        compiled = torch.compile(net, backend="eager")
        compiled(torch.ones(2, 4)).sum().backward()
        assert not [event for event in recorded.events if event["cat"] == "probe.off"]
    assert [event["name"] for event in recorded.events if event["cat"] == "nonfinite.unseen"] == ["Between"]
    (facts,) = marks(recorded)
    assert (facts["layer"], facts["producer"]) == ("Between", True)


def test_a_part_in_torchscript_is_the_producer(watch: NonFiniteWatch) -> None:
    """Its class has no `forward` that could be asked where it stands."""
    train(nn.Sequential(nn.Linear(4, 4), script(faults.PlainLog()), nn.Linear(4, 2)))
    facts = birth(watch)
    assert (facts["where"], facts["layer"], facts["producer"]) == ("forward", "1", True)


def test_a_traced_model_is_the_same_model(watch: NonFiniteWatch) -> None:
    """torch.jit.trace sees none of our looks."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net(torch.ones(2, 4))
    graph = str(trace(net, torch.ones(2, 4)).inlined_graph)
    watch.close()
    assert graph.count("aten::") == str(trace(net, torch.ones(2, 4)).inlined_graph).count("aten::")


def test_deep_mode_and_the_watch_work_together() -> None:
    """Layers are timed, and looked at."""
    with record(watch_nonfinite="record", deep=True) as recorded:
        train(nn.Sequential(nn.Linear(4, 4), Log(), nn.Linear(4, 2)))
    assert [facts["layer"] for facts in marks(recorded)] == ["1"]
    assert {event["name"] for event in recorded.events if event["cat"] == "layer"} >= {"0", "1", "2"}
    assert {event["name"] for event in recorded.events if event["cat"] == "layer.backward"} >= {"0", "1", "2"}


def test_a_model_that_is_gone_is_forgotten() -> None:
    """Nothing of it is kept alive."""
    from sonde.nonfinite.watch import _watch

    with watch_nonfinite():
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        train(net)
        known = len(_watch.models.calls)
        del net
        assert len(_watch.models.calls) < known


def test_the_public_name_is_there() -> None:
    """`sonde.flow.watch_nonfinite`."""
    assert sonde.flow.watch_nonfinite is watch_nonfinite
