"""The notebooks are stored executed, and run again without an error."""

import base64
import resource
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import jaxiou

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = {"suppression": 150}  # of processor time, start of the kernel included; it trains


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """What a cell shows, without the numbers: text, pictures, errors."""
    return [
        (output.output_type, output.get("name"), sorted(output.get("data", ())))
        for output in cell.outputs
    ]


def pictures(notebook):
    return [
        base64.b64decode(output.data["image/png"])
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", ())
    ]


def test_there_are_notebooks_on_box_losses_suppression_tracking_and_average_precision():
    wanted = {"box_losses", "suppression", "tracking", "average_precision"}
    assert wanted <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_stored_executed_with_its_pictures(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(kind[:2] != ("stream", "stderr") for cell in cells for kind in kinds(cell))
    assert all(kind[0] != "error" for cell in cells for kind in kinds(cell))
    assert len(pictures(notebook)) >= 4
    assert all(picture.startswith(b"\x89PNG") for picture in pictures(notebook))
    assert path.stat().st_size < 1.5e6
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_stored_notebook_names_no_machine(path):
    text = path.read_text()
    for trace in (str(ROOT), sys.prefix, tempfile.gettempdir(), "/home/", "site-packages"):
        assert trace not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_again_and_shows_the_same_things(path, monkeypatch):
    # The kernel is another process: it finds the package where the tests find it.
    monkeypatch.setenv("PYTHONPATH", str(Path(jaxiou.__file__).parents[1]))
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.from_dict(stored)
    for cell in code_cells(fresh):
        cell.outputs, cell.execution_count = [], None

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    NotebookClient(
        fresh,
        kernel_name="python3",
        timeout=300,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    for once, again in zip(code_cells(stored), code_cells(fresh), strict=True):
        assert kinds(again) == kinds(once)
    assert len(pictures(fresh)) == len(pictures(stored))
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS.get(
        path.stem, 40
    )
