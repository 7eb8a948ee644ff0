"""The loops between sources and table, and the order of their starts and stops.

The order guarantees that only durable bytes are decoded, and that bytes stay in the spool until their rows are
committed. No code in this module waits (see `steps`): the daemon drives the loops with trio, and the simulator in
virtual time.

`Timekeeping` tracks the wall clock, while the log's time advances steadily. An entry in the log records each clock
step.

`Heartbeats` sends an event of the daemon through spool, sync, ingest and commit into the table, once an interval. So
a stall is visible even without input: in the age of the newest committed heartbeat, and to the service manager's
watchdog, because each commit causes a watchdog signal.
"""

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
from tailrace.daemon.loops.acknowledge import Acknowledging, HeldNames, Replier
from tailrace.daemon.loops.commit import Committing, Opened, Saving
from tailrace.daemon.loops.decode import Decoding, look_ahead
from tailrace.daemon.loops.steps import Flag, Steps, Wait, Work, within
from tailrace.daemon.loops.sync import Gate, Syncing
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition, Durations, Figures, HeartbeatStatus
from tailrace.ingest.machine import Ahead, Ingest, Rejected
from tailrace.ingest.state import encode
from tailrace.spool.entry import LAST, EntryKind
from tailrace.spool.payloads import Heartbeat
from tailrace.spool.spool import Spool
from tailrace.units import counted

_UNDER_WAY_MAX = 1024
"""Maximum number of uncommitted heartbeats in the figures. Older heartbeats are dropped from the figures."""


class _UnderWay(msgspec.Struct):
    end: int
    made: float
    sync_seconds: float = 0.0


class Heartbeats:
    """The heartbeats since the start of the daemon, one every `interval` seconds. `describe` returns the values of a
    row."""

    def __init__(
        self,
        spool: Spool,
        gate: Gate,
        clock: Clock,
        interval: float,
        session: str,
        describe: Callable[[], dict[str, int | float | str]],
    ) -> None:
        self.interval = interval
        self._describe = describe
        self._spool = spool
        self._gate = gate
        self._clock = clock
        self._session = session
        self._made = self._committed = 0
        self._newest = clock.monotonic()
        """Monotonic time (seconds) at which the newest committed heartbeat was created."""
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
        """Send heartbeats until closed, the first after one interval."""
        while True:
            yield Wait(self.interval)
            self._beat()

    def synced(self, durable: int) -> None:
        """Record that the spool is synced up to position `durable`."""
        for beat in self._under_way:
            if beat.end <= durable and not beat.sync_seconds:
                beat.sync_seconds = self._clock.monotonic() - beat.made

    def committed(self, position: int) -> None:
        """Record that the table has the spool's rows up to position `position`."""
        while self._under_way and self._under_way[0].end <= position:
            beat = self._under_way.popleft()
            seconds = self._clock.monotonic() - beat.made
            self._seconds.add(seconds)
            self._committed += 1
            self._newest = beat.made
            self._way = {"sync_seconds": beat.sync_seconds, "commit_seconds": seconds}

    def _beat(self) -> None:
        about = {**self._way, "interval_seconds": self.interval, **self._describe()}
        beat = Heartbeat(session=self._session, number=self._made, about=about)
        self._gate.append(EntryKind.HEARTBEAT, 0, encode(beat))
        self._made += 1
        self._under_way.append(_UnderWay(self._spool.end, self._clock.monotonic()))


LARGE_NS = 60 * 10**9
"""Minimum size (ns) of a clock step that becomes a condition."""

CONDITION_SECONDS = 3600.0
"""Seconds until the condition for a clock step ends."""

logger = logging.getLogger(__name__)


