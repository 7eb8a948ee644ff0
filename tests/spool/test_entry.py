from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest
from hypothesis import assume, given, strategies as st

from tailrace.spool.disk import SYSTEM
from tailrace.spool.entry import (
    PAYLOAD_MAX,
    Datagrams,
    Entry,
    EntryKind,
    measure_datagrams,
    pack_datagrams,
)
from tailrace.spool.segment import COPIED_MAX, HEAD, HEAD_SIZE, WINDOW, Header, Spare, find, scan
from tests.forms import examples

SALT = 0x7A11_4ACE

# Payloads with runs of zeros, and with what could be taken for a frame, are the interesting ones.
payloads = st.one_of(
    st.binary(max_size=80),
    st.integers(0, 200).map(bytes),
    st.binary(max_size=20).map(lambda data: data + bytes(40)),
    st.integers(COPIED_MAX - 1, COPIED_MAX + 1).map(bytes),
)
things = st.tuples(
    st.sampled_from(EntryKind),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    payloads,
)


def chain(start: int, parts: list[tuple[EntryKind, int, int, bytes]]) -> list[Entry]:
    """Entries that follow one another from a position on."""
    entries = []
    for kind, session, time_ns, payload in parts:
        end = start + HEAD_SIZE + len(payload)
        entries.append(Entry(start, end, kind, session, time_ns, payload))
        start = end
    return entries


def frames(entries: list[Entry], synced: int, salt: int) -> bytes:
    """Encode entries as frames, as the docstring of `spool.segment` describes them."""
    encoded = b""
    for position, _, kind, session, time_ns, payload in entries:
        covered = pack("<QQQq", position, kind | (position - synced) << 8, session, time_ns)
        checksum = crc32(covered + payload, salt)
        encoded += pack("<II", 24 + len(payload), checksum) + covered + payload
    return encoded


logs = st.builds(chain, st.integers(0, 2**50), st.lists(things, min_size=1, max_size=8))


def untouched(entries: list[Entry], original: bytes, damaged: bytes) -> list[Entry]:
    """The entries before the first one that has a byte not as it was written."""
    start = entries[0].position
    kept = []
    for entry in entries:
        span = slice(entry.position - start, entry.end - start)
        if damaged[span] != original[span]:
            break
        kept.append(entry)
    return kept


