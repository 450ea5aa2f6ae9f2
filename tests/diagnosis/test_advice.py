"""Certificates in words, and the rules that use them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.boxes import birth, certificate, raised, summary, with_marks, write_dump
from tests.diagnosis.building import check, diagnosed, exited, kinds, launcher, of_kind, processes

from sonde.analysis.postmortem.firstnan import Birth
from sonde.analysis.run import open_run
from sonde.diagnosis.advice import what_to_do
from sonde.diagnosis.diagnose import diagnose
from sonde.finding import CRITICAL, WARN
from sonde.store.certificate import Certificate, affected_items, amount, read_certificate
from sonde.testing import build_run


def of(**fields: Any) -> Certificate:
    found = read_certificate(certificate(**fields))
    assert found is not None
    return found


def told(rank: int | None = 0, worker: int | None = None, **fields: Any) -> str:
    return Birth(of(**fields), "host", 1000, rank, worker, 0).sentence


def items(*numbers: int, total: int | None = None) -> dict[str, Any]:
    listed = [{"position": place, "index": number, "id": None} for place, number in enumerate(numbers)]
    return {"items": listed, "items_total": len(numbers) if total is None else total}


def test_a_layer_is_told_as_on_a_certificate() -> None:
    """Step, rank, layer, item, batch, and of what it was made."""
    assert (
        told()
        == "layer `encoder.3.norm` (LayerNorm), item 8412 of batch 812 (step 812, rank 0); inputs finite, max 3.4e38"
    )


BETWEEN = {"layer": "encoder", "type": "Encoder", "after": "encoder.2", "before": "encoder.3", "op": "log"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"where": "data", "stage": "dataset"},
            "item 8412 of batch 812, already in the dataset's output (step 812, rank 0)",
        ),
        ({"where": "data", "stage": "collate"}, "already in the batch from the collate function"),
        ({"where": "data", "stage": "loader"}, "already in the batch from the loader"),
        ({"where": "data", "stage": "loop"}, "in the batch, changed after it left the loader"),
        ({"where": "data", "stage": "loop", "batch": None}, "already in the model's input"),
        ({"where": "data"}, "item 8412 of batch 812, already in the data (step"),
        (
            BETWEEN | {"code": "train.py:41 in forward"},
            "the code between `encoder.2` and `encoder.3` in `encoder` (log, before train.py:41 in forward)",
        ),
        (
            {"producer": False, "op": "log", "code": "a.py:1 in f"},
            "layer `encoder.3.norm` or the code before it (log, a.py:1 in f), item",
        ),
        (BETWEEN | {"before": None}, "the code after `encoder.2` in `encoder` (log)"),
        (BETWEEN | {"after": None, "layer": None}, "the code before `encoder.3` (log)"),
        ({"where": "loss", "type": "MSELoss", "layer": "MSELoss"}, "the loss (MSELoss)"),
        (
            {"where": "loss", "layer": None, "after": "head", "op": "div"},
            "the loss, computed by the code after `head` (div)",
        ),
        ({"where": "backward"}, "the backward pass of layer `encoder.3.norm` (LayerNorm)"),
        (BETWEEN | {"where": "backward", "layer": None}, "the backward pass of the code between `encoder.2` and"),
        ({"where": "gradient"}, "the gradient of a parameter of layer `encoder.3.norm` (LayerNorm), item"),
        ({"layer": None, "type": None}, "a layer, item"),
        ({"step": None}, "(step unknown, rank 0)"),
        ({"epoch": 3, "evaluation": True}, "(step 812 of epoch 3, evaluation, rank 0)"),
        ({"batch": None}, "item 8412 (step 812, rank 0); inputs"),
    ],
)
def test_each_place_has_its_words(fields: dict[str, Any], words: str) -> None:
    """Data with its stage, layers, code between them, loss, backward, gradients."""
    assert words in told(**fields)


@pytest.mark.parametrize(
    ("fields", "tail"),
    [
        ({"inputs": [summary("0", -2.5, 3.0), summary("1", -0.125, 7.0)]}, "; inputs finite, min -2.5, max 7"),
        ({"inputs": []}, "; inputs finite"),
        (
            {"inputs": [], "parameters": ["weight"]},
            "; inputs finite, but `weight` of the layer was already non-finite",
        ),
        (
            {"inputs": [], "parameters": ["weight", "bias"]},
            "; inputs finite, but `weight` and `bias` of the layer were already non-finite",
        ),
        ({"producer": False}, "; unknown whether its inputs were finite"),
        ({"producer": False, "inputs": [summary("0", None, None, finite=False)]}, "; an input was already non-finite"),
        ({"inputs_known": False, "inputs": []}, "; inputs unknown, because they are modified in place"),
        ({"inputs_known": False, "op": "log"}, "; inputs unknown"),
        ({"inputs_known": False, "after": "a", "before": "b", "op": None}, "; inputs unknown"),
        ({"where": "backward", "inputs": []}, "; its incoming gradient was finite"),
        ({"where": "gradient"}, "of batch 812 (step 812, rank 0)"),
    ],
)
def test_what_it_was_made_of_is_said_as_far_as_it_is_known(fields: dict[str, Any], tail: str) -> None:
    """A producer, somebody who passed it on, or nobody knows."""
    assert told(**fields).endswith(tail)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (items(7, 8), "items 7 and 8"),
        (items(7, 8, 9, 10), "items 7, 8, 9 and 10"),
        (items(*range(16), total=64), "64 items (0, 1, 2, 3 and 60 more)"),
        ({"items": [{"position": 3, "index": None, "id": "M31"}]}, "item 'M31'"),
        ({"items": [{"position": 3, "index": 5, "id": "M31"}]}, "item 5 (id M31)"),
        ({"items": [{"position": 3, "index": 5, "id": "5"}]}, "item 5"),
        ({"items": [{"position": 3, "index": None, "id": None}]}, "item at position 3"),
        ({"items": [], "items_total": 0}, ""),
    ],
)
def test_items_are_named_as_far_as_they_are_known(fields: dict[str, Any], words: str) -> None:
    """One, several, many; by number, by id, by place."""
    assert affected_items(of(**fields)) == words


def test_a_batch_whose_items_cannot_be_told_is_named() -> None:
    """It is less, and better than nothing."""
    assert "batch 812 (its items cannot be identified)" in told(items=[], items_total=0)


def test_how_much_of_it_is_told() -> None:
    """Which kind, how many of how many, and what they are in."""
    assert amount(of()) == "NaN in 128 of 4,096 values (32 x 128, float32)"
    assert amount(of(kind=None, count=None, shape=None, dtype=None)) == "a non-finite value"
    assert amount(of(kind="nan and inf", count=1, total=None)) == "NaN and infinity in 1 value (32 x 128, float32)"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"where": "data", "stage": "dataset"}, "Check item 8412"),
        ({"where": "data", "items": []}, "Check the batch"),
        ({"where": "data", "stage": "collate"}, "the collate function"),
        ({"where": "data", "stage": "loop"}, "what the loop does"),
        ({"where": "data", "stage": "loop", "batch": None}, "what the loop passes to the model"),
        (
            {},
            "The input of `encoder.3.norm` is close to the dtype's maximum: rescale or clamp it, starting with item 8412",
        ),
        ({"inputs": []}, "Check the input of `encoder.3.norm`, starting with item 8412"),
        (BETWEEN | {"code": "train.py:41 in forward"}, "Keep the input of log before train.py:41 in forward within"),
        ({"op": "log", "code": "train.py:9 in forward"}, "Keep the input of log in train.py:9 in forward within"),
        (BETWEEN | {"op": "perhaps log"}, "Check the operations in `encoder`, perhaps log, starting with item 8412"),
        ({"parameters": ["weight"]}, "Check what wrote weight of `encoder.3.norm`: earlier updates"),
        ({"where": "backward"}, "division by 0"),
        ({"where": "gradient", "items": []}, "Check for a division by 0"),
        ({"producer": False}, "the code before layer `encoder.3.norm`"),
        ({"where": "loss", "layer": None, "inputs": []}, "Check the input of the loss"),
    ],
)
def test_what_to_do_depends_on_the_place(fields: dict[str, Any], words: str) -> None:
    """An imperative sentence without its full stop."""
    found = what_to_do(of(**fields))
    assert words in found
    assert found.startswith(("Check", "Keep", "The input"))
    assert not found.endswith(".")


# ── the rules ──


def test_the_verdict_names_layer_and_item(tmp_path: Path) -> None:
    """With a query for the step, and the command that shows the rest."""
    (process,) = processes(loss=lambda step: math.nan if step > 30 else 1.0)
    found = diagnosed(tmp_path, [with_marks(process, birth(certificate(step=31), 300))]).verdict
    assert (found.kind, found.severity) == ("NON_FINITE", CRITICAL)
    assert "layer `encoder.3.norm` (LayerNorm), item 8412" in found.why
    assert "The loss is NaN or infinite in 29 of 60 steps, starting at step 31" in found.why
    assert found.next.endswith("starting with item 8412. Details: sonde blackbox run")
    assert found.evidence["steps"] == [31]
    assert (found.evidence["layers"], found.evidence["items"][0]["index"]) == (["encoder.3.norm"], 8412)
    assert found.evidence["numbers"]["step of the first NaN"] == 31


def test_an_operation_that_was_guessed_makes_it_less_certain(tmp_path: Path) -> None:
    """One that was known does not."""
    (process,) = processes()
    for op, confidence in (("log", 1.0), ("perhaps log", 0.7)):
        marked = with_marks(process, birth(certificate(**BETWEEN | {"op": op})))
        assert of_kind(diagnosed(tmp_path / op, [marked]), "NON_FINITE").confidence == confidence


def test_a_birth_alone_is_a_warning(tmp_path: Path) -> None:
    """The losses stayed finite."""
    (process,) = processes()
    assert of_kind(diagnosed(tmp_path, [with_marks(process, birth(certificate()))]), "NON_FINITE").severity == WARN


def test_a_program_that_the_watch_stopped_did_not_crash_for_another_reason(tmp_path: Path) -> None:
    """The certificate stands before the exception that it raised."""
    (process,) = processes()
    ended = {"end": {"mono_ns": 0, "wall_ns": 0, "reason": "exception", "exception": "NonFinite"}}
    process = with_marks(process, birth(certificate()))._replace(process={**(process.process or {}), **ended})
    found = diagnosed(tmp_path, [process])
    assert kinds(found)[:2] == ["NON_FINITE", "CRASHED"]
    assert found.verdict.severity == CRITICAL


def test_a_crash_after_a_birth_points_to_it(tmp_path: Path) -> None:
    """A program that checks its loss itself raises what it likes."""
    (process,) = processes(loss=lambda step: math.nan if step > 30 else 1.0)
    ended = {"end": {"mono_ns": 0, "wall_ns": 0, "reason": "exception", "exception": "FloatingPointError"}}
    marked = with_marks(process, birth(certificate(step=31), 300))
    found = diagnosed(tmp_path, [marked._replace(process={**(process.process or {}), **ended})])
    assert found.verdict.kind == "CRASHED"
    assert "in step 31" in found.verdict.next
    assert found.verdict.next.endswith(": sonde blackbox run")


def test_a_crash_names_the_item_that_only_the_black_box_knows(tmp_path: Path) -> None:
    """No record of the loader has it."""
    (process,) = processes()
    path = build_run(tmp_path / "run", [process, launcher(exited(1000, code=1))])
    write_dump(path, "worker", exception=raised())
    with open_run(path) as run:
        found = of_kind(diagnose(run), "CRASHED")
        for name, query in found.evidence["queries"].items():
            check(run.sql(query).fetchall(), found.evidence["numbers"][name], name)
    assert "raised by item 77 of batch 4, which loader worker 0 loaded" in found.why
    assert found.evidence["items"][0]["index"] == 77
    assert "load item 77" in found.next