class Timekeeping:
    """Tracks steps of the wall clock, from the log's last entry on."""

    def __init__(
        self, spool: Spool, gate: Gate, clock: Clock, health: Health, figures: Figures
    ) -> None:
        self._spool = spool
        self._gate = gate
        self._clock = clock
        self._health = health
        self._figures = figures
        self._reported_at = 0.0

    def begin(self, ahead: Ahead) -> None:
        """Continue the timeline at the end of the log. Append the wall clock's offset if the log has another value."""
        timeline = self._spool.timeline
        timeline.go_on(ahead.clock)
        now = timeline.ahead
        if now != ahead.clock:
            self._append_offset(now)
        if now - ahead.clock <= -LARGE_NS:
            later = (ahead.clock - now) / 1e9
            self._report(f"the log's last entry is {later:,.0f} s later than the clock")

    def look(self) -> None:
        """Append an entry if the wall clock was set, and report a large step."""
        step = self._spool.timeline.look()
        if step:
            self._figures.clock_steps += 1
            self._append_offset(self._spool.timeline.ahead)
        if abs(step) >= LARGE_NS:
            self._report(f"the clock was set by {step / 1e9:+,.0f} s, or the machine slept")
        elif self._clock.monotonic() - self._reported_at >= CONDITION_SECONDS:
            self._health.clear(Condition.CLOCK)

    def _append_offset(self, ahead: int) -> None:
        self._gate.append(EntryKind.CLOCK, 0, encode(ahead))

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
"""Seconds between two checks of open windows, and maximum delay of closing a window."""

LAST_ANSWERS_SECONDS = 0.5
"""Timeout (seconds) of a stop for decoding and acknowledging received bytes."""

STOP_SECONDS = 60.0
"""Timeout (seconds) of a stop for the table. Uncommitted entries stay in the spool."""


