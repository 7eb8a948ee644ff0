"""One session's bytes to records. `succession` gives the records to the producer's incarnations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import (
    Decoder,
    SeparatingDecoder,
    holds,
    is_quick,
    packs,
    reads_files,
    separates,
    settles,
)
from tailrace.decoding.foreign import HEAD, ForeignDecoder, foreign, readable_before
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announcements import Announcements
from tailrace.ingest.beginnings import Beginnings
from tailrace.ingest.budget import report
from tailrace.ingest.datagram_records import (
    apart,
    decode_datagram,
    decode_datagrams,
    of_one_event_each,
)
from tailrace.ingest.generations import Generations
from tailrace.ingest.incarnation import Attach
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.session_file import SessionFile
from tailrace.ingest.state import SessionState, Tally, decode, encode
from tailrace.ingest.succession import InputBytes, Succession
from tailrace.ingest.unfinished import INLINE_MAX
from tailrace.ledger.bounds import Commons
from tailrace.ledger.copies import Copies
from tailrace.ledger.split_runs import SplitRuns
from tailrace.model.holding import Holding
from tailrace.model.record import Kind, Record
from tailrace.rows.fields import EVENTS
from tailrace.rows.records import Chunk, gathered, listed
from tailrace.spool.entry import Datagrams
from tailrace.spool.payloads import FileFacts, FileLoss


def decoding(decoder: Decoder) -> Callable[[bytes], Chunk]:
    """Return the function that lets a decoder take bytes."""
    if packs(decoder):
        blocks = decoder.blocks
        return lambda data: gathered(blocks(data))
    feed = decoder.feed
    return lambda data: listed(feed(data))


class Session:
    """An open session. After `save`, `state` has all that outlives the process."""

    def __init__(
        self,
        state: SessionState,
        tally: Tally,
        commons: Commons,
        announcements: Announcements,
        beginnings: Beginnings,
        attach: Attach,
        pieces: SplitRuns,
    ) -> None:
        self.state = state
        self.name, self.source = state.info.session, state.info.source
        self.limits: LedgerConfig = state.info.ledger
        self._tally = tally
        self._commons = commons
        format_ = FORMATS[state.info.format]
        saved = decode(state.decoder, format_.state_type) if state.decoder else None
        if state.left_out:
            format_.waiting(saved).waiting = state.waiting
        decoder = format_.decoder(state.info.record_max, saved)
        if reads_files(decoder) and state.file and not state.decoder:
            decoder.begin(state.file.facts.path, state.info.dialect)
        if state.foreign:
            fed = state.file.offset if state.file else state.received
            decoder = ForeignDecoder(state.foreign, fed - state.skipped, decoder)
        self._decode_with(decoder)
        state.decoder, state.left_out, state.waiting = None, 0, b""
        self._whole = format_.whole
        datagrams, numbered = state.info.transport == "udp", format_.counter_bits is not None
        self._copies = (
            Copies(state.info.ledger, state.copies) if datagrams and not numbered else None
        )
        self._file = SessionFile(state, decoder)
        self._pieces = pieces if state.file and separates(decoder) else None
        if self._pieces:
            self._pieces.resting[self.name] = self._rest_again
        unordered, of_file = datagrams and numbered, self._file.of_incarnation
        self.generations = Generations(
            state, tally, announcements, attach, unordered=unordered, of_file=of_file
        )
        self._succession = Succession(
            state, tally, announcements, beginnings, self.generations, unordered=unordered
        )

    def _decode_with(self, decoder: Decoder) -> None:
        self.decoder, self._decode = decoder, decoding(decoder)
        self._holding = decoder if holds(decoder) else None
        self._quick = decoder if is_quick(decoder) else None

    @property
    def holdings(self) -> list[Holding]:
        """Return the state that the peer makes the session hold, without that of announced sessions."""
        held = [each for own in self.generations.unannounced for each in own.holdings]
        if self._copies:
            held.append(self._copies)
        if self._holding:
            held += self._holding.holdings
        return held

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write a row (see `ingest.budget.StateHolder`). First report what the previous incarnation
        gave up. End the incarnations of the processes that the decoder gave up."""
        for before in self.generations.unannounced[1:]:
            before.report(now)
        self.generations.current.gave_up(what, now)
        if separates(self.decoder):
            self.generations.keep(self.decoder.processes, now)

    # Bytes

    def data(self, payload: bytes, now: int, position: int = 0) -> Iterator[None]:
        """Take bytes of a stream, cut anywhere, from the spool's entry at a position. Proceed in steps."""
        self._received(len(payload), now)
        self._file.read(payload, self._own, now)
        self.generations.reach()
        if self.state.refusing:
            raw = self._raw(self.state.received - len(payload), payload, now)
            self.decoder.end()  # the pending bytes are refused together with these
            self._succession.refuse(raw)
            self.state.record_since = self.state.begun = 0
            self.state.skipped += len(payload)
            return
        raw = self._raw(self.state.received - len(payload), payload, now)
        chunk = self._decode(payload)
        if self.state.head is not None:
            chunk = self._told_apart(chunk, payload)
        self._count(chunk)
        if chunk or not self.state.record_since:
            self.state.record_since = now if self.decoder.pending else 0
        pending = self.decoder.pending
        if pending <= len(payload):
            self.state.begun = position if pending else 0
        yield from self._succession.steps(chunk, now, raw)
        self._succession.report_refused()
        self.generations.note_news()
        if self._pieces:
            self._pieces.tell(now)

    def _told_apart(self, chunk: Chunk, payload: bytes) -> Chunk:
        """Return the records of a chunk. If the first bytes are of a foreign content, one record has all bytes that no
        earlier chunk has. No bytes are held back for that."""
        state = self.state
        seen = (state.head or b"") + payload
        unread = len(seen) >= HEAD or any(Kind.MALFORMED in records.kinds for records in chunk)
        path = state.file.facts.path if state.file and unread else ""
        if what := foreign(path, seen[:HEAD]):
            chunk = chunk + listed(self.decoder.end())
            before = map(chunk[0].record, range(chunk[0].rows)) if chunk else ()
            readable = readable_before(what, before)
            begin = len(seen) - sum(records.length for records in chunk)
            begin += sum(record.size for record in readable)
            state.head, state.foreign = None, what
            self._decode_with(ForeignDecoder(what, begin, self.decoder))
            self._file.decoder = self.decoder
            return listed([*readable, *self.decoder.feed(seen[begin:])])
        if len(seen) >= HEAD or any(
            not records.kinds.keys().isdisjoint(EVENTS) for records in chunk
        ):
            state.head = None
        else:
            state.head = seen
        return chunk

    def _count(self, chunk: Chunk) -> None:
        """Count the ways in which the records of a chunk were read."""
        self._commons.packed += sum(records.packed for records in chunk)
        if self._quick:
            self._commons.slow += self._quick.take_slow()

    def give_way(self, now: int) -> None:
        """Give up the unfinished record: memory is short, and no other session holds a larger one."""
        self._own.session("gave_way", {"bytes": self.decoder.pending}, now)
        self._tally.gave_way += 1
        self.state.record_since = self.state.begun = 0
        raw = self._raw(self.state.received, b"", now)
        self._succession.take(listed(self.decoder.give_up()), now, raw)

    def datagrams(self, datagrams: Datagrams, now: int) -> Iterator[None]:
        """Take datagrams, in steps."""
        self._received(datagrams.length, now)
        if self._copies:
            yield from self._without_copies(self._copies, datagrams, now)
            return
        self.generations.reach()
        chunk = decode_datagrams(self.decoder, self._decode, datagrams, self._whole)
        self._count(chunk)
        if not self._commons.state.mixed:
            self._commons.state.mixed = not of_one_event_each(chunk, datagrams)
        self.generations.current.datagrams(len(datagrams))
        raw = InputBytes(self.state.received - len(datagrams.payload), datagrams.payload)
        for some in apart(chunk, datagrams, self.state.received):
            yield from self._succession.steps(some, now, raw)
            self._succession.datagram_over()
        self._succession.report_refused()
        self.generations.note_news()

    def _without_copies(self, copies: Copies, datagrams: Datagrams, now: int) -> Iterator[None]:
        """Take datagrams of a producer that numbers nothing: count copies, and decode all others."""
        waiting: list[Record] = []
        before = self.state.received - len(datagrams.payload)
        for payload in datagrams:
            events = copies.events_of(payload, now)
            if events is not None:
                raw = InputBytes(before - self.state.skipped, datagrams.payload)
                yield from self._succession.steps(listed(waiting), now, raw)
                waiting = []
                self._succession.readable(len(payload))
                self.state.skipped += len(payload)
                self.generations.current.copies(events)
                continue
            records = decode_datagram(self.decoder, payload)
            kinds = [record.kind for record in records]
            if kinds.count(Kind.MALFORMED) < len(kinds):
                copies.remember(payload, sum(kinds.count(kind) for kind in EVENTS), now)
            waiting += records
        chunk = listed(waiting)
        self._count(chunk)
        self.generations.reach()
        raw = InputBytes(before - self.state.skipped, datagrams.payload)
        yield from self._succession.steps(chunk, now, raw)
        self._succession.datagram_over()
        self._succession.report_refused()

    def _raw(self, begin: int, data: bytes, now: int) -> InputBytes:
        """Return bytes that begin at a place, preceded by the decoder's pending bytes if their record may be refused."""
        begin -= self.state.skipped
        if self.decoder.pending and self._succession.may_refuse(now):
            waiting = FORMATS[self.state.info.format].waiting(self.decoder.state).waiting
            return InputBytes(begin - len(waiting), waiting + data)
        return InputBytes(begin, data)

    def _received(self, size: int, now: int) -> None:
        self.generations.take_turn(self.decoder.pending)
        self._tally.received += size
        self.state.received += size
        self.state.last = now

    # Files

    def file(self, facts: FileFacts | None, now: int) -> None:
        """Take note that the session's file has another name or place, begins a member, or rests. None: no source
        follows it any more.

        Before a report that the file rests, decode its last record, even if the record's terminator is missing."""
        if facts is None or facts.rest:
            self.settle(now)
        self._file.change(facts, self._own, now)

    def settle(self, now: int) -> None:
        """Decode the waiting bytes if they are a whole record, and note which part of a run the file has."""
        if settles(self.decoder) and self.decoder.pending:
            self._succession.take(listed(self.decoder.settle()), now)
            if not self.decoder.pending:
                self.state.record_since = self.state.begun = 0
        self._note_pieces(now)

    def _note_pieces(self, now: int) -> None:
        if self._pieces and separates(self.decoder):
            pieces = self.decoder.pieces
            for process in self.decoder.processes:
                incarnation = self.generations.of(process)
                if piece := pieces.get(process):
                    incarnation.piece(piece)
                else:
                    self._pieces.alone(incarnation.state.name)
            self._file.goes_on = self._goes_on(self.decoder, self._pieces)
            self._pieces.tell(now)

    def _goes_on(self, decoder: SeparatingDecoder, pieces: SplitRuns) -> bool:
        mine = decoder.pieces.items()
        names = ((self.generations.of(process).state.name, piece) for process, piece in mine)
        return all(piece and pieces.goes_on(name) for name, piece in names)

    def _rest_again(self, now: int) -> None:
        if self._pieces and separates(self.decoder):
            self._file.goes_on = self._goes_on(self.decoder, self._pieces)
            if self._file.goes_on:
                self._file.rest_again(self._own, now)

    def document(self, name: str, part: bytes, now: int, *, more: bool) -> None:
        """Take a part of a document beside the session's file."""
        self._succession.take(listed(self._file.document(name, part, more=more)), now)

    def loss(self, loss: FileLoss) -> None:
        """Take note of bytes that the session lacks."""
        self._file.lose(loss, self._own)
        self.generations.reach()

    # The end

    def stopped(self, now: int, *, is_alike: bool) -> None:
        """Take note that the daemon stops. `is_alike`: another file of the source has been read to the same content."""
        self._file.stopped(self._own, now, is_alike=is_alike)

    def closed(self, reason: str, now: int) -> None:
        """End the session: its connection, peer or file is over."""
        raw = self._raw(self.state.received, b"", now)
        chunk = listed(self.decoder.end())
        if self.state.head is not None:
            chunk = self._told_apart(chunk, b"")
        self._succession.take(chunk, now, raw)
        report(self, now)
        self._note_pieces(now)
        if self._pieces:
            del self._pieces.resting[self.name]
        self.generations.close(reason, self._file.as_read(), now)

    @property
    def content(self) -> tuple[object, ...]:
        """Return what two files have in common if they have the same content."""
        file, info = self.state.file, self.state.info
        if file is None or not file.crc:
            return (self.state.number,)
        return info.source, info.format, file.offset, file.crc, *sorted(file.documents.items())

    @property
    def _own(self) -> OwnRows:
        return self.generations.current.own

    # Checkpoints

    def save(self, named_from: int) -> SessionState:
        """Return the state, which has the decoder's state until `saved`. Leave out the bytes of an
        unfinished record if they are more than `INLINE_MAX` and the spool has them from `named_from` on."""
        state, decoding = self.state, self.decoder.state
        waiting = FORMATS[state.info.format].waiting(decoding)
        size = len(waiting.waiting)
        if state.begun and state.begun >= named_from and size > INLINE_MAX:
            state.left_out = size
            waiting.waiting = b""
        state.decoder = encode(decoding)
        waiting.waiting = b""  # a copy, which some decoders would keep
        self.generations.save()
        return state

    def saved(self) -> None:
        """Forget what only a checkpoint needs."""
        self.state.decoder, self.state.left_out = None, 0
