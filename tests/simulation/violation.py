"""What an oracle raises."""

from __future__ import annotations

from typing import Any


class Violation(AssertionError):  # noqa: N818 - the word of the trade
    """Something that must not be. `kind` says what, without numbers."""

    def __init__(self, kind: str, about: object) -> None:
        super().__init__(f"{kind}: {about}")
        self.kind = kind


def demand(holds: bool, kind: str, about: object) -> None:
    if not holds:
        raise Violation(kind, about)


def none(kind: str, found: list[Any]) -> None:
    demand(not found, kind, found[:9])
