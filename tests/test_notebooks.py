"""The notebooks in examples/, each run from top to bottom in a kernel of its own, as Jupyter runs them."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {  # texts that cells print, with a number to be at least, or at most if negative
    "images": [],
    "cells": [(r"mean error ([\d.]+);", -2.5)],
    "own_process": [(r"one letter from a motif: ([\d.]+)", 0.6), (r"PosteriorBridge ([\d.]+) of", 0.97)],
}
FIGURES = {"images": 3, "cells": 1, "own_process": 0}


@pytest.mark.parametrize("name", EXPECTED)
def test_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == FIGURES[name]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    for pattern, limit in EXPECTED[name]:
        found = re.search(pattern, printed)
        assert found, printed
        assert float(found[1]) >= limit if limit > 0 else float(found[1]) <= -limit, printed


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    assert path.stem in EXPECTED
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