def test_a_segment_has_the_frames_of_its_entries_however_much_one_write_takes(tmp_path):
    header = Header(b"x" * 16, first=1000, time_ns=0)
    writer = Spare.prepare(tmp_path / "next.segment", 1, SYSTEM).become(header)
    data, encoded = (EntryKind.DATA, 1, 5), b""
    smallest = [COPIED_MAX + 1] * (WINDOW // COPIED_MAX)  # of which one write takes most pieces
    for sizes in (
        [70],
        [WINDOW // 5] * 12 + [0],
        [0, 1],
        smallest,
        [COPIED_MAX, COPIED_MAX + 1, 0],
    ):
        start = writer.segment.end
        entries = chain(start, [(*data, bytes(size)) for size in sizes])
        writer.append(entries)
        encoded += frames(entries, start, header.salt)
        assert writer.segment.bytes_at(1000, len(encoded) + 1) == encoded
    writer.close()


@given(logs)
def test_what_was_encoded_is_read_back(entries):
    data = frames(entries, entries[0].position, SALT)
    result = scan(data, entries[0].position, SALT)
    assert result.entries == entries
    assert (result.consumed, result.fault) == (len(data), None)


@given(logs, st.data())
def test_any_truncation_loses_only_the_tail(entries, draw):
    start = entries[0].position
    data = frames(entries, start, SALT)
    cut = draw.draw(st.integers(0, len(data)))
    result = scan(data[:cut], start, SALT)
    assert result.entries == [entry for entry in entries if entry.end - start <= cut]
    assert result.consumed == sum(entry.end - entry.position for entry in result.entries)
    # Nothing but zeros left of a frame is what a head of zeros is; either is a tail to cut.
    assert (result.fault is None) == (result.consumed == cut)
    assert result.fault in {None, "torn", "zeros"}


@given(logs, st.data())
def test_any_zero_filled_tail_loses_only_the_tail(entries, draw):
    start = entries[0].position
    data = frames(entries, start, SALT)
    cut = draw.draw(st.integers(0, len(data)))
    damaged = data[:cut] + bytes(len(data) - cut)
    result = scan(damaged, start, SALT)
    assert result.entries == untouched(entries, data, damaged)
    assert (result.fault is None) == (damaged == data)


@given(logs, st.data())
@examples(300)
def test_any_flipped_byte_loses_only_its_entry_and_what_follows(entries, draw):
    start = entries[0].position
    data = frames(entries, start, SALT)
    place = draw.draw(st.integers(0, len(data) - 1))
    damaged = bytearray(data)
    damaged[place] ^= draw.draw(st.integers(1, 255))
    result = scan(bytes(damaged), start, SALT)
    assert result.entries == untouched(entries, data, bytes(damaged))
    assert result.fault in {"corrupt", "torn"}


@given(logs, logs)
def test_a_whole_frame_written_for_another_place_is_never_an_entry(entries, others):
    start, end = entries[0].position, entries[-1].end
    assume(others[0].position != end)
    data = frames(entries, start, SALT) + frames(others, others[0].position, SALT)
    result = scan(data, start, SALT)
    assert result.entries == entries
    assert result.fault == "corrupt"


def test_a_frame_says_up_to_where_the_log_was_synced_when_it_was_written():
    entries = chain(1000, [(EntryKind.TICK, 0, 0, b""), (EntryKind.DATA, 1, 5, b"x" * 70)])
    assert scan(frames(entries, 990, SALT), 1000, SALT).synced == 990
    assert scan(frames(entries, 1000, SALT), 1000, SALT).synced == 1000


def test_a_frame_of_another_spool_is_refused():
    """Without its salt a producer cannot write a frame, though it may know the position."""
    (entry,) = chain(0, [(EntryKind.DATA, 1, 5, b"forged")])
    assert scan(frames([entry], 0, SALT + 1), 0, SALT).fault == "corrupt"


def test_an_unknown_kind_is_refused_though_its_checksum_is_right():
    covered = (0, 99, 1, 5)
    body = HEAD.pack(24, 0, *covered)[8:]
    assert scan(HEAD.pack(24, crc32(body, SALT), *covered), 0, SALT).fault == "corrupt"


def test_the_largest_payload_is_read_and_a_larger_claim_is_corrupt():
    (entry,) = chain(0, [(EntryKind.DATA, 1, 5, b"x" * PAYLOAD_MAX)])
    frame = frames([entry], 0, SALT)
    assert scan(frame, 0, SALT).entries == [entry]
    (larger,) = chain(0, [(EntryKind.DATA, 1, 5, b"x" * (PAYLOAD_MAX + 1))])
    frame = frames([larger], 0, SALT)
    assert scan(frame, 0, SALT).fault == "corrupt"
    assert scan(frame[:-1], 0, SALT).fault == "corrupt"


@given(logs, st.binary(max_size=300))
def test_the_first_whole_frame_is_found_behind_any_noise(entries, noise):
    position = entries[0].position - len(noise)
    if position >= 0:
        data = noise + frames(entries, entries[0].position, SALT)
        assert find(data, position, SALT) == len(noise)


@given(logs, st.data())
def test_a_frame_that_is_not_whole_is_not_found(entries, draw):
    last = entries[-1]
    frame = frames([last], last.position, SALT)
    cut = draw.draw(st.integers(0, len(frame) - 1))
    assert find(frame[:cut], last.position, SALT) is None


@given(st.lists(st.binary(max_size=100), max_size=50))
def test_datagrams_keep_their_boundaries(datagrams):
    payload = pack_datagrams(datagrams)
    assert list(Datagrams(payload)) == datagrams
    assert measure_datagrams(payload) == (len(datagrams), len(b"".join(datagrams)))
    packed = Datagrams(payload)
    assert (len(packed), packed.length) == (len(datagrams), sum(map(len, datagrams)))
    assert payload[packed.begin :] == b"".join(datagrams)


@given(st.lists(st.binary(max_size=20), max_size=5), st.data())
def test_a_payload_that_is_not_datagrams_is_refused(datagrams, draw):
    payload = pack_datagrams(datagrams)
    cut = draw.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(ValueError, match="datagrams"):
        Datagrams(payload[:cut])
    with pytest.raises(ValueError, match="datagrams"):
        Datagrams(payload + b"x")
