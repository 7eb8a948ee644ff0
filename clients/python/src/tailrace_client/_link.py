"""Decide what is sent next, and what follows from an answer or from silence. One caller at a time.

The client announces its session on each new connection. After a reconnect, chunks wait for the answer. Otherwise, if
connections kept breaking before an answer, each would carry the same chunks. They wait for at most `ANSWER_SECONDS`,
and for twice as long after each connection that broke unanswered, since a busy collector answers late. Then the link
sends what is not durable, then what is new. Datagrams do not wait for the answer: the link sends again what the
answer does not cover. A window (`Window`) limits the datagrams in flight. If the kernel reports that nobody listens,
everything but announcements waits.

A goodbye is unsettled until the collector answers it, as events are. If the connection breaks
before, the link connects again.

If the dialogue `asks`, only an answer makes an event durable, however late the answer comes. If it
does not ask, an event is delivered once the kernel has it, and nothing is kept.

Datagrams overtake one another, so each announces the session until the collector answers. If no answer is asked for,
the first `ANNOUNCEMENTS` do. Later ones do if their times do not show who sent them: reports, goodbyes, and events
that are repeated or had to wait.
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
    Discards,
    Farewell,
    Fate,
    Losses,
    Questions,
    Window,
)
from tailrace_client._transport import Transport

ANSWER_SECONDS = 1.0
"""How long a collector may take to answer."""

_SILENT_SECONDS = 0.5
"""After so long without an answer that is due, an error is shown to people."""

_UNANSWERED = (
    "the collector does not answer: check that it runs at this address "
    "(for a peer that never answers, pass acknowledge=False)"
)
_NEVER = -1e9


class Contact:
    """When the transport was opened and the peer last answered, and the last error."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.opened_at = self.answered_at = _NEVER
        self.greeted_at = _NEVER
        """Since when the collector could have answered, as far as is known."""

    @property
    def has_answered(self) -> bool:
        """Whether the peer has answered since the transport was opened."""
        return self.answered_at >= self.opened_at

    def opened(self, now: float) -> None:
        """Take note that the transport has been opened."""
        self.opened_at = self.greeted_at = now

    def is_established(self, now: float) -> bool:
        """Return whether the peer has answered, or has kept the connection for long enough to have
        accepted our first bytes."""
        since = max(self.opened_at, self.greeted_at)
        return self.has_answered or now - since > ANSWER_SECONDS

    def note(self, error: OSError, question: str = "") -> None:
        """Take note of an error, and of a `question` that may lead people to its cause."""
        words = error.strerror or str(error)
        if error.filename is not None:
            words = f"{words}: {error.filename}"
        self.error = f"{words}; {question}" if question else words

    def trouble(self, now: float, oldest: float) -> str | None:
        """Return what is wrong with an open connection whose oldest unsettled event was sent at
        `oldest`; infinity: none is."""
        if now - max(self.opened_at, self.answered_at, oldest) > _SILENT_SECONDS:
            return self.error or _UNANSWERED
        if self.is_established(now):
            self.error = None
        return self.error


ANNOUNCEMENTS = 8
"""Datagrams that announce a session for which no answer is asked."""


class Introductions:
    """Whether the collector might take the next datagram for one of another program at this address."""

    def __init__(self, queue: Queue, contact: Contact, *, asks: bool) -> None:
        """`asks`: whether the collector is asked for answers."""
        self._queue, self._contact, self._asks = queue, contact, asks
        self._left = 0
        """How many more datagrams announce the session if no answer is asked for."""
        self._delayed = False
        """Whether datagrams wait that could have been sent earlier."""

    def begin(self) -> None:
        """Take note that the collector may not know the session."""
        self._left = ANNOUNCEMENTS

    def is_due(self, *, held: bool) -> bool:
        """Return whether the next datagram announces the session. `held`: whether chunks have to wait."""
        queue = self._queue
        self._delayed = not queue.idle and (self._delayed or held)
        speaks = queue.speaks(only_packets=held)
        if queue.idle or (held and not speaks):
            return False
        return speaks or queue.repeats or self._delayed or self._is_new()

    def _is_new(self) -> bool:
        """Return whether the collector may not know the session yet."""
        if self._asks or self._contact.has_answered:
            return not self._contact.has_answered
        self._left -= 1
        return self._left >= 0


ALL = -1

_EAGER_SECONDS = 0.5
"""How long the link asks at short intervals a collector that has never answered a datagram: after
connecting, and once more after the first flush began."""

_ENDS_PER_PACKET = 32
"""With the ends of so many streams a packet fits into any datagram, behind an announcement."""

_PATIENCE_SECONDS = (ANSWER_SECONDS, 32.0)
"""For the answer to an announcement on a new connection."""
_RETRY_SECONDS = (0.1, 5.0)
"""Between attempts to connect: the first pause, which doubles up to the second number."""
_LISTEN_SECONDS = (0.1, 5.0)
"""Likewise, between looks for an answer when nothing else is to be done."""
_ROOM_SECONDS = 0.5
"""Between attempts to send when the kernel has no room."""
_STREAM_CALL_BYTES = 2**20


