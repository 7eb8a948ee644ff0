"""Define the error that the oracle raises."""

from __future__ import annotations

from collections.abc import Sequence


class Violation(AssertionError):  # noqa: N818 - the word of the trade
    """Raised if something is not as it must be. `kind` describes it without numbers."""

    def __init__(self, kind: str, about: object) -> None:
        super().__init__(f"{kind}: {about}")
        self.kind = kind


def demand(holds: bool, kind: str, about: object) -> None:
    """Raise Violation unless a condition holds."""
    if not holds:
        raise Violation(kind, about)


def none(kind: str, found: Sequence[object]) -> None:
    """Raise Violation if the given collection is not empty."""
    demand(not found, kind, found[:9])
