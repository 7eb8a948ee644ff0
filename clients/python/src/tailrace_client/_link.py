"""What is sent next, and what an answer or the lack of one leads to. One caller at a time.

After a connection was made the session is announced. On a new one in the middle of a session, new
chunks wait for the answer, if this collector has ever given one, at most `_ANSWER_SECONDS`; then
comes what is not durable, then what is new. On datagrams nothing waits for an announcement: what an
answer to it does not cover is sent again. They slow down instead, while answers keep coming, so that
no more than a window of bytes is not durable; the window shrinks when there are holes.

A collector that has never answered is taken for one that does not, after `_SILENT_SECONDS`: then
nothing is kept.
"""

from __future__ import annotations

import errno
import time

from tailrace_client._backoff import Backoff
from tailrace_client._chunk import Chunk, Recorder
from tailrace_client._queue import Queue
from tailrace_client._session import Answers, Dialogue, Range
from tailrace_client._transport import Transport

ALL = -1

FIRST_ANSWER_SECONDS = 0.5
"""How long after connecting a flush waits for a collector that has said nothing yet."""

_ANSWER_SECONDS = 1.0
_SILENT_SECONDS = 10.0
_RETRY_SECONDS = (0.1, 5.0)
"""Between attempts to connect: at first, doubling up to."""
_ASK_SECONDS = (0.3, 5.0)
"""Datagrams: when something is not durable after so long, where it stands is asked; likewise."""
_LISTEN_SECONDS = (0.1, 5.0)
"""With nothing to do but hear what is durable: between looks, likewise."""
_ANNOUNCE_SECONDS = 10.0
"""Datagrams get lost and collectors restart: who sends them is said again after this long."""
_REPORT_SECONDS = 30.0
_ROOM_SECONDS = 0.5
_WINDOW_FIRST = 256 * 1024
_WINDOW_MIN = 64 * 1024
_STREAM_CALL_BYTES = 2**20


