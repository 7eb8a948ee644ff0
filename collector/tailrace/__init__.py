"""Tailrace: takes in execution traces and knows exactly which events are missing, and why.

`tailrace.open(store)` reads what was collected.
"""

from __future__ import annotations

TYPE_CHECKING = False  # nothing is imported before `cli` has settled from where
if TYPE_CHECKING:
    from tailrace.errors import IncompleteError, QueryError, StoreError, TailraceError, UnknownError
    from tailrace.reading import Completeness, Limits, Result, Store, open  # noqa: A004 - its name here

__all__ = [
    "Completeness", "IncompleteError", "Limits", "QueryError", "Result", "Store", "StoreError",
    "TailraceError", "UnknownError", "open",
]  # fmt: skip

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import what reads when it is asked for: a command's help has no use for a database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    home = "tailrace.errors" if name.endswith("Error") else "tailrace.reading"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
