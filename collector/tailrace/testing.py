"""Check that a format obeys the contract of decoders (`tailrace.decoding.contract`). For authors of formats.

    from tailrace.testing import TraceSample, check_format

    def test_my_format_obeys_the_contract() -> None:
        check_format(FORMAT, [TraceSample(FORMAT, Path("usual.trace").read_bytes())])

`check_format` makes all checks, at random positions, which are the same in each run. Each other function makes one
check, at positions that the caller chooses. A broken rule raises AssertionError, whose text names the rule and the
position in the input. An exception of the decoder passes through. Tailrace's own formats are checked by the same
functions (`tests/decoding/test_conformance.py`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn

import msgspec

from tailrace.decoding.contract import (
    Decoder,
    EndingDecoder,
    Format,
    HoldingDecoder,
    SettlingDecoder,
)
from tailrace.decoding.guard import ContractError, check_record
from tailrace.model.gap import Reason
from tailrace.model.record import Kind, Missing, Record

PLACES = 60
"""Number of positions in a sample at which `check_format` makes each check."""
LIMITS = 128, 1000
"""Maximum record sizes (bytes) with which each sample is decoded, besides its own `limit`."""
_ATTRIBUTES, _DETAIL = Record._fields.index("attributes"), Record._fields.index("detail")


class TraceSample:
    """An input of a format: bytes as a producer writes them, whole, damaged or cut.

    `limit` is the maximum size (bytes) of a record. If the sample is a file, `path` is its absolute path, and `dialect`
    is "auto" or one of the format's dialects. The decoder gets the `documents`, each with name and content, before the
    first byte."""

    def __init__(
        self,
        format_: Format,
        data: bytes,
        limit: int = 64 * 1024,
        *,
        path: str = "",
        dialect: str = "auto",
        documents: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self.format, self.data, self.limit = format_, data, limit
        self.path, self.dialect, self.documents = path, dialect, documents

    def begun(self) -> tuple[Decoder, list[Record]]:
        """Return a new decoder that has got the sample's path, dialect and documents, and its records for them."""
        decoder: Any = self.format.decoder(self.limit, None)
        records: list[Record] = []
        if self.path:
            decoder.begin(self.path, self.dialect)
            for name, data in self.documents:
                records += decoder.document(name, data)
        return decoder, records

    def decoder(self) -> Decoder:
        return self.begun()[0]

    @cached_property
    def records(self) -> list[Record]:
        """All records that a decoder makes of the sample."""
        return self.decode()

    def decode(self, parts: Iterable[bytes] | None = None) -> list[Record]:
        """Return all records that a decoder makes of the sample or, if given, of `parts`, one after the other."""
        decoder, records = self.begun()
        return records + decode(decoder, [self.data] if parts is None else parts)


def decode(decoder: Decoder, parts: Iterable[bytes]) -> list[Record]:
    """Return all records of an input that arrives in parts and then ends."""
    records: list[Record] = []
    for part in parts:
        records += decoder.feed(part)
    return records + decoder.end()


def cut(data: bytes, at: Iterable[int]) -> Iterator[bytes]:
    """Cut `data` at the positions `at`, and yield the parts."""
    begin = 0
    for stop in sorted(at):
        yield data[begin:stop]
        begin = stop
    yield data[begin:]


def packed(records: Sequence[Record]) -> bytes:
    """Return records as bytes, to compare them exactly: unlike with `==`, NaN equals itself, and 1 differs from 1.0."""
    return msgspec.msgpack.encode(records)


def spelled(records: Iterable[Record]) -> list[str]:
    """Return records as lines of text, for a file with the expected records of a sample.

    The first line names the fields. Each further line is one record as a JSON list. Nulls at its end, and the bytes of
    a malformed record, are left out."""
    lines = [msgspec.json.encode(Record._fields).decode()]
    for record in records:
        values: list[object] = list(record)
        if record.attributes is not None:
            values[_ATTRIBUTES] = msgspec.Raw(record.attributes.encode())
        if record.kind == Kind.MALFORMED:
            values[_DETAIL] = None
        while values[-1] is None:
            values.pop()
        lines.append(msgspec.json.encode(values).decode())
    return lines


def _fail(rule: str) -> NoReturn:
    raise AssertionError(rule)


def _same(found: Sequence[Record], expected: Sequence[Record], rule: str) -> None:
    """Raise AssertionError with the first difference of two lists of records, if they differ."""
    if packed(found) == packed(expected):
        return
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        if packed([one]) != packed([other]):
            _fail(f"{rule}; record {number} is {one}, not {other}")
    _fail(f"{rule}; there are {len(found)} records, not {len(expected)}")


