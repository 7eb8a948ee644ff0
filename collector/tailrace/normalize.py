"""Turn records into rows: match ends to begins, check references, write flaws, compute wall time. Pure.

All functions work on columns: lists in the order of `Record`'s fields, changed in place. The rules that
need a session's earlier record ids are checked here (docs/formats/jets.md explains each). A record that
breaks a rule is kept; the rule's name, one of `FLAWS`, is counted and written under `$flaw` in its attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from json.encoder import encode_basestring as quote
from math import isfinite
from typing import Any

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.references import References
from tailrace.model.holding import SHORT, Evicted, cost, shortened
from tailrace.model.record import NAME_OF_ROW, Kind, Record

FLAWS = frozenset(
    {
        "begin_forgotten",  # an end whose id lies among the begins that were evicted: its begin may be one
        "duplicate_id",  # a record with an id that was defined before
        "end_before_start",  # a span's end lies before its start
        "forward_reference",  # a record that was referred to before it came
        "orphan",  # refers to a record that was not seen (yet)
        "second_end",  # an end for a record that has ended
        "self_parent",  # a record that is its own parent
    }
)

EVENTS = (Kind.BEGIN, Kind.SPAN, Kind.INSTANT, Kind.COUNTER, Kind.ANNOTATION)
"""The kinds of records that count as one event each; a begin and its end are one event."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

(
    OFFSET, SIZE, KIND, STREAM, SUBSTREAM, COUNTER, NAME, CATEGORY,
    ID, PARENT, START, END, ATTRIBUTES, FLAW, DETAIL,
) = range(len(Record._fields))  # fmt: skip

Columns = list[list[Any]]


class OpenSpan(msgspec.Struct, array_like=True):
    """The fields of a begin that its span's row needs; `asked` is the key by which the begin asks for its name."""

    start: int | None
    name: str | None
    category: str | None
    parent: int | None
    asked: str | None = None


SPAN_BYTES = 512
"""Upper bound on the memory of an open span with short texts."""


def _texts(span: OpenSpan) -> int:
    return cost(span.name) + cost(span.category) + cost(span.asked)


def _shortened(text: str | None) -> str | None:
    return None if text is None else shortened(text)


class ForgottenSpans(msgspec.Struct, omit_defaults=True):
    """The open spans that were evicted: how many, and their lowest and highest id."""

    count: int = 0
    first: int = 0
    last: int = -1

    def add(self, id_: int) -> None:
        self.first = min(self.first, id_) if self.count else id_
        self.last = max(self.last, id_) if self.count else id_
        self.count += 1


