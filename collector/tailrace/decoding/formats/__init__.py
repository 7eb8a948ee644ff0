"""Find the formats: each package in this directory is a format, and plug-ins are further formats.

There is no list of formats. A new format of Tailrace needs a package in this directory and a test vector (an input with
the expected records) in `tests/vectors/`. Plug-ins are described in `decoding.plugins`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tailrace.decoding import plugins
from tailrace.decoding.contract import Format


class Formats(dict[str, Format]):
    """All formats by name. If a plug-in is no longer installed, but the spool has data of its format, `Formats[name]`
    is a substitute whose decoder returns all bytes as malformed records."""

    def __missing__(self, name: str) -> Format:
        return plugins.absent(name)


def _find() -> dict[str, Format]:
    found = (import_module(f"{__name__}.{module.name}").FORMAT for module in iter_modules(__path__))
    return {format_.name: format_ for format_ in found}


OWN: dict[str, Format] = _find()
"""The formats of Tailrace itself."""

_plugins, REFUSED = plugins.load(OWN.keys())

FORMATS: dict[str, Format] = Formats(OWN | _plugins)
