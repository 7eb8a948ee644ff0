"""Count the starts that were killed because memory ran out, so that the daemon does not restart for ever without a
message.

While it starts, the daemon repeatedly writes to a file how much of its memory limit it uses, and removes the file at
the end of the start. If the next start finds the file, the earlier start was killed: for lack of memory, if it had used
at least half of its limit.

After `KILLED_MAX` such starts in a row, the daemon waits for `REST_SECONDS` before it reads the checkpoint or decodes
again. Meanwhile it refuses to start, or receives into the spool without decoding. No data is lost, because the spool
keeps all bytes that are not in the table."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
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
"""Number of starts in a row killed for lack of memory, after which the daemon refuses to start or suspends decoding."""

REST_SECONDS = 600.0
"""After `KILLED_MAX` killed starts in a row, the daemon refuses to start or to decode until this time (seconds) has
passed since the last of them."""

SUSPECT = 0.5
"""A killed start is taken to have lacked memory if it had used at least this share of a memory limit."""

STATE_FACTOR = 4
"""Maximum memory for reading a checkpoint, as a multiple of the size of its file."""

LOOK_SECONDS = 0.25

logger = logging.getLogger(__name__)


class Start(msgspec.Struct):
    """The content of the file in which a start of the daemon records its memory use.

    `share` (0 to 1) is the largest used share of a memory limit, of `limit` bytes. `at` is a Unix time in seconds.
    `stage` is what the start is reading: the checkpoint, or the spool's entries."""

    killed: int
    stage: Literal["state", "log"]
    share: float
    limit: int
    at: float


class Starts:
    """Counts the daemons on one spool that were killed during their start."""

    def __init__(self, directory: Path, memory: ProcessMemory, clock: Clock) -> None:
        self.killed = 0
        """Number of starts directly before this one that were killed for lack of memory."""
        self.rest = 0.0
        """Time (seconds) for which this start must not decode, because earlier starts were killed."""
        self._path = directory / "starting"
        self._memory = memory
        self._clock = clock
        self._start: Start | None = None

    @property
    def readable(self) -> int:
        """Return the maximum size (bytes) of a checkpoint whose file and state fit into the free memory."""
        limit = self._memory.tightest
        return int(limit.size * (1.0 - self._memory.share()) / 2)

    def begin(self, checkpoints: Checkpoints) -> None:
        """Record on disk that this start now reads the newest checkpoint. The process must hold the lock of the spool's
        directory.

        Raise MemoryLimitError if the last `KILLED_MAX` starts were killed for lack of memory, and the last of them
        while it read the checkpoint, less than `REST_SECONDS` ago."""
        checkpoint_size = checkpoints.size
        now, limit = self._clock.wall_ns() / 1e9, self._memory.tightest
        before: Start | None = None
        with suppress(OSError, msgspec.DecodeError):
            before = msgspec.json.decode(self._path.read_bytes(), type=Start)
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
        if self._start:
            self._start.stage = "log"
            self._look()

    def end(self) -> None:
        """Remove this start's file, because the process was not killed. If `begin` refused this start, keep the file,
        which is an earlier start's."""
        if self._start:
            self._start, self.killed = None, 0
            try:
                make_way(self._path)
                self._path.unlink(missing_ok=True)
            except OSError as error:
                # If the file stays, the next start may count this start as killed.
                why = refusal_text(error.errno, self._path)
                logger.warning("%s: cannot be removed: %s", self._path, why)

    def out_of_memory(self) -> MemoryLimitError:
        """Return the error for memory that could not be allocated. During the start, record that the limit was reached."""
        if self._start:
            self._start.share = 1.0
            self._write()
            self._start = None  # While `_start` is None, `end` does not remove the file.
        return MemoryLimitError(f"out of memory; {self.advice()}")

    async def watch(self) -> None:
        while self._start:
            self._look()
            await trio.sleep(LOOK_SECONDS)

    async def wait(self, health: Health) -> None:
        """Wait for `rest` seconds before this start decodes the spool, and report a condition that explains the wait."""
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
            # A refusal counts as activity for the watchdog, which therefore does not restart the daemon.
            health.refuse(Condition.MEMORY, message)
            await trio.sleep(min(1.0, max(0.0, until - self._clock.monotonic())))
        self.rest = 0.0
        health.clear(Condition.MEMORY)

    def advice(self) -> str:
        """Return advice for the user to raise the memory limit that is nearest to being full."""
        limit = self._memory.tightest
        return (
            f"raise {limit.name}, {limit.size} bytes now, and start again;"
            " the spool keeps what is not in the table"
        )

    def _look(self) -> None:
        if self._start:
            self._start.share = self._memory.share()
            self._write()

    def _write(self) -> None:
        """Write the file of this start. It need not survive a crash of the machine, so do not sync it."""
        try:
            owned.write_file(self._path, msgspec.json.encode(self._start))
        except OSError as error:
            logger.debug("cannot note the start: %s", error)
