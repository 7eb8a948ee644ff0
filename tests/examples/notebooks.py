"""Run a notebook with the real Jupyter kernel."""

from __future__ import annotations

import os

import nbformat
from nbclient import NotebookClient


def run(path, directory, **variables):
    """Return the outputs of each code cell: the text and the HTML that it shows.

    The kernel runs in `directory` with these environment variables. A cell that fails makes the test fail.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
    )
    settings = {"IPYTHONDIR": directory / "ipython", "JUPYTER_RUNTIME_DIR": directory / "jupyter"}
    environment = os.environ | variables | {key: str(path) for key, path in settings.items()}
    client.execute(env=environment)
    return [_shown(cell) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cell):
    text = html = ""
    for output in cell.outputs:
        data = output.get("data", {})
        text += output.get("text", "") or data.get("text/plain", "")
        html += data.get("text/html", "")
    return text, html


def source(path):
    """Return the text of all cells."""
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
