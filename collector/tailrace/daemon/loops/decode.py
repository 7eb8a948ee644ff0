"""Decode the durable entries of the spool, one at a time.

The loop runs in the thread of the receivers, and lets other tasks run after some entries, even within an entry. While a
full batch waits for its commit, the loop pauses, and the spool stores new bytes.

A start restores the ingest from a checkpoint (`restored`). Entries between the checkpoint and the last commit are
decoded again (`replay`) for the ingest's state; their rows are in the table and are discarded. Sources need not wait,
because `look_ahead` reads what they need from the spool without decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tailrace.daemon.context import Context, Health
from tailrace.daemon.loops.commit import Committing, Demand, Opened
from tailrace.daemon.loops.steps import GIVE_WAY, Steps, Wait
from tailrace.errors import FullError, StoreError, UnreadableError
from tailrace.figures import Condition
from tailrace.flags import Flag
from tailrace.ingest.machine import Ahead, Ingest, Rejected, read_state
from tailrace.ingest.unfinished import read_again, since
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.spool.entry import Entry
from tailrace.spool.spool import Spool

READ_BYTES = 1 * 2**20
"""Number of bytes that are read from the spool at once."""


def refills(spool: Spool, checkpoints: Checkpoints, position: int | None) -> bool:
    """Return whether the spool can reproduce all rows from a position on. None stands for position 0."""
    at = position or 0
    checkpoint = checkpoints.newest(at)
    return at <= spool.end and spool.begin <= (checkpoint.position if checkpoint else 0)


def restored(spool: Spool, checkpoint: Checkpoint | None, committed: int) -> Ingest:
    """Return the ingest with the state in `checkpoint` and the bytes of unfinished records in the spool, or a new ingest
    if `checkpoint` is None.

    `committed` is the spool position below which the table has all rows. Raise StoreError if spool, table and
    checkpoint do not match, for example because the table was restored from a copy."""
    if committed > spool.end:
        raise StoreError(
            f"the table has all rows up to spool position {committed}, but {spool.directory}"
            f" ends at {spool.end}: it is the spool of another table, or an old copy, or its end is"
            " lost. Restore it from a newer copy, or move it away to begin a new one; then data that was"
            " received after that position is lost."
        )
    ingest = Ingest()
    if checkpoint:
        state = read_state(checkpoint.state)
        damage: list[UnreadableError] = []
        begin = max(since(state), spool.begin)
        lacking = read_again(state, _entries_from(spool, begin, spool.durable, damage.append))
        if damage:
            lacking = {n: each.left_out for n, each in state.sessions.items() if each.left_out}
        ingest = Ingest(state, lacking)
    if ingest.position < spool.begin:
        raise StoreError(
            f"{spool.directory}: the decoder state for position {spool.begin} is lost, so it is unknown"
            " which of the later data is in the table already: restore the directory from a copy, or move it"
            f" away to begin a new one. The table has all rows up to position {committed}; with a new spool,"
            " data that was received after that is lost."
        )
    return ingest


def repeat(ingest: Ingest, entry: Entry) -> Iterator[None]:
    """Decode an entry of the spool again, step by step, and discard its rows, because they are already in the table."""
    yield from ingest.steps(entry)
    ingest.batch.take()
    ingest.rejected.clear()


def replay(
    spool: Spool, ingest: Ingest, committed: int, health: Health, working: Callable[[], None]
) -> None:
    """Decode again all spool entries from the ingest's position up to `committed`. Call `working` before each entry.
    Raise FullError if no file descriptor is free."""

    def pass_over(error: UnreadableError) -> None:
        health.degrade(Condition.DAMAGE, str(error))
        ingest.pass_over(error.until, replayed=True)

    for entry in _entries_from(spool, ingest.position, committed, pass_over):
        working()
        for _ in repeat(ingest, entry):
            pass


def look_ahead(spool: Spool, ingest: Ingest) -> Ahead:
    """Return which sessions are open at the end of the spool, without decoding its entries."""
    ahead = Ahead(ingest)
    for entry in _entries_from(spool, ingest.position, spool.durable):
        ahead.apply(entry)
    return ahead


def _entries_from(
    spool: Spool,
    position: int,
    end: int,
    damaged: Callable[[UnreadableError], None] = lambda _: None,
) -> Iterator[Entry]:
    """Yield the durable entries of the spool between two positions. Call `damaged` for bytes that the disk has lost."""
    while position < end:
        try:
            entries = spool.read(position, min(READ_BYTES, end - position))
        except UnreadableError as error:
            damaged(error)
            position = error.until
            continue
        yield from entries
        position = entries[-1].end


TURN_BYTES = CHUNK_MAX // 4
"""Number of decoded bytes after which other tasks run. Each switch to other tasks costs 10 µs."""

SHORT_ENTRY = TURN_BYTES // 32
"""Minimum number of bytes by which a spool entry counts for `TURN_BYTES`, because even a short entry takes some
time."""

TURN_SECONDS = 0.01
"""Time (seconds) of decoding after which other tasks run, even in the middle of an entry. A record of 23 bytes can
begin a session, and beginning a session takes as long as decoding a hundred events."""

LONG_TURN, LONG_REST = 0.05, 0.1
"""Time (seconds) of decoding without a break that counts as long, and the fraction of this time for which other tasks
then run."""

LOOK_SECONDS = 0.02
"""Time (seconds) between two checks of whether the spool is decoded up to a position."""


class Decoding:
    """The loop that decodes the entries of the spool.

    - `more`: flag that wakes the loop, set after a sync of the spool, and after a batch of rows was taken.
    - `replayed`: called once, when all entries whose rows are in the table are decoded.
    - `reject`: called for each session whose peer must be disconnected.
    - `turned`: flag that is set and cleared at once each time before other tasks run."""

    def __init__(
        self,
        opened: Opened,
        context: Context,
        committing: Committing,
        more: Flag,
        *,
        replayed: Callable[[], None],
        reject: Callable[[Rejected], None],
        turned: Flag,
    ) -> None:
        self._spool = opened.spool
        self._ingest = opened.ingest
        self._context = context
        self._committing = committing
        self.turn_seconds = TURN_SECONDS
        self._turn_began = 0.0
        self._committed = opened.committed
        self._replayed: Callable[[], None] | None = replayed
        self._reject = reject
        self._turned = turned
        self._more = more
        self._idle = Flag()

    @property
    def behind(self) -> int:
        """Return how many durable bytes are not decoded yet."""
        return self._spool.durable - self._ingest.position

    @property
    def full(self) -> bool:
        batch, store = self._ingest.batch, self._context.config.store
        return len(batch) >= store.commit_rows or batch.bytes >= store.commit_bytes

    def caught_up(self, given_up: Callable[[], bool]) -> Steps[None]:
        """Wait until all durable entries of the spool are decoded, or until `given_up` returns True."""
        while self.behind and not given_up():
            yield Wait(LOOK_SECONDS, self._idle)

    def reached(self, position: int) -> Steps[None]:
        while self._ingest.position < position:
            # do not wait for `_idle`, which may never be set if entries keep arriving
            yield Wait(flag=self._turned)

    def run(self) -> Steps[None]:
        spool, ingest = self._spool, self._ingest
        while True:
            self._look()
            yield from self._work()
            done = 0
            self._turn_began = self._context.clock.monotonic()
            try:
                entries = spool.read(ingest.position, READ_BYTES)
            except FullError:  # no file descriptor is free, so wait and try again
                self._context.figures.log_descriptors += 1
                # The watchdog must see activity: a restart would not free file descriptors.
                self._context.health.refusals += 1
                yield Wait(LOOK_SECONDS)
                continue
            except UnreadableError as error:
                self._context.health.degrade(Condition.DAMAGE, str(error))
                # A gap row reports the lost bytes, once all entries whose rows are in the table are decoded.
                ingest.pass_over(error.until, replayed=ingest.position < self._committed)
                entries = []
            for entry in entries:
                if done >= TURN_BYTES or self._turn_is_over:
                    yield from self._turn()
                    done = 0
                done += max(entry.end - entry.position, SHORT_ENTRY)
                if entry.end <= self._committed:
                    yield from self._in_turns(repeat(ingest, entry))
                    continue
                self._look()
                yield from self._work()
                yield from self._in_turns(ingest.steps(entry))
                if ingest.batch.some:
                    self._committing.pipeline.ask(Demand.FULL if self.full else Demand.ROWS)
                while ingest.rejected:
                    self._reject(ingest.rejected.pop())
            yield from self._turn()

    @property
    def _turn_is_over(self) -> bool:
        return self._context.clock.monotonic() - self._turn_began >= self.turn_seconds

    def _turn(self) -> Steps[None]:
        """Let other tasks run once or, after a long decoding, for some time."""
        # After a long decoding, let other tasks run for some time: a request to the admin endpoint needs about ten
        # switches between tasks, and each switch would otherwise wait for a long decoding.
        self._turned.pulse()
        took = self._context.clock.monotonic() - self._turn_began
        yield Wait(took * LONG_REST) if took > LONG_TURN else GIVE_WAY
        self._turn_began = self._context.clock.monotonic()

    def _in_turns(self, steps: Iterator[None]) -> Steps[None]:
        """Perform the steps that decode one entry. If the steps take long, let other tasks run between them."""
        self._committing.between.begun()
        for _ in steps:
            if self._turn_is_over:
                yield from self._turn()
        self._committing.between.over()

    def _look(self) -> None:
        """Call `replayed` once, when all spool entries whose rows the table had at the start are decoded."""
        if self._replayed and self._ingest.position >= self._committed:
            replayed, self._replayed = self._replayed, None
            replayed()

    def _work(self) -> Steps[None]:
        """Wait until there are durable entries to decode and the batch of rows is not full."""
        while not (behind := self.behind) or self.full:
            if not behind:
                self._idle.pulse()
            self._turned.pulse()
            self._more.clear()
            yield Wait(flag=self._more)
