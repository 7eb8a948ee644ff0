"""Members whole, torn and damaged; cut anywhere; gone on with from any place that was named."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail import inflate
from tailrace.sources.tail.inflate import PADDING_MAX, Content, Inflater, InflationBegun, LostPart
from tailrace.spool.payloads import Member
from tests.forms import examples

BEGIN = Member(0, 0)


def events(data, sizes=(65_536,), at=BEGIN, *, last=True):
    """All that comes out of these bytes, fed in pieces of these sizes, over and over."""
    inflater = Inflater(at)
    data, found, fed = data[at.raw :], [], 0
    while True:
        event = inflater.next()
        if event is None and data:
            size = sizes[fed % len(sizes)]
            inflater.feed(data[:size])
            data, fed = data[size:], fed + 1
        elif event is None:
            event = inflater.next(last=True) if last else None
            if event is None:
                return found
        if event is not None:
            found.append(event)


def content(found):
    return b"".join(event.data for event in found if isinstance(event, Content))


def others(found):
    return [event for event in found if not isinstance(event, Content)]


def is_bad(event):
    return isinstance(event, LostPart) and event.detail == "bad_member"


def is_torn(event):
    return isinstance(event, LostPart) and event.detail == "torn_member"


def lines(seed, size):
    random_ = random.Random(seed)
    return b"".join(b'{"id":%d}\n' % random_.randrange(10**9) for _ in range(size // 15 + 1))[:size]


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def member(data, level=6):
    return gzip.compress(data, level, mtime=0)


def test_members_follow_one_another():
    first, second = member(b"one"), member(b"two")
    assert events(first + second) == [
        InflationBegun(BEGIN),
        Content(b"one"),
        InflationBegun(Member(len(first), 3)),
        Content(b"two"),
    ]


def test_a_member_that_is_not_whole_yet_is_waited_for():
    data = member(lines(1, 1000))
    found = events(data[:-9], last=False)
    assert others(found) == [InflationBegun(BEGIN)]
    assert content(events(data)) == lines(1, 1000)


def test_an_empty_file_has_nothing():
    assert events(b"") == []


@pytest.mark.parametrize("cut", [1, 5, 10, 11, 40, 200, 300])
@pytest.mark.parametrize("make", [lines, noise])
def test_a_torn_member_ends_where_the_next_one_begins(cut, make):
    """As a killed writer leaves it: nothing but the bytes of the first member that were written."""
    torn = member(make(1, 1000))[:-cut]
    whole = member(make(2, 1000))
    found = events(torn + whole + whole)
    assert others(found) == [
        InflationBegun(BEGIN),
        LostPart("torn_member", 0, b"", Member(len(torn), len(content(found)) - 2000)),
        InflationBegun(Member(len(torn), len(content(found)) - 2000)),
        InflationBegun(Member(len(torn + whole), len(content(found)) - 1000)),
    ]
    assert content(found) == content(events(torn)) + make(2, 1000) * 2
    assert make(1, 1000).startswith(content(events(torn)))


def stored(data, size):
    """A member's header, and the beginning of a stored block of this size."""
    return member(b"")[:10] + b"\0" + struct.pack("<HH", size, size ^ 0xFFFF) + data


def test_nothing_of_what_follows_a_torn_member_is_taken_for_its_content():
    """A stored block takes any bytes: the next members lie in what was to be its content."""
    torn = stored(noise(1, 1000), 65_535)
    rest = b"".join(member(noise(n, 3000)) for n in range(40))
    found = events(torn + rest)
    assert content(found) == noise(1, 1000) + b"".join(noise(n, 3000) for n in range(40))


def test_what_only_looks_like_a_beginning_tears_no_member():
    data = noise(1, 500) + b"\x1f\x8b\x08" + b"\xff" * 100
    found = events(stored(data, len(data)) + b"\xff" * 500)
    assert content(found) == data
    assert {type(event) for event in found if not is_bad(event)} == {InflationBegun, Content}
    assert any(map(is_bad, found))


def test_all_that_a_torn_member_says_is_content():
    """However little of it makes however much."""
    data = member(bytes(CHUNK_MAX + 10_000))
    for cut in range(12, len(data)):
        expected = zlib.decompressobj(31).decompress(data[:cut])
        assert content(events(data[:cut])) == expected