class Spans:
    """The open spans of one session whose records have ids."""

    what = Evicted.SPANS

    def __init__(
        self,
        limits: LedgerConfig,
        references: References,
        state: dict[int, OpenSpan],
        forgotten: ForgottenSpans,
    ) -> None:
        self.open = state
        self.evicted = 0
        self._forgotten = forgotten
        self._references = references
        self._limit = limits.open_spans_max
        self._texts = sum(map(_texts, state.values()))

    @property
    def held(self) -> int:
        return SPAN_BYTES * len(self.open) + self._texts

    def give_way(self, size: int) -> None:
        """Evict the spans that began first, until `size` bytes are free."""
        goal = self.held - size
        for id_, span in list(islice(self.open.items(), max(0, -(-size // SPAN_BYTES)))):
            if self.held <= goal:
                break
            del self.open[id_]
            self._texts -= _texts(span)
            self.evicted += 1
            self._forgotten.add(id_)

    def take(self, columns: Columns, now: int) -> None:
        """Match ends to begins and check references; a matched `end` becomes a `span` with the begin's fields."""
        kinds, parents = columns[KIND], columns[PARENT]
        for kind in (*EVENTS, Kind.END):
            if records := kinds.count(kind):
                ids = (id_ for each, id_ in zip(kinds, columns[ID], strict=True) if each == kind)
                self._references.count(kind, records, ids if kind == Kind.BEGIN else ())
        opened = self.open
        for i, kind in enumerate(kinds):
            if kind == Kind.BEGIN:
                self._begin(columns, i, now)
            elif kind == Kind.END:
                self._end(columns, i, now)
            else:
                parent = parents[i]
                if parent is not None and parent not in opened:
                    self._refer(columns, i, parent, now)

    def _begin(self, columns: Columns, i: int, now: int) -> None:
        id_, parent = columns[ID][i], columns[PARENT][i]
        if id_ is None:
            return
        if broken := self._references.define(id_):
            columns[FLAW][i] = columns[FLAW][i] or broken
        if parent is not None and parent not in self.open:
            if parent == id_:
                columns[FLAW][i] = columns[FLAW][i] or "self_parent"
            else:
                self._refer(columns, i, parent, now)
        if len(self.open) >= self._limit:
            self.give_way(self.held // 8)
        name, category = columns[NAME][i], columns[CATEGORY][i]
        asked = _asked_name(columns[ATTRIBUTES][i]) if name is None else None
        if asked or (name and len(name) > SHORT) or (category and len(category) > SHORT):
            name, category, asked = _shortened(name), _shortened(category), _shortened(asked)
            self._texts += cost(name) + cost(category) + cost(asked)
        if id_ in self.open:
            self._texts -= _texts(self.open[id_])
        self.open[id_] = OpenSpan(columns[START][i], name, category, parent, asked)

    def _end(self, columns: Columns, i: int, now: int) -> None:
        id_ = columns[ID][i]
        begun = self.open.pop(id_, None)
        if begun is None:
            if id_ is not None and not self._refer(columns, i, id_, now):
                forgotten = self._forgotten.first <= id_ <= self._forgotten.last
                flaw = "begin_forgotten" if forgotten else "second_end"
                columns[FLAW][i] = columns[FLAW][i] or flaw
            return
        if self._texts:
            self._texts -= _texts(begun)
        columns[KIND][i] = Kind.SPAN
        columns[START][i], columns[NAME][i] = begun.start, begun.name
        columns[CATEGORY][i], columns[PARENT][i] = begun.category, begun.parent
        if begun.asked is not None:
            columns[ATTRIBUTES][i] = _asking(columns[ATTRIBUTES][i], begun.asked)
        end = columns[END][i]
        if end is not None and begun.start is not None and end < begun.start:
            columns[FLAW][i] = columns[FLAW][i] or "end_before_start"

    def _refer(self, columns: Columns, i: int, id_: int, now: int) -> bool:
        """Note a reference; return whether the record it names is unknown, which becomes the row's flaw."""
        if self._references.refer(id_, now):
            return False
        columns[FLAW][i] = columns[FLAW][i] or "orphan"
        return True


def write_flaws(
    flaws: Sequence[str | None], attributes: Sequence[str | None]
) -> tuple[list[str | None], Counter[str]]:
    """Return the attributes with each row's flaw written into them, and the number of rows by flaw."""
    counts: Counter[str] = Counter()
    written = list(attributes)
    for i, flaw in enumerate(flaws):
        if flaw:
            counts[flaw] += 1
            written[i] = _with_member(attributes[i], f'"$flaw":"{flaw}"')
    return written, counts


class _Asking(msgspec.Struct):
    name: str | None = msgspec.field(name=NAME_OF_ROW, default=None)


_read_asking = msgspec.json.Decoder(_Asking).decode


def _asked_name(attributes: str | None) -> str | None:
    """Return the key by which a row asks for its name."""
    if attributes is None or NAME_OF_ROW not in attributes:
        return None
    try:
        return _read_asking(attributes).name
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _asking(attributes: str | None, key: str) -> str:
    """Return attributes that ask for a name by `key`, unless they ask for one already."""
    if attributes is not None and _asked_name(attributes) is not None:
        return attributes
    return _with_member(attributes, f'"{NAME_OF_ROW}":{quote(key)}')


def _with_member(attributes: str | None, member: str) -> str:
    """Return the attributes with one more member in front of the others."""
    rest = "," + attributes[1:] if attributes and attributes != "{}" else "}"
    return f"{{{member}{rest}"


def wall_times(
    starts: Sequence[int | None], epoch: int | None, ticks_per_second: float | None
) -> list[int | None]:
    """Convert starts in ticks to Unix nanoseconds; None where unknown or beyond 64 bits."""
    if epoch is None or not ticks_per_second:
        return [None] * len(starts)
    if ticks_per_second == 1e9:
        times = [None if start is None else epoch + start for start in starts]
    else:
        times = [_scale(start, epoch, ticks_per_second) for start in starts]
    known = times if None not in times else [time for time in times if time is not None]
    if known and (max(known) > INT64_MAX or min(known) < INT64_MIN):  # type: ignore[type-var, operator] # no None in it
        return [time if time is not None and _fits(time) else None for time in times]
    return times


def _scale(start: int | None, epoch: int, ticks_per_second: float) -> int | None:
    if start is None:
        return None
    if ticks_per_second.is_integer():
        return epoch + start * 1_000_000_000 // int(ticks_per_second)
    nanoseconds = start * (1e9 / ticks_per_second)
    return epoch + round(nanoseconds) if isfinite(nanoseconds) else None


def _fits(time: int) -> bool:
    return INT64_MIN <= time <= INT64_MAX
