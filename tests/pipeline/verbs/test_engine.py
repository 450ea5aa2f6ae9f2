"""`engine`: an exported model without torch: the same results, the same trace, clear messages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.nets import pipeline, request

from sonde.errors import DataError, ExportError
from sonde.pipeline import Pipeline
from sonde.pipeline.results.results import open_results

RANDOM = {"dataset_class": "RandomDataset", "fields": ["image"], "primary_id_field": "object_id"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported Autoencoder, and the results of `infer`."""
    folder = tmp_path_factory.mktemp("engine")
    p = auto(folder)
    p.train()
    p.infer()
    p.to_onnx()
    return folder


def auto(folder: Path) -> Pipeline:
    """An Autoencoder on 10 small random images."""
    p = Pipeline()
    p.config["general"]["results_dir"] = str(folder / "results")
    p.config["model"]["name"] = "Autoencoder"
    p.config["train"]["epochs"] = 1
    p.config["data_loader"]["batch_size"] = 4
    p.set_config("data_set.RandomDataset", {"shape": [1, 8, 8], "size": 10})
    p.set_config("data_request", {"train": {"data": RANDOM}, "infer": {"data": RANDOM}})
    return p


def test_engine_gives_what_infer_gives(made: Path) -> None:
    """The same ids in the same order, and the same numbers."""
    found, expected = open_results(auto(made).engine()), open_results(next(made.glob("results/*-infer-*")))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.columns == expected.columns
    np.testing.assert_allclose(found["data"], expected["data"], rtol=1e-4, atol=1e-5)


def test_engine_never_imports_torch(made: Path) -> None:
    """Neither to run, nor to trace, nor to write the results; in a process where it cannot be imported."""
    auto(made).config.save(made / "config.toml")
    program = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['ignite'] = None\n"  # an import of them raises
        "import sonde.pipeline\n"
        "p = sonde.pipeline.Pipeline(sys.argv[1])\n"
        "print(p.engine())\n"
        "print(len(p.engine(trace=2).evaluation))\n"
        "print(sorted(name for name in sys.modules if name.startswith(('torch.', 'ignite.'))))\n"
    )
    command = [sys.executable, "-c", program, str(made / "config.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    folder, calls, loaded = done.stdout.splitlines()
    assert len(open_results(folder)) == 10
    assert (calls, loaded) == ("2", "[]")


def test_importing_the_pipeline_loads_nothing_heavy() -> None:
    """torch, ignite, Lance and ONNX are loaded when they are needed."""
    program = (
        "import sys, sonde.pipeline\n"
        "print(sorted({'torch', 'ignite', 'lance', 'pyarrow', 'onnx', 'onnxruntime', 'tomlkit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_traced_engine_touches_so_many_items_and_writes_nothing(made: Path) -> None:
    """All stages are there, under the model's name."""
    before = sorted((made / "results").iterdir())
    trace = auto(made).engine(trace=3)
    assert sorted((made / "results").iterdir()) == before
    assert [call.index for call in trace.resolve_data] == [0, 1, 2]
    assert [call.disp_name for call in trace.prepare_inputs] == ["Autoencoder__prepare_inputs"]
    assert [call.disp_name for call in trace.evaluation] == ["Engine__create_ort_inputs", "Engine__run_onnx_batch"]
    assert trace.evaluation[1].onnx_results["data"].shape == (3, 64)
    assert not trace.notes


def test_an_export_can_be_named(made: Path, tmp_path: Path) -> None:
    """By its file, its folder, or its name among the results."""
    (export,) = made.glob("results/*-to-onnx-*")
    for key, value in (("model", str(export / "model.onnx")), ("run", str(export)), ("run", export.name)):
        p = auto(made)
        p.config["engine"][key] = value
        assert len(open_results(p.engine())) == 10


def test_without_an_export_there_is_a_clear_error(tmp_path: Path) -> None:
    """Traced or not."""
    for trace in (None, 2):
        with pytest.raises(ExportError, match=r"No exported model .* Export one first"):
            auto(tmp_path).engine(trace=trace)


@pytest.mark.parametrize("harm", ["model.onnx", "prepare_inputs.py"])
def test_a_damaged_export_is_told(made: Path, tmp_path: Path, harm: str) -> None:
    """With the file."""
    (export,) = made.glob("results/*-to-onnx-*")
    shutil.copytree(export, tmp_path / "export")
    (tmp_path / "export" / harm).write_text("rubbish(")
    p = auto(tmp_path)
    p.config["engine"]["model"] = str(tmp_path / "export" / "model.onnx")
    with pytest.raises(ExportError, match=harm):
        p.engine()


def test_data_of_another_shape_is_told(made: Path) -> None:
    """With the shape that was given."""
    p = auto(made)
    p.set_config("data_set.RandomDataset.shape", [1, 9, 8])
    with pytest.raises(ExportError, match=r"on input_0 float32\[4, 1, 9, 8\]"):
        p.engine()


def test_an_item_that_fails_keeps_what_was_finished(tmp_path: Path) -> None:
    """As in `infer`."""
    p = pipeline(tmp_path)
    p.train()
    p.to_onnx()
    p.set_config("data_request", request("infer", fails=9))
    with pytest.raises(DataError, match="item 9"):
        p.engine()
    (folder,) = (tmp_path / "results").glob("*-engine-*")
    assert len(open_results(folder)) == 8
