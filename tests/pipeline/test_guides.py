"""The examples of docs/reference/pipeline/results.md and prepare_inputs.md run, in order, and show what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.pipeline.results.results import ResultWriter

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pipeline"
FOLDER = "results/20251115-211200-infer-3f2a"


def run(page: str) -> dict[str, Any]:
    """Run the Python blocks of a page, one after the other; the names that they leave."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


def test_the_page_of_results_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On results as the page has them; the metadata is what it says."""
    monkeypatch.chdir(tmp_path)
    Path(FOLDER).mkdir(parents=True)
    with ResultWriter(FOLDER) as writer:
        writer.write(["23", "24"], {"data": np.zeros((2, 64), np.float32)})
    names = run("results.md")
    assert names["results"].ids.tolist() == ["23", "24"]
    told = names["table"].schema.field("data").metadata
    assert told == {b"sonde.shape": b"[64]", b"sonde.dtype": b"float32"}
    assert names["p"].config["data_request"]["train"]["data"]["dataset_class"] == "ResultDataset"


def test_the_page_of_prepare_inputs_runs() -> None:
    """The function takes the batch that the page shows."""
    names = run("prepare_inputs.md")
    images, labels = names["Net"].prepare_inputs(names["batch_dict"])
    assert images.shape == (2, 1, 32, 32)
    assert labels.tolist() == [3, 7]
