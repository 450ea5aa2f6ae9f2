"""The data format, row "Inference output (saved to disk)": NumPy arrays in Lance format."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
from tests.pipeline.nets import pipeline


def test_inference_output_is_numpy_arrays_in_lance_format(tmp_path: Path) -> None:
    """One row for each item: the id, and what the model gave for it; shape and dtype are in the metadata."""
    p = pipeline(tmp_path, "Several")
    p.train()
    folder = p.infer()
    traced = p.infer(trace=10).evaluation[0].batch_results
    table = lance.dataset(folder / "results.lance").to_table()
    assert table["object_id"].to_pylist() == [f"n{number}" for number in range(10)]
    for name in ("made", "best", "cube"):
        told = table.schema.field(name).metadata
        array = np.array(table[name].to_pylist(), told[b"sonde.dtype"].decode())
        assert told[b"sonde.shape"].decode() == str(list(traced[name].shape[1:]))
        np.testing.assert_allclose(array.reshape(traced[name].shape), traced[name], rtol=1e-5, atol=1e-6)
