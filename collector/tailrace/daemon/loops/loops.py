"""Build the loops between sources and table, and start and stop them in order.

Nothing in this module blocks: a loop is a generator that yields each wait and each blocking call (see `steps`).
Heartbeats go through spool, ingest and commit into the table like a producer's events, so a stall becomes visible even
without input: the newest heartbeat in the table gets old."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from tailrace import __version__
from tailrace.clock import Clock
from tailrace.daemon.context import Context, Health
from tailrace.daemon.intake import draw
from tailrace.daemon.loops.acknowledge import Acknowledging, HeldNames
from tailrace.daemon.loops.commit import Committing, Opened, Saving
from tailrace.daemon.loops.decode import Decoding, look_ahead
from tailrace.daemon.loops.steps import Steps, Wait, Work, within
from tailrace.daemon.loops.sync import Gate, Syncing
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition, Durations, Figures, HeartbeatStatus
from tailrace.flags import Flag
from tailrace.ingest.machine import Ahead, Ingest, Rejected
from tailrace.ingest.state import encode
from tailrace.sources.source import Source
from tailrace.spool.entry import LAST, EntryKind
from tailrace.spool.payloads import Heartbeat
from tailrace.spool.spool import Spool
from tailrace.units import counted

_UNDER_WAY_MAX = 1024
"""Maximum number of uncommitted heartbeats whose delay is measured."""


class _UnderWay(msgspec.Struct):
    end: int
    made: float
    sync_seconds: float = 0.0


class Heartbeats:
    """Sends a heartbeat every `interval` seconds, and measures how long heartbeats take to reach the table."""

    def __init__(
        self,
        spool: Spool,
        clock: Clock,
        interval: float,
        session: str,
        describe: Callable[[], dict[str, int | float | str]],
    ) -> None:
        self.interval = interval
        self._describe = describe
        self._spool = spool
        self._clock = clock
        self._session = session
        self._made = self._committed = 0
        self._newest = clock.monotonic()
        """Monotonic time (seconds) at which the newest heartbeat in the table was created."""
        self._way: dict[str, float] = {}
        self._seconds = Durations()
        self._under_way: deque[_UnderWay] = deque(maxlen=_UNDER_WAY_MAX)

    @property
    def status(self) -> HeartbeatStatus:
        return HeartbeatStatus(
            interval_seconds=self.interval,
            made=self._made,
            committed=self._committed,
            age_seconds=self._clock.monotonic() - self._newest,
            commit_seconds=self._seconds,
        )

    def run(self) -> Steps[None]:
        """Send heartbeats until this generator is closed, the first one after one interval."""
        while True:
            yield Wait(self.interval)
            about = {**self._way, "interval_seconds": self.interval, **self._describe()}
            beat = Heartbeat(session=self._session, number=self._made, about=about)
            self._spool.append(EntryKind.HEARTBEAT, 0, encode(beat))
            self._made += 1
            self._under_way.append(_UnderWay(self._spool.end, self._clock.monotonic()))

    def synced(self, durable: int) -> None:
        for beat in self._under_way:
            if beat.end <= durable and not beat.sync_seconds:
                beat.sync_seconds = self._clock.monotonic() - beat.made

    def committed(self, position: int) -> None:
        while self._under_way and self._under_way[0].end <= position:
            beat = self._under_way.popleft()
            seconds = self._clock.monotonic() - beat.made
            self._seconds.add(seconds)
            self._committed += 1
            self._newest = beat.made
            self._way = {"sync_seconds": beat.sync_seconds, "commit_seconds": seconds}


LARGE_NS = 60 * 10**9
"""Size (ns) from which a step of the wall clock is reported as a problem."""

CONDITION_SECONDS = 3600.0
"""Time (seconds) for which a step of the wall clock is reported."""

logger = logging.getLogger(__name__)


class Timekeeping:
    """Finds steps of the wall clock, and records them as entries in the spool's log."""

    def __init__(self, spool: Spool, clock: Clock, health: Health, figures: Figures) -> None:
        self._spool = spool
        self._clock = clock
        self._health = health
        self._figures = figures
        self._reported_at = 0.0

    def begin(self, ahead: Ahead) -> None:
        """Continue the log's time, which never goes back, from the log's last entry. `ahead.clock` is wall time minus
        the log's time (ns), as last recorded."""
        timeline = self._spool.timeline
        timeline.go_on(ahead.clock)
        now = timeline.ahead
        if now != ahead.clock:
            self._append_offset(now)
        if now - ahead.clock <= -LARGE_NS:
            later = (ahead.clock - now) / 1e9
            self._report(f"the log's last entry is {later:,.0f} s later than the clock")

    def look(self) -> None:
        """Check the wall clock. If it was set, append an entry to the spool; report a large step as a condition."""
        step = self._spool.timeline.look()
        if step:
            self._figures.clock_steps += 1
            self._append_offset(self._spool.timeline.ahead)
        if abs(step) >= LARGE_NS:
            self._report(f"the clock was set by {step / 1e9:+,.0f} s, or the machine slept")
        elif self._clock.monotonic() - self._reported_at >= CONDITION_SECONDS:
            self._health.clear(Condition.CLOCK)

    def _append_offset(self, ahead: int) -> None:
        self._spool.append(EntryKind.CLOCK, 0, encode(ahead))

    def _report(self, what: str) -> None:
        message = (
            f"{what}: rows have the new time and day, waiting times count on as before;"
            " check the clock and what sets it"
        )
        if Condition.CLOCK in self._health.conditions:
            logger.warning(message, extra={"condition": Condition.CLOCK})
        self._health.degrade(Condition.CLOCK, message)
        self._reported_at = self._clock.monotonic()


