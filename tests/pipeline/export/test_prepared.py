"""`prepare_inputs` as a file: it works alone and without torch, or the reason why it cannot is told."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sonde.errors import ExportError
from sonde.flow import trace_model_func
from sonde.pipeline.export.prepared import load_prepared, save_prepared

BATCH = {"data": {"image": np.arange(6.0, dtype=np.float32).reshape(2, 3), "label": np.array([1, 0])}}
SCALE = 2.5
WORDS = {"key": ["image", None, True]}
MEAN = np.array([0.1, np.nan], ">f4")
MODEL = torch.nn.Linear(1, 1)
STATE = object()


def doubled(values: Any) -> Any:
    return halved(values) * 4


def halved(values: Any) -> Any:
    return values / 2


def plus_one(function: Any) -> Any:
    @wraps(function)
    def inner(batch: Any) -> Any:
        return function(batch) + 1

    return inner


class Plain:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        """One array."""
        return batch["data"]["image"]


class Inherits(Plain):
    pass


class Pair:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any], scale: float = SCALE) -> Any:
        return batch["data"][WORDS["key"][0]] * scale, batch["data"]["label"]


class Functions:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        import math

        return doubled(batch["data"]["image"]) * math.pi + np.nan_to_num(MEAN).sum() + sum(x for x in [1, 2])


class Decorated:
    @staticmethod
    @trace_model_func
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return batch["data"]["image"]


class Changed:
    @staticmethod
    @plus_one
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return batch["data"]["image"]


class OldName:
    @staticmethod
    def to_tensor(batch: dict[str, Any]) -> Any:
        return batch["data"]["image"]


class Torch:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return torch.from_numpy(batch["data"]["image"]).numpy()


class TorchInside:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        from torch import from_numpy

        return from_numpy(batch["data"]["image"]).numpy()


class Object:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return batch["data"]["image"] * MODEL.in_features


class State:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return batch["data"]["image"], STATE


class Misspelt:
    @staticmethod
    def prepare_inputs(batch: dict[str, Any]) -> Any:
        return imgae  # type: ignore[name-defined]  # noqa: F821


GOOD = [Plain.prepare_inputs, Inherits.prepare_inputs, Pair.prepare_inputs, Functions.prepare_inputs]
GOOD += [Decorated.prepare_inputs, Changed.prepare_inputs, OldName.to_tensor]


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__qualname__)
def test_a_saved_function_gives_the_same(function: Any, tmp_path: Path) -> None:
    """With the constants, functions and modules that it uses."""
    save_prepared(function, tmp_path / "p.py")
    found, expected = load_prepared(tmp_path / "p.py")(BATCH), function(BATCH)
    for one, other in zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]:
        np.testing.assert_array_equal(one, other)


def test_a_saved_function_needs_no_torch(tmp_path: Path) -> None:
    """Although it stands in a module that imports it."""
    save_prepared(Functions.prepare_inputs, tmp_path / "p.py")
    code = "import sys, runpy; runpy.run_path(sys.argv[1])['prepare_inputs']; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "p.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def around() -> Any:
    """A function inside another one."""
    scale = 2

    def prepare_inputs(batch: Any) -> Any:
        return batch * scale

    return prepare_inputs


def typed() -> Any:
    """A function whose source is nowhere."""
    names: dict[str, Any] = {}
    exec("def prepare_inputs(batch): return batch", names)
    return names["prepare_inputs"]


BAD = {
    "Torch.prepare_inputs uses torch of torch": Torch.prepare_inputs,
    "TorchInside.prepare_inputs uses torch of torch": TorchInside.prepare_inputs,
    "uses MODEL of torch": Object.prepare_inputs,
    "uses STATE (object), which cannot be saved": State.prepare_inputs,
    "uses imgae, which is not defined": Misspelt.prepare_inputs,
    "uses scale of the enclosing function": around(),
    "Cannot find the source of prepare_inputs": typed(),
    "defined with `def`": lambda batch: batch,
}


@pytest.mark.parametrize("words", BAD)
def test_what_cannot_be_saved_is_told_with_the_reason(words: str, tmp_path: Path) -> None:
    """And no file is left."""
    with pytest.raises(ExportError, match=re.escape(words)):
        save_prepared(BAD[words], tmp_path / "p.py")
    assert not list(tmp_path.iterdir())


def test_torch_by_way_of_another_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is tried in a process of its own."""
    (tmp_path / "indirect.py").write_text("import torch\nvalue = 1\n")
    (tmp_path / "mine.py").write_text(
        "import indirect\n\ndef prepare_inputs(batch):\n    return batch, indirect.value\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import mine  # type: ignore[import-not-found]

    with pytest.raises(ExportError, match="one of its imports imports torch"):
        save_prepared(mine.prepare_inputs, tmp_path / "p.py")
    assert not (tmp_path / "p.py").exists()


@pytest.mark.parametrize("text", ["def", "import no_such_module", "x = 1", "y = x"])
def test_a_file_that_is_broken_is_told(text: str, tmp_path: Path) -> None:
    """With its path, and what to do."""
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(ExportError, match=r"Cannot use .*Export the model again"):
        load_prepared(tmp_path / "p.py")
