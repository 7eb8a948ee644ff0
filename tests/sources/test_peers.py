from __future__ import annotations

from tailrace.sources.udp import Newcomers, Peers


def add(peers, *names):
    """Peers with the port as their session; the sessions of those that are pushed out."""
    out = []
    for port in names:
        if peers.refresh(("h", port), port) is None:
            out += peers.make_room()
            peers.add(("h", port), port, port)
    return out


def test_the_one_silent_longest_goes_first():
    peers = Peers(3)
    assert add(peers, 1, 2, 3, 4, 5) == [1, 2]
    assert len(peers) == 3


def test_a_flood_of_addresses_pushes_out_none_that_was_heard_twice():
    peers = Peers(5)
    add(peers, 1, 2, 3, 1, 2, 3)
    assert add(peers, *range(100, 1000)) == list(range(100, 998))
    assert [peers.refresh(("h", port), 0).number for port in (1, 2, 3)] == [1, 2, 3]


def test_when_all_were_heard_twice_the_one_silent_longest_goes():
    peers = Peers(2)
    add(peers, 1, 2, 2, 1)
    assert add(peers, 3) == [2]


def test_the_silent_are_forgotten():
    peers = Peers(9)
    add(peers, 1, 2, 3, 1)
    assert peers.refresh(("h", 2), 10).number == 2
    assert sorted(peers.forget_silent(5)) == [1, 3]
    assert len(peers) == 1


def test_a_peer_is_found_by_its_session_as_long_as_it_is_known():
    peers = Peers(2)
    add(peers, 1, 2, 1)
    assert peers.of_session(1).address == ("h", 1)
    add(peers, 3)
    assert peers.of_session(2) is None
    assert peers.of_session(3) is not None
    assert [*peers.forget_silent(9)] == [3, 1]
    assert peers.of_session(3) is None


def test_newcomers_are_as_many_as_come_in_a_second_and_more_after_none_did():
    newcomers = Newcomers(2, 3, 100.0)
    assert [newcomers.admit(100.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert [newcomers.admit(100.6) for _ in range(3)] == [True, False, False]
    assert [newcomers.admit(101.0) for _ in range(2)] == [True, False]
    assert [newcomers.admit(999.0) for _ in range(6)] == [True] * 5 + [False]
