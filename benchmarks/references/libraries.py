"""Run a process that has loaded our libraries and none of our code.

Its memory is the least that a collector can have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

NAMES = ("trio", "msgspec", "prometheus_client", "pyarrow.parquet", "deltalake")


def imported(seconds: float) -> Callable[[], None]:
    """Import the libraries. Return a function that only waits."""
    for name in NAMES:
        import_module(name)
    return partial(time.sleep, seconds)