TICK_SECONDS = 0.5
"""Time (seconds) between two tick entries. The report of missing events may be late by this time."""

LAST_ANSWERS_SECONDS = 0.5
"""Maximum time (seconds) during a stop for decoding and acknowledging the bytes received so far."""

STOP_SECONDS = 60.0
"""Maximum time (seconds) during a stop for committing to the table. The rest stays in the spool."""


class Loops:
    """The loops of a running collector.

    First run `begin`. Then run `syncing.run`, `decoding.run`, `committing.run` (twice), `tick` and `names.watch` at the same
    time, and `answer` and `heartbeats.run` while sources receive. At the end, run `answer_last`, and `finish` when the
    sources have ended.

    The loops call `at_table` once all entries whose rows are in the table are decoded, and `cut` to disconnect a
    session's peer. If `beats` is true, they send heartbeats with the attributes that `describe` returns."""

    def __init__(
        self,
        opened: Opened,
        sources: Mapping[str, Source],
        context: Context,
        *,
        cut: Callable[[Rejected], None],
        at_table: Callable[[], None] = lambda: None,
        beats: bool = True,
        describe: Callable[[], dict[str, int | float | str]] = dict,
    ) -> None:
        self.spool, self.ingest = opened.spool, opened.ingest
        self.log_at_rest = 2**19
        """Size (bytes) of the spool, without unfinished records, above which a stop of the daemon shortens the
        spool."""
        self.left = 0
        health, clock, decodable = context.health, context.clock, Flag()
        self.gate = Gate(self.spool, self.ingest, lambda: Condition.STORE in health.conditions)
        self.names = names = HeldNames(self.spool.check, opened.check_store, health)
        self.syncing = Syncing(self.spool, self.gate, names, context, decodable, self._synced)
        saving = Saving(opened, names, context)
        self.committing = Committing(
            opened, context, saving, names, taken=decodable.set, done=self._committed
        )
        self.decoding = Decoding(
            opened, context, self.committing, decodable,
            replayed=self._replayed, reject=cut, turned=self.gate.turned,
        )  # fmt: skip
        self.acknowledging = Acknowledging(self.spool, self.ingest, sources, names)
        self.timekeeping = Timekeeping(self.spool, clock, health, context.figures)
        self.heartbeats: Heartbeats | None = None
        interval, watchdog_seconds = context.config.heartbeat.interval, context.watchdog_seconds
        wanted = [s for s in (interval, watchdog_seconds and watchdog_seconds / 3) if s]
        if wanted and beats:
            session = draw(clock.wall_ns(), context.chance.entropy)
            self.heartbeats = Heartbeats(self.spool, clock, float(min(wanted)), session, describe)
        self._context = context
        self._at_table = at_table

    def begin(self) -> Steps[Ahead]:
        """Prepare the loops. Return the sessions that are open at the end of the spool, for the sources."""
        ahead: Ahead = yield Work(partial(look_ahead, self.spool, self.ingest))
        self.left = self.spool.durable
        # Append these entries before any session begins. The number of a session is the position of its first entry,
        # and the number 0 belongs to the daemon.
        self.timekeeping.begin(ahead)
        self.spool.append(EntryKind.START, 0, __version__.encode())
        return ahead

    def answer(self) -> Steps[None]:
        """Return the loop that sends acknowledgements to clients. It begins to send once all entries that the spool had
        at the start are decoded."""
        return self.acknowledging.run(self.decoding.reached(self.left))

    def tick(self) -> Steps[None]:
        """Check clock, limits and free space. Append a tick entry to the spool while missing events may still arrive or
        sources wait."""
        while True:
            yield Wait(TICK_SECONDS, together=True)
            self.timekeeping.look()
            if self.ingest.waiting or self.gate.closed:
                self.spool.append(EntryKind.TICK, 0)
            message = uncounted(self.ingest, self._context.config.sources)
            self._context.health.follow(Condition.LEDGER, message)
            if self.gate.wants_release:
                # The spool releases a segment only when two checkpoints are at later positions, so request one.
                self.committing.relieve()
            self.gate.opened.pulse()

    def answer_last(self) -> Steps[None]:
        """Acknowledge everything received so far, while the connections are still open. Clients send later bytes again,
        and their sequence numbers show that these are duplicates."""
        self.spool.hurry()
        decoded = self.decoding.reached(self.spool.end)
        last = self.acknowledging.last(decoded)
        yield from within(self._context.clock, LAST_ANSWERS_SECONDS, last)

    def finish(self, *, last: bool, decodes: bool = True) -> Steps[bool]:
        """Commit everything received, within `STOP_SECONDS`. Return whether all rows are in the table. If `last` is
        true, no producer continues after this stop. If `decodes` is false, only sync the spool."""
        received = self.spool.end
        steps = self._finish(last=last) if decodes else self._stop(last=last)
        in_time = yield from within(self._context.clock, STOP_SECONDS, steps)
        if self.names.loss is not None:
            return False
        if lost := max(0, received - self.spool.durable):
            logger.error(
                "the disk did not take the last %d bytes of the spool in time: they are lost, unless the producers"
                " send their events again; the next start commits the rest",
                lost,
            )
        elif not in_time:
            logger.error("the table did not take all data in time: the rest stays in the spool")
        elif not decodes:
            logger.warning("nothing was decoded: all received data stays in the spool")
        return in_time and decodes

    def _finish(self, *, last: bool) -> Steps[None]:
        """Decode and commit everything. If the spool is long, shorten it to one short segment file."""
        if self.spool.held > self.log_at_rest:
            # A segment is removed when two checkpoints are at later positions, so append two entries for the stop.
            yield from self.syncing.all_synced()
            with suppress(FullError, LostError):
                # Ignore a failure: without a new segment the spool stays long, which does no harm.
                yield Work(self.spool.seal)
            yield from self._stop_settled(last=last, ending=False)
        yield from self._stop_settled(last=last, ending=True)

    def _stop_settled(self, *, last: bool, ending: bool) -> Steps[None]:
        names = self.names
        yield from self._stop(last=last)
        yield from self.decoding.caught_up(lambda: names.loss is not None and names.store_is_lost)
        yield from self.committing.settled(last=ending)

    def _stop(self, *, last: bool) -> Steps[None]:
        """Append the entry for a stop, and sync the spool."""
        # Append no entry to a lost spool (its path no longer leads to the opened file): no later start of the daemon
        # would read it, and its bytes would count as received but not in the table.
        if self.names.loss is None:
            self.spool.append(EntryKind.STOP, 0, LAST if last else b"")
        yield from self.syncing.all_synced()

    def _replayed(self) -> None:
        if lacking := self.ingest.tell_lacking():
            message = f"{counted(lacking, 'byte')} that sessions need cannot be read from the spool any more"
            self._context.health.degrade(Condition.DAMAGE, message)
        self.committing.begin()
        self._at_table()

    def _synced(self, seconds: float) -> None:
        self._context.figures.syncs.add(seconds)
        if self.heartbeats:
            self.heartbeats.synced(self.spool.durable)

    def _committed(self, seconds: float, rows: int) -> None:
        self._context.figures.committed(seconds, rows)
        if self.heartbeats:
            self.heartbeats.committed(self.committing.committed)


def uncounted(ingest: Ingest, sources: Iterable[str]) -> str | None:
    """Return a message about sources with more streams than the ledger can check, so that losses are unknown, or None."""
    counts = {name: ingest.common(name).state.uncounted_sessions for name in sources}
    found = [f"{name} ({counted(count, 'session')})" for name, count in counts.items() if count]
    if not found:
        return None
    return (
        f"more streams than places in {', '.join(found)}: what these streams lack is not known;"
        " raise ledger.streams_max or ledger.source_streams_max, or look at who sends so many"
    )
