"""How long a source rests between two looks at its sockets."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tailrace.sources.connection import REST_MAX, REST_MIN, AdaptiveRest

ENOUGH = 1000


def rests(*sizes):
    rest = AdaptiveRest(ENOUGH)
    return [rest.after(size) for size in sizes]


def test_little_lengthens_the_rest_up_to_a_bound():
    assert rests(*[ENOUGH - 1] * 4) == [2 * REST_MIN, 4 * REST_MIN, 8 * REST_MIN, 16 * REST_MIN]
    assert rests(*[0] * 9)[-1] == REST_MAX


def test_much_shortens_it_to_none_and_little_begins_anew():
    assert rests(0, 0, ENOUGH, ENOUGH, ENOUGH, ENOUGH, 1) == [
        2 * REST_MIN, 4 * REST_MIN, 2 * REST_MIN, REST_MIN, 0.0, 0.0, REST_MIN,
    ]  # fmt: skip


@given(st.integers(1, 10**9))
def test_a_steady_flow_is_never_let_wait_for_more_than_its_socket_holds(rate):
    """Once the rest has found the rate, a rest brings less than twice `ENOUGH`, but for the shortest."""
    rest, seconds = AdaptiveRest(ENOUGH), 0.0
    for number in range(60):
        came = round(rate * seconds)
        if number > 30:
            assert came <= 2 * ENOUGH or seconds <= REST_MIN
        seconds = rest.after(came if seconds else min(rate, 10 * ENOUGH))