def check_tiling(format_: Format, records: Sequence[Record], data: bytes) -> None:
    """Check that the records tile the input: they cover it completely and without overlap (guarantee 2 of the
    contract). Check also that their fields are allowed."""
    at = 0
    if format_.name == "ovni":  # ovni's decoder sorts late events by clock, not by offset
        records = sorted(records, key=lambda record: (record.offset, record.size > 0))
    for record in records:
        try:
            check_record(format_, record)
        except ContractError as error:
            _fail(str(error))
        if record.offset != at:
            _fail(f"records must tile the input; after offset {at} follows {record}")
        at += record.size
        if record.kind == Kind.MALFORMED and record.detail != data[record.offset : at]:
            _fail(f"a malformed record must have the bytes of the input; not {record}")
    if at != len(data):
        _fail(f"records must tile the input; they have {at} of {len(data)} bytes")


def check_cut(sample: TraceSample, data: bytes, cuts: Iterable[int]) -> None:
    """Check that `data`, such as a damaged sample, gives the same records whether it arrives in one part or cut at the
    given positions."""
    records = sample.decode([data])
    check_tiling(sample.format, records, data)
    places = sorted(cuts)
    _same(
        sample.decode(cut(data, places)),
        records,
        f"records must not depend on where the input is cut; here at {places}",
    )


def check_bytewise(sample: TraceSample, places: range, compared: Iterable[int] = ()) -> None:
    """Check that a decoder returns the same records if the bytes at `places` arrive one by one. At each position in
    `compared`, it must have returned as many records as a decoder that gets all bytes up to there at once."""
    whole, decoder, compared = sample.decoder(), sample.decoder(), set(compared)
    records = decoder.feed(sample.data[: places.start])
    decided = sum(record.size for record in records)
    for i in places:
        found = decoder.feed(sample.data[i : i + 1])
        records += found
        decided += sum(record.size for record in found)
        if decoder.pending != i + 1 - decided:
            _fail(
                f"`pending` must be the {i + 1 - decided} bytes in no record; not {decoder.pending}"
            )
        if decoder.pending > sample.limit:
            _fail(f"`pending` must not exceed the limit, {sample.limit}; it is {decoder.pending}")
        if i + 1 in compared and len(records) != len(sample.decoder().feed(sample.data[: i + 1])):
            _fail(
                f"a record must be returned as soon as its bytes have arrived; see offset {i + 1}"
            )
    records += decoder.feed(sample.data[places.stop :])
    _same(records, whole.feed(sample.data), "records must not depend on how the input is cut")
    _same(decoder.end(), whole.end(), "the end must not depend on how the input was cut")
    if decoder.pending:
        _fail(f"`end` must leave no bytes; {decoder.pending} are pending")


def check_resumed(sample: TraceSample, place: int, other: Format | None = None) -> None:
    """Check that a decoder continues correctly from the state that another decoder had at a position. `other` is the
    format of the continuing decoder, if it is another one; the states of the two formats must have the same type."""
    format_ = other or sample.format
    first, records = sample.begun()
    records += first.feed(sample.data[:place])
    saved = msgspec.msgpack.encode(first.state)
    state = msgspec.msgpack.decode(saved, type=format_.state_type)
    second = format_.decoder(sample.limit, state)
    if other is None and msgspec.msgpack.encode(second.state) != saved:
        _fail(f"a restored decoder must have the same state; saved at offset {place}")
    if second.pending != first.pending:
        _fail(f"a restored decoder must have the same pending bytes; saved at offset {place}")
    records += decode(second, [sample.data[place:]])
    _same(records, sample.records, f"a restored decoder must continue; saved at offset {place}")


def check_waiting(sample: TraceSample, place: int) -> None:
    """Check that a decoder's state can be saved without the bytes of an unfinished record, as in checkpoints, and is
    unchanged once these bytes are put back."""
    format_, decoder = sample.format, sample.decoder()
    decoder.feed(sample.data[:place])
    state = decoder.state
    whole = msgspec.msgpack.encode(state)
    waiting = format_.waiting(state).waiting
    if not sample.data[place - decoder.pending : place].endswith(waiting):
        _fail(f"`waiting` must be the last of the pending bytes; not so at offset {place}")
    format_.waiting(state).waiting = b""
    saved = msgspec.msgpack.encode(state)
    if len(saved) > len(whole) - len(waiting):
        _fail(f"the state must have the waiting bytes once; not so at offset {place}")
    state = msgspec.msgpack.decode(saved, type=format_.state_type)
    format_.waiting(state).waiting = waiting
    if msgspec.msgpack.encode(state) != whole:
        _fail(f"a state must be the same after its waiting bytes were taken out; offset {place}")


