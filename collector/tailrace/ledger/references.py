"""Counts records that refer to others by id, and checks the totals of a footer; JETS has both.

See docs/formats/jets.md. Each distinct id that is referred to and never defined is one missing record
(`unresolved`). The ledger decides `reorder_time` after the reference, at the footer, or at the end of the session,
whichever is first. A definition that comes later repays it.

A footer's totals tell how many records of each kind were written, in some dialects also how many ends of
records: an end is no event, but a missing end counts as missing. A shortfall beyond unresolved and malformed
records is missing for no known reason (`network`); records that come after the footer
repay it. More records than the total mean nothing: two writers, or a footer that was not last.

A number may be a damaged byte. No more than `CLAIM_MAX` records are called missing at once: a larger number
becomes a gap of unknown size, and sums stay far below 64 bits.

Memory: ids are kept as ranges, since writers number them contiguously. Beyond `references_max`
ranges, the hull of the lower half counts as defined.
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
"""The most missing records that one footer, hole or clock may claim: some 100 TB of them."""


RANGE_BYTES, UNKNOWN_BYTES, UNRESOLVED_BYTES = 96, 768, 72
"""Bytes of an entry, including the gap row that an unknown id may become at any moment."""


class ReferencesState(msgspec.Struct, omit_defaults=True):
    firsts: list[int] = []
    lasts: list[int] = []
    """The defined ids: range n is firsts[n] to lasts[n], both included."""
    hull: tuple[int, int] | None = None
    """All ids in this range count as defined."""
    unknown: dict[int, int] = {}
    """Ids referred to and not defined, with when that was noticed (Unix ns)."""
    unresolved: dict[int, None] = {}
    """Unknown ids that were given up; the newest `references_max` of them."""
    given_up: int = 0
    """Ids that were given up and not repaid."""
    seen: dict[str, int] = {}
    """Events by kind."""
    ends: int | None = None
    """Ends of records; None where an earlier version saw some of them and did not count."""
    short: dict[str, int] = {}
    """Records that the totals lack beyond unresolved and malformed ones, by kind."""
    malformed: int = 0
    claimed: int = 0
    """Missing records that the decoder found, net of those that came after all."""
    copies: int = 0
    """Records that came again, in a datagram equal to an earlier one."""
    unreported: int = 0
    """Malformed records that were not compared with a total yet."""
    explained: dict[str, int] = {}
    """Malformed records that a total lacked, by kind."""


class References:
    """The ids and totals of one session."""

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
        """Free so many bytes: give up unknown ids, forget ids given up before, and join ranges."""
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
        """Return whether time alone can decide a reference."""
        return bool(self.state.unknown)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield the stream and how many referenced records may still come, if any."""
        if self.state.unknown:
            yield self._stream, len(self.state.unknown)

    def count(self, kind: str, records: int, ids: Iterable[int | None] = ()) -> None:
        """Count so many more records of a kind. They repay what the totals lacked, except for
        records whose `ids` were given up, which repay gaps of their own."""
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
        """Count records that are not stored, because their datagram is a copy of another."""
        self.state.copies += records

    def add_malformed(self, records: int) -> None:
        """Count records whose bytes were unreadable: they are missing, with rows of their own."""
        self.state.malformed += records
        self.state.unreported += records

    def claim(self, finding: Finding) -> None:
        """Add a finding of the decoder: records that are missing, or that came after all."""
        if finding.kind == Kind.GAP:
            if finding.events > CLAIM_MAX:
                finding = finding._replace(seq=None, events=0)
            self.state.claimed += finding.events
        elif finding.events <= self.state.claimed:
            self.state.claimed -= finding.events
        else:
            return  # it was missing from a gap of unknown size
        self.findings.append(finding)

    def defined(self, id_: int) -> bool:
        state = self.state
        if state.hull and state.hull[0] <= id_ <= state.hull[1]:
            return True
        index = bisect_right(state.firsts, id_) - 1
        return index >= 0 and id_ <= state.lasts[index]

    def define(self, id_: int) -> str | None:
        """Define an id, whose record came. Return the rule that the record breaks, or None.

        The rules are `duplicate_id` (defined before) and `forward_reference` (referred to before)."""
        state = self.state
        lasts = state.lasts
        if lasts and id_ == lasts[-1] + 1:
            lasts[-1] = id_
        elif not self.defined(id_):
            self._insert(id_)
        elif id_ not in state.unknown and id_ not in state.unresolved:
            return "duplicate_id"  # of the ids in the hull, some were never defined
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
        """Return the first and the last id of the highest range; None if no id is defined."""
        state = self.state
        return (state.firsts[-1], state.lasts[-1]) if state.firsts else None

    @property
    def awaits(self) -> tuple[Container[int], ...]:
        """Return the ids that were referred to and are not defined."""
        return self.state.unknown, self.state.unresolved

    def define_up_to(self, id_: int) -> None:
        """Define the ids behind the highest range up to this one, of which `awaits` has none."""
        self.state.lasts[-1] = id_

    def refer(self, id_: int, now: int) -> bool:
        """Return whether a referenced id is defined. Remember it as unknown if not."""
        if self.defined(id_):
            return True
        state = self.state
        if id_ not in state.unresolved:
            state.unknown.setdefault(id_, now)
            if len(state.unknown) > self._limits.references_max:
                self._give_up_first(1 + len(state.unknown) // 8)
        return False

    def expire(self, now: int) -> None:
        """Give up the references whose time has passed; the oldest come first."""
        oldest = now - self._limits.reorder_time.ns
        due = takewhile(lambda known: known[1] <= oldest, self.state.unknown.items())
        for id_, _ in list(due):
            self._give_up(id_)

    def close(self) -> None:
        """Give up all unknown ids."""
        for id_ in list(self.state.unknown):
            self._give_up(id_)

    def total(self, totals: dict[str, int]) -> None:
        """Compare a footer's totals with the records that were seen."""
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
            # A footer has counted this record among those that are missing for no known reason.
            state.short[Kind.BEGIN] = short - 1
            self.findings.append(
                Finding(Kind.HEAL, self._stream, None, 1, Reason.NETWORK, of=Kind.BEGIN)
            )
        self.findings.append(
            Finding(Kind.GAP, self._stream, None, 1, Reason.UNRESOLVED, id_, Kind.BEGIN)
        )

    def _give_up_first(self, count: int) -> None:
        """Give up the ids that have been unknown for longest, before their time."""
        # One look at many: the first key of a dict is found by passing over all that are gone.
        first = list(islice(self.state.unknown, max(0, count)))
        for id_ in first:
            self._give_up(id_)
        self.evicted += len(first)

    def _forget_unresolved(self, count: int) -> None:
        """Forget the ids that were given up first; their records repay nothing any more."""
        first = list(islice(self.state.unresolved, max(0, count)))
        for id_ in first:
            del self.state.unresolved[id_]
        self.evicted += len(first)

    def _insert(self, id_: int) -> None:
        """Add an id outside all ranges, joining its neighbours."""
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
        """Join the lower half of the ranges to one, which bounds memory and claims nothing false."""
        state = self.state
        half = len(state.firsts) // 2
        self.evicted += half
        low, high = state.firsts[0], state.lasts[half - 1]
        if state.hull:
            low, high = min(low, state.hull[0]), max(high, state.hull[1])
        state.hull = (low, high)
        del state.firsts[:half], state.lasts[:half]
