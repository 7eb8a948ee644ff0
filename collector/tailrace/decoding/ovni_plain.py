"""Events without payload, many at a time: what `ovni_event` says of them, only quicker.

Most events are such: what a thread begins and ends to do, and what happens to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tailrace.decoding.ovni_events import EVENTS
from tailrace.decoding.ovni_frame import HEAD, Numbers
from tailrace.decoding.ovni_stack import OPEN_MAX, StackState
from tailrace.model.record import Kind, Record

BEGIN, END, INSTANT = Kind.BEGIN, Kind.END, Kind.INSTANT

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)

_PLAIN = {
    b"\0" + mcv: (
        INSTANT if event.opens is None else BEGIN if event.opens else END,
        event.name,
        event.model,
        f'{{"{"end_mcv" if event.opens is False else "mcv"}":"{event.mcv}"}}',
        event.channel,
        event.begin,
    )
    for mcv, event in EVENTS.items()
    if event.role in {"call", "thread", "at"} and not event.least
}
"""By flags and MCV: kind, name, category, attributes, channel, and what begins the pair."""


def read_plain(
    buffer: bytearray,
    at: int,
    offset: int,
    stream: str,
    numbers: Numbers,
    last: int,
    stack: StackState,
    records: list[Record],
) -> tuple[int, int]:
    """Read from `at` up to the first event that is not plain or whose clock is before the `last`; give
    where that is, and the last clock then. `offset` is that of the buffer's first byte."""
    head, plain, append = numbers.head.unpack_from, _PLAIN.get, records.append
    nested, begun = stack.nested, stack.begun
    final = len(buffer) - HEAD
    while at <= final:
        key, clock = head(buffer, at)
        plan = plain(key)
        if plan is None or clock < last:
            break
        kind, name, category, attributes, channel, begin = plan
        id_ = parent = end = None
        start = last = clock
        if kind is END:
            if not nested or nested[-1][1] != begin:
                break
            id_ = nested.pop()[2]
            start, end = None, clock
        else:
            if nested:
                parent = nested[-1][2]
            if kind is BEGIN:
                begun = id_ = begun + 1
                nested.append((channel, begin, id_))
                if len(nested) > OPEN_MAX:
                    del nested[0]
        append(
            _record(
                Record,
                (
                    offset + at, HEAD, kind, stream, None, None, name, category, id_, parent,
                    start, end, attributes, None, None,
                ),
            )
        )  # fmt: skip
        at += HEAD
    stack.begun = begun
    return at, last
