"""Track records that refer to other records by id, and check the totals of a footer. JETS has both.

See docs/formats/jets.md. A distinct id that a record refers to and that no record defines counts as one missing record
(`unresolved`). The ledger decides `reorder_time` after the reference, at the footer, or at the end of the session,
whichever is first. A later definition heals the gap.

A footer's totals state how many records of each kind were written, and in some dialects how many ends of records. An
end is no event, but a missing end counts as missing. If a total exceeds the received, unresolved and malformed records,
the difference is missing for no known reason (`network`). Records that arrive after the footer heal this gap. More
records than the total prove nothing: two writers may share the file, or the footer was not last.

A number may be a damaged byte. Therefore one statement can report at most `CLAIM_MAX` missing records. A larger number
becomes a gap of unknown size, so that sums stay far below 64 bits.

Memory: ids are kept as ranges, because writers number records contiguously. Beyond `references_max` ranges, all ids
from the lowest range to the middle range count as defined.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from itertools import islice, takewhile

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.findings import Account, Finding
from tailrace.model.gap import Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind

CLAIM_MAX = 2**40
"""Maximum number of missing records that one footer, hole or clock may report. Such records would take about 100 TB."""


RANGE_BYTES, UNKNOWN_BYTES, UNRESOLVED_BYTES = 96, 768, 72
"""Memory (bytes) of a range of ids, an unknown id and an unresolved id. The size of an unknown id includes the gap row
that the id may become at any moment."""


class ReferencesState(msgspec.Struct, omit_defaults=True):
    firsts: list[int] = []
    lasts: list[int] = []
    """Last ids of the ranges of defined ids: range n is firsts[n] to lasts[n], both included."""
    hull: tuple[int, int] | None = None
    """Range in which all ids count as defined."""
    unknown: dict[int, int] = {}
    """Time (Unix ns) of the first reference to an undefined id, by id."""
    unresolved: dict[int, None] = {}
    """Newest `references_max` unresolved ids: ids whose definition did not arrive in time."""
    given_up: int = 0
    """Number of unresolved ids whose gap has not healed."""
    seen: dict[str, int] = {}
    """Number of received events, by kind."""
    ends: int | None = None
    """Number of received ends of records; None if an earlier version received some ends without counting them."""
    short: dict[str, int] = {}
    """Number of records that the totals state beyond the received, unresolved and malformed records, by kind."""
    malformed: int = 0
    claimed: int = 0
    """Number of missing records that the decoder reported, minus the records that arrived later."""
    copies: int = 0
    """Number of records in duplicate datagrams."""
    unreported: int = 0
    """Number of malformed records that no total was compared with yet."""
    explained: dict[str, int] = {}
    """Number of malformed records that explain a difference from a total, by kind."""


class References:
    """Tracks the ids and totals of one session."""

    what = Evicted.REFERENCES

    def __init__(self, limits: LedgerConfig, stream: str, state: ReferencesState) -> None:
        self.state = state
        self.evicted = 0
        self.findings: list[Finding] = []
        self._limits = limits
        self._stream = stream
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
        """Free `size` bytes: report unknown ids as unresolved, forget unresolved ids, and join ranges."""
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
        """Return whether an undefined id may become unresolved by the passing of time."""
        return bool(self.state.unknown)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield the stream and the number of referenced records that may still arrive, if there are any."""
        if self.state.unknown:
            yield self._stream, len(self.state.unknown)

    def count(self, kind: str, records: int, ids: Iterable[int | None] = ()) -> None:
        """Count received records of a kind. The records heal the gaps that earlier totals revealed. A record whose id
        in `ids` is unresolved heals its own gap instead."""
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
            self.findings.append(
                Finding(Kind.HEAL, self._stream, None, repaid, Reason.NETWORK, of=kind)
            )

    def add_copies(self, records: int) -> None:
        """Count records that are not stored because their datagram is a duplicate."""
        self.state.copies += records

    def add_malformed(self, records: int) -> None:
        """Count records with unreadable bytes as missing. Each unreadable piece already has a gap row."""
        self.state.malformed += records
        self.state.unreported += records

    def claim(self, finding: Finding) -> None:
        """Add a finding of the decoder: records that are missing, or that arrived after their gap."""
        if finding.kind == Kind.GAP:
            if finding.events > CLAIM_MAX:
                finding = finding._replace(seq=None, events=0)
            self.state.claimed += finding.events
        elif finding.events <= self.state.claimed:
            self.state.claimed -= finding.events
        else:
            return  # the event belongs to a gap of unknown size
        self.findings.append(finding)

    def defined(self, id_: int) -> bool:
        state = self.state
        if state.hull and state.hull[0] <= id_ <= state.hull[1]:
            return True
        index = bisect_right(state.firsts, id_) - 1
        return index >= 0 and id_ <= state.lasts[index]

    def define(self, id_: int) -> str | None:
        """Define the id of a received record. Return the rule that the record breaks, or None.

        The rules are `duplicate_id` (the id was defined before) and `forward_reference` (an earlier record referred to
        the id)."""
        state = self.state
        lasts = state.lasts
        if lasts and id_ == lasts[-1] + 1:
            lasts[-1] = id_
        elif not self.defined(id_):
            self._insert(id_)
        elif id_ not in state.unknown and id_ not in state.unresolved:
            return "duplicate_id"  # some ids in the hull were never defined
        if state.unknown and state.unknown.pop(id_, None) is not None:
            return "forward_reference"
        if id_ in state.unresolved:
            del state.unresolved[id_]
            state.given_up -= 1
            self.findings.append(
                Finding(Kind.HEAL, self._stream, None, 1, Reason.UNRESOLVED, id_, Kind.BEGIN)
            )
            return "forward_reference"
        return None

    @property
    def newest(self) -> tuple[int, int] | None:
        """Return the first and last id of the highest range; None if no id is defined."""
        state = self.state
        return (state.firsts[-1], state.lasts[-1]) if state.firsts else None

    @property
    def awaits(self) -> tuple[Container[int], ...]:
        """Return the ids that records referred to and that are not defined."""
        return self.state.unknown, self.state.unresolved

    def define_up_to(self, id_: int) -> None:
        """Define all ids from the end of the highest range up to `id_`. The caller ensures that `awaits` contains none
        of these ids."""
        self.state.lasts[-1] = id_

    def refer(self, id_: int, now: int) -> bool:
        """Return whether a referenced id is defined. Remember an undefined id as unknown."""
        if self.defined(id_):
            return True
        state = self.state
        if id_ not in state.unresolved:
            state.unknown.setdefault(id_, now)
            if len(state.unknown) > self._limits.references_max:
                self._give_up_first(1 + len(state.unknown) // 8)
        return False

    def expire(self, now: int) -> None:
        """Report unknown ids as unresolved if their `reorder_time` has passed, oldest first."""
        oldest = now - self._limits.reorder_time.ns
        due = takewhile(lambda known: known[1] <= oldest, self.state.unknown.items())
        for id_, _ in list(due):
            self._give_up(id_)

    def close(self) -> None:
        """Report all unknown ids as unresolved."""
        for id_ in list(self.state.unknown):
            self._give_up(id_)

    def total(self, totals: dict[str, int]) -> None:
        """Compare a footer's totals with the received records."""
        self.close()
        state = self.state
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
                self.findings.append(
                    Finding(Kind.GAP, self._stream, None, 0, Reason.NETWORK, of=kind)
                )
                continue
            explained = min(short, state.unreported)
            if explained:
                state.unreported -= explained
                state.explained[kind] = state.explained.get(kind, 0) + explained
                short -= explained
            if short:
                state.short[kind] = state.short.get(kind, 0) + short
                estimate = state.copies > 0
                self.findings.append(
                    Finding(
                        Kind.GAP, self._stream, None, short, Reason.NETWORK,
                        of=kind, estimate=estimate,
                    )
                )  # fmt: skip

    def _give_up(self, id_: int) -> None:
        state = self.state
        del state.unknown[id_]
        state.given_up += 1
        state.unresolved[id_] = None
        if len(state.unresolved) > self._limits.references_max:
            self._forget_unresolved(1 + len(state.unresolved) // 8)
        if short := state.short.get(Kind.BEGIN):
            # An earlier footer already reported this record as missing for no known reason.
            state.short[Kind.BEGIN] = short - 1
            self.findings.append(
                Finding(Kind.HEAL, self._stream, None, 1, Reason.NETWORK, of=Kind.BEGIN)
            )
        self.findings.append(
            Finding(Kind.GAP, self._stream, None, 1, Reason.UNRESOLVED, id_, Kind.BEGIN)
        )

    def _give_up_first(self, count: int) -> None:
        """Report the `count` oldest unknown ids as unresolved before their time."""
        # Collect the ids first: after deletions, each search for a dict's first key passes over all
        # deleted entries.
        first = list(islice(self.state.unknown, max(0, count)))
        for id_ in first:
            self._give_up(id_)
        self.evicted += len(first)

    def _forget_unresolved(self, count: int) -> None:
        """Forget the oldest unresolved ids. Their records no longer heal a gap."""
        first = list(islice(self.state.unresolved, max(0, count)))
        for id_ in first:
            del self.state.unresolved[id_]
        self.evicted += len(first)

    def _insert(self, id_: int) -> None:
        """Add an id outside all ranges, and join adjacent ranges."""
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
        """Join the lower half of the ranges into one, which limits memory and reports no false gap."""
        state = self.state
        half = len(state.firsts) // 2
        self.evicted += half
        low, high = state.firsts[0], state.lasts[half - 1]
        if state.hull:
            low, high = min(low, state.hull[0]), max(high, state.hull[1])
        state.hull = (low, high)
        del state.firsts[:half], state.lasts[:half]
