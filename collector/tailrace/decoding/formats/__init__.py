"""Find the formats: each package in this directory is a format.

There is no list of formats. A new format needs a package in this directory and a test vector (an input with the
expected records) in `tests/vectors/`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tailrace.decoding.contract import Format


def _find() -> dict[str, Format]:
    found = (import_module(f"{__name__}.{module.name}").FORMAT for module in iter_modules(__path__))
    return {format_.name: format_ for format_ in found}


FORMATS: dict[str, Format] = _find()
