"""Keep numpy from starting threads that nothing here uses.

pyarrow imports numpy, whose library for linear algebra starts a thread for each further core. Each of them spins before
it sleeps, which takes CPU while a command starts (ARCHITECTURE, D171).
"""

from __future__ import annotations

import os

VARIABLE = "OPENBLAS_NUM_THREADS"
NONE = "01"
"""No thread but the caller's: the number 1, in a spelling by which we know it again."""


def without_threads() -> None:
    """Let this process and those that it starts have no such threads, unless the user has said how many there are.

    Call this before numpy is imported, and only in a process of our own."""
    os.environ.setdefault(VARIABLE, NONE)


def environment_of_user() -> dict[str, str]:
    """Return the environment as the user gave it to this process, for a program of the user."""
    return {name: value for name, value in os.environ.items() if (name, value) != (VARIABLE, NONE)}
