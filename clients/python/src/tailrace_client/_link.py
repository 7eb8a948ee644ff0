"""What is sent next, and what an answer or the lack of one leads to. One caller at a time.

After a connection was made the session is announced. On a new one in the middle of a session, new
chunks wait for the answer, if this collector has ever given one, at most `_ANSWER_SECONDS`; then
comes what is not durable, then what is new. On datagrams nothing waits for an announcement: what an
answer to it does not cover is sent again. They keep to a window instead (`_window`), and where the
kernel says that nobody is there, all but announcements waits.

A goodbye is unsettled until it is heard, as events are: a connection that breaks before is made anew.

Where the dialogue `asks`, only an answer makes anything durable, however long it takes to come.
Where it does not ask, what the kernel has is delivered, and nothing is kept.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace_client._asking import Asking
from tailrace_client._backoff import Backoff
from tailrace_client._chunk import Recorder
from tailrace_client._discards import Discards
from tailrace_client._farewell import Farewell
from tailrace_client._queue import Queue
from tailrace_client._session import Answer, Answers, Dialogue, Range
from tailrace_client._transport import Transport
from tailrace_client._window import Window

ALL = -1

_EAGER_SECONDS = 0.5
"""How long a collector of datagrams that has said nothing yet is asked at short intervals: after
connecting, and once more after the first flush began."""

_SILENT_SECONDS = 0.5
"""After so long without an answer that is due, people are told."""

_UNANSWERED = (
    "the collector does not answer; is it stopped, or none? "
    "(acknowledge=False is for peers that never answer)"
)

_ANSWER_SECONDS = 1.0
_WAITING_PACKETS_MAX = 64
"""Beyond so many no report is added: a collector that asks and does not read would have them pile up."""

_INTRODUCTIONS = 8
"""Datagrams that announce a session of which nobody is to answer anything."""

_RETRY_SECONDS = (0.1, 5.0)
"""Between attempts to connect: at first, doubling up to."""
_LISTEN_SECONDS = (0.1, 5.0)
"""With nothing to do but hear what is durable: between looks, likewise."""
_ROOM_SECONDS = 0.5
_STREAM_CALL_BYTES = 2**20
_NEVER = -1e9


class Link:
    """A recorder's chunks and a session's packets, on their way through one transport."""

    def __init__(
        self,
        transport: Transport,
        dialogue: Dialogue,
        recorder: Recorder,
        *,
        room: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`room`: bytes of what was sent that may be kept. `clock` counts seconds."""
        self.transport = transport
        self.dialogue = dialogue
        self.recorder = recorder
        self.queue = Queue(room, recorder.release, late=int(transport.datagrams))
        self.queue.keep = dialogue.asks
        self.fresh = False
        """Whether the recorder may have something."""
        self.blocked = False
        """Whether the kernel had no room: then only the sender's thread tries."""
        self.connections = 0
        self._now = clock
        self._asking = Asking()
        self._window = Window(room, _ANSWER_SECONDS)
        self._discards = Discards(recorder, dialogue)
        self._farewell = Farewell(
            dialogue, recorder, transport.chunk_bytes, repeat=transport.datagrams
        )
        self._answers = Answers()
        self._greeted = False
        self._torn = False
        self._awaiting = False
        self._waited = False
        """Whether anybody has ever waited for an answer to datagrams."""
        self._nobody = False
        """Whether the last datagram was refused: all but announcements waits."""
        self._introductions = 0
        """How many more datagrams are to announce the session, where no answer is asked for."""
        self._delayed = False
        """Whether datagrams wait that might have been sent before."""
        self._opened_at = self._heard_at = _NEVER
        self._greeted_at = _NEVER
        """Since when the collector, as far as is known, could have answered."""
        self._retry = Backoff(*_RETRY_SECONDS)
        self._listen = Backoff(*_LISTEN_SECONDS)
        self._error: str | None = None
        self._given_up: dict[int, int] = {}
        """By stream, how many events the collector has given up, as far as was counted."""

    # What the sender's thread calls

    @property
    def is_open(self) -> bool:
        """Whether anything may be sent."""
        return self._greeted and self.transport.is_open

    def is_due(self) -> bool:
        """Whether the transport is to be opened now."""
        wanted = not self.transport.is_open and (self.fresh or self._unsettled)
        return wanted and not self._retry.left(self._now())

    def attend(self) -> float | None:
        """Do all that can be done now. Return in how many seconds there is more to do, if nothing is
        recorded; None: not before."""
        now = self._now()
        if self._torn:
            self._break(now)
        if not self.is_open:
            return self._retry.left(now) if self.fresh or self._unsettled else None
        self._hear(64)
        self._speak(now)
        self.blocked = False
        self._push(ALL)
        if self._say_goodbye(now):
            self._push(ALL)
        self._listen.grow(now)
        return self._rest(self._now())

    def push(self, times: int) -> None:
        """Send what is recorded in at most so many system calls, and one to listen."""
        if self.is_open and not (self._torn or self.blocked):
            self._hear(1)
            self._push(times)

    def gather(self) -> None:
        """Take over what is recorded."""
        self.fresh = False
        chunks = self.recorder.take()
        if chunks:
            if self.dialogue.asks:
                self._listen.shorten()
            self.queue.put(chunks)

    def hurry(self) -> None:
        """Connect or ask at once, if that is what is waited for."""
        self._retry.at = 0.0
        self._asking.hurry()
        if not self._waited and self.is_open and self.transport.datagrams:
            # Questions so far were few, and may be lost.
            self._waited = True
            self._greeted_at = self._now()

    def end(self) -> None:
        """Say goodbye behind all that is recorded, until it is heard."""
        self.gather()
        self._farewell.want()

    def give_up(self, *, delivered: bool) -> None:
        """Count what was never sent, or never answered for, and forget it; record nothing more."""
        self._error = self.last_error
        self.recorder.close()
        self.gather()
        for chunk in self.queue.unsent():
            self._discards.count(chunk, "closed")
        if self._farewell.wanted and not delivered and self.transport.datagrams:
            # Heard or not: with it the collector knows how much is missing.
            for packet in self._farewell.packets():
                with suppress(OSError):
                    self.transport.send([self.dialogue.announcement(), packet])
        # The goodbye does not name these: they may have arrived.
        for chunk in self.queue.unanswered():
            self._discards.count(chunk, "closed")
        self._discards.lose(self.queue.lose())
        self.queue.clear()

    # What it has come to

    def is_settled(self, position: int) -> bool:
        """Return whether it is known of all that was gathered before what became of it: durable or
        lost, or, if the collector is not asked, with the kernel. `position` is in bytes."""
        queue = self.queue
        return (queue.settled() if self.dialogue.asks else queue.handed()) >= position

    def has_lost(self, position: int) -> bool:
        """Return whether something of it was lost, or refused."""
        return self.queue.lost_at < position

    def has_ended(self, position: int) -> bool:
        """Return whether it is settled, and the goodbye behind it is durable, or likewise with the
        kernel."""
        farewell = self._farewell
        said = self.queue.idle and (farewell.said or not farewell.wanted)
        return (farewell.heard if self.dialogue.asks else said) and self.is_settled(position)

    @property
    def last_error(self) -> str | None:
        """Why the peer was not reached, or lost, or that it does not answer; None once it has been
        there for a while."""
        now = self._now()
        if self.is_open and not self._nobody:
            due_since = max(self._opened_at, self._heard_at, self.queue.oldest)
            if self.queue.unsettled and now - due_since > _SILENT_SECONDS:
                return self._error or _UNANSWERED
            if self._is_established(now):
                self._error = None
        return self._error

    def _is_established(self, now: float) -> bool:
        """Return whether the peer has answered on this connection, or not ended it for long enough
        that it will not be for what we said first."""
        since = max(self._opened_at, self._greeted_at)
        return self._heard_at >= self._opened_at or now - since > _ANSWER_SECONDS

    def _note(self, error: OSError, question: str = "") -> None:
        words = error.strerror or str(error)
        if error.filename is not None:
            words = f"{words}: {error.filename}"
        self._error = f"{words}; {question}" if question else words

    @property
    def _unsettled(self) -> bool:
        farewell = self._farewell
        unheard = farewell.wanted and not (farewell.heard if self.dialogue.asks else farewell.said)
        return not self.queue.idle or self.queue.unsettled or unheard

    def _rest(self, now: float) -> float | None:
        if self._nobody or not self.transport.is_open:
            return self._retry.left(now)
        if self.blocked:
            return _ROOM_SECONDS
        if self._awaiting:
            return max(0.0, self._opened_at + _ANSWER_SECONDS - now)
        if not self._unsettled:
            return None
        return self._listen.left(now)

    # Sending

    def _push(self, times: int) -> None:
        queue, transport = self.queue, self.transport
        size = transport.chunk_bytes if transport.datagrams else _STREAM_CALL_BYTES
        while times and transport.is_open:
            if queue.idle:
                self.gather()
            held = self._holds_back()
            room = size + self._introduce(held=held) if transport.datagrams else size
            pieces = queue.pieces(room, only_packets=held)
            if not pieces:
                return
            times -= 1
            if not self._send(pieces):
                self.blocked = True
                return

    def _introduce(self, *, held: bool) -> int:
        """Announce the session in the next datagram, too, where somebody might take the datagram for one of
        whoever had the address before, or has it next; return how many bytes that takes.

        A datagram may come before all that were sent earlier. So each announces the session until somebody
        answers; where nobody is to answer, the first ones do. A report, a goodbye or an event that was sent
        before or had to wait does not tell by its time who sent it."""
        queue = self.queue
        self._delayed = not queue.idle and (self._delayed or held)
        if queue.idle or (held and not queue.speaks):
            return 0
        if not (queue.speaks or queue.repeats or self._delayed or self._is_new()):
            return 0
        announcement = self.dialogue.announcement()
        queue.first_packet(announcement)
        return len(announcement)

    def _is_new(self) -> bool:
        """Return whether whoever hears a datagram may not have heard of the session."""
        if self.dialogue.asks or self._heard_at >= self._opened_at:
            return self._heard_at < self._opened_at
        self._introductions -= 1
        return self._introductions >= 0

    def _holds_back(self) -> bool:
        """Whether chunks have to wait for an answer."""
        now = self._now()
        if self._awaiting:
            if now - self._opened_at < _ANSWER_SECONDS:
                return True
            self._awaiting = False
            self.queue.repeat(before=self.dialogue.turn)
        full = self.transport.datagrams and self._window.is_full(self.queue.in_flight_bytes, now)
        return self._nobody or full

    def _send(self, pieces: list[bytes]) -> bool:
        """Make one system call; return whether another may follow."""
        # Left so by an exception of a signal handler, when nobody knows what the kernel has.
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
            for chunk in self.queue.refused():
                self._discards.count(chunk, "refused")
                self._name([Range(chunk.stream, chunk.first, chunk.next)])
        else:
            self.queue.back()
            self._find_nobody(error)
        return True

    # Connecting

    def missed(self, error: OSError) -> None:
        """Take note that the transport could not be opened."""
        self._note(error)
        self._retry.grow(self._now())

    def greet(self) -> None:
        """Say who sends: the transport has been opened."""
        transport, queue, dialogue = self.transport, self.queue, self.dialogue
        self._opened_at = self._greeted_at = self._now()
        self._asking.announced(self._opened_at)
        if self.connections and dialogue.asks:
            dialogue.turn += 1
        self.connections += 1
        self._answers = Answers()
        queue.first_packet(dialogue.announcement())
        self._introductions = _INTRODUCTIONS
        self._awaiting = dialogue.answered >= 0 and not transport.datagrams
        if not (self._awaiting or transport.datagrams):
            queue.repeat(before=dialogue.turn)
        self._greeted = True

    def _break(self, now: float, error: OSError | None = None) -> None:
        """Let go of the connection, which is of no use any more."""
        if error is not None:
            self._note(error, "" if self._is_established(now) else self.transport.refusal)
        self._greeted = False
        self._farewell.broken()
        self.transport.close()
        self.queue.broken()
        if self.dialogue.answered < 0 and not self.transport.datagrams:
            # Nobody has ever said that it was more than thrown away.
            self.queue.repeat(before=self.dialogue.turn + 1)
        self._torn = False
        if now - self._opened_at > _RETRY_SECONDS[1]:
            self._retry.shorten()
        else:
            self._retry.grow(now)

    def _find_nobody(self, error: OSError) -> None:
        """A datagram sent before was refused: wait for somebody who is to know who sends."""
        self._note(error)
        self._introductions = _INTRODUCTIONS
        now = self._greeted_at = self._now()
        if self.dialogue.answered < 0:
            # Nobody has ever said that it was more than thrown away.
            self.queue.repeat(before=self.dialogue.turn + 1)
            lost = self.queue.lose()
            self._discards.lose(lost)
            self._name(lost)
            if not self.dialogue.asks:
                self.queue.lose_handed()
        if not self._nobody:
            self._nobody = True
            self._retry.grow(now)

    # Talking

    def _speak(self, now: float) -> None:
        """Announce, ask and report, where it is time to."""
        if self.transport.datagrams:
            self._announce(now)
        has_room = self.queue.waiting_packets < _WAITING_PACKETS_MAX
        if has_room and (report := self._discards.report(now)):
            self.queue.packet(report)

    def _announce(self, now: float) -> None:
        """Say again who sends datagrams, with a question if something is unsettled for too long."""
        dialogue, queue = self.dialogue, self.queue
        if self._nobody:
            asking = not self._retry.left(now)
            self._greeted_at = now if asking else self._greeted_at
        else:
            first = dialogue.answered < 0 and now - self._greeted_at < _EAGER_SECONDS
            asking = queue.unsettled and self._asking.is_due(queue.oldest, now, first=first)
        if asking:
            self._nobody = False
            dialogue.turn += 1
            self._asking.asked(now)
        sending = self.fresh or not queue.idle
        if asking or (sending and self._asking.is_forgotten(now)):
            queue.first_packet(dialogue.announcement())
            self._asking.announced(now)

    def _say_goodbye(self, now: float) -> bool:
        """Say that nothing follows; return whether it is time to."""
        place = self.connections, self.queue.put_bytes
        settled = self.is_settled(self.queue.put_bytes)
        due = self.is_open and self._farewell.is_due(*place, settled=settled, now=now)
        if due:
            self.queue.last_packets(self._farewell.say(*place, now))
        return due

    def _hear(self, most: int) -> None:
        """Read answers, in at most so many system calls."""
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
        self._asking.answered()
        self._listen.shorten()
        self._retry.shorten()
        self._awaiting = self._awaiting and answer.turn < dialogue.turn
        self._nobody = False
        self._give_up_some(answer)
        missing, lost = queue.settle(answer)
        self._discards.lose(lost)
        self._name(lost)
        # Told again, while it is asked for: it may be the report that was lost.
        again = answer.holes and answer.turn == dialogue.turn
        if again and queue.waiting_packets < _WAITING_PACKETS_MAX:
            self._name(queue.unreachable(answer))
        self._heard_at = self._now()
        self._window.answered(lost=missing, now=self._heard_at)
        self._farewell.heard = self._farewell.heard or answer.goodbye

    def _give_up_some(self, answer: Answer) -> None:
        """Count what the collector has given up, and what it will never say anything of. It is told
        nothing of that: it knows."""
        for stream, events in answer.given_up.items():
            more = events - self._given_up.get(stream, 0)
            if more > 0:
                self._given_up[stream] = events
                self.queue.lose_some(stream)
                self._discards.lose_some(more, "given_up")
        chunks, ranges = self.queue.abandon(answer.uncounted)
        for chunk in chunks:
            self._discards.count(chunk, "uncounted")
        self._discards.lose(ranges, "uncounted")

    def _name(self, ranges: Sequence[Range]) -> None:
        """Say that these events were discarded."""
        for packet in self._discards.name(ranges):
            self.queue.packet(packet)
