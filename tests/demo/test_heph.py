from __future__ import annotations

import json
from itertools import pairwise

from tailrace.decoding.formats.heph import FORMAT
from tailrace.demo.binary import datagrams, epoch, heph_events, numbers


def decode(data):
    decoder = FORMAT.decoder(65_536, None)
    records = decoder.feed(data)
    assert decoder.pending == 0
    return records


def test_the_same_seed_gives_the_same_events_and_another_seed_others():
    assert list(heph_events(1, 500)) == list(heph_events(1, 500))
    assert list(heph_events(1, 500)) != list(heph_events(2, 500))


def test_every_stream_counts_without_holes_and_ends_do_not_go_back():
    packets = list(heph_events(3, 2000, streams=(5, 9), first=2**32 - 100))
    records = decode(b"".join(packet.data for packet in packets))
    for stream in (5, 9):
        own = [packet for packet in packets if packet.stream == stream]
        read = [record for record in records if record.stream == str(stream)]
        assert [p.counter for p in own] == list(range(2**32 - 100, 2**32 - 100 + len(own)))
        assert [r.counter for r in read] == [p.counter % 2**32 for p in own]
        assert all(a.end <= b.end for a, b in pairwise(read))
        assert any(a.start > b.start for a, b in pairwise(read))


def test_events_are_readable_and_of_every_attribute_type():
    records = decode(epoch(10**18) + b"".join(packet.data for packet in heph_events(4, 2000)))
    assert records[0].detail.epoch == 10**18
    assert {record.flaw for record in records} == {None}
    attributes = [json.loads(record.attributes or "{}") for record in records[1:]]
    values = [value for some in attributes for value in some.values()]
    assert {type(value) for value in values} == {int, float, str, list}
    assert min(value for value in values if type(value) is int) < 0


def test_datagrams_hold_whole_packets_within_the_limit_unless_one_is_longer():
    packets = [packet.data for packet in heph_events(5, 300)]
    joined = list(datagrams(iter(packets)))
    assert b"".join(joined) == b"".join(packets)
    assert 1300 < len(joined[0]) <= 1432
    assert sum(len(numbers(datagram)) for datagram in joined) == 300
    assert list(datagrams(iter(packets[:3]), limit=10)) == packets[:3]


def test_the_numbers_of_a_datagram_are_those_of_its_events():
    packets = list(heph_events(6, 10, streams=(7, 8)))
    datagram = epoch(1) + b"".join(packet.data for packet in packets)
    assert numbers(datagram) == [(packet.stream, packet.counter) for packet in packets]
