"""Decode one session's bytes into records, and pass the records to the producer's incarnations (see `succession`).

Bytes of a stream are split at arbitrary positions. Datagrams with only whole events are decoded together; others one
by one, so that no record continues beyond the end of its datagram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import (
    Decoder,
    asked_names,
    holds,
    is_quick,
    packs,
    reads_files,
    separates,
    settles,
)
from tailrace.decoding.foreign import HEAD, ForeignDecoder, foreign, of_datagram, readable_before
from tailrace.decoding.formats import FORMATS
from tailrace.decoding.guard import GuardedDecoder
from tailrace.ingest.generations import Generations
from tailrace.ingest.incarnation_rows import OwnRows
from tailrace.ingest.limits import report
from tailrace.ingest.session_file import SessionFile
from tailrace.ingest.shared import Shared
from tailrace.ingest.state import SessionState, decode, encode
from tailrace.ingest.succession import InputBytes, Succession
from tailrace.ingest.unfinished import INLINE_MAX
from tailrace.ledger.copies import Copies
from tailrace.model.holding import Holding
from tailrace.model.record import Kind, Record
from tailrace.rows.fields import EVENTS
from tailrace.rows.records import NUMBERED, Chunk, gathered, listed
from tailrace.spool.entry import Datagrams
from tailrace.spool.payloads import FileFacts, FileLoss


def decoding(decoder: Decoder) -> Callable[[bytes], Chunk]:
    """Return a function that decodes bytes with this decoder into a chunk of records."""
    feed = decoder.feed
    if not packs(decoder):
        return lambda data: listed(feed(data))
    blocks, least = decoder.blocks, decoder.block_min
    return lambda data: gathered(blocks(data)) if len(data) >= least else listed(feed(data))


class Session:
    """An open session, whose bytes are decoded into records."""

    def __init__(self, state: SessionState, shared: Shared) -> None:
        self.state = state
        self.name, self.source = state.info.session, state.info.source
        self.limits: LedgerConfig = state.info.ledger
        self._tally = shared.tally(self.source)
        self._commons = shared.common[self.source]
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
        self._copies = Copies(self.limits, state.copies) if datagrams and not numbered else None
        self._file = SessionFile(state, decoder)
        # Create the shared runs for every session: their state is a part of checkpoints.
        pieces = shared.pieces[self.source]
        self._pieces = pieces if state.file and separates(decoder) else None
        if self._pieces:
            self._pieces.resting[self.name] = self._rest_again
        self.generations = Generations(
            state, shared, unordered=datagrams and numbered, of_file=self._file.of_incarnation
        )
        self._succession = Succession(state, shared, self.generations)

    def _decode_with(self, decoder: Decoder) -> None:
        self.decoder, self._decode = decoder, decoding(decoder)
        self._holding = decoder if holds(decoder) else None
        self._quick = decoder if is_quick(decoder) else None

    @property
    def holdings(self) -> list[Holding]:
        """Return the containers whose memory grows with the peer's data, except those that belong to sessions with ids
        from clients."""
        held = [each for own in self.generations.unannounced for each in own.holdings]
        if self._copies:
            held.append(self._copies)
        if self._holding:
            held += self._holding.holdings
        return held

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write the row that reports an eviction, after the gap rows of earlier producer runs. If the decoder has
        evicted the state of a process, end this process's run."""
        for before in self.generations.unannounced[1:]:
            before.report(now)
        self.generations.current.gave_up(what, now)
        if separates(self.decoder):
            self.generations.keep(self.decoder.processes, now)

    # Methods that take the bytes of the session

    def data(self, payload: bytes, now: int, position: int = 0) -> Iterator[None]:
        """Process bytes of a stream; yield after each step. `position` is the spool position of the entry with these
        bytes."""
        self._received(len(payload), now)
        self._file.read(payload, self._own, now)
        self.generations.reach()
        raw = self._raw(self.state.received - len(payload), payload, now)
        if self.state.refusing:
            # Also refuse the bytes that wait in the decoder: store them as unreadable.
            self.decoder.end()
            self._succession.refuse(raw)
            self.state.record_since = self.state.begun = 0
            self.state.skipped += len(payload)
            return
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
        self._note_ends(now)

    def _note_ends(self, now: int) -> None:
        """Write a row for each run in the file if its end mark (the last record of a complete stream) has arrived or is
        required from now on."""
        if self.state.file:
            for process, incarnation in self.generations.by_process.items():
                self._file.note_end(process, incarnation.own, now)

    def _told_apart(self, chunk: Chunk, payload: bytes) -> Chunk:
        """Return the records of a chunk. If its bytes show that the input is of another type, such as an archive, all
        following bytes of the input become unreadable."""
        state = self.state
        seen = (state.head or b"") + payload
        unread = len(seen) >= HEAD or any(Kind.MALFORMED in records.kinds for records in chunk)
        path = state.file.facts.path if state.file and unread else ""
        if what := foreign(path, seen[:HEAD], [FORMATS[state.info.format]]):
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
        self._commons.packed += sum(records.packed for records in chunk)
        if self._quick:
            self._commons.slow += self._quick.take_slow()

    def give_way(self, now: int) -> None:
        """Drop the unfinished record, the largest one of a source that exceeds its memory limit."""
        self._own.session("gave_way", {"bytes": self.decoder.pending}, now)
        self._tally.gave_way += 1
        self.state.record_since = self.state.begun = 0
        raw = self._raw(self.state.received, b"", now)
        self._succession.take(listed(self.decoder.give_up()), now, raw)

    def datagrams(self, datagrams: Datagrams, now: int) -> Iterator[None]:
        """Decode datagrams and process their records; yield between two steps."""
        self._received(datagrams.length, now)
        if self._copies:
            yield from self._without_copies(self._copies, datagrams, now)
            return
        self.generations.reach()
        chunks = decode_datagrams(self.decoder, self._decode, datagrams, self._whole)
        chunk = list(chain.from_iterable(chunks))
        self._count(chunk)
        if not self._commons.state.mixed:
            self._commons.state.mixed = not of_one_event_each(chunk, datagrams)
        self.generations.current.state.counters.datagrams += len(datagrams)
        raw = InputBytes(self.state.received - len(datagrams.payload), datagrams.payload)
        for some in chunks:
            yield from self._succession.steps(some, now, raw)
            self._succession.datagram_over()
        self._succession.report_refused()
        self.generations.note_news()

    def _without_copies(self, copies: Copies, datagrams: Datagrams, now: int) -> Iterator[None]:
        """Process datagrams of a producer without event numbers. Only count the events of a repeated datagram."""
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
                self.generations.current.references.add_copies(events)
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
        """Return the input bytes at an offset. If the session may refuse the next record, put the decoder's pending
        bytes before them: these are the beginning of the record, and a refused record is stored as a whole."""
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

    # Methods that process changes of the session's file, bytes that the file has lost, and the documents (such as
    # metadata files) beside the file

    def file(self, facts: FileFacts | None, now: int) -> None:
        """Record a change of the session's file: a new path or inode, a new gzip member, or that the file has
        stopped growing. If `facts` is None, no source follows the file any more. If the file does not grow any more,
        decode its last record even without a newline or other terminator."""
        if facts is None or facts.rest:
            self.settle(now)
        self._file.change(facts, self._own, now)

    def settle(self, now: int) -> None:
        """Decode the pending bytes if they form a whole record. Take back gaps that are wrong if nothing follows.
        Record which part of a run the file contains."""
        if settles(self.decoder):
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
            self._goes_on()
            self._pieces.tell(now)

    def _goes_on(self) -> bool:
        """Record and return whether other files continue the runs of the session's file."""
        if not (self._pieces and separates(self.decoder)):
            return False
        mine = self.decoder.pieces.items()
        names = [(self.generations.of(process).state.name, piece) for process, piece in mine]
        self.state.goes_on = all(piece and self._pieces.goes_on(name) for name, piece in names)
        return self.state.goes_on

    def _rest_again(self, now: int) -> None:
        if self._goes_on():
            self._file.rest_again(self._own, now)

    def document(self, name: str, part: bytes, now: int, *, more: bool) -> None:
        """Process a part of a document (such as a metadata file) that describes the session's file."""
        self._succession.take(listed(self._file.document(name, part, more=more)), now)
        self._note_ends(now)

    def loss(self, loss: FileLoss) -> None:
        self._file.lose(loss, self._own)
        self.generations.reach()

    # Methods that end the session

    def stopped(self, now: int, *, is_alike: bool) -> None:
        """Write a row about the end of the file when the daemon stops. `is_alike` states that another file of the
        source has the same content."""
        self._file.stopped(self._own, now, is_alike=is_alike)
        if self.state.file and not self.state.file.facts.rest:
            self._note_ends(now)

    def closed(self, reason: str, now: int) -> None:
        raw = self._raw(self.state.received, b"", now)
        chunk = listed(self.decoder.end())
        if self.state.head is not None:
            chunk = self._told_apart(chunk, b"")
        self._succession.take(chunk, now, raw)
        report(self, now)
        self._note_pieces(now)
        if self._pieces:
            del self._pieces.resting[self.name]
        self._tally.asked += len(asked_names(self.decoder))
        self.generations.close(reason, self._file.as_read(), now)

    @property
    def content(self) -> tuple[object, ...]:
        """Return a key that is equal for two files with the same content."""
        file, info = self.state.file, self.state.info
        if file is None or not file.crc:
            return (self.state.number,)
        return info.source, info.format, file.offset, file.crc, *sorted(file.documents.items())

    @property
    def _own(self) -> OwnRows:
        return self.generations.current.own

    # Methods that save the state for a checkpoint, and continue from it

    def replayed(self) -> None:
        """Report the failure of a plug-in again after a replay of the spool, because the rows of the replay were
        discarded."""
        if isinstance(self.decoder, GuardedDecoder) and self.decoder.report_again():
            # Give the next unreadable bytes a gap row of their own, even if they continue earlier ones. An earlier run
            # of the daemon wrote the table's rows, and the plug-in may not have failed in that run.
            self.generations.current.state.unended = None

    def save(self, named_from: int) -> SessionState:
        """Return the session's state for a checkpoint; call `saved` when it is encoded. Leave out the bytes of a
        long unfinished record that begins in the spool at or after `named_from`."""
        state, decoding = self.state, self.decoder.state
        waiting = FORMATS[state.info.format].waiting(decoding)
        size = len(waiting.waiting)
        if state.begun and state.begun >= named_from and size > INLINE_MAX:
            state.left_out = size
            waiting.waiting = b""
        state.decoder = encode(decoding)
        # Remove the unfinished record's bytes from the state: some decoders keep this object, and would keep the bytes
        # in it.
        waiting.waiting = b""
        self.generations.save()
        return state

    def saved(self) -> None:
        """Clear the fields of `state` that only a checkpoint needs, after `save` has set them."""
        self.state.decoder, self.state.left_out = None, 0


