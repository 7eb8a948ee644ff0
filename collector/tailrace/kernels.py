"""Choose between the compiled kernels and their Python equivalents.

A kernel is a module `_NAME` compiled from `_NAME.pyx`, with a slower equivalent in Python. Either all kernels run or
none, as the environment variable TAILRACE_KERNELS decides. Without the variable, the kernels run if all are built. With
the value `off`, they never run. With `require`, Tailrace refuses to run if one of them is not built.

Callers check `active` before importing a kernel:

    if kernels.active():
        from tailrace.decoding.formats.heph import _kernel"""

from __future__ import annotations

import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from tailrace.errors import ConfigError

KERNELS = (
    "analysis/_innermost",
    "decoding/formats/dftracer/_kernel",
    "decoding/formats/et3/_kernel",
    "decoding/formats/heph/_kernel",
    "decoding/formats/jets/_kernel",
    "decoding/formats/ovni/_kernel",
    "ingest/_match",
    "ledger/_observe",
    "rows/_columns",
    "rows/_joined",
    "sources/_pump",
)
"""All kernels, as paths relative to the package `tailrace`, without the suffix."""

VARIABLE = "TAILRACE_KERNELS"
OFF, REQUIRE = "off", "require"
COMPILED, PYTHON = "compiled", "python"

_BUILD = (
    "install a C compiler and Python's headers (apt install gcc python3-dev), and install Tailrace again from its "
    "source (make clean setup, or pip install --force-reinstall --no-deps DIRECTORY), which says what fails"
)


@cache
def active() -> bool:
    """Return whether the kernels run in this process. Raise ConfigError as `decide` does."""
    return decide(os.environ.get(VARIABLE, ""), missing(Path(__file__).parent))


def word() -> str:
    """Return "compiled" or "python". The word shows users whether the kernels run."""
    return COMPILED if active() else PYTHON


def decide(mode: str, missing: list[str]) -> bool:
    """Return whether the kernels run, given the value of TAILRACE_KERNELS and the list of kernels that are not built.
    Raise ConfigError if the value is not an allowed one, or if it is `require` and a kernel is not built."""
    if mode not in {"", OFF, REQUIRE}:
        allowed = f'allowed: "{OFF}", "{REQUIRE}", or unset'
        raise ConfigError([f"{VARIABLE}: {mode!r} is not allowed; {allowed}"])
    if mode == REQUIRE and missing:
        raise ConfigError(
            [f"{VARIABLE}={REQUIRE}: not built for this Python: {', '.join(missing)}; {_BUILD}"]
        )
    return mode != OFF and not missing


def missing(package: Path) -> list[str]:
    """Return the kernels in the package's directory that are not built for the running Python."""
    return [
        name
        for name in KERNELS
        if not any((package / f"{name}{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)
    ]
