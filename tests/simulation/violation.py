"""The error that the oracle raises."""

from __future__ import annotations

from collections.abc import Sequence


class Violation(AssertionError):  # noqa: N818 - the word of the trade
    """Something that must not be. `kind` says what, without numbers."""

    def __init__(self, kind: str, about: object) -> None:
        super().__init__(f"{kind}: {about}")
        self.kind = kind


def demand(holds: bool, kind: str, about: object) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(kind, about)


def none(kind: str, found: Sequence[object]) -> None:
    """Raise Violation if anything was found."""
    demand(not found, kind, found[:9])
