"""Send the recorded events to the collector, without blocking the program.

A sender never raises, and never waits for a network, a disk or a name server in a call that emits. If calls of the
transport always return at once (sockets, `prompt`) and enough bytes wait, the thread that emits makes a few system
calls, which return at once: a second Python thread would have to acquire the GIL for each one, which takes 5 ms and
more beside a busy program. One daemon thread does all work that may wait.

Libraries such as gevent and eventlet may replace threads, queues and `sleep` at any time. So the sender looks these
functions up when its thread starts, and a greenlet waits only by a call that lets other greenlets run (`_Rest`). No
thread starts in a sub-interpreter, nor before uWSGI forks its workers.

A forked child starts with a new sender state. At the exit, open senders send a goodbye (the packet that ends the
session), but stay open, because threads, destructors and exit functions may still emit. Such a call sends its event and
another goodbye, within `EXIT_SECONDS` for all of them together.
"""

from __future__ import annotations

import _thread
import atexit
import importlib
import os
import queue
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from math import inf
from queue import Empty
from types import BuiltinFunctionType
from typing import Any, TypeVar

from tailrace_client._chunk import ChunkSource
from tailrace_client._link import Link
from tailrace_client._session import Dialogue
from tailrace_client._transport import Transport

T = TypeVar("T")

_PAUSE_SECONDS = 0.0005


class SignalSafeLock:
    """A lock for one thread at a time, which an exception of a signal handler (Ctrl-C) never leaves taken, unlike
    `threading.Lock`: one call takes it and records the holder, and the release is a statement without a call."""

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[int, object] = {}

    def run(self, function: Callable[[], T], deadline: float = 0.0) -> T | None:
        """Call a function while holding the lock, and return its result; None if the lock is not free by the deadline
        (monotonic seconds)."""
        mine = object()
        holder = self._holder
        try:
            while holder.setdefault(0, mine) is not mine:
                if deadline != inf and time.monotonic() >= deadline:
                    return None
                time.sleep(_PAUSE_SECONDS)
            return function()
        finally:
            if 0 in holder and holder[0] is mine:
                del holder[0]


INTERVAL_SECONDS = 0.01
"""Approximate maximum time (seconds) for which a packet waits before it is sent."""

EXIT_SECONDS = 1.0
"""Maximum time (seconds) for which an exit waits for unsent events."""

_SENDING_SECONDS = EXIT_SECONDS / 2
"""Last part (seconds) of `EXIT_SECONDS`, in which a sender no longer waits for answers, but sends the remaining events."""

PROMPT_SENDS = 4

_NOTHING = -1
_LOOK_SECONDS = 0.05
_CONNECTING_SECONDS = 0.005


def _is_main_interpreter() -> bool:
    # This function exists from Python 3.13 on.
    if own := getattr(_thread, "_is_main_interpreter", None):
        return bool(own())
    try:
        interpreters = importlib.import_module("_xxsubinterpreters")
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


# A sub-interpreter cannot be ended while it has a second thread.
_ALLOWS_THREADS = _is_main_interpreter()


class _Rest(Enum):
    """The ways in which the sending thread can wait while the program runs."""

    QUEUE = 1
    SLEEP = 2
    NONE = 3


def _is_own(function: object) -> bool:
    """Return whether a function is the interpreter's own, so that no library has replaced it."""
    return isinstance(function, BuiltinFunctionType)


def _rest(calls: object, starter: int) -> _Rest:
    """Return how the calling thread can wait. `starter` is the native id of the thread that started it."""
    if _thread.get_native_id() != starter or type(calls).__module__ != "_queue":
        return _Rest.QUEUE
    return _Rest.NONE if _is_own(time.sleep) else _Rest.SLEEP


