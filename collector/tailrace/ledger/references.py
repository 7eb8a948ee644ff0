"""Track the ids of records, and compare the totals in a footer with the received records (docs/formats/jets.md).

If records refer to an id and no record with this id arrives, one record is missing (reason `unresolved`). The gap is
reported `reorder_time` after the first reference, or at the footer or the end of the session. If the record arrives
later, a row of the kind heal takes the gap back.

If a footer's total exceeds the received, malformed and `unresolved` records of a kind, the difference is reported
with the reason `network`. If more records arrived than the total, nothing is reported: two writers may share the
file, or the footer was not the last one.

If the decoder reports that the input lacks its beginning (reason `late_join`), missing records may lie before the
input, for example in another file. Records that references and totals show to be missing are then not reported. A
footer whose totals equal the received records takes the decoder's gap back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from itertools import islice, takewhile

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import Account, Finding, Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind

CLAIM_MAX = 2**40
"""Maximum number of missing records that one footer, one range of missing ids or one clock record can report. So
many would take about 100 TB, so a greater number is a damaged value."""


_COUNTED = Kind.BEGIN, Kind.INSTANT, Kind.ANNOTATION
"""Kinds of records whose total number a complete footer states."""

RANGE_BYTES, UNKNOWN_BYTES, UNRESOLVED_BYTES = 96, 768, 72
"""Memory (bytes) of a range of received ids, of an awaited id with its possible gap row, and of an id reported as
missing."""


class ReferencesState(msgspec.Struct, omit_defaults=True):
    firsts: list[int] = []
    lasts: list[int] = []
    """Last id of each range of received ids, in order. Range n contains the ids from `firsts[n]` to `lasts[n]`."""
    hull: tuple[int, int] | None = None
    """Range into which the lowest ranges were joined to save memory. All ids in it count as received."""
    unknown: dict[int, int] = {}
    """Time (Unix ns) of the first reference to each id whose record has not arrived."""
    unresolved: dict[int, None] = {}
    """The ids that were reported as missing most recently, at most `references_max`. If a record with such an id
    arrives, a heal row takes back the gap row for this id."""
    given_up: int = 0
    """Number of ids that were reported as missing and whose record has not arrived."""
    seen: dict[str, int] = {}
    """Number of received events of each kind."""
    ends: int | None = None
    """Number of received end records; None in sessions of an older version that did not count them."""
    short: dict[str, int] = {}
    """By kind, the number of missing records that only a footer's total shows."""
    malformed: int = 0
    claimed: int = 0
    """Number of missing records that the decoder itself reported, minus those that arrived later."""
    copies: int = 0
    """Number of records in duplicate datagrams."""
    unreported: int = 0
    """Number of malformed records that have not yet been counted as records that a footer's total shows as missing."""
    explained: dict[str, int] = {}
    """By kind, the number of records that a footer's total shows as missing and that arrived malformed. Their gap rows
    are written for the malformed bytes, not for the footer."""
    late: Finding | None = None
    """The decoder's gap for the missing beginning of the input."""


