"""The environment of peers from PyPI, which `make peers` makes; their versions are in `requirements/peers.txt`."""

from __future__ import annotations

import subprocess
from functools import cache

from benchmarks.places import PEERS

PYTHON = PEERS / "python"
INSTALL = "make peers"


@cache
def version(package: str) -> str:
    """Return the version of a package that is installed there, "" if it is not."""
    if not PYTHON.exists():
        return ""
    program = f"import importlib.metadata; print(importlib.metadata.version('{package}'))"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip()