def test_a_member_inside_a_member_is_content():
    """Compressed data compressed again is stored as it is, its beginning included."""
    inner = member(lines(1, 100_000)) + member(noise(1, 2 * CHUNK_MAX))
    outer = member(inner)
    assert inner in outer or outer.count(b"\x1f\x8b\x08") > 1
    assert others(events(outer)) == [InflationBegun(BEGIN)]
    assert content(events(outer)) == inner


def test_the_end_of_a_torn_last_member_is_named():
    data = member(lines(1, 1000))
    assert others(events(data[:-3])) == [
        InflationBegun(BEGIN),
        LostPart("torn_member", 0, b"", Member(len(data) - 3, 1000)),
    ]
    assert content(events(data[:-3])) == lines(1, 1000)


def test_what_is_between_members_is_bad():
    first, second = member(b"one"), member(b"two")
    found = events(first + b"\0\0garbage\x1f\x8b" + second)
    assert others(found) == [
        InflationBegun(BEGIN),
        LostPart("bad_member", 2, b"", Member(len(first) + 2, 3)),
        LostPart("bad_member", 9, b"garbage\x1f\x8b", Member(len(first) + 11, 3)),
        InflationBegun(Member(len(first) + 11, 3)),
    ]
    assert content(found) == b"onetwo"


@pytest.mark.parametrize("size", [1, 7, 512, 65_536])
def test_nuls_that_fill_the_last_block_are_padding(size):
    """As tar, tapes and `dd conv=sync` leave them. Any other NULs stand for bytes that are gone."""
    first, second = member(b"one"), member(b"two")
    for members in (first, first + second):
        padding = -len(members) % 512
        for blocks in (0, 1, 300):
            padded = members + bytes(padding + 512 * blocks)
            found = events(padded, [size])
            assert {type(event) for event in found} == {InflationBegun, Content}
            assert content(found) == (b"one" if members == first else b"onetwo")
            inflater = Inflater(BEGIN)
            inflater.feed(padded)
            while inflater.next():
                pass
            assert not inflater.waits
            nuls = padding + 512 * blocks + 1
            bad = LostPart(
                "bad_member", nuls, b"", Member(len(members) + nuls, len(content(found)))
            )
            assert others(events(members + bytes(nuls), [size]))[-1] == bad
            found = events(padded + second, [size])
            assert [event.size for event in found if is_bad(event)] == [nuls - 1]
            assert content(found).endswith(b"two")


def test_more_nuls_than_a_block_of_a_tape_are_a_loss():
    """As in a file that was preallocated, and whose writer died."""
    first = member(b"one")
    nuls = PADDING_MAX + 512 - (len(first) + PADDING_MAX) % 512
    bad = LostPart("bad_member", nuls, b"", Member(len(first) + nuls, 3))
    assert others(events(first + bytes(nuls), [65_536]))[1:] == [bad]
    inflater = Inflater(BEGIN)
    inflater.feed(first)
    while inflater.next():
        pass
    assert not inflater.pad(nuls)
    assert inflater.pad(nuls - 512)


def test_a_member_with_a_wrong_checksum_keeps_its_content_and_its_last_bytes_are_bad():
    first, second = member(lines(1, 1000)), member(b"two")
    damaged = bytearray(first)
    damaged[-8] ^= 1
    found = events(bytes(damaged) + second)
    bad = [event for event in found if is_bad(event)]
    assert content(found) == lines(1, 1000) + b"two"
    assert sum(event.size for event in bad) >= 4
    assert bad[-1].after == Member(len(first), 1000)


def test_damage_costs_no_more_than_its_member():
    members = [member(lines(n, 2000)) for n in range(3)]
    for at in range(12, len(members[1]) - 8, 7):
        damaged = bytearray(members[1])
        damaged[at] ^= 0xFF
        found = content(events(members[0] + bytes(damaged) + members[2]))
        assert found.startswith(lines(0, 2000))
        assert found.endswith(lines(2, 2000))


def test_content_before_the_damage_is_kept_to_the_byte():
    data = zlib.compressobj(0, wbits=31)
    stored = data.compress(noise(1, 1000)) + data.flush()
    broken = stored[: 10 + 5 + 700] + b"\xff" * 2000
    found = events(broken)
    assert content(found).startswith(noise(1, 1000)[:700])


def test_content_comes_in_pieces_however_far_it_inflates():
    bomb = member(bytes(50 * 2**20), 9)
    sizes = [len(event.data) for event in events(bomb) if isinstance(event, Content)]
    assert sum(sizes) == 50 * 2**20
    assert max(sizes) <= CHUNK_MAX


