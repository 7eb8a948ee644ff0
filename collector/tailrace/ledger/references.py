"""Records that refer to others by id, and the totals a footer gives, as JETS has both
(docs/formats/jets.md).

Each distinct id that is referred to and never defined is one missing record (`unresolved`). It is
decided `reorder_time` after the reference, at the footer, or at the end of the session, whichever
is first; a definition that comes later repays it.

A footer's totals tell how many records of each kind were written, the ends of records among them in
some dialects: an end is no event, but one that is missing is. What is short of a total, and not
already missing as an unresolved or malformed record, is missing for no known reason (`network`);
records that come after the footer repay it. More records than the total say nothing: two writers,
or a footer that was not last.

Numbers are what a producer says, or a damaged byte. Nobody lacks more than `CLAIM_MAX` records at
once: a number that says so stands as a gap of unknown size, and sums stay far below 64 bits.

Memory: ids are kept as ranges, since writers number them contiguously; at most `references_max`
ranges, then the hull of the oldest half is taken as defined and no claim is made about it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.findings import Account, Finding
from tailrace.model.gap import Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind

CLAIM_MAX = 2**40
"""Missing records that one footer, hole or clock is believed: as many are some 100 TB."""


RANGE_BYTES, UNKNOWN_BYTES, UNRESOLVED_BYTES = 96, 768, 72
"""What an entry takes. An unknown id may become a gap row at any moment, which is counted in."""


class ReferencesState(msgspec.Struct, omit_defaults=True):
    firsts: list[int] = []
    lasts: list[int] = []
    """The defined ids: range n is firsts[n] to lasts[n], both included."""
    hull: tuple[int, int] | None = None
    """All ids in this range count as defined."""
    unknown: dict[int, int] = {}
    """Ids referred to and not defined, with when that was noticed (Unix ns)."""
    unresolved: dict[int, None] = {}
    """Those that were given up; the newest `references_max` of them."""
    given_up: int = 0
    """How many are given up and not repaid."""
    seen: dict[str, int] = {}
    """Events by kind."""
    ends: int | None = None
    """Ends of records; None where an earlier version saw some of them and did not count."""
    short: dict[str, int] = {}
    """By kind, what the totals say is missing beyond unresolved and malformed records."""
    malformed: int = 0
    claimed: int = 0
    """Missing records that the decoder knows of, net of those that came after all."""
    copies: int = 0
    """Records that came once more, in a datagram equal to another."""
    unreported: int = 0
    """Malformed records that no total has been held against yet."""
    explained: dict[str, int] = {}
    """By kind, malformed records that a total lacked."""


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
        """Give up unknown ids, which are missing then; forget ids given up before; and join ranges."""
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
        """Whether time alone can decide a reference."""
        return bool(self.state.unknown)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield the stream and how many records it was referred to that may still come, if any may."""
        if self.state.unknown:
            yield self._stream, len(self.state.unknown)

    def count(self, kind: str, records: int, ids: Iterable[int | None] = ()) -> None:
        """Take note that so many more records of a kind were seen. They repay what the totals lacked,
        but for those whose `ids` were given up: these repay gaps of their own."""
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
        """Records that are not stored: the datagram that brings them is a copy of another."""
        self.state.copies += records

    def add_malformed(self, records: int) -> None:
        """Records whose bytes came but could not be read: missing, with a row of their own."""
        self.state.malformed += records
        self.state.unreported += records

    def claim(self, finding: Finding) -> None:
        """What the decoder knows to be missing, or to have come after all."""
        if finding.kind == Kind.GAP:
            if finding.count > CLAIM_MAX:
                finding = finding._replace(seq=None, count=0)
            self.state.claimed += finding.count
        elif finding.count <= self.state.claimed:
            self.state.claimed -= finding.count
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
        """A record with this id came. The rule it breaks, or None: duplicate_id when the id was
        defined before, forward_reference when it was referred to before."""
        state = self.state
        lasts = state.lasts
        if lasts and id_ == lasts[-1] + 1:
            lasts[-1] = id_
        elif self.defined(id_):
            return "duplicate_id"
        else:
            self._insert(id_)
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

    def refer(self, id_: int, now: int) -> bool:
        """Whether a referred id is defined; if not, it is remembered as unknown."""
        if self.defined(id_):
            return True
        state = self.state
        if id_ not in state.unresolved:
            state.unknown.setdefault(id_, now)
            if len(state.unknown) > self._limits.references_max:
                self._give_up_first(1 + len(state.unknown) // 8)
        return False

    def expire(self, now: int) -> None:
        """Give up the references whose time has passed (the oldest stand first)."""
        oldest = now - self._limits.reorder_time.ns
        due = takewhile(lambda known: known[1] <= oldest, self.state.unknown.items())
        for id_, _ in list(due):
            self._give_up(id_)

    def close(self) -> None:
        """Nothing more will come, or nobody wants to wait: give up all that is unknown."""
        for id_ in list(self.state.unknown):
            self._give_up(id_)

    def total(self, totals: dict[str, int]) -> None:
        """A footer: hold its totals against what was seen."""
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
        """Forget the ids that were given up first: should their records come, nothing is repaid."""
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
        """Take the lower half of the ranges as one: bounded memory, and no false claim."""
        state = self.state
        half = len(state.firsts) // 2
        self.evicted += half
        low, high = state.firsts[0], state.lasts[half - 1]
        if state.hull:
            low, high = min(low, state.hull[0]), max(high, state.hull[1])
        state.hull = (low, high)
        del state.firsts[:half], state.lasts[:half]
