"""Count the starts that exceed the memory limit, so that the daemon ends with a message and not in a restart loop.

A start repeatedly writes the used share of its memory limit to a file. The daemon removes the file once the log is
decoded or the start has failed with a message. A file that is left at the next start means that the earlier start
was killed. If the killed start used at least half of its memory limit, lack of memory is the assumed reason.
After `KILLED_MAX` such starts in a row, the behaviour of further starts depends on the stage for `REST_SECONDS`:
- killed while reading the checkpoint: refuse the start, which cannot continue without the state;
- killed while decoding the log: receive into the spool, and suspend decoding.

No data is lost in either case, because the spool keeps all bytes that are not in the table.
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
"""Number of consecutive starts killed for lack of memory after which the daemon refuses the start or suspends
decoding."""

REST_SECONDS = 600.0
"""Seconds after the last killed start for which the daemon refuses the start or suspends decoding."""

SUSPECT = 0.5
"""Minimum used share of the memory limit at which a killed start counts as out of memory."""

STATE_FACTOR = 4
"""Memory for reading a checkpoint, as a multiple of the file size."""

LOOK_SECONDS = 0.25

logger = logging.getLogger(__name__)


class Start(msgspec.Struct):
    """The content of a start's file. `at` is a Unix time in seconds, `limit` the size (bytes) of the tightest memory
    limit."""

    killed: int
    """Number of consecutive earlier starts killed for lack of memory."""
    stage: Literal["state", "log"]
    share: float
    limit: int
    at: float


class Starts:
    """The starts on one spool. The process must hold the lock of the spool's directory before a call of `begin`."""

    def __init__(self, directory: Path, memory: ProcessMemory, clock: Clock) -> None:
        self.killed = 0
        """Number of consecutive earlier starts killed for lack of memory."""
        self.rest = 0.0
        """Seconds for which this start suspends decoding."""
        self._path = directory / "starting"
        self._memory = memory
        self._clock = clock
        self._start: Start | None = None

    @property
    def readable(self) -> int:
        """Return the maximum size (bytes) of a readable checkpoint. File and state are in memory at the same time."""
        limit = self._memory.tightest
        return int(limit.size * (1.0 - self._memory.share()) / 2)

    def begin(self, checkpoints: Checkpoints) -> None:
        """Record that this start reads the newest checkpoint next. Raise MemoryLimitError if `KILLED_MAX` recent
        starts were killed while reading the checkpoint."""
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
        """Record that the state is read and that decoding the log begins."""
        if self._start:
            self._start.stage = "log"
            self._look()

    def came_through(self) -> None:
        """Remove the file of this start after the log is decoded or the start has failed with a message.

        A refused start later calls keep the file of the earlier start.
        """
        if self._start:
            self._start, self.killed = None, 0
            try:
                make_way(self._path)
                self._path.unlink(missing_ok=True)
            except OSError as error:  # the next start may count this start as killed
                why = refusal_text(error.errno, self._path)
                logger.warning("%s: cannot be removed: %s", self._path, why)

    def out_of_memory(self) -> MemoryLimitError:
        """Return the error for a failed memory allocation, during the start or later."""
        if self._start:
            self._start.share = 1.0
            self._write()
            self._start = None  # `came_through` then keeps the file
        return MemoryLimitError(f"out of memory; {self.advice()}")

    async def watch(self) -> None:
        """Record the memory use of the start until the start is complete or cancelled."""
        while self._start:
            self._look()
            await trio.sleep(LOOK_SECONDS)

    async def wait(self, health: Health) -> None:
        """Wait for `rest` seconds before decoding, if earlier starts were killed while decoding."""
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
            health.refuse(
                Condition.MEMORY, message
            )  # each refusal counts as activity for the watchdog
            await trio.sleep(min(1.0, max(0.0, until - self._clock.monotonic())))
        self.rest = 0.0
        health.clear(Condition.MEMORY)

    def advice(self) -> str:
        """Return advice on the limit with the least free memory."""
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
        """Write the file of the start without a sync, because a killed process does not stop the machine."""
        try:
            owned.write_file(self._path, msgspec.json.encode(self._start))
        except OSError as error:
            logger.debug("cannot note the start: %s", error)
