from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.demo.binary import heph_events
from tests.traffic.mangler import DELAYED, DROPPED, DUPLICATED, REORDERED, Chances, Mangler, mangle

PACKETS = list(heph_events(1, 400, streams=(0, 1)))
DATAGRAMS = [packet.data for packet in PACKETS]
CHANCES = st.tuples(*[st.floats(0, 0.3)] * 4).map(lambda chances: Chances(*chances))


@given(st.integers(), CHANCES, st.integers(0, 400))
def test_the_log_explains_what_came_out_exactly(seed, chances, length):
    out, log = mangle(seed, DATAGRAMS[:length], chances)
    expected = Counter({(p.stream, p.counter): 1 for p in PACKETS[:length]})
    for deed in log:
        if deed.action == DROPPED:
            del expected[deed.stream, deed.counter]
        elif deed.action == DUPLICATED:
            expected[deed.stream, deed.counter] += 1
    names = {packet.data: (packet.stream, packet.counter) for packet in PACKETS}
    assert Counter(names[datagram] for datagram in out) == expected


@given(st.integers())
def test_the_same_seed_does_the_same(seed):
    chances = Chances(0.1, 0.1, 0.1, 0.1)
    assert mangle(seed, DATAGRAMS, chances) == mangle(seed, DATAGRAMS, chances)


def test_what_is_not_in_the_log_keeps_its_order():
    out, log = mangle(7, DATAGRAMS, Chances(0.1, 0.1, 0.1, 0.1))
    touched = {(deed.stream, deed.counter) for deed in log}
    untouched = [p.data for p in PACKETS if (p.stream, p.counter) not in touched]
    assert [datagram for datagram in out if datagram in set(untouched)] == untouched


@pytest.mark.parametrize(
    ("chances", "action", "least", "most"),
    [
        (Chances(reorder=0.2), REORDERED, 1, 4),
        (Chances(delay=0.05), DELAYED, 5, 40),
    ],
)
def test_what_is_held_back_is_passed_by_as_many_as_the_log_says(chances, action, least, most):
    out, log = mangle(3, DATAGRAMS, chances)
    assert {deed.action for deed in log} == {action}
    places = {datagram: place for place, datagram in enumerate(out)}
    numbered = {(p.stream, p.counter): index for index, p in enumerate(PACKETS)}
    for deed in log:
        index = numbered[deed.stream, deed.counter]
        assert least <= deed.by <= most
        if index + deed.by < len(DATAGRAMS):
            passed = {
                i
                for i in range(index + 1, len(DATAGRAMS))
                if places[DATAGRAMS[i]] < places[DATAGRAMS[index]]
            }
            assert max(passed, default=index) <= index + deed.by
            held = {numbered[d.stream, d.counter] for d in log}
            assert set(range(index + 1, index + deed.by + 1)) - held <= passed


def test_spared_datagrams_are_left_alone():
    spared = set(DATAGRAMS[::3])
    out, log = mangle(5, DATAGRAMS, Chances(drop=1.0), lambda datagram: datagram in spared)
    assert out == DATAGRAMS[::3]
    assert len(log) == len(DATAGRAMS) - len(spared)


def test_a_mangler_tells_the_counters_of_a_deed_by_stream():
    mangler = Mangler(1, Chances(drop=1.0))
    for datagram in DATAGRAMS[:50]:
        assert mangler.push(datagram) == []
    lost = mangler.counters(DROPPED)
    assert lost == {s: [p.counter for p in PACKETS[:50] if p.stream == s] for s in (0, 1)}
    assert mangler.counters(DELAYED) == {}
