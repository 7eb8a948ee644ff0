"""The toy format of docs/ADD_A_FORMAT.md, without installing its package `examples/format_plugin`.

Tests of files use it because it brings documents, names, gaps and unreadable lines in few bytes.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tailrace.decoding.contract import Format

PROJECT = Path(__file__).parents[2] / "examples/format_plugin"


def _format() -> Format:
    spec = spec_from_file_location("toy_format", PROJECT / "toy_format.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)  # msgspec looks up annotations there
    spec.loader.exec_module(module)
    return module.FORMAT


FORMAT = _format()
