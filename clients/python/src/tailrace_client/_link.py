"""Decide which data a client sends next, and process the collector's answers and timeouts, for one caller at a time.

After a reconnect, chunks wait for an answer of the collector. Otherwise, connections that break before the answer would
all carry the same chunks. Over UDP, the link does not wait, but a window limits the unanswered bytes. Datagrams
overtake one another, so each datagram announces the session until the collector answers. If the client asks for no
answers, only the first `ANNOUNCEMENTS` datagrams do.

If the dialogue `asks` for answers, only an answer makes an event durable. Otherwise an event is delivered once the
kernel has accepted it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from math import inf

from tailrace_client._chunk import ChunkSource
from tailrace_client._descriptors import TakenError
from tailrace_client._queue import Queue
from tailrace_client._session import Answers, Dialogue
from tailrace_client._settlement import (
    WAITING_PACKETS_MAX,
    Backoff,
    Farewell,
    Fate,
    Losses,
    Questions,
    Window,
)
from tailrace_client._transport import Transport

ANSWER_SECONDS = 1.0

_SILENT_SECONDS = 0.5
"""Time (seconds) after which `last_error` reports that an expected answer is missing."""

_UNANSWERED = (
    "the collector does not answer: check that it runs at this address "
    "(for a peer that never answers, pass acknowledge=False)"
)
_NEVER = -1e9


class Contact:
    """The state of the contact to the peer, and the last error."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.opened_at = self.answered_at = _NEVER
        self.greeted_at = _NEVER
        """Time (seconds) from which on the client counts how long it waits for the collector's first answer. The link
        sets it again when it begins to wait anew, for example because no process listened at the address."""

    @property
    def has_answered(self) -> bool:
        return self.answered_at >= self.opened_at

    def opened(self, now: float) -> None:
        self.opened_at = self.greeted_at = now

    def is_established(self, now: float) -> bool:
        """Return whether the peer has answered, or has kept the connection open so long that it must have accepted it."""
        since = max(self.opened_at, self.greeted_at)
        return self.has_answered or now - since > ANSWER_SECONDS

    def note(self, error: OSError, question: str = "") -> None:
        """Record an error. `question` asks the user about a possible cause, and is added to the error's text."""
        words = error.strerror or str(error)
        if error.filename is not None:
            words = f"{words}: {error.filename}"
        self.error = f"{words}; {question}" if question else words

    def trouble(self, now: float, oldest: float) -> str | None:
        if now - max(self.opened_at, self.answered_at, oldest) > _SILENT_SECONDS:
            return self.error or _UNANSWERED
        if self.is_established(now):
            self.error = None
        return self.error


ANNOUNCEMENTS = 8
"""Number of datagrams at the start of a session that announce the session, if the client asks for no answers."""


class Introductions:
    """Decides whether the next datagram must announce the session. Without an announcement, the collector might assign
    the datagram to another program at the address."""

    def __init__(self, queue: Queue, contact: Contact, *, asks: bool) -> None:
        self._queue, self._contact, self._asks = queue, contact, asks
        self._left = 0
        """Number of further datagrams that must announce the session, if the client asks for no answers."""
        self._delayed = False
        """Whether the events in the queue had to wait. If so, the times in their datagrams no longer show the collector
        which program has sent them."""

    def begin(self) -> None:
        self._left = ANNOUNCEMENTS

    def is_due(self, *, held: bool) -> bool:
        """Return whether the next datagram must announce the session. `held` states that events must wait for an
        answer."""
        queue = self._queue
        self._delayed = not queue.idle and (self._delayed or held)
        speaks = queue.speaks(only_packets=held)
        if queue.idle or (held and not speaks):
            return False
        if speaks or queue.repeats or self._delayed:
            return True
        if self._asks or self._contact.has_answered:
            return not self._contact.has_answered
        self._left -= 1
        return self._left >= 0


ALL = -1

_EAGER_SECONDS = 0.5
"""Time (seconds) for which the link requests an answer at short intervals while the collector has never answered a
datagram."""

_ENDS_PER_PACKET = 32
"""Maximum number of streams in one packet that states the last event numbers of streams. Such a packet fits into any
datagram."""

_PATIENCE_SECONDS = (ANSWER_SECONDS, 32.0)
"""Minimum and maximum wait (seconds) for the collector's answer to the announcement of the session on a new
connection."""
_RETRY_SECONDS = (0.1, 5.0)
"""Minimum and maximum pause (seconds) between attempts to connect. The pause doubles after each failure."""
_LISTEN_SECONDS = (0.1, 5.0)
"""Minimum and maximum pause (seconds) between reads of the socket for answers when the link is idle."""
_ROOM_SECONDS = 0.5
"""Pause (seconds) before the next attempt to send if the kernel's send buffer is full."""
_STREAM_CALL_BYTES = 2**20


