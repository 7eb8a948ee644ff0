"""Send what is recorded to the collector, and never get in the program's way.

A sender promises the program that it never raises, and never waits for a network, a disk or a name
server. If the transport is prompt (sockets) and enough has gathered, the thread that emits makes up
to `PROMPT_SENDS` system calls to send and one to receive. They all return at once. A second Python
thread would have to win the GIL for each call, which takes 5 ms and more beside a busy program.

One daemon thread does all that may wait: connecting, files, answers, and whatever is left after
`INTERVAL_SECONDS`. The first packet starts the thread. It sleeps while there is nothing to do.

Libraries such as gevent and eventlet replace some or all of threads, queues and `sleep`, at any time. So the sender looks these
up only when its thread starts, and the thread checks whether it is a thread or a greenlet. A greenlet waits only by a call that
lets other greenlets run (`_Rest`). If there is no such call, it ends, and only `flush`, `close` and the exit connect. No thread
starts in a sub-interpreter either, since a sub-interpreter cannot be ended while it has a second thread.

uWSGI forks its workers without calling Python's functions. No thread starts before that, and events connect and leave at
once if the collector is on this host. uWSGI's own hook then lets the workers begin anew.

A forked child begins anew. If the collector is on this host, the child's first event connects, so that the collector sees the
child even if it soon ends by `os._exit`. At the exit of the interpreter, or of a `multiprocessing` worker, open senders say
goodbye, but stay open, because threads, destructors and exit functions that were registered earlier may still emit.
Such a call sends its event and says goodbye again. All such calls together wait for up to `EXIT_SECONDS`: in the first half
of it for answers, then only where the event could not be sent at once. Later calls send what they can, and do not wait.
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
    """A lock for one thread at a time. An exception of a signal handler never leaves it taken.

    CPython may raise such an exception (Ctrl-C) right after any call. A `threading.Lock` can stay
    taken when the exception comes just after `acquire` or just before `release`. Here one call both
    takes the lock and records the holder, and the release is a statement without a call.
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[int, object] = {}

    def run(self, function: Callable[[], T], deadline: float = 0.0) -> T | None:
        """Call a function while holding the lock and return its result.

        Return None, without a call, if the lock is not free by the deadline (monotonic seconds).
        """
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
"""About how long a packet waits at most before it is sent."""

EXIT_SECONDS = 1.0
"""How long an exit waits at most for what is not sent yet."""

_SENDING_SECONDS = EXIT_SECONDS / 2
"""The last part of `EXIT_SECONDS`, in which a sender no longer waits for answers and sends the events that are left."""

PROMPT_SENDS = 4

_NOTHING = -1
_LOOK_SECONDS = 0.05
_CONNECTING_SECONDS = 0.005


def _is_main_interpreter() -> bool:
    if own := getattr(_thread, "_is_main_interpreter", None):  # from Python 3.13 on
        return bool(own())
    try:
        interpreters = importlib.import_module("_xxsubinterpreters")
    except ImportError:
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


_ALLOWS_THREADS = _is_main_interpreter()


class _Rest(Enum):
    """How the sending thread waits while the program runs."""

    QUEUE = 1
    SLEEP = 2
    NONE = 3


def _is_own(function: object) -> bool:
    """Return whether no library has replaced a function of the interpreter."""
    return isinstance(function, BuiltinFunctionType)


def _rest(calls: object, starter: int) -> _Rest:
    """Return how this thread, which the native thread `starter` has started, can wait."""
    if _thread.get_native_id() != starter or type(calls).__module__ != "_queue":
        return _Rest.QUEUE
    return _Rest.NONE if _is_own(time.sleep) else _Rest.SLEEP


