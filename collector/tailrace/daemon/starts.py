"""Counts starts that do not fit into memory on disk, so that they end with a message and not in a loop.

A start writes a file, and says in it again and again how much of its memory limit it uses. The file goes
once all that the log held is decoded, or the start has failed with a message. A file that is still there
at the next start is of a start that was killed. If that start had used half of its memory, memory is
taken for the reason. After `KILLED_MAX` such starts in a row the next one takes no risk for a while:

- killed while the checkpoint was read: the start is refused, since nothing works without its state;
- killed while the log was decoded: the daemon receives into the spool and decodes nothing yet.

Nothing is lost by either: the spool keeps what is not in the table.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Literal

import msgspec
import trio

from tailrace import owned
from tailrace.clock import Clock
from tailrace.daemon.context import Health
from tailrace.daemon.memory import ProcessMemory
from tailrace.errors import MemoryLimitError
from tailrace.figures import Condition
from tailrace.filesystem import make_way, refusal_text
from tailrace.spool.checkpoint import Checkpoints

KILLED_MAX = 3
"""Starts in a row that may be killed for want of memory before one takes no risk."""

REST_SECONDS = 600.0
"""How long no risk is taken after the last of them."""

SUSPECT = 0.5
"""Share of its limit from which on memory is taken for the reason of a kill."""

STATE_FACTOR = 4
"""Memory that a checkpoint's state takes while it is read, as a multiple of the file."""

LOOK_SECONDS = 0.25

logger = logging.getLogger(__name__)


class Start(msgspec.Struct):
    """One start, as its file says. `at` is Unix seconds, `limit` the bytes of the tightest limit."""

    killed: int
    """How many starts in a row were killed for want of memory before this one."""
    stage: Literal["state", "log"]
    share: float
    limit: int
    at: float


class Starts:
    """The starts on one spool, whose directory must be locked by this process from `begin` on."""

    def __init__(self, directory: Path, memory: ProcessMemory, clock: Clock) -> None:
        self.killed = 0
        """Starts in a row that were killed for want of memory before this one."""
        self.rest = 0.0
        """Seconds for which this start decodes nothing."""
        self._path = directory / "starting"
        self._memory = memory
        self._clock = clock
        self._start: Start | None = None

    @property
    def readable(self) -> int:
        """Return how large a checkpoint may be: it is read whole, and its state is as large at least."""
        limit = self._memory.tightest
        return int(limit.size * (1.0 - self._memory.share()) / 2)

    def begin(self, checkpoints: Checkpoints) -> None:
        """Note that this start reads the newest checkpoint next. Raise MemoryLimitError if doing so has lately
        killed several starts."""
        checkpoint_size = checkpoints.size
        now, limit = self._clock.wall_ns() / 1e9, self._memory.tightest
        before = self._read()
        if before and limit.size <= before.limit:
            suspect = before.share >= SUSPECT
            self.killed = before.killed + suspect
            left = min(REST_SECONDS, before.at + REST_SECONDS - now)
            if suspect and self.killed >= KILLED_MAX and left > 0:
                if before.stage == "state":
                    raise MemoryLimitError(
                        f"{self._path.parent}: {self.killed} starts in a row were killed while they read the"
                        f" decoder state ({checkpoint_size} bytes); {self.advice()}."
                        f" The next try is made in {left:.0f} s, or at once with a higher limit or without"
                        f" the file {self._path}"
                    )
                self.rest = left
        self._start = Start(
            killed=self.killed,
            stage="state",
            share=self._memory.share(STATE_FACTOR * checkpoint_size),
            limit=limit.size,
            at=now,
        )
        self._write()

    def decoding(self) -> None:
        """Note that the state is read and the log is decoded next."""
        if self._start:
            self._start.stage = "log"
            self._look()

    def came_through(self) -> None:
        """Remove the note of this start: the log is decoded, or the start has failed with a message.

        A refused start leaves the note of the earlier start in place."""
        if self._start:
            self._start, self.killed = None, 0
            try:
                make_way(self._path)
                self._path.unlink(missing_ok=True)
            except OSError as error:  # the next start may then take this one for killed
                why = refusal_text(error.errno, self._path)
                logger.warning("%s: cannot be removed: %s", self._path, why)

    def out_of_memory(self) -> MemoryLimitError:
        """Return the error of a start, or of a daemon at work, that was refused memory."""
        if self._start:
            self._start.share = 1.0
            self._write()
            self._start = None  # the file stays
        return MemoryLimitError(f"out of memory; {self.advice()}")

    async def watch(self) -> None:
        """Note how much memory the start uses, until it came through or is cancelled."""
        while self._start:
            self._look()
            await trio.sleep(LOOK_SECONDS)

    async def wait(self, health: Health) -> None:
        """Return when this start may decode: at once, unless others were killed by that."""
        if not self.rest:
            return
        until = self._clock.monotonic() + self.rest
        when = time.strftime("%H:%M:%S UTC", time.gmtime(self._clock.wall_ns() / 1e9 + self.rest))
        message = (
            f"{self.killed} starts in a row were killed while they decoded what the spool holds;"
            f" {self.advice()}. Until {when} what comes goes into the spool"
            " and nothing into the table; then it is tried again"
        )
        while self._clock.monotonic() < until:
            health.refuse(Condition.MEMORY, message)  # each is a sign of life to a watchdog
            await trio.sleep(min(1.0, max(0.0, until - self._clock.monotonic())))
        self.rest = 0.0
        health.clear(Condition.MEMORY)

    def advice(self) -> str:
        """Return what to do about the limit with the least room."""
        limit = self._memory.tightest
        return (
            f"raise {limit.name}, {limit.size} bytes now, and start again;"
            " the spool keeps what is not in the table"
        )

    def _look(self) -> None:
        if self._start:
            self._start.share = self._memory.share()
            self._write()

    def _read(self) -> Start | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Start)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self) -> None:
        """Write the note, without a sync: a kill of this process does not stop the machine."""
        try:
            owned.write_file(self._path, msgspec.json.encode(self._start))
        except OSError as error:
            logger.debug("cannot note the start: %s", error)