def check_given_up(sample: TraceSample, place: int) -> None:
    """Check that a decoder, after the bytes up to `place`, can give up its pending bytes: those of an unfinished
    record. These bytes must become records, earlier records must not change, and all records must tile the input."""
    decoder, records = sample.begun()
    records += decoder.feed(sample.data[:place])
    inside, pending = len(records), decoder.pending
    given_up = decoder.give_up()
    if sum(record.size for record in given_up) != pending - decoder.pending or decoder.pending >= 8:
        _fail(f"`give_up` must return the pending bytes as records; not so at offset {place}")
    records += given_up + decode(decoder, [sample.data[place:]])
    check_tiling(sample.format, records, sample.data)
    _same(records[:inside], sample.records[:inside], f"`give_up` changed records; offset {place}")


def check_evicted(sample: TraceSample, place: int, share: int) -> None:
    """Check that a `HoldingDecoder` can evict one part in `share` of its state at a position.

    The state must then take less memory, and count what was evicted. Earlier records must not change, and all records
    must tile the input. A decoder that continues from a checkpoint must return the same records."""
    decoder, records = sample.begun()
    if not isinstance(decoder, HoldingDecoder):
        return
    records += decoder.feed(sample.data[:place])
    inside = len(records)
    for holding in decoder.holdings:
        held, evicted = holding.held, holding.evicted
        holding.give_way(held // share)
        if not 0 <= holding.held <= held - held // share:
            _fail(
                f"`give_way` must free the size; {holding.what} has {holding.held} of {held} bytes"
            )
        if holding.evicted < evicted or (holding.evicted > evicted and holding.held >= held):
            _fail(f"`evicted` must count entries that freed memory; {holding.what} does not")
        holding.evicted = 0  # the caller sets `evicted` to 0 after it has reported the number
        if holding.evicted:
            _fail(f"`evicted` must keep the number that it is set to; {holding.what} does not")
    saved = msgspec.msgpack.encode(decoder.state)
    state = msgspec.msgpack.decode(saved, type=sample.format.state_type)
    rest = decode(decoder, [sample.data[place:]])
    again = sample.format.decoder(sample.limit, state)
    rule = f"a restored decoder must continue after an eviction at offset {place}"
    _same(decode(again, [sample.data[place:]]), rest, rule)
    check_tiling(sample.format, records + rest, sample.data)
    _same(records[:inside], sample.records[:inside], f"an eviction changed records; offset {place}")


def check_truncated(sample: TraceSample, place: int) -> None:
    """Check that the records of a truncated input include, unchanged, all readable records before the end."""
    data = sample.data[:place]
    records = sample.decode([data])
    check_tiling(sample.format, records, data)
    decoder = sample.decoder()
    decoder.feed(data)  # the waiting bytes may become other records at the end of the input
    end = place - decoder.pending
    inside = [record for record in sample.records if record.offset + record.size <= end]
    # Ignore records without bytes at the end: they depend on the bytes that follow, which are missing here.
    while inside and (inside[-1].kind == Kind.MALFORMED or not inside[-1].size):
        inside.pop()
    _same(records[: len(inside)], inside, f"a truncation at {place} must lose only the tail")


def check_damaged(sample: TraceSample, place: int, instead: bytes) -> None:
    """Check that the records still tile the input if other bytes take the place of one byte."""
    data = sample.data[:place] + instead + sample.data[place + 1 :]
    check_tiling(sample.format, sample.decode([data]), data)


def check_parts(sample: TraceSample, parts: Sequence[bytes]) -> None:
    """Check that a decoder can be fed again after a call of `end`, as with datagrams: offsets continue to count, and
    truncated bytes do not change the records that follow."""
    decoder = sample.decoder()
    records: list[Record] = []
    for part in parts:
        records += decoder.feed(part)
        records += decoder.end()
        if decoder.pending:
            _fail(f"`end` must leave no bytes; {decoder.pending} are pending")
    check_tiling(sample.format, records, b"".join(parts))


def check_noise(format_: Format, data: bytes, cuts: Iterable[int], limit: int) -> None:
    """Check that `data`, which may be any bytes, gives the same records whether it arrives in one part or cut at the
    given positions. Check also that no record exceeds the limit."""
    whole, decoder = format_.decoder(limit, None).feed(data), format_.decoder(limit, None)
    records: list[Record] = []
    for part in cut(data, cuts):
        records += decoder.feed(part)
        if decoder.pending > limit:
            _fail(f"`pending` must not exceed the limit, {limit}; it is {decoder.pending}")
    _same(records, whole, "records must not depend on how the input is cut")
    check_tiling(format_, records + decoder.end(), data)


def check_limit(sample: TraceSample, limit: int) -> None:
    """Check that no record exceeds a limit, and that the records tile the input."""
    records = decode(sample.format.decoder(limit, None), [sample.data])
    for record in records:
        if record.size > limit:
            _fail(f"no record may exceed the limit, {limit}; not {record}")
    check_tiling(sample.format, records, sample.data)


def check_settled(sample: TraceSample, place: int) -> tuple[list[Record], list[Record]]:
    """Check that a `SettlingDecoder` can settle at a position: decode the last record before the record's terminator
    arrives. All records must tile the input. Return the records of `settle`, and all records."""
    decoder = sample.decoder()
    if not isinstance(decoder, SettlingDecoder):
        return [], sample.records
    records = decoder.feed(sample.data[:place])
    waited = decoder.pending
    settled = decoder.settle()
    if sum(record.size for record in settled) not in {0, waited}:
        _fail(f"`settle` must return all pending bytes or none; not so at offset {place}")
    records += settled + decoder.feed(sample.data[place:]) + decoder.end()
    check_tiling(sample.format, records, sample.data)
    return settled, records


def check_lacking(sample: TraceSample, place: int) -> None:
    """Check that `lacking` of an `EndingDecoder` names the same missing end mark as the gap that `end` returns. Check
    nothing while the decoder holds bytes of an unfinished record."""
    decoder = sample.decoder()
    decoder.feed(sample.data[:place])
    if not isinstance(decoder, EndingDecoder) or decoder.pending:
        return
    lacking = decoder.lacking
    missed = [r for r in decoder.end() if r.kind == Kind.GAP and r.name == Reason.TRUNCATED]
    found = {(r.stream, r.detail.detail) for r in missed if isinstance(r.detail, Missing)}
    expected = {(decoder.stream, lacking)} if lacking else set()
    if found != expected:
        _fail(f"`end` must report what `lacking` states at offset {place}: {expected}, not {found}")


def noise(samples: Sequence[bytes], rng: random.Random) -> bytes:
    """Return random bytes mixed with pieces of samples, so that the noise passes a decoder's first check."""
    data = bytearray()
    for _ in range(rng.randrange(1, 30)):
        source = rng.choice(samples)
        begin = rng.randrange(len(source) + 1)
        data += rng.choice(
            [rng.randbytes(rng.randrange(300)), source[begin : begin + rng.randrange(900)]]
        )
    return bytes(data)


def check_format(format_: Format, samples: Sequence[TraceSample], *, seed: int = 0) -> None:
    """Make all checks of this module with a format and its samples.

    Together, the samples must show each reason and flaw that the format declares. At least one sample must have
    readable records. Raise AssertionError if the format breaks a rule."""
    rng = random.Random(seed)  # noqa: S311 - chooses positions
    for number, sample in enumerate(samples):
        try:
            _check_sample(sample, rng)
        except Exception as error:
            error.add_note(f"sample {number}, {sample.data[:40]!r}")
            raise
    _check_declared(format_, samples)
    for _ in range(PLACES):
        data = noise([sample.data for sample in samples], rng)
        cuts = rng.sample(range(len(data) + 1), min(8, len(data)))
        check_noise(format_, data, cuts, rng.choice((*LIMITS, 65536)))


def _check_declared(format_: Format, samples: Sequence[TraceSample]) -> None:
    """Check that the samples show readable records, and all flaws and reasons that the format declares."""
    records = [record for sample in samples for record in sample.records]
    if all(record.kind == Kind.MALFORMED for record in records):
        _fail("no sample has a readable record")
    flaws = {record.flaw for record in records if record.kind != Kind.MALFORMED} - {None}
    reasons = {record.flaw for record in records if record.kind == Kind.MALFORMED}
    for declared, shown, name in (
        (format_.flaws, flaws, "flaws"),
        (format_.malformed, reasons, "malformed"),
    ):
        if more := sorted(declared - shown):
            _fail(f"no sample shows these values of `{name}`: {', '.join(more)}")


def _check_sample(sample: TraceSample, rng: random.Random) -> None:
    data, size = sample.data, len(sample.data)
    check_tiling(sample.format, sample.records, data)
    check_bytewise(sample, range(min(size, 5000)))
    for limit in LIMITS:
        check_limit(sample, limit)
    for place in sorted({0, size, *rng.sample(range(size + 1), min(size + 1, PLACES))}):
        check_resumed(sample, place)
        check_waiting(sample, place)
        check_given_up(sample, place)
        check_truncated(sample, place)
        check_evicted(sample, place, rng.choice((1, 8)))
        check_settled(sample, place)
        check_lacking(sample, place)
        if place < size:
            check_damaged(sample, place, rng.choice((b"\n", b'"', b"\0", b"\xff", b"")))
        damaged = bytearray(data)
        for at in rng.sample(range(size), min(size, 4)):
            damaged[at] = rng.randrange(256)
        check_cut(sample, bytes(damaged), rng.sample(range(size + 1), min(size, 8)))
        check_parts(sample, [data[:place], data[place:], data])