class Sender:
    """Sends recorded events over a connection with a thread. One lock guards the use of the connection, another
    its opening."""

    def __init__(
        self,
        transport: Transport,
        *,
        room: int,
        on_fork: Callable[[], None],
        on_late: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep at most `room` bytes of sent chunks that are not durable. In a forked child, `on_fork` is called, and
        must call `begin` again. `on_late` is called for each event that another thread recorded while the sender
        closed."""
        self.transport = transport
        self._on_fork = on_fork
        self._on_late = on_late
        self.link: Link | None = None
        self._room = room
        self._reset()

    def _reset(self) -> None:
        self._lock = SignalSafeLock()
        self._opening = SignalSafeLock()
        """Lock that a thread holds while it opens the transport. Without the lock, another thread could open a second
        connection, and data could be sent on it before the announcement of the session."""
        # Queue that wakes the thread. A signal handler may use it even while it interrupts a call of the queue, which
        # is not possible with an Event.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._starter = 0
        self._rest = _Rest.QUEUE
        self._has_thread = self._is_over = False
        self.thread_ns: int | None = None
        """CPU time (ns) of the sending thread so far; None if no thread has sent anything, or if a greenlet sends."""
        self._unstarted = [True]
        """A list with one token: the caller that removes it, by the atomic `pop`, starts the thread."""
        self._idle = [True]
        """A list that holds one token while no thread works. Only the thread that removes the token works, even if two
        threads were started."""
        self._called = False
        self._asleep = False
        self._hurried = False
        self._closed = self._delivered = self._is_late = False
        self._late_seconds = EXIT_SECONDS
        self._is_child = False

    def begin(self, recorder: ChunkSource, dialogue: Dialogue) -> None:
        """Prepare to send the recorded chunks of `recorder`. Call this once in each process, before the recorder first
        calls `started` or `filled`."""
        self.link = Link(self.transport, dialogue, recorder, room=self._room)
        _open.add(self)
        _leave_in_worker()

    @property
    def connections(self) -> int:
        """The number of times that the transport was opened."""
        return self.link.connections if self.link else 0

    @property
    def last_error(self) -> str | None:
        """The reason why the peer is unreachable or lost; None while no problem is known."""
        return self.link.last_error if self.link else None

    # The recorder calls the following methods, in the threads that emit.

    def started(self) -> None:
        self._link.fresh = self._called = True
        if self._closed:
            self._lock.run(self._drop, time.monotonic() + _LOOK_SECONDS)
            return
        if self._is_late:
            self._report_late()
            return
        # Connect at once, without the sending thread, in two cases: in a forked child, because it may soon end by
        # `os._exit`, and before uWSGI forks.
        if self._is_child or (self.transport.is_near and _will_fork()):
            self._is_child = False
            self._round()
        if not self._has_thread:
            self._rouse()
        elif self._asleep:
            self._asleep = False
            self._calls.put(None)

    def filled(self) -> None:
        """Send the recorded chunks if the transport always returns at once (`prompt`); otherwise wake the sending
        thread."""
        link = self._link
        if not self.transport.prompt:
            if not self._hurried:
                self._hurried = True
                self._calls.put(None)
        elif not link.blocked:
            self._lock.run(partial(link.push, PROMPT_SENDS))

    # The program calls the following methods.

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all earlier events are durable or lost. Return whether all are durable or,
        without answers, accepted by the kernel."""
        if self._closed:
            return False
        deadline = time.monotonic() + seconds
        position = self._lock.run(self._gathered, deadline)
        return self._waits_for(self._link.fate.is_settled, position, deadline)

    def close(self, seconds: float) -> bool:
        """Wait as `flush` does, send the goodbye (the packet that ends the session) and close the sender, within
        `seconds`. Return what `flush` would return."""
        if self._closed:
            return self._delivered
        deadline = time.monotonic() + seconds
        ended = done = self._end_all(deadline)
        self._link.recorder.close()
        if ended and self._link.has_more:
            # Another thread has emitted events after the goodbye (the packet that ends the session), so send these
            # events and another goodbye.
            done = self._end_all(deadline)
        self._closed, self._delivered = True, done
        _open.discard(self)
        self._end_thread(deadline)

        def finish() -> None:
            self._miss(self._link.give_up(ended=ended))
            self._drop()
            self.transport.finish(0 if done else deadline - time.monotonic())

        self._lock.run(finish, max(deadline, time.monotonic() + _LOOK_SECONDS))
        # Another thread has emitted meanwhile and did not get the lock to send its event.
        if self._link.fresh:
            self._lock.run(self._drop, time.monotonic() + _LOOK_SECONDS)
        return done

    def _drop(self) -> None:
        while self._link.fresh:
            self._miss(self._link.drop())

    def _miss(self, events: int) -> None:
        for _ in range(events):
            self._on_late()

    def leave(self, seconds: float) -> None:
        """Send the goodbye (the packet that ends the session) as `close` does, but stay open for events of exit
        functions. If the collector does not answer in time, do not wait for answers to these events."""
        if self._is_late or self._closed:
            return
        deadline = time.monotonic() + seconds
        if not self._end_all(deadline):
            self._lock.run(self._link.end_unanswered, time.monotonic() + _LOOK_SECONDS)
            self._late_seconds = _SENDING_SECONDS
        self._is_late = True
        self._end_thread(deadline)

    def _end_all(self, deadline: float) -> bool:
        """Send all recorded events, and then a goodbye (the packet that ends the session). Return whether all were
        delivered."""
        position = self._lock.run(self._end, deadline)
        return position == _NOTHING or self._waits_for(
            self._link.fate.has_ended, position, deadline
        )

    def _report_late(self) -> None:
        """Send late events, and then another goodbye (the packet that ends the session). Wait only as long as the exit
        has time left."""
        link = self._link
        begun = time.monotonic()
        deadline = begun + self._late_seconds
        while link.fresh:  # Repeat this: a destructor may emit while this thread holds the lock.
            position = self._lock.run(self._end, begun + _LOOK_SECONDS)
            if position is None:
                break
            if not self._wait(deadline - _SENDING_SECONDS, partial(link.fate.has_ended, position)):
                self._lock.run(link.end_unanswered, time.monotonic() + _LOOK_SECONDS)
                self._wait(deadline, lambda: link.queue.idle)
        self._late_seconds -= time.monotonic() - begun

    def _end_thread(self, deadline: float) -> None:
        self._calls.put(None)
        while self._has_thread and not self._is_over and time.monotonic() < deadline:
            time.sleep(_CONNECTING_SECONDS)

    def forked(self) -> None:
        """Reset the sender in a forked child, because the thread, the locks and the connection belong to the parent."""
        self.transport = self.transport.forked()
        self._reset()
        self._is_child = self.transport.is_near
        self._on_fork()

    @property
    def _is_ending(self) -> bool:
        return self._closed or self._is_late

    @property
    def _link(self) -> Link:
        assert self.link is not None  # noqa: S101 - `begin` comes first
        return self.link

    def _gathered(self) -> int:
        """Move the recorded chunks into the queue. Return the position at which they end."""
        link = self._link
        link.gather()
        link.hurry()
        return link.queue.put_bytes

    def _end(self) -> int:
        """Request a goodbye (the packet that ends the session). Return the position at which the recorded chunks end;
        `_NOTHING` if no event was recorded or discarded."""
        position = self._gathered()
        if not position and not any(self._link.recorder.discarded.values()):
            return _NOTHING
        self._link.end()
        return position

    def _waits_for(
        self, reached: Callable[[int], bool], position: int | None, deadline: float
    ) -> bool:
        """Wait until all events before a position are settled. Return whether all of them are settled and none was
        lost."""
        if position is None or not self._wait(deadline, partial(reached, position)):
            return False
        return not self._link.fate.has_lost(position)

    def _wait(self, deadline: float, over: Callable[[], bool]) -> bool:
        """Send events and read answers until `over` returns True. Return False if the deadline comes first."""
        link = self._link

        def attended() -> bool:
            if link.is_open:
                link.attend()
            return over()

        while (left := deadline - time.monotonic()) > 0:
            if self._lock.run(attended, deadline):
                return True
            if link.is_open:
                self.transport.wait(min(left, _LOOK_SECONDS), to_send=link.blocked)
            elif self._rouse():  # Let the thread connect, because this may take long.
                time.sleep(min(left, _CONNECTING_SECONDS))
            else:
                self._round()
        return False

    def _rouse(self) -> bool:
        """Start the thread or wake it. Return False if no thread can run."""
        if self._is_late or not _ALLOWS_THREADS or _will_fork():
            return False
        if not self._has_thread:
            try:
                self._unstarted.pop()
                self._calls, self._starter = queue.SimpleQueue(), _thread.get_native_id()
                if not _is_own(_thread.start_new_thread) and _is_own(time.sleep):
                    # The state stays `NONE` until the new thread has checked that it is a real thread, not a greenlet.
                    # Do not use `threading.Thread`: at its end, it would fail if a library has replaced the `threading`
                    # module meanwhile.
                    self._rest = _Rest.NONE
                _thread.start_new_thread(self._run, ())
            except IndexError:  # Another caller is about to start the thread.
                return True
            except RuntimeError:  # The interpreter is ending, or no further thread is allowed.
                self._unstarted.append(True)
                return False
            except BaseException:
                # A signal handler has raised this: the thread may have started or not.
                self._unstarted.append(True)
                raise
            self._has_thread = True
            if self._rest is _Rest.NONE:
                time.sleep(_CONNECTING_SECONDS)
        if self._rest is _Rest.NONE:
            return False
        self._called = True
        self._calls.put(None)
        return True

    # The following methods run in the sending thread.

    def _run(self) -> None:
        idle = self._idle
        try:
            idle.pop()
        except IndexError:
            return
        try:
            self._rest = _rest(self._calls, self._starter)
            # A fork copies greenlets, unlike threads. In the child, the parent's greenlet ends, and the child's own one
            # replaces it.
            while self._idle is idle and not (self._is_ending or self._rest is _Rest.NONE):
                rest = self._round()
                if self._idle is not idle:
                    break
                self._hurried = False
                if _thread.get_native_id() != self._starter:
                    self.thread_ns = time.thread_time_ns()
                if self._link.blocked and rest:
                    self.transport.wait(rest, to_send=True)
                else:
                    self._sleep(rest)
        finally:
            if self._idle is idle:
                self._is_over = True

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until `INTERVAL_SECONDS` after an event was recorded, or until another thread wakes this one. Wait at
        most `seconds` for the event."""
        if self._rest is _Rest.SLEEP:
            until = time.monotonic() + (inf if seconds is None else seconds)
            while time.monotonic() < until:
                if self._called or self._hurried or self._is_ending:
                    break
                time.sleep(_LOOK_SECONDS)
            time.sleep(INTERVAL_SECONDS)
            return
        calls = self._calls
        self._asleep = True
        with suppress(Empty):
            if not self._called:
                calls.get(timeout=seconds)
        # In a forked child, this greenlet belongs to the parent, and `_calls` is a new queue. End the greenlet.
        if self._calls is not calls:
            return
        self._asleep = False
        if self._called:
            with suppress(Empty):
                calls.get(timeout=INTERVAL_SECONDS)

    def _round(self) -> float | None:
        """Do all work that is possible now. Return the seconds until more is due, as `Link.attend` does."""
        self._called = False
        link, transport = self._link, self.transport
        self._opening.run(self._open, time.monotonic() + _CONNECTING_SECONDS)
        # In a forked child, this is the parent's greenlet, which must end.
        return self._lock.run(link.attend, inf) if self.transport is transport else None

    def _open(self) -> None:
        """Open the transport and announce the session, if due. Do not hold the connection's lock: this may take seconds."""
        link, transport = self._link, self.transport
        if not link.is_due():
            return
        try:
            if not transport.is_open:
                transport.open()
        except OSError as error:
            then: Callable[[], None] = partial(link.missed, error)
        else:
            then = self._greet
        if self.transport is transport:
            self._lock.run(then, inf)
        else:
            # In a forked child, this is the parent's greenlet: close its transport.
            transport.close()

    def _greet(self) -> None:
        if self._closed:
            self.transport.close()
        else:
            self._link.greet()


def _will_fork() -> bool:
    """Return whether this is a uWSGI process that will still fork its workers. Such a process must start no thread: a
    worker would wait for ever for the GIL if the thread waits for it during the fork."""
    return not _is_forked and (server := _uwsgi()) is not None and not server.worker_id()


def _uwsgi() -> Any:  # noqa: ANN401 - the module has no types
    """Return uWSGI's module; None outside of uWSGI. A module of the program may also be called `uwsgi`."""
    server = sys.modules.get("uwsgi")
    return server if callable(getattr(server, "worker_id", None)) else None


_open: set[Sender] = set()
_process = os.getpid()
_is_forked = False
after_fork: list[Callable[[], None]] = []
"""Further functions to call in a forked child, after the senders were reset."""
at_exit: list[Callable[[], None]] = []
"""Further functions to call at the exit, after open senders have sent their goodbyes (the packets that end
sessions)."""


def _forked() -> None:
    """Reset all open senders in a forked child, once, although two hooks may call this function."""
    global _process, _is_forked
    if _process == os.getpid():
        return
    _process, _is_forked = os.getpid(), True
    senders = list(_open)
    _open.clear()
    for sender in senders:
        sender.forked()
    if senders:
        _leave_in_worker()
    for function in after_fork:
        function()


def _leave() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    for sender in list(_open):
        sender.leave(max(0.0, deadline - time.monotonic()))
    for function in at_exit:
        function()


def _leave_in_worker() -> None:
    """Register the exit function in a `multiprocessing` worker, which ends without the interpreter's exit. A worker
    removes inherited exit functions at its start, so this happens again after the fork."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    util.register_after_fork(_leave, _register_in_worker)
    if process.parent_process() is not None:
        _register_in_worker(_leave)


def _register_in_worker(_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _leave, exitpriority=-100)


def _register_at_fork() -> None:
    """Register a function that is called after a fork by Python or by uWSGI, which calls Python's own fork functions
    only with a special configuration."""
    os.register_at_fork(after_in_child=_forked)
    server, decorators = _uwsgi(), sys.modules.get("uwsgidecorators")
    if server is None:
        return
    if decorators is not None:  # uWSGI's decorators call the functions in a list after a fork.
        # Put our function first, because the program's own functions may emit.
        decorators.postfork_chain.insert(0, _forked)
        return
    before = getattr(server, "post_fork_hook", None)

    def hook() -> None:
        _forked()
        if before is not None:
            before()

    server.post_fork_hook = hook  # uWSGI calls the function in this attribute after a fork.


atexit.register(_leave)
_register_at_fork()
