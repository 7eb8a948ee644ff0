"""The notebook runs from top to bottom over the store that it says, and its answers are shown richly."""

from __future__ import annotations

import re
import shlex
import sys
from xml.etree import ElementTree

import nbformat

import tailrace
from tests import program
from tests.examples import notebooks
from tests.examples.test_examples import EXAMPLES, ROOT

NOTEBOOK = EXAMPLES / "look.ipynb"


def test_the_notebook_runs_over_the_store_that_its_text_makes(tmp_path):
    store = tmp_path / "store"
    (line,) = re.findall(r"tailrace run .*", notebooks.source(NOTEBOOK))
    words = shlex.split(line.replace("$HOME/.local/share/tailrace", str(store)))[1:]
    words[words.index("python")] = sys.executable
    program.run([*program.COMMAND, *words], check=True, timeout=120, cwd=ROOT, capture_output=True)

    outputs = notebooks.run(NOTEBOOK, tmp_path, TAILRACE_STORE_PATH=str(store))

    streams, complete, drawn, frame, kinds, _ = outputs
    assert complete[0] == "nothing is known to be missing\n"
    assert all("<table>" in html for _, html in (streams, drawn, kinds))
    svg = ElementTree.fromstring(re.search("<svg.*</svg>", drawn[1], re.DOTALL)[0])  # noqa: S314 - ours
    assert len(list(svg.iter("rect"))) == 10
    assert "<svg" not in kinds[1]
    with tailrace.open(store) as opened:
        services = opened.spans(name="service").pl()
        for stream, of_stream in services.group_by("stream"):
            assert str(of_stream["ticks"].max()) in frame[0], stream


def test_the_notebook_is_kept_without_outputs():
    """Outputs would show what another version printed."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(
        not cell.outputs and cell.execution_count is None
        for cell in cells
        if cell.cell_type == "code"
    )