class Link:
    """The way of a recorder's chunks and a session's packets through one transport."""

    def __init__(
        self,
        transport: Transport,
        dialogue: Dialogue,
        recorder: ChunkSource,
        *,
        room: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep at most `room` bytes of what was sent. `clock` counts seconds."""
        self.transport = transport
        self.dialogue = dialogue
        self.recorder = recorder
        self.queue = Queue(room, recorder.release, late=int(transport.datagrams))
        self.queue.keep = dialogue.asks
        self.fresh = False
        """Whether the recorder may hold chunks."""
        self.blocked = False
        """Whether the kernel had no room. Then only the sender's thread tries again."""
        self.connections = 0
        self._now = clock
        self._questions = Questions()
        self._contact = Contact()
        self._window = Window(room, ANSWER_SECONDS)
        self._farewell = Farewell(
            dialogue, recorder, transport.chunk_bytes, repeat=transport.datagrams
        )
        self.fate = Fate(self.queue, self._farewell, asks=dialogue.asks)
        self._losses = Losses(self.queue, Discards(recorder, dialogue), dialogue)
        self._introductions = Introductions(self.queue, self._contact, asks=dialogue.asks)
        self._answers = Answers()
        self._greeted = False
        """Whether the session was announced on this connection."""
        self._torn = False
        """Whether an exception of a signal handler interrupted a send: the connection must break."""
        self._patience = Backoff(*_PATIENCE_SECONDS)
        """Until when chunks wait for the answer to the announcement."""
        self._awaiting = False
        """Whether they wait."""
        self._waited = False
        """Whether the program has ever waited for an answer to datagrams."""
        self._nobody = False
        """Whether the last datagram was refused: everything but announcements waits."""
        self._retry = Backoff(*_RETRY_SECONDS)
        self._listen = Backoff(*_LISTEN_SECONDS)

    # Calls of the sender

    @property
    def is_open(self) -> bool:
        """Whether anything may be sent."""
        return self._greeted and self.transport.is_open

    def is_due(self) -> bool:
        """Return whether it is time to open the transport."""
        wanted = not self.transport.is_open and (self.fresh or self.fate.unsettled)
        return wanted and not self._retry.left(self._now())

    def attend(self) -> float | None:
        """Do all that can be done now. Return the seconds until there is more to do; None if only a
        new event brings more."""
        now = self._now()
        if self._torn:
            self._break(now)
        if not self.is_open:
            return self._retry.left(now) if self.fresh or self.fate.unsettled else None
        self._hear(64)
        self._speak(now)
        self.blocked = False
        self._push(ALL)
        if self._queue_goodbye(now):
            self._push(ALL)
        self._listen.grow(now)
        return self._rest(self._now())

    def push(self, times: int) -> None:
        """Send recorded chunks in at most `times` system calls, after one call to listen."""
        if self.is_open and not (self._torn or self.blocked):
            self._hear(1)
            self._push(times)

    def gather(self) -> None:
        """Take the recorded chunks over into the queue."""
        self.fresh = False
        chunks = self.recorder.take()
        if chunks:
            if self.dialogue.asks:
                self._listen.shorten()
            self.queue.put(chunks)

    def hurry(self) -> None:
        """Connect or ask at once if a pause is all that holds it up."""
        self._retry.at = 0.0
        self._questions.hurry()
        if not self._waited and self.is_open and self.transport.datagrams:
            # Questions so far were few, and may be lost.
            self._waited = True
            self._contact.greeted_at = self._now()

    def end(self) -> None:
        """Say goodbye behind all that is recorded, and again until the collector has answered."""
        self.gather()
        self._farewell.want()

    def end_unanswered(self) -> None:
        """Send what can be sent now, and the goodbye that is wanted. There is no time for answers."""
        self.attend()
        if self.is_open and not self._farewell.sent:
            self._send_goodbye_early()

    def give_up(self, *, delivered: bool) -> int:
        """Stop recording, and count what was never sent or never answered as discarded. Return how many events another
        thread had recorded before the end of a link that had delivered all: no goodbye counts them."""
        self._contact.error = self.last_error
        self.recorder.close()
        late = 0
        if delivered:
            late = self._losses.close_late(self.queue.unsent(), self._farewell.numbers)
        else:
            self.gather()
            self._losses.close_unsent()
            self._send_goodbye_early()
        # The goodbye does not count these as discarded, since they may have arrived.
        self._losses.close_unanswered()
        self.queue.clear()
        return late

    def drop(self) -> int:
        """Discard the events whose calls were under way when the link was closed. Return how many of them no goodbye
        counts."""
        self.fresh = False
        return self._losses.close_late(self.recorder.take(), self._farewell.numbers)

    # Results

    @property
    def last_error(self) -> str | None:
        """Why the peer could not be reached, was lost, or does not answer; None once it has been
        there for a while."""
        if not self.is_open or self._nobody:
            return self._contact.error
        oldest = self.queue.oldest if self.queue.unsettled else inf
        return self._contact.trouble(self._now(), oldest)

    def _rest(self, now: float) -> float | None:
        if self._nobody or not self.transport.is_open:
            return self._retry.left(now)
        if self.blocked:
            return _ROOM_SECONDS
        if self._awaiting:
            return self._patience.left(now)
        if not self.fate.unsettled:
            return None
        return self._listen.left(now)

    # Sending

    def _push(self, times: int) -> None:
        queue, transport = self.queue, self.transport
        size = transport.chunk_bytes if transport.datagrams else _STREAM_CALL_BYTES
        introduced = not transport.datagrams
        while times and transport.is_open:
            if queue.idle:
                self.gather()
            held = self._holds_back()
            room = size if introduced else size + self._introduce(held=held)
            pieces = queue.pieces(room, only_packets=held)
            if not pieces:
                return
            # An event that is too long to share a datagram follows its announcement.
            introduced = not transport.datagrams or queue.announces_alone
            times -= 1
            if not self._send(pieces):
                self.blocked = True
                return

    def _introduce(self, *, held: bool) -> int:
        """Announce the session in the next datagram if it has to be. Return how many bytes the
        announcement takes."""
        if not self._introductions.is_due(held=held):
            return 0
        announcement = self.dialogue.announcement()
        self.queue.first_packet(announcement)
        return len(announcement)

    def _holds_back(self) -> bool:
        """Return whether chunks have to wait for an answer."""
        now = self._now()
        if self._awaiting:
            if self._patience.left(now):
                return True
            self._awaiting = False
            self.queue.repeat(before=self.dialogue.turn)
        full = self.transport.datagrams and self._window.is_full(self.queue.in_flight_bytes, now)
        return self._nobody or full

    def _send(self, pieces: list[bytes]) -> bool:
        """Make one system call. Return whether another call may follow."""
        # An exception of a signal handler leaves this set: nobody knows then what the kernel has.
        self._torn = True
        queue = self.queue
        try:
            taken = self.transport.send(pieces)
        except OSError as error:
            self._torn = False
            return self._recover(error)
        if taken:
            queue.through(taken, self.dialogue.turn, self._now())
        elif self.transport.datagrams:
            queue.back()
        self._torn = False
        return taken > 0

    def _recover(self, error: OSError) -> bool:
        if not self.transport.is_open:
            self._break(self._now(), error)
            return False
        if error.errno == errno.EMSGSIZE:
            self._losses.refuse()
        else:
            self.queue.back()
            self._find_nobody(error)
        return True

    # Connecting

    def missed(self, error: OSError) -> None:
        """Take note that the transport could not be opened."""
        self._contact.note(error)
        self._retry.grow(self._now())

    def greet(self) -> None:
        """Announce the session on a transport that has just been opened."""
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
        """Close a connection that is of no use any more, and plan the next attempt."""
        contact = self._contact
        if error is not None:
            refused = not (contact.is_established(now) or isinstance(error, TakenError))
            contact.note(error, self.transport.refusal if refused else "")
        self._greeted = False
        self._farewell.broken()
        self.transport.close()
        self.queue.broken()
        if self.dialogue.answered < 0 and not self.transport.datagrams:
            # No collector has ever answered, so everything sent may have been thrown away.
            self.queue.repeat(before=self.dialogue.turn + 1)
        self._torn = False
        if now - contact.opened_at > _RETRY_SECONDS[1]:
            self._retry.shorten()
        else:
            self._retry.grow(now)

    def _find_nobody(self, error: OSError) -> None:
        """Take note that an earlier datagram was refused: nobody listens, so chunks have to wait."""
        self._contact.note(error)
        self._introductions.begin()
        now = self._contact.greeted_at = self._now()
        if self.dialogue.answered < 0:
            # No collector has ever answered, so everything sent may have been thrown away.
            self.queue.repeat(before=self.dialogue.turn + 1)
            self._losses.lose_unsettled()
        if not self._nobody:
            self._nobody = True
            self._retry.grow(now)

    # Talking

    def _speak(self, now: float) -> None:
        """Announce, ask and report if it is time to."""
        if self.transport.datagrams:
            self._announce(now)
        self._losses.report(now)

    def _announce(self, now: float) -> None:
        """Announce the session again in datagrams, as a question if events are unsettled for too long."""
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
        """Say with a question how far the streams go of which it is to settle forgotten events, so that
        the answer names these streams although nothing of them may have arrived."""
        dialogue, queue = self.dialogue, self.queue
        ends = iter(queue.forgotten.ends(dialogue.turn).items())
        while queue.waiting_packets < WAITING_PACKETS_MAX:
            if not (some := dict(islice(ends, _ENDS_PER_PACKET))):
                return
            queue.packet(dialogue.reached(some))

    def _queue_goodbye(self, now: float) -> bool:
        """Queue the goodbye if it is time to. Return whether it was."""
        place = self.connections, self.queue.put_bytes
        settled = self.fate.is_settled(self.queue.put_bytes)
        due = self.is_open and self._farewell.is_due(*place, settled=settled, now=now)
        if due:
            self.queue.last_packets(self._farewell.send(*place, now))
        return due

    def _send_goodbye_early(self) -> None:
        """Say goodbye in datagrams before all else is settled. If it arrives, the collector knows what is missing."""
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
