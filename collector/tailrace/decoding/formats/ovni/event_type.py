"""Describe one type of ovni event: its name, its payload, and the span that the event opens or closes (see `table`)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

OWN = frozenset({"alone", "mark"})
"""Roles of begins and ends whose spans nest only with spans of the same channel, on a separate stack."""

JUMBO = frozenset({"type", "deltas"})

_TYPES = {"i32": "i", "u32": "I", "i64": "q", "u64": "Q"}


class PayloadLayout(NamedTuple):
    """The fields of a payload that has at least `size` bytes."""

    size: int
    struct: Struct
    members: str  # Template for the field values as JSON members.
    key: str  # Template for the field values as text, which an end and its begin share.
    names: tuple[str, ...]


class EventType(NamedTuple):
    """A type of ovni event, identified by its MCV: the three characters model, category and value."""

    mcv: str
    model: str
    role: str
    name: str
    opens: bool | None  # True for the begin of a span, false for its end, otherwise None.
    channel: str  # Channel of the span.
    begin: str  # MCV of the span's begin.
    layouts: dict[str, tuple[PayloadLayout, ...]]  # By byte order; the longest first.

    @property
    def jumbo(self) -> bool:
        return self.role in JUMBO

    @property
    def least(self) -> int:
        """Minimum size (bytes) of the payload of an event of this type."""
        return self.layouts["<"][-1].size

    def channel_of(self, values: tuple[int, ...]) -> str:
        """Return the channel of an event with these field values. An end matches only begins of its channel."""
        return f"{self.channel} {values[1]}" if self.role == "mark" else self.channel


def layouts_of(fields: str | None) -> dict[str, tuple[PayloadLayout, ...]]:
    split = [field.split(":") for field in (fields or "").split()]
    least = sum(not kind.endswith("?") for _, kind in split)
    layouts: dict[str, tuple[PayloadLayout, ...]] = {}
    for order in "<>":
        some = []
        for count in range(len(split), least - 1, -1):
            struct = Struct(order + "".join(_TYPES[kind.rstrip("?")] for _, kind in split[:count]))
            names = tuple(name for name, _ in split[:count])
            members = "".join(f',"{name}":%d' for name in names)
            some.append(PayloadLayout(struct.size, struct, members, " %d" * count, names))
        layouts[order] = tuple(some)
    return layouts