def test_the_beginning_of_a_beginning_is_waited_for_and_is_bad_at_last():
    first = member(b"one")
    assert others(events(first + b"\x1f\x8b", last=False)) == [InflationBegun(BEGIN)]
    assert others(events(first + b"\x1f\x8b"))[1:] == [
        LostPart("bad_member", 2, b"\x1f\x8b", Member(len(first) + 2, 3))
    ]


def test_a_magic_number_that_begins_no_member_costs_nothing():
    """Stored bytes that look like the beginning of a member and are none."""
    inner = b"\x1f\x8b\x08" + noise(3, 500) + b"\x1f\x8b\x08\x00" + noise(4, 100_000)
    packed = zlib.compressobj(0, wbits=31)
    data = packed.compress(inner) + packed.flush()
    assert others(events(data)) == [InflationBegun(BEGIN)]
    assert content(events(data)) == inner


def fake(seed):
    """The beginning of a member that does not go on as one."""
    return stored(noise(seed, 20), 20) + b"\xff" * 100


@pytest.mark.parametrize("before", [b"", member(b"one")])
@pytest.mark.parametrize("sizes", [(1,), (50,), (1000,)])
def test_what_begins_like_a_member_and_does_not_go_on_as_one_is_bad(before, sizes):
    data = before + b"garbage" + fake(1) + b"garbage" + member(b"two")
    assert content(events(data, sizes)) == content(events(before)) + b"two"
    assert bad(events(data, sizes)).endswith(fake(1) + b"garbage")


@pytest.mark.parametrize("torn", [member(lines(1, 500))[:-20], stored(noise(2, 100), 100)])
def test_nor_does_it_end_a_torn_member(torn):
    data = torn + fake(1) + member(b"two")
    for sizes in ((1,), (1000,)):
        found = events(data, sizes)
        assert content(found) == content(events(data))
        assert len(torn) not in [e.after.raw for e in found if is_torn(e)]


@pytest.mark.parametrize("cut", range(30))
def test_a_place_after_bad_bytes_does_not_prove_what_follows(cut):
    data = member(b"one") + b"garbage" + fake(1) + b"garbage" + member(b"two")
    at = len(member(b"one")) + cut
    found = events(data[:at], last=False)
    places = [event.after for event in found if is_bad(event)]
    for place in places:
        assert content(events(data, at=place)) == b"two"


@st.composite
def files(draw):
    """Members, torn and damaged ones, and other bytes, in any order."""
    data = b""
    for seed in range(draw(st.integers(0, 4))):
        size = draw(st.sampled_from([0, 1, 30, 1000, 20_000]))
        part = member((lines if draw(st.booleans()) else noise)(seed, size))
        match draw(st.sampled_from(["whole", "whole", "torn", "damaged", "fake", "other"])):
            case "torn":
                part = part[: draw(st.integers(0, len(part)))]
            case "damaged":
                at = draw(st.integers(0, len(part) - 1))
                part = part[:at] + bytes([part[at] ^ 0x55]) + part[at + 1 :]
            case "fake":
                part = fake(seed)
            case "other":
                part = draw(st.binary(max_size=50))
        data += part
    return data


@examples(100)
@given(files(), st.lists(st.integers(20, 5000), min_size=1, max_size=5))
def test_how_the_bytes_are_cut_changes_nothing(data, sizes):
    whole, cut = events(data), events(data, sizes)
    assert content(cut) == content(whole)
    assert [e for e in others(cut) if not is_bad(e)] == [e for e in others(whole) if not is_bad(e)]
    assert bad(cut) == bad(whole)


def bad(found):
    return b"".join(event.data for event in found if is_bad(event))


@examples(100)
@given(files(), st.lists(st.integers(20, 5000), min_size=1, max_size=5))
def test_from_each_place_that_is_named_the_rest_comes_again(data, sizes):
    found = events(data, sizes)
    for number, event in enumerate(found):
        if isinstance(event, Content):
            continue
        at = event.member if isinstance(event, InflationBegun) else event.after
        rest = events(data, at=at)
        assert content(rest) == content(found[number + 1 :])
        assert at.content == len(content(found[:number]))