class References:
    """Tracks the ids of one session's records, and compares the totals in its footers with the received records."""

    what = Evicted.REFERENCES

    def __init__(self, limits: LedgerConfig, state: ReferencesState) -> None:
        self.state = state
        self.evicted = 0
        self.findings: list[Finding] = []
        self._limits = limits
        if state.ends is None and not state.seen:
            state.ends = 0

    @property
    def held(self) -> int:
        state = self.state
        return (
            RANGE_BYTES * len(state.firsts)
            + UNKNOWN_BYTES * len(state.unknown)
            + UNRESOLVED_BYTES * len(state.unresolved)
        )

    def give_way(self, size: int) -> None:
        """Free `size` bytes, in this order: report awaited ids as missing early, forget ids that were reported as
        missing, join ranges of received ids."""
        state = self.state
        goal = self.held - size
        self._give_up_first(-(-size // (UNKNOWN_BYTES - UNRESOLVED_BYTES)))
        self._forget_unresolved(-(-(self.held - goal) // UNRESOLVED_BYTES))
        while len(state.firsts) > 1 and self.held > goal:
            self._forget()

    @property
    def account(self) -> Account:
        state = self.state
        seen = sum(state.seen.values())
        missing = state.given_up + sum(state.short.values()) + state.malformed + state.claimed
        return Account(seen + missing, seen + state.copies, missing, state.copies)

    @property
    def waiting(self) -> bool:
        """Return whether records refer to ids whose own records have not arrived."""
        return bool(self.state.unknown)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield the number of awaited records, if there are any, with "" as the stream."""
        if self.state.unknown:
            yield "", len(self.state.unknown)

    def count(self, kind: str, records: int, ids: Iterable[int | None] = ()) -> None:
        """Count `records` records of a kind. If a footer's total showed that records of this kind are missing, take
        that gap back for these records, by a heal. Do not count records in this heal whose id (in `ids`) was reported
        as missing: `define` adds heals for these."""
        state = self.state
        if kind != Kind.END:
            state.seen[kind] = state.seen.get(kind, 0) + records
        elif state.ends is not None:
            state.ends += records
        if short := state.short.get(kind):
            repaid = min(short, records - len(state.unresolved.keys() & set(ids)))
            if not repaid:
                return
            state.short[kind] = short - repaid
            self.findings.append(Finding(Kind.HEAL, "", None, repaid, Reason.NETWORK, of=kind))

    def add_copies(self, records: int) -> None:
        self.state.copies += records

    def add_malformed(self, records: int) -> None:
        """Count malformed records as missing, but add no gap: each range of unreadable bytes already has a gap row of
        its own."""
        self.state.malformed += records
        self.state.unreported += records

    def claim(self, finding: Finding) -> None:
        """Add a loss that the decoder has found (a gap), or its report that missing records have arrived after all (a
        heal)."""
        if finding.kind == Kind.GAP:
            if finding.events > CLAIM_MAX:
                finding = finding._replace(seq=None, events=0)
            self.state.claimed += finding.events
            if finding.reason == Reason.LATE_JOIN:
                self.state.late = finding
        elif finding.events <= self.state.claimed:
            self.state.claimed -= finding.events
        else:
            # Report no heal for the late record: the missing record was part of a gap of unknown size, which cannot be
            # reduced by one.
            return
        self.findings.append(finding)

    def defined(self, id_: int) -> bool:
        state = self.state
        if state.hull and state.hull[0] <= id_ <= state.hull[1]:
            return True
        index = bisect_right(state.firsts, id_) - 1
        return index >= 0 and id_ <= state.lasts[index]

    def define(self, id_: int) -> str | None:
        """Add the id of a received record. Return the rule that the record breaks, or None: `duplicate_id` (an
        earlier record has the id) or `forward_reference` (an earlier record refers to it)."""
        state = self.state
        lasts = state.lasts
        if lasts and id_ == lasts[-1] + 1:
            lasts[-1] = id_
        elif not self.defined(id_):
            self._insert(id_)
        elif id_ not in state.unknown and id_ not in state.unresolved:
            # An id in `unknown` or `unresolved` has not been received. It may still lie within `hull`, the range that
            # stands for many ranges of received ids to save memory.
            return "duplicate_id"
        if state.unknown and state.unknown.pop(id_, None) is not None:
            return "forward_reference"
        if id_ in state.unresolved:
            del state.unresolved[id_]
            if not state.late:
                state.given_up -= 1
                self.findings.append(
                    Finding(Kind.HEAL, "", None, 1, Reason.UNRESOLVED, id_, Kind.BEGIN)
                )
            return "forward_reference"
        return None

    @property
    def newest(self) -> tuple[int, int] | None:
        """Return the first and the last id of the highest range of received ids, or None."""
        state = self.state
        return (state.firsts[-1], state.lasts[-1]) if state.firsts else None

    @property
    def awaits(self) -> tuple[Container[int], ...]:
        """Return the ids that records refer to and no record has: the awaited ids, and the ids reported as missing."""
        return self.state.unknown, self.state.unresolved

    def define_up_to(self, id_: int) -> None:
        """Extend the highest range of received ids to `id_`. No id in between may be in `awaits`."""
        self.state.lasts[-1] = id_

    def refer(self, id_: int, now: int) -> bool:
        """Return whether the record with an id has arrived. If not, remember the reference to it."""
        if self.defined(id_):
            return True
        state = self.state
        if id_ not in state.unresolved:
            state.unknown.setdefault(id_, now)
            if len(state.unknown) > self._limits.references_max:
                self._give_up_first(1 + len(state.unknown) // 8)
        return False

    def expire(self, now: int) -> None:
        """Report the ids whose record did not arrive within `reorder_time` after the first reference."""
        oldest = now - self._limits.reorder_time.ns
        due = takewhile(lambda known: known[1] <= oldest, self.state.unknown.items())
        for id_, _ in list(due):
            self._give_up(id_)

    def close(self) -> None:
        for id_ in list(self.state.unknown):
            self._give_up(id_)

    def total(self, totals: dict[str, int]) -> None:
        """Compare the totals of a footer with the received records, and add a gap for each kind with fewer records."""
        self.close()
        state = self.state
        if state.late:
            self._end_late(totals, state.late)
            return
        for kind in sorted(totals):
            seen = state.ends if kind == Kind.END else state.seen.get(kind, 0)
            if seen is None:
                continue
            short = totals[kind] - seen - state.short.get(kind, 0) - state.explained.get(kind, 0)
            if kind == Kind.BEGIN:
                short -= state.given_up
            if short <= 0:
                continue
            if short > CLAIM_MAX:
                self.findings.append(Finding(Kind.GAP, "", None, 0, Reason.NETWORK, of=kind))
                continue
            explained = min(short, state.unreported)
            if explained:
                state.unreported -= explained
                state.explained[kind] = state.explained.get(kind, 0) + explained
                short -= explained
            if short:
                state.short[kind] = state.short.get(kind, 0) + short
                gap = Finding(Kind.GAP, "", None, short, Reason.NETWORK, of=kind)
                self.findings.append(gap._replace(estimate=state.copies > 0))

    def _end_late(self, totals: dict[str, int], late: Finding) -> None:
        """Take back the gap for the missing beginning of the input if the totals of all kinds, and the references, show
        that no record is missing."""
        state = self.state
        equal = all(totals.get(kind) == state.seen.get(kind, 0) for kind in _COUNTED)
        if equal and totals.get(Kind.END, state.ends) == state.ends and not state.unresolved:
            state.late = None
            self.findings.append(late._replace(kind=Kind.HEAL))

    def _give_up(self, id_: int) -> None:
        state = self.state
        del state.unknown[id_]
        state.unresolved[id_] = None
        if len(state.unresolved) > self._limits.references_max:
            self._forget_unresolved(1 + len(state.unresolved) // 8)
        if state.late:
            return
        state.given_up += 1
        if short := state.short.get(Kind.BEGIN):
            # A gap from a footer's total already counts this record. Take the record back from that gap, because the
            # gap for the record's id counts it again.
            state.short[Kind.BEGIN] = short - 1
            self.findings.append(Finding(Kind.HEAL, "", None, 1, Reason.NETWORK, of=Kind.BEGIN))
        self.findings.append(Finding(Kind.GAP, "", None, 1, Reason.UNRESOLVED, id_, Kind.BEGIN))

    def _give_up_first(self, count: int) -> None:
        # Collect the ids before the deletions. After each deletion, Python finds a dict's first key only by a search
        # through all deleted entries.
        first = list(islice(self.state.unknown, max(0, count)))
        for id_ in first:
            self._give_up(id_)
        self.evicted += len(first)

    def _forget_unresolved(self, count: int) -> None:
        """Forget the `count` ids that were reported as missing longest ago. Their gaps remain."""
        first = list(islice(self.state.unresolved, max(0, count)))
        for id_ in first:
            del self.state.unresolved[id_]
        self.evicted += len(first)

    def _insert(self, id_: int) -> None:
        """Add an id that is in no range of received ids. Join ranges that become adjacent."""
        firsts, lasts = self.state.firsts, self.state.lasts
        index = bisect_right(firsts, id_)
        joins_left = index > 0 and lasts[index - 1] == id_ - 1
        joins_right = index < len(firsts) and firsts[index] == id_ + 1
        if joins_left and joins_right:
            lasts[index - 1] = lasts.pop(index)
            firsts.pop(index)
        elif joins_left:
            lasts[index - 1] = id_
        elif joins_right:
            firsts[index] = id_
        else:
            firsts.insert(index, id_)
            lasts.insert(index, id_)
            if len(firsts) > self._limits.references_max:
                self._forget()

    def _forget(self) -> None:
        """Replace the lower half of the ranges of received ids by one range that covers them. No gap is then reported
        for missing ids within this range."""
        state = self.state
        half = len(state.firsts) // 2
        self.evicted += half
        low, high = state.firsts[0], state.lasts[half - 1]
        if state.hull:
            low, high = min(low, state.hull[0]), max(high, state.hull[1])
        state.hull = (low, high)
        del state.firsts[:half], state.lasts[:half]
