"""Find the formats: the packages in this directory, and plug-ins (`decoding.plugins`).

A new format of Tailrace needs a package here and a test vector in `tests/vectors/`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tailrace.decoding import plugins
from tailrace.decoding.contract import Format


class Formats(dict[str, Format]):
    """All formats by name. For a plug-in that is not installed, `Formats[name]` is a substitute (`plugins.absent`)."""

    def __missing__(self, name: str) -> Format:
        return plugins.absent(name)


_modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
OWN: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _modules}
"""The formats of Tailrace itself."""

_plugins, REFUSED = plugins.load(OWN.keys())

FORMATS: dict[str, Format] = Formats(OWN | _plugins)
