"""A bounded queue between the host program and a transport, and the thread that empties it.

What `put` promises the program: it never raises, never waits for a network, a disk or a name
server, and holds its lock for a few instructions only. Where the transport is prompt (sockets) and
enough has gathered, the thread that puts makes up to `_PROMPT_SENDS` system calls that return at
once: a second Python thread would have to win the interpreter's lock for each call, which beside
a busy program takes 5 ms and more. All that may wait is done by one daemon thread, started by the first
packet: opening, files, and whatever is left after `INTERVAL_SECONDS`. It sleeps while there is
nothing to do.

Memory is bounded by `limit` bytes of packets. What does not fit is discarded, newest first, and
counted by reason (`dropped`):

    full       the queue had no room: the collector is slow or away
    oversize   one packet longer than the transport carries
    nested     put by a signal handler or destructor that interrupted `put` itself
    encoding   the caller could not make a packet of it
    closed     put after `close`, or still waiting when it ended
    refused    the kernel would not send it
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from weakref import WeakSet

from tailrace_client._transport import Transport

INTERVAL_SECONDS = 0.05
"""A packet waits at most about this long before it is sent."""

LIMIT_BYTES = 2**20
"""Some 13 000 events of usual size; half a second of 25 000 a second."""

EXIT_SECONDS = 1.0
"""How long the interpreter's exit waits, at most, for what is not sent yet."""

_PROMPT_SENDS = 4
_ALL = -1
_RETRY_SECONDS = (0.1, 5.0)
"""Between attempts to connect: at first, doubling up to."""

REASONS = ("full", "oversize", "nested", "encoding", "closed", "refused")


class Channel:
    """Packets in, in any thread; to the transport in that order."""

    def __init__(
        self,
        transport: Transport,
        *,
        limit: int = LIMIT_BYTES,
        on_fork: Callable[[], None] | None = None,
    ) -> None:
        """`on_fork` is called in a forked child, once the parent's packets are forgotten."""
        self.transport = transport
        self._limit = limit
        self._on_fork = on_fork
        self._begin()
        _channels.add(self)

    def _begin(self) -> None:
        self._packets: deque[bytes] = deque()
        self._accepted = 0
        """Bytes ever put; written by `put` under `_lock` only."""
        self._through = 0
        """Bytes of those that the transport has done with; written under `_sending` only."""
        self._dropped = dict.fromkeys(REASONS, 0)
        self._closed = False
        self._awake = False
        """Whether the thread is, or is about to be, at work."""
        self._blocked = False
        """Whether the kernel had no room, or there is no connection: then only the thread tries."""
        self._hurried = False
        self._busy = False
        self._retry_at = 0.0
        self._retry_after = _RETRY_SECONDS[0]
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        # Wakes the thread. Unlike an Event it may be used by a signal handler that interrupts it.
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._progress = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> dict[str, int]:
        """Packets discarded so far, by reason."""
        return {**self._dropped, "refused": self.transport.lost}

    def drop(self, reason: str) -> None:
        """Count a packet that was discarded."""
        with self._lock:
            self._dropped[reason] += 1

    def put(self, packet: bytes) -> bool:
        """Queue a packet; False if it was discarded instead."""
        size = len(packet)
        transport = self.transport
        with self._lock:
            if self._busy:  # the same thread, interrupted in here
                self._dropped["nested"] += 1
                return False
            self._busy = True
            try:
                waiting = self._accepted - self._through + size
                if waiting > self._limit or size > transport.packet_max or self._closed:
                    self._dropped[self._why_not(size)] += 1
                    return False
                self._accepted += size
                self._packets.append(packet)
                awake = self._awake
                self._awake = True
            finally:
                self._busy = False
        if not awake:
            self._rouse()
        elif waiting >= transport.batch and not self._blocked:
            if transport.prompt and transport.is_open:
                self._send(transport.batch, _PROMPT_SENDS)
            elif not self._hurried:
                self._hurried = True
                self._calls.put(None)
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until all that was put before has been handed to the kernel, at most so long; say
        whether it has."""
        target = self._accepted
        if self._through >= target or self._closed:
            return self._through >= target
        self._retry_at = 0.0
        deadline = time.monotonic() + seconds
        if self._rouse():
            with self._progress:
                self._progress.wait_for(lambda: self._through >= target, seconds)
        else:
            self._attend(deadline)
        return self._through >= target

    def close(self, seconds: float) -> bool:
        """Flush, then end for good, after at most `seconds` in all; say whether all was sent."""
        deadline = time.monotonic() + seconds
        done = self.flush(seconds)
        self._closed = True
        self._calls.put(None)
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        else:
            self.transport.close()
        with self._lock:
            self._dropped["closed"] += len(self._packets) + self.transport.unsent()
            self._packets.clear()
        return done

    def fork(self) -> None:
        """In a forked child: the parent's packets, threads and locks are not ours."""
        self.transport.fork()
        self._begin()
        if self._on_fork:
            self._on_fork()

    def _why_not(self, size: int) -> str:
        if self._closed:
            return "closed"
        return "oversize" if size > self.transport.packet_max else "full"

    def _rouse(self) -> bool:
        """See that the thread is at work; False if there can be no thread (any more)."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="tailrace", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, or out of threads
                return False
            self._thread = thread
        self._calls.put(None)
        return True

    def _run(self) -> None:
        while not self._closed:
            if not self._awake:
                self._calls.get()
            with suppress(Empty):
                self._calls.get(timeout=INTERVAL_SECONDS)
            self._hurried = False
            self._attend(time.monotonic() + INTERVAL_SECONDS)
            with self._progress:
                self._progress.notify_all()
            with self._lock:
                self._awake = self._accepted > self._through
        with self._sending:
            self.transport.close()

    def _attend(self, deadline: float) -> None:
        """Send all there is, opening first if need be; go on until `deadline` where the kernel has
        no room."""
        transport = self.transport
        while self._accepted > self._through:
            if not transport.is_open and not self._open():
                return
            self._blocked = False
            self._send(1, _ALL)
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                return
            if self._blocked:
                transport.wait(seconds)

    def _open(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            with self._sending:
                self.transport.open()
        except OSError:
            self._blocked = True
            self._retry_at = time.monotonic() + self._retry_after
            self._retry_after = min(2 * self._retry_after, _RETRY_SECONDS[1])
            return False
        self._retry_after = _RETRY_SECONDS[0]
        return True

    def _send(self, least: int, times: int) -> None:
        """Send while at least so many bytes wait, at most so many times, until the kernel has no
        room. While another thread sends, only `_ALL` waits for it."""
        if not self._sending.acquire(blocking=times == _ALL):
            return
        try:
            while times and self._accepted - self._through >= least:
                if not self.transport.is_open:
                    return
                done = self.transport.send(self._packets)
                self._through += done
                times -= 1
                if not done:
                    self._blocked = True
                    return
        except OSError:  # broken: the thread opens it again
            self._blocked = True
        finally:
            self._sending.release()


_channels: WeakSet[Channel] = WeakSet()


def _forked() -> None:
    for channel in _channels:
        channel.fork()


@atexit.register
def _exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    for channel in list(_channels):
        channel.close(max(0.0, deadline - time.monotonic()))


os.register_at_fork(after_in_child=_forked)