class Loops:
    """The loops of a running collector.

    After `begin`, run concurrently `syncing.run`, `decoding.run`, `commit`, `committing.land`, `tick` and
    `names.watch`. While sources receive, also run `answer` and the `run` of `heartbeats`, if any. At the end run
    `answer_last` and, once the sources have ended, `finish`.

    `at_table` is called when the ingest has reached the table's position, and `cut` to disconnect a session's peer.
    With `beats`, there are heartbeats with the values of `describe`.
    """

    def __init__(
        self,
        opened: Opened,
        sources: Mapping[str, Replier],
        context: Context,
        *,
        cut: Callable[[Rejected], None],
        at_table: Callable[[], None] = lambda: None,
        beats: bool = True,
        describe: Callable[[], dict[str, int | float | str]] = dict,
    ) -> None:
        self.spool, self.ingest = opened.spool, opened.ingest
        self.log_at_rest = 2**19
        """Maximum number of log bytes after a stop, besides bytes of unfinished records. The table has the rows of
        these bytes."""
        self.left = 0
        """Spool position at which the log ended when the daemon started."""
        health, clock, decodable = context.health, context.clock, Flag()
        self.gate = Gate(self.spool, self.ingest, lambda: Condition.STORE in health.conditions)
        self.names = names = HeldNames(self.spool.check, opened.check_store, health)
        self.syncing = Syncing(self.spool, self.gate, names, context, decodable, self._synced)
        saving = Saving(self.spool, self.ingest, opened.checkpoints, names, context)
        self.committing = Committing(
            opened, context, saving, names, taken=decodable.set, done=self._committed
        )
        self.decoding = Decoding(
            opened, context, self.committing, decodable,
            replayed=self._replayed, reject=cut, turned=self.gate.decoded,
        )  # fmt: skip
        self.acknowledging = Acknowledging(self.spool, self.ingest, sources, names, self.gate.dirty)
        self.timekeeping = Timekeeping(self.spool, self.gate, clock, health, context.figures)
        self.heartbeats: Heartbeats | None = None
        interval, watchdog_seconds = context.config.heartbeat.interval, context.watchdog_seconds
        wanted = [s for s in (interval, watchdog_seconds and watchdog_seconds / 3) if s]
        if wanted and beats:
            session = draw(clock.wall_ns(), context.chance.entropy)
            self.heartbeats = Heartbeats(
                self.spool, self.gate, clock, float(min(wanted)), session, describe
            )
        self._context = context
        self._at_table = at_table
        self._is_at_table = Flag()

    def begin(self) -> Steps[Ahead]:
        """Begin the loops. Return the facts at the end of the log, before any entry is decoded."""
        ahead: Ahead = yield Work(partial(look_ahead, self.spool, self.ingest))
        self.left = self.spool.durable
        # Append an entry first, because session number 0 (the first position) is reserved for the daemon.
        self.timekeeping.begin(ahead)
        self.gate.append(EntryKind.START, 0, __version__.encode())
        return ahead

    def answer(self) -> Steps[None]:
        """Return the steps that answer clients once the entries before this start are decoded."""
        return self.acknowledging.run(self.decoding.reached(self.left))

    def commit(self) -> Steps[None]:
        """Return the steps that commit rows from the table's position on."""
        return self.committing.run(self._is_at_table)

    def tick(self) -> Steps[None]:
        """Append ticks to the spool while a window is open. Check the clock, limits and a full spool."""
        while True:
            yield Wait(TICK_SECONDS, together=True)
            self.timekeeping.look()
            if self.ingest.waiting or self.gate.closed:
                self.gate.append(EntryKind.TICK, 0)
            message = uncounted(self.ingest, self._context.config.sources)
            self._context.health.follow(Condition.LEDGER, message)
            if self.gate.wants_release:
                # Two checkpoints at different positions release all segments before the older checkpoint.
                self.committing.relieve()
            self.gate.opened.pulse()

    def answer_last(self) -> Steps[None]:
        """Acknowledge everything received so far, while connections are open.

        Later bytes are stored without an acknowledgement. The client sends such bytes again, and their sequence
        numbers are then recognised as duplicates.
        """
        yield from within(self._context.clock, LAST_ANSWERS_SECONDS, self.acknowledging.last())

    def finish(self, *, last: bool, decodes: bool = True) -> Steps[bool]:
        """Commit everything received within `STOP_SECONDS`. Return whether everything is in the table.

        After the loss of a path, commit as much as the store accepts. With `last`, no producer continues after the
        collector.
        """

        def stop() -> None:
            if (
                self.names.loss is None
            ):  # no start reads a lost log, where the stop entry would count as received
                self.spool.append(EntryKind.STOP, 0, LAST if last else b"")

        steps = self._finish(stop) if decodes else self._synced_stop(stop)
        in_time = yield from within(self._context.clock, STOP_SECONDS, steps)
        if self.names.loss is not None:
            return False
        if not in_time:
            logger.error("the table did not take all in time: the rest stays in the spool")
        elif not decodes:
            logger.warning("nothing was decoded: what was received stays in the spool")
        return in_time and decodes

    def _finish(self, stop: Callable[[], object]) -> Steps[None]:
        """Decode and commit everything.

        For a long log, begin a segment with two stop entries and save a checkpoint after each, so that all earlier
        segments can be removed.
        """
        if self.spool.held > self.log_at_rest:
            yield from self.syncing.once()
            with suppress(FullError, LostError):  # the log keeps its length
                yield Work(self.spool.seal)
            yield from self._synced_stop(stop)
            yield from self.decoding.caught_up(self._is_given_up)
            yield from self.committing.settled()
        yield from self._synced_stop(stop)
        yield from self.decoding.caught_up(self._is_given_up)
        yield from self.committing.settled(last=True)

    def _is_given_up(self) -> bool:
        """Return whether the store accepts no more rows because of a lost path."""
        return self.names.loss is not None and self.names.store_is_lost

    def _synced_stop(self, stop: Callable[[], object]) -> Steps[None]:
        stop()
        yield from self.syncing.once()

    def _replayed(self) -> None:
        if lacking := self.ingest.tell_lacking():
            message = f"{lacking} bytes that sessions need cannot be read from the spool any more"
            self._context.health.degrade(Condition.DAMAGE, message)
        self.committing.begin()
        self._is_at_table.set()
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
    """Return a message with the sources whose streams are not all followed, or None."""
    counts = {name: ingest.common(name).state.uncounted_sessions for name in sources}
    found = [f"{name} ({counted(count, 'session')})" for name, count in counts.items() if count]
    if not found:
        return None
    return (
        f"more streams than places in {', '.join(found)}: what these streams lack is not known;"
        " raise ledger.streams_max or ledger.source_streams_max, or look at who sends so many"
    )