def decode_datagrams(
    decoder: Decoder,
    decode: Callable[[bytes], Chunk],
    datagrams: Datagrams,
    whole: Callable[[bytes, tuple[int, ...], int, int], int] | None,
) -> list[Chunk]:
    """Decode datagrams into non-empty chunks. A datagram with facts about its session, such as an epoch, forms a
    chunk of its own.

    `whole` (`Format.whole`) returns how many datagrams, from an index on, contain only whole events. These are
    decoded together, because a compiled kernel is faster on larger input; the records do not change.
    """
    payload, sizes = datagrams.payload, datagrams.sizes
    chunks: list[Chunk] = []
    chunk: Chunk = []
    records: list[Record] = []  # records of the last datagrams that are not in `chunk` yet
    index, at = 0, datagrams.begin
    while index < len(sizes):
        count = whole(payload, sizes, index, at) if whole else 0
        end = at + sum(sizes[index : index + (count or 1)])
        if count:
            chunk += listed(records) + decode(payload[at:end])
            records = []
        else:
            found = decode_datagram(decoder, payload[at:end])
            if Kind.SESSION in [record.kind for record in found]:
                chunks += [chunk + listed(records), listed(found)]
                chunk, records = [], []
            else:
                records += found
        index, at = index + (count or 1), end
    chunks.append(chunk + listed(records))
    return [each for each in chunks if each]


def decode_datagram(decoder: Decoder, datagram: bytes) -> list[Record]:
    records = decoder.feed(datagram)
    if decoder.pending or (isinstance(decoder, GuardedDecoder) and decoder.failed):
        records += decoder.end()
    unreadable = Kind.MALFORMED in [record.kind for record in records]
    return of_datagram(records, datagram) if unreadable else records


def of_one_event_each(chunk: Chunk, datagrams: Datagrams) -> bool:
    """Return whether each datagram contained exactly one event."""
    rows = sum(records.rows for records in chunk)
    return rows == len(datagrams) and all(records.kinds.keys() <= NUMBERED for records in chunk)
