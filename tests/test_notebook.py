"""The magic `%%sonde` in a real kernel, and what runs and reports show of themselves."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.testing import build_training

SETUP = """
%load_ext sonde
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.ones(64, 4), torch.ones(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train():
    for x, y in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
CELLS = {
    "setup": SETUP,
    "record": "%%sonde name=night\ntrain()\nprint('trained')",
    "result": "report = _\nprint(report.verdict)",
    "trace": "%%sonde flow items=4\ntrain()",
    "typo": "%%sonde nmae=x\ntrain()",
    "words": "%%sonde flow items=many\ntrain()",
    "error": "%%sonde name=broken\nraise KeyError('mine')",
    "after": "import sonde\nprint(sonde.finish())\nrun = sonde.open_run(report.view.run.path)\nrun",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outputs of each cell of a notebook, run by nbclient."""
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS.values()])
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}
    outputs["runs"] = sorted(path.name.rsplit("-", 2)[1] for path in (folder / "sonde-runs").iterdir())
    return outputs


def printed(outputs: Any) -> str:
    return "".join(one.get("text", "") + "".join(one.get("traceback", "")) for one in outputs)


def shown(outputs: Any, kind: str) -> str:
    """What the value of a cell looks like."""
    (found,) = [one["data"][kind] for one in outputs if "data" in one]
    return str(found)


def test_a_recorded_cell_runs_and_shows_its_report(cells: dict[str, Any]) -> None:
    """As a page in a notebook, and as a card in a console."""
    assert printed(cells["setup"]) == ""
    assert "trained" in printed(cells["record"])
    page = html.unescape(shown(cells["record"], "text/html"))
    assert page.startswith('<iframe sandbox=""')
    assert "night" in page
    assert "16 steps" in shown(cells["record"], "text/plain")
    assert printed(cells["result"]).strip().isupper()


def test_a_traced_cell_shows_its_values(cells: dict[str, Any]) -> None:
    """One batch of four items, stage by stage."""
    assert "shape=(4, 4)" in shown(cells["trace"], "text/plain") or "[4, 4]" in shown(cells["trace"], "text/plain")
    assert shown(cells["trace"], "text/html")


def test_a_typo_is_one_line_and_runs_nothing(cells: dict[str, Any]) -> None:
    """With the name that was meant."""
    assert "Did you mean 'name'?" in printed(cells["typo"])
    assert "Use a whole number, such as items=4" in printed(cells["words"])
    assert "Traceback" not in printed(cells["typo"])


def test_an_error_in_a_cell_is_shown_and_ends_the_recording(cells: dict[str, Any]) -> None:
    """The exception is the cell's own; the run is complete."""
    assert "KeyError" in printed(cells["error"])
    assert cells["runs"] == ["broken", "night"]


def test_a_run_shows_itself(cells: dict[str, Any]) -> None:
    """Its state, folder, and what to do next."""
    assert "sonde.report(run)" in shown(cells["after"], "text/html")


def test_a_report_of_a_folder_is_that_of_the_command(tmp_path: Path) -> None:
    """A name cannot break out of the frame."""
    run = build_training(tmp_path / "run", steps=20)
    found = sonde.report(run)
    assert found.verdict in repr(found)
    assert sonde.summary(run)["sonde/verdict/kind"] == found.verdict
    shown = found._repr_html_()
    assert shown.count("<") == 2  # the frame, and its end
    with sonde.open_run(run) as opened:
        assert sonde.report(opened).verdict == found.verdict


def test_what_a_run_is_called_is_escaped(tmp_path: Path) -> None:
    """Whoever made it."""
    run = build_training(tmp_path / "run", steps=2)
    meta = (run / "run.json").read_text().replace('"built"', '"<script>x</script>"')
    (run / "run.json").write_text(meta)
    with sonde.open_run(run) as opened:
        assert "<script>" not in opened._repr_html_()