class Sender:
    """One connection, its thread, and the lock that lets one thread at a time use it."""

    def __init__(
        self,
        transport: Transport,
        *,
        room: int,
        on_fork: Callable[[], None],
        on_late: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep at most `room` bytes of what was sent and is not durable. A forked child calls
        `on_fork`, which has to `begin` anew. The sender calls `on_late` for each event whose call was under way when
        the sender closed: neither was it sent, nor does the goodbye count it."""
        self.transport = transport
        self._on_fork = on_fork
        self._on_late = on_late
        self.link: Link | None = None
        self._room = room
        self._reset()

    def _reset(self) -> None:
        self._lock = SignalSafeLock()
        # Wakes the thread. Unlike an Event, a signal handler that interrupts a call may use it.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._starter = 0
        self._rest = _Rest.QUEUE
        self._has_thread = self._is_over = False
        self._unstarted = [True]
        """Empty once the thread is started. `pop` is atomic and needs no lock."""
        self._idle = [True]
        """Empty once a thread is at work. So there is one thread, even if two were started."""
        self._called = False
        self._asleep = False
        self._hurried = False
        self._closed = self._delivered = self._is_late = False
        self._late_seconds = EXIT_SECONDS
        self._is_child = False

    def begin(self, recorder: ChunkSource, dialogue: Dialogue) -> None:
        """Send what `recorder` records. Call this once, before the recorder calls back."""
        self.link = Link(self.transport, dialogue, recorder, room=self._room)
        _open.add(self)
        _leave_in_worker()

    @property
    def connections(self) -> int:
        """The number of times that the transport was opened."""
        return self.link.connections if self.link else 0

    @property
    def last_error(self) -> str | None:
        """Why the peer could not be reached or was lost; None while nothing is known to be wrong."""
        return self.link.last_error if self.link else None

    # Calls of the recorder, in the threads that emit

    def started(self) -> None:
        """Take note that there is something to send."""
        self._link.fresh = self._called = True
        if self._closed:
            self._lock.run(self._drop, time.monotonic() + _LOOK_SECONDS)
            return
        if self._is_late:
            self._report_late()
            return
        if self._is_child or (self.transport.is_near and _will_fork()):
            self._is_child = False
            self._round()
        if not self._has_thread:
            self._rouse()
        elif self._asleep:
            self._asleep = False
            self._calls.put(None)

    def filled(self) -> None:
        """Send, or wake the thread: enough has gathered for a system call."""
        link = self._link
        if not self.transport.prompt:
            if not self._hurried:
                self._hurried = True
                self._calls.put(None)
        elif not link.blocked:
            self._lock.run(self._push)

    def _push(self) -> None:
        self._link.push(PROMPT_SENDS)

    # Calls of the program

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until the fate of all that was recorded before is known. Return whether
        all of it is durable or, if the collector is not asked, with the kernel."""
        if self._closed:
            return False
        deadline = time.monotonic() + seconds
        position = self._lock.run(self._gathered, deadline)
        return self._waits_for(self._link.fate.is_settled, position, deadline)

    def close(self, seconds: float) -> bool:
        """Flush, say goodbye and end for good within `seconds`. Return whether all was delivered, as
        `flush` does."""
        if self._closed:
            return self._delivered
        deadline = time.monotonic() + seconds
        done = self._end_all(deadline)
        self._link.recorder.close()
        if done and self._link.fresh:  # another thread has emitted meanwhile
            done = self._end_all(deadline)
        self._closed, self._delivered = True, done
        _open.discard(self)
        self._end_thread(deadline)

        def finish() -> None:
            self._miss(self._link.give_up(delivered=done))
            self._drop()
            self.transport.finish(0 if done else deadline - time.monotonic())

        self._lock.run(finish, max(deadline, time.monotonic() + _LOOK_SECONDS))
        if self._link.fresh:  # another thread did not get the lock meanwhile
            self._lock.run(self._drop, time.monotonic() + _LOOK_SECONDS)
        return done

    def _drop(self) -> None:
        while self._link.fresh:
            self._miss(self._link.drop())

    def _miss(self, events: int) -> None:
        for _ in range(events):
            self._on_late()

    def leave(self, seconds: float) -> None:
        """Say goodbye as `close` does, but stay open for events that come behind the exit functions. A second call does
        nothing."""
        if self._is_late:
            return
        deadline = time.monotonic() + seconds
        if self._end_all(deadline):
            self._is_late = True
            self._end_thread(deadline)
        else:
            self.close(max(0.0, deadline - time.monotonic()))

    def _end_all(self, deadline: float) -> bool:
        """Send all recorded events, and a goodbye behind them. Return whether all were delivered."""
        position = self._lock.run(self._end, deadline)
        return position == _NOTHING or self._waits_for(
            self._link.fate.has_ended, position, deadline
        )

    def _report_late(self) -> None:
        """Send late events, and a goodbye behind them. Wait only while there is time left."""
        link = self._link
        begun = time.monotonic()
        deadline = begun + self._late_seconds
        while link.fresh:  # again if a destructor emits while this thread holds the lock
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
        """Begin anew in a forked child: thread, locks and connection are the parent's."""
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
        """Take over what is recorded until now, and return its end as a position in the queue."""
        link = self._link
        link.gather()
        link.hurry()
        return link.queue.put_bytes

    def _end(self) -> int:
        """Do the same, and say goodbye behind it. Return `_NOTHING` if nothing was recorded or discarded."""
        position = self._gathered()
        if not position and not any(self._link.recorder.discarded.values()):
            return _NOTHING
        self._link.end()
        return position

    def _waits_for(
        self, reached: Callable[[int], bool], position: int | None, deadline: float
    ) -> bool:
        """Wait until a position is reached. Return whether it was, and nothing before it was lost."""
        if position is None or not self._wait(deadline, partial(reached, position)):
            return False
        return not self._link.fate.has_lost(position)

    def _wait(self, deadline: float, over: Callable[[], bool]) -> bool:
        """Send and listen until it is over. Return False at the deadline.

        The thread connects, since that may take long. If no thread can run, this call connects.
        """
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
            elif self._rouse():
                time.sleep(min(left, _CONNECTING_SECONDS))
            else:
                self._round()
        return False

    def _rouse(self) -> bool:
        """Start or wake the thread. Return False if no thread can run (any more)."""
        if self._is_late or not _ALLOWS_THREADS or _will_fork():
            return False
        if not self._has_thread:
            try:
                self._unstarted.pop()
                self._calls, self._starter = queue.SimpleQueue(), _thread.get_native_id()
                if not _is_own(_thread.start_new_thread) and _is_own(time.sleep):
                    self._rest = _Rest.NONE  # until the thread has found that it is no greenlet
                # A `threading.Thread` would fail at its end if a library has replaced that module meanwhile.
                _thread.start_new_thread(self._run, ())
            except IndexError:  # another caller is about to start it
                return True
            except RuntimeError:  # the interpreter is ending, or allows no further thread
                self._unstarted.append(True)
                return False
            except BaseException:  # a signal handler's: the thread may have started or not
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

    # The daemon thread

    def _run(self) -> None:
        idle = self._idle
        try:
            idle.pop()
        except IndexError:
            return
        try:
            self._rest = _rest(self._calls, self._starter)
            # A fork copies greenlets, unlike threads. There the parent's greenlet ends: another one takes its place.
            while self._idle is idle and not (self._is_ending or self._rest is _Rest.NONE):
                rest = self._round()
                if self._idle is not idle:
                    break
                self._hurried = False
                if self._link.blocked and rest:
                    self.transport.wait(rest, to_send=True)
                else:
                    self._sleep(rest)
        finally:
            if self._idle is idle:
                self._is_over = True

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until something is recorded, and a little longer, or until called; at most `seconds`."""
        if self._rest is _Rest.SLEEP:
            until = time.monotonic() + (inf if seconds is None else seconds)
            while (
                not (self._called or self._hurried or self._is_ending) and time.monotonic() < until
            ):
                time.sleep(_LOOK_SECONDS)
            time.sleep(INTERVAL_SECONDS)
            return
        calls = self._calls
        self._asleep = True
        with suppress(Empty):
            if not self._called:
                calls.get(timeout=seconds)
        if self._calls is not calls:  # in a forked child they are those of another greenlet
            return
        self._asleep = False
        if self._called:
            with suppress(Empty):
                calls.get(timeout=INTERVAL_SECONDS)

    def _round(self) -> float | None:
        """Do what can be done. Return the seconds until there is more to do, as `Link.attend`."""
        self._called = False
        link, transport = self._link, self.transport
        if link.is_due():
            try:
                transport.open()  # it may take seconds: others need the lock meanwhile
            except OSError as error:
                then: Callable[[], None] = partial(link.missed, error)
            else:
                then = self._greet
            if self.transport is not transport:  # a forked child's greenlet: this is the parent's
                transport.close()
                return None
            self._lock.run(then, inf)
        return self._lock.run(link.attend, inf)

    def _greet(self) -> None:
        if self._closed:
            self.transport.close()
        else:
            self._link.greet()


def _will_fork() -> bool:
    """Return whether this is the process of uWSGI from which workers are still to be forked.

    If another thread waits for the interpreter's lock during that fork, a worker waits for that thread for ever, since
    uWSGI does not call the interpreter's functions for forks, unless it is told to.
    """
    return not _is_forked and (server := _uwsgi()) is not None and not server.worker_id()


def _uwsgi() -> Any:  # noqa: ANN401 - the module has no types
    """Return uWSGI's module; None outside of uWSGI. A module of the program may have the name, too."""
    server = sys.modules.get("uwsgi")
    return server if callable(getattr(server, "worker_id", None)) else None


_open: set[Sender] = set()
_process = os.getpid()
_is_forked = False
after_fork: list[Callable[[], None]] = []
"""Further functions that a forked child calls, after the senders have begun anew."""
at_exit: list[Callable[[], None]] = []
"""Further functions that the exit calls, after the goodbyes of open senders."""


def _forked() -> None:
    """Reset all emitters in a forked child. Two hooks may call this function; the second call does nothing."""
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
    """Register the exit of a `multiprocessing` worker, which ends without the interpreter's exit.

    A worker has its own exit functions. At its beginning it forgets those that it inherited, except
    functions that register themselves after the fork.
    """
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
    """Register for forks by Python, and for those of uWSGI, which calls Python's functions only if it is told to."""
    os.register_at_fork(after_in_child=_forked)
    server, decorators = _uwsgi(), sys.modules.get("uwsgidecorators")
    if server is None:
        return
    if decorators is not None:  # its hook calls the functions of a list
        decorators.postfork_chain.insert(0, _forked)  # the program's own functions may emit
        return
    before = getattr(server, "post_fork_hook", None)

    def hook() -> None:
        _forked()
        if before is not None:
            before()

    server.post_fork_hook = hook  # uWSGI looks for it


atexit.register(_leave)
_register_at_fork()
