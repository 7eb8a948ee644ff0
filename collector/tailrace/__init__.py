"""Collect execution traces, and detect which events are missing and why.

`tailrace.open(store)` opens a store for reading."""

from __future__ import annotations

# Do not import typing here: `cli` must set the module search path before other imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from tailrace.errors import IncompleteError, QueryError, StoreError, TailraceError, UnknownError
    from tailrace.reading import Completeness, Limits, Result, Store, open  # noqa: A004 - its name here

__all__ = [
    "Completeness", "IncompleteError", "Limits", "QueryError", "Result", "Store", "StoreError",
    "TailraceError", "UnknownError", "open",
]  # fmt: skip

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the reading API on first use, because most commands need no database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    home = "tailrace.errors" if name.endswith("Error") else "tailrace.reading"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
