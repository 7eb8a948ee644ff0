"""The demonstration sends exactly what it says: read back by the decoders."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from tailrace.decoding.formats.heph import FORMAT as HEPH
from tailrace.decoding.formats.jets import FORMAT as JETS
from tailrace.demo.producers import EVENTS, PRODUCERS, heph_tcp, heph_udp, jets_tcp

EPOCH = 1_700_000_000_000_000_000


def decode(format_, chunks):
    decoder = format_.decoder(2**20, None)
    records = [record for chunk in chunks for record in decoder.feed(chunk)]
    assert decoder.pending == 0
    assert {record.flaw for record in records} == {None}
    return records


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_datagrams_lack_exactly_the_numbers_named(seed):
    traffic = heph_udp(seed, EPOCH)
    epoch, *events = decode(HEPH, traffic.chunks)
    assert epoch.detail.epoch == EPOCH
    seen = defaultdict(list)
    for event in events:
        seen[event.stream].append(event.counter)
    holes = {
        (stream, number)
        for stream, numbers in seen.items()
        for number in set(range(max(numbers))) - set(numbers)
    }
    assert holes == traffic.numbers
    assert len(holes) > 100
    assert Counter(stream for stream, _ in holes) == traffic.lost
    assert len(events) == traffic.events == EVENTS - len(holes)
    assert any(numbers != sorted(numbers) for numbers in seen.values())
    assert max(map(len, traffic.chunks)) <= 1432


def test_the_stream_of_events_is_whole():
    traffic = heph_tcp(1, EPOCH)
    assert traffic.lost == {}
    assert traffic.numbers == set()
    _, *events = decode(HEPH, traffic.chunks)
    assert len(events) == traffic.events == EVENTS
    counters = defaultdict(list)
    for event in events:
        counters[event.stream].append(event.counter)
    assert all(numbers == list(range(len(numbers))) for numbers in counters.values())


def test_the_trace_lacks_as_many_events_as_its_footer_tells():
    traffic = jets_tcp(1, EPOCH)
    records = decode(JETS, traffic.chunks)
    kinds = Counter(record.kind for record in records)
    totals = records[-1].detail.totals
    assert totals["begin"] == kinds["begin"] == kinds["end"]
    assert totals["annotation"] == kinds["annotation"]
    assert {"": totals["instant"] - kinds["instant"]} == traffic.lost
    assert traffic.lost[""] > 0
    assert traffic.events == kinds["begin"] + kinds["annotation"] + kinds["instant"]


def test_each_producer_is_repeatable_and_has_a_source_of_its_own():
    assert len({producer.source for producer in PRODUCERS}) == len(PRODUCERS)
    for producer in PRODUCERS:
        traffic = producer.traffic(5, EPOCH)
        assert traffic == producer.traffic(5, EPOCH)
        assert traffic.chunks != producer.traffic(6, EPOCH).chunks
