"""The spool beside a model of it: a list of what was appended and a number, what of it is durable."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.config.schema import SpoolConfig
from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.segment import HEAD_SIZE
from tailrace.spool.spool import Spool
from tailrace.units import Size

CONFIG = SpoolConfig(segment_size=Size(2000), max_size=Size(20_000))


class SteppedClock:
    def __init__(self) -> None:
        self.now_ns = 10**18
        self.passed_ns = 0

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.passed_ns / 1e9


class SpoolBesideItsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = SteppedClock()
        self.time_ns = self.clock.now_ns
        """The time of the spool's own clock."""
        self.entries: list[Entry] = []
        self.durable = 0
        """How many of the entries are on disk."""
        self.spool = Spool.open(self.directory, CONFIG, self.clock)
        self.identity = self.spool.identity

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    @property
    def kept(self) -> list[Entry]:
        """Durable and not released."""
        return [
            entry for entry in self.entries[: self.durable] if entry.position >= self.spool.begin
        ]

    @rule(
        kind=st.sampled_from(EntryKind),
        session=st.integers(0, 2**64 - 1),
        size=st.one_of(st.integers(0, 100), st.integers(0, 3000)),
    )
    def append(self, kind: EntryKind, session: int, size: int) -> None:
        payload = bytes([len(self.entries) & 0xFF]) * size
        end = self.end + HEAD_SIZE + size
        self.entries.append(Entry(self.end, end, kind, session, self.time_ns, payload))
        assert self.spool.append(kind, session, payload) == self.entries[-1].position

    @rule(step=st.integers(-1000, 1000))
    def time_steps(self, step: int) -> None:
        self.clock.now_ns += step

    @rule(nanoseconds=st.integers(0, 1000))
    def time_passes(self, nanoseconds: int) -> None:
        self.clock.now_ns += nanoseconds
        self.clock.passed_ns += nanoseconds
        self.time_ns += nanoseconds

    @rule()
    def sync(self) -> None:
        self.durable = len(self.entries)
        assert self.spool.sync() == self.end

    @precondition(lambda self: self.kept)
    @rule(draw=st.data(), limit=st.integers(0, 5000))
    def read(self, draw: st.DataObject, limit: int) -> None:
        kept = self.kept
        first = draw.draw(st.integers(0, len(kept) - 1))
        found = self.spool.read(kept[first].position, limit)
        assert found
        assert found == kept[first : first + len(found)]
        assert found[-1].end - found[0].position <= max(
            limit, 2 * (found[0].end - found[0].position)
        )

    @precondition(lambda self: self.kept)
    @rule(draw=st.data())
    def release(self, draw: st.DataObject) -> None:
        position = draw.draw(st.sampled_from(self.kept)).position
        before = self.spool.begin
        self.spool.release(position)
        assert before <= self.spool.begin <= position

    @rule()
    def stop_and_start(self) -> None:
        """Without a sync: what is not durable never happened."""
        self.spool.close()
        del self.entries[self.durable :]
        last = self.entries[-1].time_ns if self.entries else 0
        self.time_ns = max(last, self.clock.now_ns)
        self.spool = Spool.open(self.directory, CONFIG, self.clock)
        assert self.spool.recovery.damage == []
        assert self.spool.identity == self.identity

    @invariant()
    def positions_agree(self) -> None:
        durable = self.entries[self.durable - 1].end if self.durable else 0
        assert (self.spool.durable, self.spool.end) == (durable, self.end)
        assert self.spool.buffered == self.end - durable

    @invariant()
    def the_size_is_what_the_files_take(self) -> None:
        files = self.directory.glob("*.segment")
        assert self.spool.size == sum(file.stat().st_size for file in files)

    @invariant()
    def following_from_the_begin_gives_all_that_is_kept(self) -> None:
        entries: list[Entry] = []
        position = self.spool.begin
        while found := self.spool.read(position, 1000):
            entries += found
            position = found[-1].end
        assert entries == self.kept


TestSpoolBesideItsModel = SpoolBesideItsModel.TestCase
TestSpoolBesideItsModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