@examples(100)
@given(files())
def test_what_is_bad_is_handed_on_as_it_is(data):
    reached = 0
    for event in others(events(data)):
        after = event.member if isinstance(event, InflationBegun) else event.after
        assert reached <= after.raw <= len(data)
        reached = after.raw
        if is_bad(event):
            assert data[event.after.raw - event.size : event.after.raw] == event.data


def test_a_header_with_a_name_is_a_beginning_too():
    named = gzip.compress(b"content")
    flagged = named[:3] + b"\x08" + named[4:10] + b"trace.pfw\0" + named[10:]
    torn = member(lines(1, 500))[:-20]
    found = events(torn + flagged)
    assert content(found).endswith(b"content")


def test_what_looks_like_many_members_is_tried_once_each(monkeypatch):
    """However the bytes come: else a file of nothing but beginnings holds up all others."""
    tried = []
    real = inflate._inflates
    monkeypatch.setattr(
        inflate, "_inflates", lambda data, last: tried.append(len(data)) or real(data, last)
    )
    inflater = Inflater(Member(0, 0))
    inflater.feed(b"\x1f\x8b\x08\0")
    pieces = 100
    for _ in range(pieces):
        inflater.feed(b"\x1f\x8b\x08\0" * 100)
        while inflater.next() is not None:
            pass
    assert len(tried) <= 100 * pieces + 10 * pieces
    assert max(tried) <= inflate.DOUBT_MAX


def test_noise_that_always_ends_in_what_may_be_a_member_is_not_kept():
    inflater = Inflater(Member(0, 0))
    noise = b"x" * 5000 + b"\x1f\x8b\x08\x00"
    bad = 0
    for _ in range(200):
        inflater.feed(noise)
        while (event := inflater.next()) is not None:
            bad += event.size if is_bad(event) else 0
        assert len(inflater._input) < 2 * len(noise)
    assert bad == 200 * len(noise) - 5


FALSE = (
    b"\x1f\x8b\x08\x00",
    b"\x1f\x8b\x08\0\0\0\0\0\0\3",
    b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\x4b\x4c\x4a" * 30,
)
"""Bytes like those of a member that begins, over and over."""


@pytest.mark.parametrize(
    ("where", "false"),
    [*(("stored", false) for false in FALSE), *(("bad", false) for false in FALSE[:2])],
)
def test_false_beginnings_cost_few_trials_however_many_there_are(where, false, monkeypatch):
    """A trial costs as much as inflating some KiB."""
    tried = []
    trial = inflate._trial
    monkeypatch.setattr(inflate, "_trial", lambda *given: tried.append(1) or trial(*given))
    body = false * (500_000 // len(false))
    data = member(body, 0) if where == "stored" else member(b"x") + body
    found = events(data)
    assert content(found) == (body if where == "stored" else b"x")
    # A member that is inside another one takes two.
    assert len(tried) <= 2 * inflate.TRIALS_MAX * (len(data) // inflate.TRIALS_BLOCK + 2)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_false_beginnings_are_the_same_however_the_bytes_are_cut(drawn):
    false = drawn.draw(st.sampled_from(FALSE))
    whole = member(b"whole")
    parts = drawn.draw(
        st.lists(
            st.sampled_from([member(false * 3000, 0), member(false * 3000, 0)[:-2000], false * 9000, whole, noise(1, 3000)]),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    data = whole + b"".join(parts)
    sizes = drawn.draw(st.lists(st.integers(1, 70_000), min_size=1, max_size=4))
    one, other = events(data), events(data, [max(size, 500) for size in sizes])
    assert content(one) == content(other)
    assert [each for each in others(one) if not is_bad(each)] == [
        each for each in others(other) if not is_bad(each)
    ]


UNFINISHED = """
import zlib
from tailrace.sources.tail.content import BEGIN
from tailrace.sources.tail.inflate import Inflater
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
text = b"".join(b'{"id":%d,"ts":%d}\\n' % (n, n * 7919) for n in range(8000))
deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
data = deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)
def unfinished():
    one = Inflater(BEGIN)
    one.feed(data)
    while one.next() is not None:
        pass
    assert one.waits
    return one
kept = [unfinished() for _ in range(100)]
before = resident()
kept += [unfinished() for _ in range(2000)]
print((resident() - before) // 2000)
"""


def test_a_member_that_is_not_over_takes_no_more_than_is_said():
    """In a process of its own: the library's memory is not the interpreter's."""
    done = subprocess.run(
        [sys.executable, "-c", UNFINISHED], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= inflate.INFLATER_BYTES
