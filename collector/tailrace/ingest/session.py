"""One session's bytes to rows: decoder, ledger and normalizer together. Deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, groupby
from operator import add, attrgetter
from typing import Any
from zlib import crc32

from tailrace.decoding.decoder import Decoder, FileDecoder
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.own_rows import ROW_BYTES, Emit, OwnRows, Quarantine
from tailrace.ingest.state import FileFacts, Loss, SessionState, Tally, decode, encode
from tailrace.ledger.counters import DUPLICATE, Account, Counters
from tailrace.ledger.findings import Finding
from tailrace.ledger.references import References
from tailrace.model.gap import Reason
from tailrace.model.record import Kind, Missing, Record, SessionFacts
from tailrace.normalize import (
    ATTRIBUTES,
    CATEGORY,
    COUNT,
    END,
    FLAW,
    ID,
    KIND,
    NAME,
    OFFSET,
    PARENT,
    SIZE,
    START,
    STREAM,
    SUBSTREAM,
    Columns,
    Spans,
    wall_times,
    write_flaws,
)  # fmt: skip

_APART = frozenset({Kind.SESSION, Kind.MALFORMED, Kind.GAP, Kind.HEAL})
"""Kinds of records that are taken one by one; all others by the block."""


class Session:
    """A session in being. What outlives the process is in `state` after `save`."""

    def __init__(
        self,
        state: SessionState,
        tally: Tally,
        *,
        emit: Emit,
        quarantine: Quarantine,
    ) -> None:
        self.state = state
        self._limits = state.info.ledger
        self._tally = tally
        self._emit = emit
        self._own = OwnRows(state, tally, emit, quarantine)
        format_ = FORMATS[state.info.format]
        saved = decode(state.decoder, format_.state_type) if state.decoder else None
        self.decoder: Decoder = format_.decoder(state.info.record_max, saved)
        if isinstance(self.decoder, FileDecoder) and state.file and not state.decoder:
            self.decoder.begin(state.file.facts.path, state.info.dialect)
        self._bits = format_.counter_bits
        self._whole = format_.whole
        self._attach_ledger()

    # What the spool says

    def opened(self, now: int) -> None:
        info = self.state.info
        about = {"peer": info.peer, "transport": info.transport, "opened": now}
        self._own.session("open", about | self._group(), now)

    def data(self, payload: bytes, now: int) -> None:
        """Bytes of a stream, cut anywhere."""
        self._received(len(payload), now)
        if self.state.file:
            self.state.file.read(payload)
        records = self.decoder.feed(payload)
        if records or not self.state.record_since:
            self.state.record_since = now if self.decoder.pending else 0
        self._take(records, now)

    def datagrams(self, payloads: list[bytes], now: int) -> None:
        """Datagrams: no record goes on past the end of one."""
        self._received(sum(map(len, payloads)), now)
        self._take(decode_datagrams(self.decoder, payloads, self._whole), now)

    def file(self, facts: FileFacts, now: int) -> None:
        """Its file has another name or place, or a member of it begins."""
        file = self.state.file
        if file is None:
            return
        if facts.path != file.facts.path:
            self._own.session("moved", {"peer": facts.path}, now)
        file.facts = facts

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
        self._own.loss(loss)
        if self.state.file:
            self.state.file.pass_over(loss.skip)
        self.state.skipped += loss.skip

    def expire(self, now: int) -> None:
        """Close the windows whose time has passed."""
        if self._counters:
            self._counters.expire(now)
        self._references.expire(now)
        self._report()

    def settle(self) -> None:
        """Close all windows now: the daemon stops."""
        if self._counters:
            self._counters.close()
        self._references.close()
        self._report()

    def damaged(self, size: int) -> None:
        """Up to `size` bytes of the spool that may have been this session's cannot be read."""
        self._own.damaged(size)

    def closed(self, reason: str, now: int) -> None:
        self._take(self.decoder.end(), now)
        self._finish(reason, now)

    # What others ask

    @property
    def waiting(self) -> bool:
        """Whether a window is open that time alone can close."""
        return bool((self._counters and self._counters.waiting) or self._references.waiting)

    @property
    def account(self) -> Account:
        return self._counters.account if self._counters else self._references.account

    def save(self) -> SessionState:
        self.state.decoder = encode(self.decoder.state)
        return self.state

    # Records

    def _take(self, records: list[Record], now: int) -> None:
        if not records:
            return
        if skipped := self.state.skipped:
            records = [r._replace(offset=r.offset + skipped) for r in records]
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
                self._session(records[i], now)
            elif kind == Kind.MALFORMED:
                run.append(records[i])
                if i + 1 == len(kinds) or kinds[i + 1] != Kind.MALFORMED:
                    self._malformed(run)
                    run = []
            else:
                self._claim(records[i])
        self._block([column[begin:] for column in columns], now)

    def _block(self, columns: Sequence[tuple[Any, ...]], now: int) -> None:
        """Records without session or malformed ones among them."""
        kinds = columns[KIND]
        if not kinds:
            return
        self._readable(sum(columns[SIZE]), len(kinds))
        self._count(kinds)
        if self._counters:
            self._counted(self._counters, columns, now)
        else:
            changing: Columns = [list(column) for column in columns]
            self._spans.take(changing, now)
            self._rows(changing, [None] * len(kinds))
        self._report()

    def _counted(self, counters: Counters, columns: Sequence[Sequence[Any]], now: int) -> None:
        """Events with a counter: in order, late, duplicate, or a restart of their producer."""
        streams, counts, marks = columns[STREAM], columns[COUNT], _marks(columns)
        while marks:
            seqs, restart = counters.observe(streams, counts, marks, now)
            taken = len(seqs)
            part = columns if taken == len(marks) else [column[:taken] for column in columns]
            if DUPLICATE in seqs:
                keep = [seq != DUPLICATE for seq in seqs]
                part = [list(compress(column, keep)) for column in part]
                seqs = list(compress(seqs, keep))
            self._rows(part, seqs)
            if not restart:
                return
            self._restart("counter", now)
            counters = self._counters or counters
            columns = [column[taken:] for column in columns]
            streams, counts, marks = columns[STREAM], columns[COUNT], marks[taken:]

    def _rows(self, columns: Sequence[Sequence[Any]], seqs: list[int | None]) -> None:
        attributes = columns[ATTRIBUTES]
        if any(columns[FLAW]):
            attributes, flaws = write_flaws(columns[FLAW], attributes)
            _add(self._tally.flaws, flaws)
        state = self.state
        times = wall_times(columns[START], state.epoch, state.ticks_per_second)
        size = sum(columns[SIZE]) + ROW_BYTES * len(seqs)
        self._emit(
            state,
            [
                columns[STREAM], columns[SUBSTREAM], seqs, columns[KIND], columns[NAME],
                columns[CATEGORY], columns[ID], columns[PARENT], columns[START], columns[END],
                times, attributes, columns[OFFSET],
            ],
            size,
        )  # fmt: skip

    def _count(self, kinds: Sequence[str]) -> None:
        records = self._tally.records
        spans = kinds.count(Kind.SPAN)
        if spans == len(kinds):
            records[Kind.SPAN] = records.get(Kind.SPAN, 0) + spans
        else:
            _add(records, Counter(kinds))

    # Single records

    def _session(self, record: Record, now: int) -> None:
        """A record about the session itself: an epoch, a header, a footer, an option."""
        facts = record.detail if isinstance(record.detail, SessionFacts) else SessionFacts()
        if facts.starts and self.state.records:
            self._restart("header", now)
        elif facts.epoch is not None and self.state.epoch not in {None, facts.epoch}:
            self._restart("epoch", now)
        state = self.state
        state.epoch = facts.epoch if facts.epoch is not None else state.epoch
        state.clock = facts.clock or state.clock
        state.ticks_per_second = facts.ticks_per_second or state.ticks_per_second
        self._readable(record.size, 1)
        self._tally.records[Kind.SESSION] = self._tally.records.get(Kind.SESSION, 0) + 1
        self._rows([(value,) for value in record], [None])
        if facts.totals:
            self._references.total(facts.totals)
            self._report()

    def _malformed(self, run: list[Record]) -> None:
        """Adjacent unreadable pieces: one gap row a reason, the bytes to the quarantine."""
        for _, same in groupby(run, key=attrgetter("flaw")):
            group = list(same)
            # Where the producer counts, its counters say what is missing.
            count = 0 if self._counters else len(group)
            self._own.malformed(group, count)
            self._references.add_malformed(count)

    def _claim(self, record: Record) -> None:
        """What a decoder knows to be missing, or to have come after all."""
        about = record.detail
        if isinstance(about, Missing):
            self._references.claim(
                Finding(
                    record.kind,
                    record.stream,
                    record.count,
                    about.count,
                    record.name or Reason.NETWORK,
                    of=about.of,
                    detail=about.detail,
                    offset=record.offset,
                )
            )
            self._report()

    # The session's course

    def _restart(self, why: str, now: int) -> None:
        """The producer began anew within the same connection or from the same address."""
        previous = self.state.name
        self._finish(f"restart: {why}", now)
        state = self.state
        state.restarts += 1
        state.name = f"{state.info.session}.{state.restarts}"
        state.records = 0
        state.epoch = state.clock = state.ticks_per_second = None
        state.counters = type(state.counters)()
        state.references = type(state.references)()
        state.spans = {}
        self._attach_ledger()
        self._tally.restarts += 1
        about = {"continues": previous, "opened": now}
        self._own.session("restart", about | self._group(), now)

    def _finish(self, reason: str, now: int) -> None:
        self.settle()
        tally, account = self._tally, self.account
        tally.expected += account.expected
        tally.seen += account.seen
        tally.missing += account.missing
        tally.duplicates += account.duplicates
        about: dict[str, object] = {
            "closed": reason, "closed_at": now, "open_spans": len(self.state.spans),
        }  # fmt: skip
        if file := self.state.file:
            facts = file.facts
            about["file"] = {"path": facts.path, "inode": facts.inode, "size": file.offset}
        self._own.session("close", about, now)

    def _attach_ledger(self) -> None:
        state = self.state
        self._references = References(self._limits, "", state.references)
        self._spans = Spans(self._limits, self._references, state.spans)
        self._counters = (
            Counters(self._limits, self._bits, state.counters) if self._bits is not None else None
        )

    def _received(self, size: int, now: int) -> None:
        self._tally.received += size
        self.state.received += size
        self.state.last = now

    def _readable(self, size: int, records: int) -> None:
        self._tally.decoded += size
        self.state.records += records
        self.state.garbage = 0

    def _report(self) -> None:
        """Findings to rows."""
        findings = self._references.findings
        if self._counters:
            findings = findings + self._counters.findings
            self._counters.findings.clear()
        self._references.findings = []
        for finding in findings:
            self._own.finding(finding)

    def _group(self) -> dict[str, object]:
        group = self.state.info.group
        return {"group": group} if group else {}


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


def _marks(columns: Sequence[Sequence[Any]]) -> list[int]:
    """What tells events apart and grows with their times."""
    try:
        return list(map(add, map(add, columns[START], columns[END]), columns[SIZE]))
    except TypeError:
        times = zip(columns[START], columns[END], columns[SIZE], strict=True)
        return [(start or 0) + (end or 0) + size for start, end, size in times]


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        sums[key] = sums.get(key, 0) + count
