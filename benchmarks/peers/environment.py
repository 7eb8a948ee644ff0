"""Find the environment with the peers from PyPI.

`make peers` installs it, and `requirements/peers.txt` has the versions.
"""

from __future__ import annotations

import subprocess
from functools import cache

from benchmarks.places import PEERS

PYTHON = PEERS / "python"
INSTALL = "make peers"


@cache
def version(package: str) -> str:
    """Return the version of a package in this environment; an empty text if it is not installed."""
    if not PYTHON.exists():
        return ""
    program = f"import importlib.metadata; print(importlib.metadata.version('{package}'))"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip()
