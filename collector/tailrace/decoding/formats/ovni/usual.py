"""Read the most frequent ovni events in bulk. The results are the same as those of the module `event`.

Such an event has a role in `ROLES` and no bytes after its fields, its clock does not go back, and it is not one of
`order.TURNS`. An end must end the span that began last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from tailrace.decoding.formats.ovni.event import KINDS
from tailrace.decoding.formats.ovni.event_type import OWN, EventType, PayloadLayout
from tailrace.decoding.formats.ovni.frame import HEAD, NUMBERS
from tailrace.decoding.formats.ovni.names import Names, Naming, naming
from tailrace.decoding.formats.ovni.order import TURNS
from tailrace.decoding.formats.ovni.stack import OPEN_MAX, Stack
from tailrace.decoding.formats.ovni.table import EVENTS
from tailrace.model.record import Kind, Record

BEGIN, END = Kind.BEGIN, Kind.END

ROLES = frozenset({"call", "thread", "task", "pause", "alone", "mark", "set", "create", "at"})

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)


class Fields(NamedTuple):
    """How to read an event that has a payload, or whose spans form a stack of their own (`own`)."""

    size: int
    unpack: Callable[..., tuple[Any, ...]]
    members: str
    key: str
    naming: Naming | None
    own: bool
    event: EventType


EventPlan = tuple[Kind, str, str, str, str, str, Fields | None]
"""How to read an event: kind, name, category and attributes of its record; its channel; for an end, the MCV (model,
category and value) of the matching begin; and its `Fields` or None."""


def plan_of(event: EventType, layout: PayloadLayout) -> EventPlan:
    ends = event.opens is False
    kind = KINDS[event.role] if event.opens is None else END if ends else BEGIN
    mcv = f'{{"{"end_mcv" if ends else "mcv"}":"{event.mcv}"'
    fields = None
    if layout.size or event.role in OWN:
        fields = Fields(
            HEAD + layout.size, layout.struct.unpack_from, layout.members, layout.key,
            naming(event), event.role in OWN, event,
        )  # fmt: skip
    whole = ends or not fields
    return (
        kind, event.name, event.model, mcv + "}" if whole else mcv, event.channel, event.begin, fields
    )  # fmt: skip


PLANS: dict[str, dict[bytes, EventPlan]] = {
    order: {
        bytes([max(layout.size - 1, 0)]) + mcv: plan_of(event, layout)
        for mcv, event in EVENTS.items()
        if event.role in ROLES and mcv not in TURNS
        for layout in event.layouts[order]
    }
    for order in NUMBERS
}
"""Plans by byte order, then by flags and MCV (model, category and value)."""


class UsualReader:
    """Reads the events of one thread that have a plan (`PLANS`). The arguments are those of `EventReader`."""

    def __init__(self, stream: str, order: str, stack: Stack, names: Names) -> None:
        self._stream = stream
        self._head = NUMBERS[order].head.unpack_from
        self._plans = PLANS[order]
        self._stack = stack
        self._names = names

    def read(  # noqa: PLR0912 - runs once an event: calls would cost more than their work
        self, buffer: bytearray, at: int, offset: int, last: int, records: list[Record]
    ) -> tuple[int, int]:
        """Read events from `at` on. Return the position of the first event that was not read, and the clock before it.

        Stop before an event that is incomplete, has no plan, has a lower clock than the event before it (`last` for
        the first event), or is an end that does not match the last open span."""
        head, plans, append, stream = self._head, self._plans.get, records.append, self._stream
        state = self._stack.state
        nested = state.nested
        final = len(buffer) - HEAD
        name: str | None
        while at <= final:
            key, clock = head(buffer, at)
            plan = plans(key)
            if plan is None or clock < last:
                break
            kind, name, category, attributes, channel, begin, fields = plan
            ends = kind is END
            size, id_, parent = HEAD, None, None
            if fields:
                size = fields.size
                if at + size > len(buffer):
                    break
                read = self._read_fields(plan, fields, fields.unpack(buffer, at + HEAD))
                if read is None:
                    break
                name, attributes, id_, parent = read
            elif ends:
                if not nested or nested[-1][1] != begin:
                    break
                id_ = nested.pop()[2]
            else:
                if nested:
                    parent = nested[-1][2]
                if kind is BEGIN:
                    state.begun = id_ = state.begun + 1
                    nested.append((channel, begin, id_))
                    if len(nested) > OPEN_MAX:
                        del nested[0]
            append(
                _record(
                    Record,
                    (
                        offset + at, size, kind, stream, None, None, name, category, id_, parent,
                        None if ends else clock, clock if ends else None, attributes, None, None,
                    ),
                )
            )  # fmt: skip
            last = clock
            at += size
        return at, last

    def _read_fields(
        self, plan: EventPlan, fields: Fields, values: tuple[int, ...]
    ) -> tuple[str | None, str, int | None, int | None] | None:
        """Return an event's name, attributes, id and parent; None for an end without a matching last open span."""
        kind, attributes, channel, begin = plan[0], plan[3], plan[4], plan[5]
        stack = self._stack
        name: str | None = plan[1]
        if kind is END:
            spans = stack.state.alone if fields.own else stack.state.nested
            if not spans or spans[-1][1] != begin + fields.key % values:
                return None
            return name, attributes, spans.pop()[2], None
        about = ""
        if fields.naming:
            name, about = fields.naming(self._names, fields.event, values)
        attributes = f"{attributes}{fields.members % values}{about}}}"
        if kind is not BEGIN:
            return name, attributes, None, stack.innermost
        key = begin + fields.key % values
        channel = fields.event.channel_of(values)
        return name, attributes, *stack.begin(channel, key, own=fields.own)
