"""Name the fields of records in lists of columns, and edit attributes: add a flaw, or merge those of two records.

A record that breaks a rule is kept. The rule's name, one of `FLAWS` or of the format's `flaws`, is counted and written
under `$flaw` in the record's attributes (docs/formats/jets.md explains the rules in `FLAWS`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from tailrace.model.record import BEGIN_WORDS, FLAW_OF_ROW, NAMES_OF_MEMBERS, Kind, Record

FLAWS = frozenset(
    {
        # The comment after each rule describes a record that breaks the rule.
        "begin_forgotten",  # An end's id lies within the range of evicted ids, so its begin may have been evicted.
        "duplicate_id",  # An earlier record has the same id.
        "end_before_start",  # A span's end lies before its start.
        "forward_reference",  # An earlier record refers to this one.
        "orphan",  # The record refers to a record that has not arrived.
        "second_end",  # The span has already ended.
        "self_parent",  # The record is its own parent.
    }
)

EVENTS = (Kind.BEGIN, Kind.SPAN, Kind.INSTANT, Kind.COUNTER, Kind.ANNOTATION)
"""Kinds of records that count as one event each. A begin and its end are one event, so ends do not count."""

(
    OFFSET, SIZE, KIND, STREAM, SUBSTREAM, COUNTER, NAME, CATEGORY,
    ID, PARENT, START, END, ATTRIBUTES, FLAW, DETAIL,
) = range(len(Record._fields))  # fmt: skip

RecordColumns = list[list[Any]]


def write_flaws(
    flaws: Sequence[str | None], attributes: Sequence[str | None]
) -> tuple[list[str | None], Counter[str]]:
    """Add each row's flaw, if any, to its attributes. Return all attributes, and the number of rows by flaw."""
    counts: Counter[str] = Counter()
    written = list(attributes)
    for i, flaw in enumerate(flaws):
        if flaw:
            counts[flaw] += 1
            written[i] = with_flaw(attributes[i], flaw)
    return written, counts


def with_flaw(attributes: str | None, flaw: str | None) -> str | None:
    """Return the attributes with the flaw (the broken rule's name) as first member. Without a flaw, change nothing."""
    if not flaw:
        return attributes
    rest = "," + attributes[1:] if attributes and attributes != "{}" else "}"
    return f'{{"{FLAW_OF_ROW}":"{flaw}"{rest}'


_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def united(ends: str | None, begins: str | None) -> str | None:
    """Return the attributes of a span: the attributes of its end record, then those that only its begin record has.

    If values of the same attribute differ, the object `$begin` holds the begin's value. The object `$late`, which holds
    the keys of names that are not yet known, has the members of both records."""
    if begins is None or begins == "{}":
        return ends
    if ends is None or ends == "{}":
        return begins
    try:
        ours, theirs = _read_members(ends), _read_members(begins)
    except (msgspec.MsgspecError, UnicodeError):
        return f'{ends[:-1]},"{BEGIN_WORDS}":{begins}}}'
    if ours.keys().isdisjoint(theirs):
        return f"{ends[:-1]},{begins[1:]}"
    if NAMES_OF_MEMBERS in ours and NAMES_OF_MEMBERS in theirs:
        keys = _read_members(theirs.pop(NAMES_OF_MEMBERS)) | _read_members(ours[NAMES_OF_MEMBERS])
        ours[NAMES_OF_MEMBERS] = msgspec.Raw(msgspec.json.encode(keys))
        ends = msgspec.json.encode(ours).decode()
    added = {name: value for name, value in theirs.items() if name not in ours}
    changed = {
        n: value for n, value in theirs.items() if n in ours and bytes(ours[n]) != bytes(value)
    }
    if changed:
        added[BEGIN_WORDS] = msgspec.Raw(msgspec.json.encode(changed))
    return ends if not added else f"{ends[:-1]},{msgspec.json.encode(added).decode()[1:]}"