class Link:
    """Sends a recorder's chunks and a session's packets through one transport."""

    def __init__(
        self,
        transport: Transport,
        dialogue: Dialogue,
        recorder: ChunkSource,
        *,
        room: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep at most `room` bytes of sent chunks that are not durable. `clock` returns seconds."""
        self.transport = transport
        self.dialogue = dialogue
        self.recorder = recorder
        self.queue = Queue(room, recorder.release, late=int(transport.datagrams))
        self.queue.keep = dialogue.asks
        self.fresh = False
        """Whether the recorder may have chunks that have not been moved to the queue."""
        self.blocked = False
        """Whether the kernel's send buffer was full at the last attempt. Then only the sender's thread sends."""
        self.connections = 0
        self._now = clock
        self._questions = Questions()
        self._contact = Contact()
        self._window = Window(room, ANSWER_SECONDS)
        self._farewell = Farewell(
            dialogue, recorder, transport.chunk_bytes, repeat=transport.datagrams
        )
        self.fate = Fate(self.queue, self._farewell, asks=dialogue.asks)
        self._losses = Losses(self.queue, recorder, dialogue)
        self._introductions = Introductions(self.queue, self._contact, asks=dialogue.asks)
        self._answers = Answers()
        self._greeted = False
        """Whether the session was announced on the current connection."""
        self._torn = False
        """Whether a signal handler's exception interrupted a system call that sends. The number of sent bytes is then
        unknown, so the link must close the connection."""
        self._patience = Backoff(*_PATIENCE_SECONDS)
        """The time (seconds) for which recorded events (chunks) wait until the collector answers the announcement of
        the session."""
        self._awaiting = False
        """Whether recorded events (chunks) currently wait until the collector has answered the announcement of the
        session."""
        self._waited = False
        self._nobody = False
        """Whether the kernel reported for the last datagram that no process listens at the address. If so, the link
        sends only announcements of the session."""
        self._retry = Backoff(*_RETRY_SECONDS)
        self._listen = Backoff(*_LISTEN_SECONDS)

    # The following methods are called by the sender.

    @property
    def is_open(self) -> bool:
        """Whether the transport is open and the session was announced on it, so that data may be sent."""
        return self._greeted and self.transport.is_open

    def is_due(self) -> bool:
        """Return True if the transport must be opened, or if it is open and the session must still be announced: an
        exception of a signal handler may have interrupted the link between these two steps."""
        wanted = not self.is_open and (self.fresh or self.fate.unsettled)
        return wanted and not self._retry.left(self._now())

    def attend(self) -> float | None:
        """Do all work that is possible now. Return the seconds until more is due; None if further work needs a new
        event."""
        now = self._now()
        if self._torn:
            self._break(now)
        if not self.is_open:
            return self._retry.left(now) if self.fresh or self.fate.unsettled else None
        self._hear(64)
        if self.transport.datagrams:
            self._announce(now)
        self._losses.report(now)
        self.blocked = False
        self._push(ALL)
        if self._queue_goodbye(now):
            self._push(ALL)
        self._listen.grow(now)
        now = self._now()
        if self._nobody or not self.transport.is_open:
            return self._retry.left(now)
        if self.blocked:
            return _ROOM_SECONDS
        if self._awaiting:
            return self._patience.left(now)
        return self._listen.left(now) if self.fate.unsettled else None

    def push(self, times: int) -> None:
        """Read answers in one system call, then send recorded chunks in at most `times` calls."""
        if self.is_open and not (self._torn or self.blocked):
            self._hear(1)
            self._push(times)

    def gather(self) -> None:
        self.fresh = False
        chunks = self.recorder.take()
        if chunks:
            if self.dialogue.asks:
                self._listen.shorten()
            self.queue.put(chunks)

    def hurry(self) -> None:
        """End two pauses: before the next attempt to connect, and before the next question to the collector which
        events are durable."""
        self._retry.at = 0.0
        self._questions.hurry()
        if not self._waited and self.is_open and self.transport.datagrams:
            # Request an answer again soon: the link has sent few requests so far, and all of them may be lost.
            self._waited = True
            self._contact.greeted_at = self._now()

    def end(self) -> None:
        """Request that the goodbye, the packet that ends the session, is sent after all recorded events. The link
        repeats it until the collector answers."""
        self.gather()
        self._farewell.want()

    def end_unanswered(self) -> None:
        """Send all data that the kernel accepts now, and a requested goodbye (the packet that ends the session),
        without waiting for answers."""
        self.attend()
        if self.is_open and not self._farewell.sent:
            self._send_goodbye_early()

    def give_up(self, *, ended: bool) -> int:
        """Stop recording, and count all unsent and unanswered events as discarded. `ended` states that a goodbye, the
        packet that ends the session, was delivered. Return the number of unsent events that the goodbye did not count,
        because another thread recorded them later."""
        self._contact.error = self.last_error
        self.recorder.close()
        late = 0
        if ended:
            late = self._losses.close_late(self.queue.unsent(), self._farewell.numbers)
        else:
            self.gather()
            self._losses.close_unsent()
            self._send_goodbye_early()
        # Count the unanswered events as discarded only now: the goodbye (the packet that ends the session) does not
        # count them, since they may have arrived.
        self._losses.close_unanswered()
        self.queue.clear()
        return late

    @property
    def has_more(self) -> bool:
        """Whether an event is not counted in the latest goodbye (the packet that ends the session), or an event or the
        goodbye still waits to be sent or to be answered."""
        uncounted = self.fresh or self._farewell.numbers != self.recorder.next_numbers()
        return uncounted or self.fate.unsettled

    def drop(self) -> int:
        """Discard events that were being recorded when the link was closed. Return how many of them the goodbye (end of
        the session) did not count."""
        self.fresh = False
        return self._losses.close_late(self.recorder.take(), self._farewell.numbers)

    # The following properties show the state of the link to the program.

    @property
    def last_error(self) -> str | None:
        """The reason why the peer cannot be reached, is lost or does not answer; None once the peer has been connected
        for a while."""
        if not self.is_open or self._nobody:
            return self._contact.error
        oldest = self.queue.oldest if self.queue.unsettled else inf
        return self._contact.trouble(self._now(), oldest)

    # The following methods send data.

    def _push(self, times: int) -> None:
        queue, transport = self.queue, self.transport
        size = transport.chunk_bytes if transport.datagrams else _STREAM_CALL_BYTES
        introduced = not transport.datagrams
        while times and transport.is_open:
            if queue.idle:
                self.gather()
            held = self._holds_back()
            room = size
            if not introduced and self._introductions.is_due(held=held):
                # Announce the session in the same datagram as the events.
                announcement = self.dialogue.announcement()
                queue.first_packet(announcement)
                room += len(announcement)
            pieces = queue.pieces(room, only_packets=held)
            if not pieces:
                return
            # If an event is too long to share a datagram with the announcement of the session, the announcement is sent
            # first, in a datagram of its own.
            introduced = not transport.datagrams or queue.announces_alone
            times -= 1
            if not self._send(pieces):
                self.blocked = True
                return

    def _holds_back(self) -> bool:
        """Return whether chunks must wait for an answer of the collector."""
        now = self._now()
        if self._awaiting:
            if self._patience.left(now):
                return True
            self._awaiting = False
            self.queue.repeat(before=self.dialogue.turn)
        full = self.transport.datagrams and self._window.is_full(self.queue.in_flight_bytes, now)
        return self._nobody or full

    def _send(self, pieces: list[bytes]) -> bool:
        """Make one system call that sends. Return whether another call may send more."""
        # If an exception of a signal handler interrupts the call, the flag stays set: it is unknown how many bytes the
        # kernel accepted.
        self._torn = True
        queue = self.queue
        try:
            taken = self.transport.send(pieces)
        except OSError as error:
            self._torn = False
            if not self.transport.is_open:
                self._break(self._now(), error)
                return False
            if error.errno == errno.EMSGSIZE:
                self._losses.refuse()
            else:
                queue.back()
                self._find_nobody(error)
            return True
        if taken:
            queue.through(taken, self.dialogue.turn, self._now())
        elif self.transport.datagrams:
            queue.back()
        self._torn = False
        return taken > 0

    # The following methods open the connection, and close it when it is broken.

    def missed(self, error: OSError) -> None:
        self._contact.note(error)
        self._retry.grow(self._now())

    def greet(self) -> None:
        """Announce the session on a transport that was opened just now."""
        transport, queue, dialogue = self.transport, self.queue, self.dialogue
        now = self._now()
        self._contact.opened(now)
        self._questions.announced(now)
        if self.connections and dialogue.asks:
            dialogue.turn += 1
        self.connections += 1
        self._answers = Answers()
        queue.first_packet(dialogue.announcement())
        self._send_ends()
        self._introductions.begin()
        known = dialogue.answered >= 0 or (self.connections > 1 and dialogue.asks)
        self._awaiting = known and not transport.datagrams
        if self._awaiting:
            self._patience.grow(now)
        if not (self._awaiting or transport.datagrams):
            queue.repeat(before=dialogue.turn)
        self._greeted = True

    def _break(self, now: float, error: OSError | None = None) -> None:
        """Close a broken connection, and schedule the next attempt."""
        contact = self._contact
        if error is not None:
            refused = not (contact.is_established(now) or isinstance(error, TakenError))
            contact.note(error, self.transport.refusal if refused else "")
        self._greeted = False
        self._farewell.broken()
        self.transport.close()
        self.queue.broken()
        if self.dialogue.answered < 0 and not self.transport.datagrams:
            # No collector has ever answered, so all sent events may be lost.
            self.queue.repeat(before=self.dialogue.turn + 1)
        self._torn = False
        if now - contact.opened_at > _RETRY_SECONDS[1]:
            self._retry.shorten()
        else:
            self._retry.grow(now)

    def _find_nobody(self, error: OSError) -> None:
        """Record that no process listens at the address, as the kernel has reported about an earlier datagram. From now
        on, recorded events must wait."""
        self._contact.note(error)
        self._introductions.begin()
        now = self._contact.greeted_at = self._now()
        if self.dialogue.answered < 0:
            # No collector has ever answered, so all sent events may be lost.
            self.queue.repeat(before=self.dialogue.turn + 1)
            self._losses.lose_unsettled()
        if not self._nobody:
            self._nobody = True
            self._retry.grow(now)

    # The following methods announce the session, request answers of the collector, and read the answers.

    def _announce(self, now: float) -> None:
        """Announce the session again in a datagram, if this is due. Request an answer if events have been unsettled
        (neither known to be durable nor lost) for too long."""
        dialogue, queue, contact = self.dialogue, self.queue, self._contact
        if self._nobody:
            asking = not self._retry.left(now)
            contact.greeted_at = now if asking else contact.greeted_at
        else:
            first = dialogue.answered < 0 and now - contact.greeted_at < _EAGER_SECONDS
            asking = queue.unsettled and self._questions.is_due(queue.oldest, now, first=first)
        if asking:
            self._nobody = False
            dialogue.turn += 1
            self._questions.asked(now)
        sending = self.fresh or not queue.idle
        if asking or (sending and self._questions.is_forgotten(now)):
            queue.first_packet(dialogue.announcement())
            self._questions.announced(now)
        if asking:
            self._send_ends()

    def _send_ends(self) -> None:
        """Send the last event number of each stream with forgotten events (events that the queue no longer keeps). The
        answer then contains the stream even if none of its events has arrived."""
        dialogue, queue = self.dialogue, self.queue
        ends = iter(queue.forgotten.ends(dialogue.turn).items())
        while queue.waiting_packets < WAITING_PACKETS_MAX:
            if not (some := dict(islice(ends, _ENDS_PER_PACKET))):
                return
            queue.packet(dialogue.reached(some))

    def _queue_goodbye(self, now: float) -> bool:
        place = self.connections, self.queue.put_bytes
        settled = self.fate.is_settled(self.queue.put_bytes)
        due = self.is_open and self._farewell.is_due(*place, settled=settled, now=now)
        if due:
            goodbyes = self._farewell.send(*place, now)
            if not self.dialogue.asks:
                self._losses.name_ends(self._farewell.numbers)
            self.queue.last_packets(goodbyes)
        return due

    def _send_goodbye_early(self) -> None:
        """Over UDP, send the goodbye (the packet that ends the session) before all events are settled (durable or
        lost), so that the collector may know which events are missing."""
        if self._farewell.wanted and self.transport.datagrams:
            for packet in self._farewell.packets():
                with suppress(OSError):
                    self.transport.send([self.dialogue.announcement(), packet])

    def _hear(self, most: int) -> None:
        """Read answers in at most `most` system calls."""
        datagrams = self.transport.datagrams
        try:
            while most and (data := self.transport.receive()):
                most -= 1
                for option in (Answers() if datagrams else self._answers).feed(data):
                    self._take_in(option)
        except OSError as error:
            if self.transport.is_open:
                self._find_nobody(error)
            else:
                self._break(self._now(), error)

    def _take_in(self, option: bytes) -> None:
        dialogue, queue = self.dialogue, self.queue
        answer = dialogue.hear(option, self.recorder.next_numbers(), queue.sent)
        if answer is None:
            return
        self._questions.answered()
        self._listen.shorten()
        self._retry.shorten()
        self._patience.shorten()
        self._awaiting = self._awaiting and answer.turn < dialogue.turn
        self._nobody = False
        missing = self._losses.settle(answer)
        now = self._contact.answered_at = self._now()
        self._window.answered(lost=missing, now=now)
        if answer.goodbye:
            self._farewell.take_answer()
