"""One session's bytes to records: what the spool says of it, cut into what its runs take.

Which run of its producer a record is of is the matter of `course`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import Decoder, EndingDecoder, FileDecoder, Format, HoldingDecoder
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announced import Announcements
from tailrace.ingest.budget import report
from tailrace.ingest.course import Course
from tailrace.ingest.run import Run
from tailrace.ingest.state import (
    FileFacts,
    FileState,
    Loss,
    OpenInfo,
    Rest,
    RunState,
    SessionState,
    Tally,
    decode,
    encode,
)
from tailrace.ingest.unfinished import INLINE_MAX
from tailrace.ledger.commons import Commons
from tailrace.ledger.copies import Copies
from tailrace.model.holding import Holding
from tailrace.model.record import Kind, Record, SessionFacts
from tailrace.normalize import EVENTS, KIND, OFFSET, SIZE

_APART = frozenset({Kind.SESSION, Kind.MALFORMED, Kind.GAP, Kind.HEAL})
"""Kinds of records that are taken one by one; all others by the block."""

_kind = itemgetter(KIND)
_offset = itemgetter(OFFSET)


class Session:
    """A session in being. What outlives the process is in `state` after `save`."""

    def __init__(
        self,
        state: SessionState,
        tally: Tally,
        commons: Commons,
        announcements: Announcements,
        attach: Callable[[OpenInfo, RunState], Run],
    ) -> None:
        self.state = state
        self._tally = tally
        self._commons = commons
        self._announcements = announcements
        format_ = FORMATS[state.info.format]
        saved = decode(state.decoder, format_.state_type) if state.decoder else None
        if state.left_out:
            format_.waiting(saved).waiting = state.waiting
        self.decoder: Decoder = format_.decoder(state.info.record_max, saved)
        if isinstance(self.decoder, FileDecoder) and state.file and not state.decoder:
            self.decoder.begin(state.file.facts.path, state.info.dialect)
        state.decoder, state.left_out, state.waiting = None, 0, b""
        self._whole = format_.whole
        datagrams, numbered = state.info.transport == "udp", format_.counter_bits is not None
        self._copies = (
            Copies(state.info.ledger, state.copies) if datagrams and not numbered else None
        )
        self._holding = self.decoder if isinstance(self.decoder, HoldingDecoder) else None
        unordered = datagrams and numbered
        self.course = Course(
            state, tally, announcements, attach, unordered=unordered, of_file=self._of_file
        )

    @property
    def name(self) -> str:
        return self.state.info.session

    @property
    def source(self) -> str:
        return self.state.info.source

    @property
    def limits(self) -> LedgerConfig:
        return self.state.info.ledger

    @property
    def holdings(self) -> list[Holding]:
        """Return what it holds of its peer's making; announced sessions hold what is theirs."""
        held = [each for run in self.course.own_runs for each in run.holdings]
        if self._copies:
            held.append(self._copies)
        if self._holding:
            held += self._holding.holdings
        return held

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """See `ingest.budget.Holder`. A run before the one in being gives up what it waits for."""
        for run in self.course.own_runs[1:]:
            run.report(now)
        self.course.run.gave_up(what, now)

    def data(self, payload: bytes, now: int, position: int = 0) -> None:
        """Take bytes of a stream, cut anywhere, of an entry at this position of the spool."""
        self._received(len(payload), now)
        if file := self.state.file:
            if file.facts.rest:
                self._rest(file, None, now)
            file.read(payload)
        self.course.reach()
        records = self.decoder.feed(payload)
        if records or not self.state.record_since:
            self.state.record_since = now if self.decoder.pending else 0
        pending = self.decoder.pending
        if pending <= len(payload):
            self.state.begun = position if pending else 0
        self._take(records, now)
        self.course.tell()

    def give_way(self, now: int) -> None:
        """Give up the unfinished record: memory is short, and no other session holds more of it."""
        self.course.run.own.session("gave_way", {"bytes": self.decoder.pending}, now)
        self._tally.gave_way += 1
        self.state.record_since = self.state.begun = 0
        self._take(self.decoder.give_up(), now)

    def datagrams(self, payloads: list[bytes], now: int) -> None:
        """Datagrams: no record goes on past the end of one."""
        self._received(sum(map(len, payloads)), now)
        if self._copies:
            self._without_copies(self._copies, payloads, now)
            return
        self.course.reach()
        records = decode_datagrams(self.decoder, payloads, self._whole)
        if not self._commons.state.mixed:
            kinds = list(map(_kind, records))
            events = kinds.count(Kind.SPAN) + kinds.count(Kind.COUNTER)
            self._commons.state.mixed = not events == len(records) == len(payloads)
        self.course.run.datagrams(len(payloads))
        for some in _apart(records, payloads, self.state.received):
            self._take(some, now)
            self.course.datagram_over()
        self.course.tell()

    def _without_copies(self, copies: Copies, payloads: list[bytes], now: int) -> None:
        """Take datagrams of a producer that numbers nothing: count copies, and decode all others."""
        waiting: list[Record] = []
        for payload in payloads:
            events = copies.events_of(payload, now)
            if events is not None:
                self._take(waiting, now)
                waiting = []
                self._readable(len(payload))
                self.state.skipped += len(payload)
                self.course.run.copies(events)
                continue
            records = decode_datagrams(self.decoder, [payload], None)
            kinds = list(map(_kind, records))
            if kinds.count(Kind.MALFORMED) < len(kinds):
                copies.remember(payload, sum(kinds.count(kind) for kind in EVENTS), now)
            waiting += records
        self.course.reach()
        self._take(waiting, now)

    def file(self, facts: FileFacts, now: int) -> None:
        """Take note that the session's file has another name or place, begins a member, or rests."""
        file = self.state.file
        if file is None:
            return
        if facts.path != file.facts.path:
            self.course.run.own.session("moved", {"peer": facts.path}, now)
        before, file.facts = file.facts.rest, facts
        if facts.rest != before:
            self._rest(file, facts.rest, now)

    def stopped(self, now: int) -> None:
        """Say of a file whose stream has ended that nothing more will come: the daemon stops."""
        file = self.state.file
        if file and not file.facts.rest and self._lacking == "":
            self._rest(
                file, Rest(why="ended", since=self.course.run.own.wall(self.state.last)), now
            )

    def _rest(self, file: FileState, rest: Rest | None, now: int) -> None:
        """Say in a row that the file rests, or goes on, and what of the stream's end has not come."""
        file.facts = replace(file.facts, rest=rest)
        about: dict[str, object] = {"rest": rest.why if rest else ""}
        about["since"] = rest.since if rest else self.course.run.own.wall(now)
        if (lacking := self._lacking) is not None:
            about["lacks"] = lacking
        self.course.run.own.session("rest", about | self._end, now)

    @property
    def _lacking(self) -> str | None:
        """Return what of the stream's end has not come; None where no end is known to come."""
        return self.decoder.lacking if isinstance(self.decoder, EndingDecoder) else None

    @property
    def _end(self) -> dict[str, object]:
        """Return, as members of a row, the stream whose end is known to come."""
        decoder = self.decoder
        if isinstance(decoder, EndingDecoder) and decoder.lacking is not None:
            return {"ends": decoder.stream}
        return {}

    def _of_file(self) -> dict[str, object]:
        """Return what the row of a file's run says beside what all say."""
        group = self.state.info.group
        about: dict[str, object] = {"group": group} if group else {}
        return about | self._end

    def document(self, name: str, part: bytes, now: int, *, more: bool) -> None:
        """A part of a document that tells of it, which was found or has changed."""
        file = self.state.file
        if file is None or not isinstance(self.decoder, FileDecoder):
            return
        file.part += part
        if not more:
            data, file.part = file.part, b""
            file.documents[name] = crc32(data)
            self._take(self.decoder.document(name, data), now)

    def loss(self, loss: Loss) -> None:
        """Bytes of its file are not to be had."""
        self.course.run.own.loss(self.state, loss)
        if self.state.file:
            self.state.file.pass_over(loss.skip)
        self.state.skipped += loss.skip
        self.course.reach()

    def damaged(self, size: int) -> None:
        """Up to `size` bytes of the spool that may have been this session's cannot be read."""
        self.course.run.own.damaged(size)

    def closed(self, reason: str, now: int) -> None:
        self._take(self.decoder.end(), now)
        report(self, now)
        about: dict[str, object] = {}
        if file := self.state.file:
            about["file"] = _as_read(file)
        self.course.close(reason, about, now)

    def save(self, named_from: int) -> SessionState:
        """Return the state with the decoder's in it, until `saved`. Bytes of an unfinished record are
        left out if the spool has them from `named_from` on and they are more than `INLINE_MAX`."""
        state, decoding = self.state, self.decoder.state
        waiting = FORMATS[state.info.format].waiting(decoding)
        size = len(waiting.waiting)
        if state.begun and state.begun >= named_from and size > INLINE_MAX:
            state.left_out = size
            waiting.waiting = b""
        state.decoder = encode(decoding)
        waiting.waiting = b""  # a copy, which some decoders would keep
        self.course.save()
        return state

    def saved(self) -> None:
        """Forget what only a checkpoint needs."""
        self.state.decoder, self.state.left_out = None, 0

    # Records

    def _take(self, records: list[Record], now: int) -> None:
        if not records:
            return
        columns = list(zip(*records, strict=True))
        kinds = columns[KIND]
        if _APART.isdisjoint(kinds):
            self._block(columns, now)
            return
        begin = 0
        run: list[Record] = []
        for i, kind in enumerate(kinds):
            if kind not in _APART:
                continue
            self._block([column[begin:i] for column in columns], now)
            begin = i + 1
            if kind == Kind.SESSION:
                self._session(records, i, now)
            elif kind == Kind.MALFORMED:
                run.append(self._placed(records[i]))
                if i + 1 == len(kinds) or kinds[i + 1] != Kind.MALFORMED:
                    self.course.run.malformed(self.state, run)
                    run = []
            else:
                self.course.run.claim(self._placed(records[i]), now)
        self._block([column[begin:] for column in columns], now)

    def _placed(self, record: Record) -> Record:
        """A record with its place in its run's bytes."""
        return record._replace(offset=record.offset + self._shift)

    def _block(self, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Records without session or malformed ones among them."""
        if not columns[KIND]:
            return
        self._readable(sum(columns[SIZE]))
        if shift := self._shift:
            columns = list(columns)
            columns[OFFSET] = [offset + shift for offset in columns[OFFSET]]
        self.course.take(columns, now)

    def _session(self, records: list[Record], index: int, now: int) -> None:
        """A record about the session itself: an epoch, a header, a footer, an option."""
        record = records[index]
        facts = record.detail if isinstance(record.detail, SessionFacts) else SessionFacts()
        run = self.course.hear(facts, records, index, now)
        self._readable(record.size)
        run.note(self._placed(record), now)

    def _received(self, size: int, now: int) -> None:
        self._take_turn()
        self._tally.received += size
        self.state.received += size
        self.state.last = now

    def _take_turn(self) -> None:
        """Where connections carry one session together, each goes on where the last one was."""
        run, state = self.course.run.state, self.state
        if run.id:
            known = self._announcements[run.id].state
            if known.bearer != state.number:
                known.bearer = state.number
                state.base = run.reached - (state.place - self.decoder.pending)

    @property
    def _shift(self) -> int:
        """From a place in the decoder's bytes to one in the run's."""
        return self.state.skipped + self.state.base

    def _readable(self, size: int) -> None:
        self._tally.decoded += size
        self.state.garbage = 0


def _apart(records: list[Record], payloads: list[bytes], place: int) -> Iterator[list[Record]]:
    """Yield the records of datagrams that end at a place, those of a datagram that tells of its session
    apart from all others."""
    done = end = 0
    begin = place - sum(map(len, payloads))
    ends = list(accumulate(map(len, payloads), initial=begin))
    for index, record in enumerate(records):
        if record.kind != Kind.SESSION or index < end:
            continue
        datagram = bisect_right(ends, record.offset)
        begin = bisect_left(records, ends[datagram - 1], key=_offset)
        end = bisect_left(records, ends[datagram], key=_offset)
        if done < begin:
            yield records[done:begin]
        yield records[begin:end]
        done = end
    if done < len(records):
        yield records[done:]


def _as_read(file: FileState) -> dict[str, object]:
    """Return what tells later whether a file is still the one that was read, and no more than that:
    its path and what the system calls it; the size and checksum of its content; its documents."""
    facts = file.facts
    about: dict[str, object] = {
        "path": facts.path, "device": facts.device, "inode": facts.inode,
        "size": file.offset, "crc": file.crc,
    }  # fmt: skip
    return about | ({"documents": file.documents} if file.documents else {})


def readable(format_: Format, record_max: int, datagram: bytes) -> bool:
    """Whether there is a record in a datagram."""
    records = decode_datagrams(format_.decoder(record_max, None), [datagram], None)
    return any(record.kind != Kind.MALFORMED for record in records)


def decode_datagrams(
    decoder: Decoder, payloads: list[bytes], whole: Callable[[bytes], bool] | None
) -> list[Record]:
    """Each datagram by itself; those that are one whole record each in one piece, which is the same
    and saves a quarter of the time where nothing is packed."""
    if whole and all(map(whole, payloads)):
        return decoder.feed(b"".join(payloads)) + (decoder.end() if decoder.pending else [])
    records: list[Record] = []
    for payload in payloads:
        records += decoder.feed(payload)
        if decoder.pending:
            records += decoder.end()
    return records