class Link:
    """A recorder's chunks and a session's packets, on their way through one transport."""

    def __init__(
        self, transport: Transport, dialogue: Dialogue, recorder: Recorder, *, room: int
    ) -> None:
        """`room`: bytes of what was sent that may be kept."""
        self.transport = transport
        self.dialogue = dialogue
        self.recorder = recorder
        self.queue = Queue(room, recorder.release)
        self.queue.keep = transport.answers and dialogue.asks
        self.fresh = False
        """Whether the recorder may have something."""
        self.blocked = False
        """Whether the kernel had no room: then only the sender's thread tries."""
        self.connections = 0
        self.goodbye_heard = False
        self._room = room
        self._window = _WINDOW_FIRST
        self._answers = Answers()
        self._greeted = False
        self._torn = False
        self._awaiting = False
        self._refused = False
        """Whether the last datagram was, and nobody there has ever answered."""
        self._nobody = False
        self._hurried = False
        self._opened_at = self._announced_at = self._heard_at = -1e9
        self._greeted_at = -1e9
        """Since when the collector, as far as is known, could have answered."""
        self._retry = Backoff(*_RETRY_SECONDS)
        self._ask = Backoff(*_ASK_SECONDS)
        self._listen = Backoff(*_LISTEN_SECONDS)
        self._error: str | None = None
        self._report_at = 0.0
        self._reported: dict[str, int] = {}

    # What the sender's thread calls

    @property
    def is_open(self) -> bool:
        """Whether anything may be sent."""
        return self._greeted and self.transport.is_open

    def is_due(self) -> bool:
        """Whether the transport is to be opened now."""
        wanted = not self.transport.is_open and (self.fresh or self._unsettled)
        return wanted and not self._retry.left(time.monotonic())

    def attend(self) -> float | None:
        """Do all that can be done now. In how many seconds there is more to do, if nothing is
        recorded; None: not before."""
        now = time.monotonic()
        if self._torn:
            self._break(now)
        if not self.is_open:
            return self._retry.left(now) if self.fresh or self._unsettled else None
        self._hear(64)
        self._speak(now)
        self.blocked = False
        self._push(ALL)
        self._listen.grow(now)
        return self._rest(time.monotonic())

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
            if self.answering:
                self._listen.shorten()
            self.queue.put(chunks)

    def hurry(self) -> None:
        """Connect or ask at once, if that is what is waited for."""
        self._retry.at = 0.0
        self._hurried = True

    def say_goodbye(self) -> None:
        """After all that was recorded, say that nothing follows."""
        self.gather()
        recorder = self.recorder
        size = self.transport.chunk_bytes
        for packet in self.dialogue.goodbyes(recorder.next_numbers(), recorder.discarded, size):
            self.queue.last_packet(packet)

    def give_up(self, *, delivered: bool) -> None:
        """Count what was never sent, or sent in vain, and forget it; record nothing more."""
        self.recorder.close()
        self.gather()
        in_vain = not delivered and self.dialogue.answered < 0
        if in_vain and not self._is_established(time.monotonic()):
            self.queue.settle(self.dialogue.standing, before=self.dialogue.turn + 1)
        for chunk in self.queue.unsent(in_vain=in_vain):
            self._discard(chunk, "closed")
        self.queue.clear()

    # What it has come to

    @property
    def answering(self) -> bool:
        """Whether the collector answers, or may yet do so."""
        if self.dialogue.answered >= 0 or not self.queue.keep:
            return self.queue.keep
        return time.monotonic() - self._greeted_at < FIRST_ANSWER_SECONDS

    def progress(self) -> int:
        """How many of the bytes ever gathered are durable, or, if the collector does not answer,
        with the kernel."""
        queue = self.queue
        return queue.settled(self.dialogue.standing) if self.answering else queue.handed()

    @property
    def last_error(self) -> str | None:
        """Why the peer was not reached, or lost; None once it has been there for a while."""
        if self.is_open and self._is_established(time.monotonic()):
            self._error = None
        return self._error

    def _is_established(self, now: float) -> bool:
        """Whether the peer has answered on this connection, or not ended it for long enough that
        it will not be for what we said first."""
        return self._heard_at >= self._opened_at or now - self._opened_at > _ANSWER_SECONDS

    def _note(self, error: OSError, question: str = "") -> None:
        words = error.strerror or str(error)
        if error.filename is not None:
            words = f"{words}: {error.filename}"
        self._error = f"{words}; {question}" if question else words

    @property
    def _unsettled(self) -> bool:
        return not self.queue.idle or self.queue.kept_bytes > 0

    def _rest(self, now: float) -> float | None:
        if self._nobody or not self.transport.is_open:
            return self._retry.left(now)
        if self.blocked:
            return _ROOM_SECONDS
        if self._awaiting:
            return max(0.0, self._opened_at + _ANSWER_SECONDS - now)
        if not self._unsettled:
            return None
        if self.dialogue.answered < 0 and self._listen.after >= _LISTEN_SECONDS[1]:
            return None  # nobody answers datagrams: asked again when there are new ones
        return self._listen.left(now)

    # Sending

    def _push(self, times: int) -> None:
        queue, transport = self.queue, self.transport
        size = transport.chunk_bytes if transport.datagrams else _STREAM_CALL_BYTES
        while times and transport.is_open:
            if queue.idle:
                self.gather()
            room = size
            if self._refused and not queue.idle:
                # With the next events, not by itself: that would be refused, and lead to another.
                self._refused = False
                announcement = self.dialogue.announcement()
                queue.first_packet(announcement)
                room += len(announcement)
            pieces = queue.pieces(room, only_packets=self._holds_back())
            if not pieces:
                return
            times -= 1
            if not self._send(pieces):
                self.blocked = True
                return

    def _holds_back(self) -> bool:
        """Whether chunks have to wait for an answer."""
        now = time.monotonic()
        if self._awaiting:
            if now - self._opened_at < _ANSWER_SECONDS:
                return True
            self._awaiting = False
            self.queue.settle(self.dialogue.standing, before=self.dialogue.turn)
        if self._nobody:
            return True
        full = self.transport.datagrams and self.queue.in_flight_bytes > self._window
        return full and now - self._heard_at < _ANSWER_SECONDS

    def _send(self, pieces: list[bytes]) -> bool:
        """One system call; whether another may follow."""
        # Left so by an exception of a signal handler, when nobody knows what the kernel has.
        self._torn = True
        queue = self.queue
        try:
            taken = self.transport.send(pieces)
        except OSError as error:
            self._torn = False
            return self._recover(error)
        if taken:
            queue.through(taken, self.dialogue.turn, time.monotonic())
        elif self.transport.datagrams:
            queue.back()
        self._torn = False
        return taken > 0

    def _recover(self, error: OSError) -> bool:
        if not self.transport.is_open:
            self._break(time.monotonic(), error)
            return False
        if error.errno == errno.EMSGSIZE:
            for chunk in self.queue.refused():
                self._discard(chunk, "refused")
                ranges = [Range(chunk.stream, chunk.first, chunk.next)]
                self.queue.packet(self.dialogue.report(self.recorder.discarded, ranges))
        else:
            self.queue.back()
            self._find_nobody(error)
        return True

    def _discard(self, chunk: Chunk, reason: str) -> None:
        for _ in range(self.dialogue.count(chunk.data)):
            self.recorder.discard(reason)

    # Connecting

    def missed(self, error: OSError) -> None:
        """The transport could not be opened."""
        self._note(error)
        self._retry.grow(time.monotonic())

    def greet(self) -> None:
        """The transport has been opened: say who sends."""
        transport, queue, dialogue = self.transport, self.queue, self.dialogue
        self._opened_at = self._announced_at = self._greeted_at = time.monotonic()
        if self.connections and dialogue.asks:
            dialogue.turn += 1
        self.connections += 1
        self._answers = Answers()
        queue.keep = transport.answers and dialogue.asks
        queue.first_packet(dialogue.announcement())
        self._awaiting = dialogue.answered >= 0 and not transport.datagrams
        if not (self._awaiting or transport.datagrams):
            queue.settle(dialogue.standing, before=dialogue.turn)
        self._greeted = True

    def _break(self, now: float, error: OSError | None = None) -> None:
        """The connection is of no use any more."""
        if error is not None:
            self._note(error, "" if self._is_established(now) else self.transport.refusal)
        self._check_silence(now)
        self._greeted = False
        self.transport.close()
        self.queue.broken()
        if self.dialogue.answered < 0 and not self.transport.datagrams:
            # Nobody has ever said that it was more than thrown away.
            self.queue.settle(self.dialogue.standing, before=self.dialogue.turn + 1)
        self._torn = False
        if now - self._opened_at > _RETRY_SECONDS[1]:
            self._retry.shorten()
        else:
            self._retry.grow(now)

    # Talking

    def _speak(self, now: float) -> None:
        """Announce, ask and report, where it is time to."""
        transport, dialogue, queue = self.transport, self.dialogue, self.queue
        if transport.datagrams:
            overdue = now - queue.oldest > _ASK_SECONDS[0] and not self._ask.left(now)
            overdue = overdue or (self._hurried and queue.kept_bytes > 0)
            asking = not self._retry.left(now) if self._nobody else overdue
            if asking:
                self._nobody = self._hurried = False
                dialogue.turn += 1
                self._ask.grow(now)
            sending = self.fresh or not queue.idle
            if asking or (sending and now - self._announced_at >= _ANNOUNCE_SECONDS):
                queue.first_packet(dialogue.announcement())
                self._announced_at = now
        self._check_silence(now)
        if now >= self._report_at:
            self._report(now)

    def _check_silence(self, now: float) -> None:
        """What is sent to a collector that does not answer need not be kept."""
        silent = self.dialogue.answered < 0 and now - self._opened_at > _SILENT_SECONDS
        if self.queue.keep and silent and not self.transport.datagrams:
            self.queue.keep = False
            self.queue.forget()

    def _report(self, now: float) -> None:
        discarded = dict(self.recorder.discarded)
        if discarded != self._reported and any(discarded.values()):
            self._reported = discarded
            self._report_at = now + _REPORT_SECONDS
            packet = self.dialogue.report(discarded)
            if packet:
                self.queue.packet(packet)

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
                self._break(time.monotonic(), error)

    def _find_nobody(self, error: OSError) -> None:
        """A datagram sent before was refused: whoever comes there is to know who sends. One that
        has answered is waited for, as for a connection."""
        self._note(error)
        self._greeted_at = time.monotonic()
        if self.dialogue.answered < 0:
            self._refused = True
        elif not self._nobody:
            self._nobody = True
            self._retry.grow(self._greeted_at)

    def _take_in(self, option: bytes) -> None:
        dialogue, queue = self.dialogue, self.queue
        answer = dialogue.hear(option, self.recorder.next_numbers(), queue.sent)
        if answer is None:
            return
        self._ask.shorten()
        self._listen.shorten()
        self._retry.shorten()
        self._awaiting = self._awaiting and answer.turn < dialogue.turn
        queue.keep = True
        lost = queue.settle(dialogue.standing, answer.streams, before=answer.turn)
        now = time.monotonic()
        if now - self._heard_at > _ANSWER_SECONDS:
            self._window = _WINDOW_FIRST
        elif lost:
            self._window = max(_WINDOW_MIN, self._window // 2)
        else:
            self._window = min(self._room, self._window + self._window // 4)
        self._heard_at = now
        self.goodbye_heard = self.goodbye_heard or answer.goodbye
