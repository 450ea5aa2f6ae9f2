"""The notebook of Hyrax's page on tracing runs in a real kernel, with only its import changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

REQUEST = """{
        "data": {
            "dataset_class": "HyraxRandomDataset",
            "data_location": "./trace_data",
            "fields": ["image"],
            "primary_id_field": "object_id",
            "split_fraction": 1.0,
        },
    }"""
CELLS = (
    "import sonde.compat.hyrax as hyrax\n\nh = hyrax.Hyrax()",
    f"""h.config["model"]["name"] = "HyraxAutoencoder"

# Use a small 1-channel 32x32 image shape to keep things fast
h.config["data_set"]["HyraxRandomDataset"]["shape"] = [1, 32, 32]
h.config["data_set"]["HyraxRandomDataset"]["size"] = 50
h.config["data_set"]["HyraxRandomDataset"]["seed"] = 42

data_request = {{
    "train": {REQUEST},
    "infer": {REQUEST},
}}
h.set_config("data_request", data_request)""",
    "trace_result = h.train(trace=2)",
    "print(trace_result)",
    "collate_stage = trace_result.collate\nprint(collate_stage)",
    'evaluation_stage = trace_result["evaluation"]\nprint(evaluation_stage)',
    """print(f"resolve_data calls : {len(trace_result.resolve_data)}")
print(f"collate calls      : {len(trace_result.collate)}")
print(f"evaluation calls   : {len(trace_result.evaluation)}")""",
    "first_collate_call = trace_result.collate[0]\nprint(first_collate_call)",
    "batch_dict = first_collate_call.batch_dict\nprint(type(batch_dict))\nprint(batch_dict)",
    """all_resolve_calls = trace_result.resolve_data["DataProvider__resolve_data"]
print(f"Number of resolve_data calls: {len(all_resolve_calls)}")
print(all_resolve_calls[0])""",
    "infer_trace = h.infer(trace=2)\nprint(infer_trace)",
    """from sonde.compat.hyrax.trace import trace_model_func, trace_dataset_func
from torch import nn

class MyModel(nn.Module):
    @trace_model_func
    def my_custom_forward(self, batch):
        ...

class MyDataset(hyrax.HyraxDataset):
    @trace_dataset_func
    def get_image(self, index):
        ...""",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each cell has printed."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert [path.name for path in Path(folder).iterdir()] == []
    return [
        "".join(one.get("text", "") for one in cell.outputs if one.get("name") == "stdout") for cell in notebook.cells
    ]


pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_the_trace_has_the_calls_of_the_page(outputs: list[str]) -> None:
    """Stage by stage, with the names of the page."""
    heads = re.findall(r"^\t\t(\S.*) duration=|^\t(\w+): ", outputs[3], re.MULTILINE)
    getters = ["data__get_image(index) -> image", "data__get_object_id(index) -> object_id"]
    assert [call or stage for call, stage in heads] == [
        "dataset_getter", *getters, *getters,
        "resolve_data", *["DataProvider__resolve_data(index) -> data_dict"] * 2,
        "collate", "DataProvider__collate(batch_dicts) -> batch_dict",
        "DataProvider__handle_nans(batch_dict) -> batch_dict_no_nan",
        "prepare_inputs", "HyraxAutoencoder__prepare_inputs(batch_dict) -> batch_ndarray",
        "evaluation", "HyraxAutoencoder__train_batch(batch) -> loss_dict",
    ]  # fmt: skip


def test_the_counts_of_the_page(outputs: list[str]) -> None:
    """Two items, one batch."""
    assert outputs[6].splitlines() == ["resolve_data calls : 2", "collate calls      : 2", "evaluation calls   : 1"]


def test_a_captured_value_is_the_batch(outputs: list[str]) -> None:
    """A dict with the ids of the page."""
    assert outputs[8].startswith("<class 'dict'>\n")
    assert "array(['23', '24'], dtype='<U2')" in outputs[8]


def test_calls_by_name_are_a_list(outputs: list[str]) -> None:
    """The first of them prints alone."""
    assert outputs[9].startswith("Number of resolve_data calls: 2\nDataProvider__resolve_data(index) -> data_dict")


def test_infer_is_traced_too(outputs: list[str]) -> None:
    """With `forward` below `infer_batch`."""
    assert "HyraxAutoencoder__infer_batch(batch) -> batch_results" in outputs[10]
    assert "HyraxAutoencoder__forward(batch) -> batch_results" in outputs[10]
