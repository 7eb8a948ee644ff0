from __future__ import annotations

import pytest

from tailrace.demo.traffic import NAMED_MAX, Traffic, differences

TRAFFIC = Traffic([], 97, {"0": 2, "1": 1}, {("0", 5), ("0", 6), ("1", 9)}, "")
EVENTS = [{"source": "udp", "events": 97}, {"source": "other", "events": 3}]
MISSING = [
    {"source": "udp", "stream": "0", "events": 1, "reason": "network"},
    {"source": "udp", "stream": "0", "events": 1, "reason": "late_join"},
    {"source": "udp", "stream": "1", "events": 1, "reason": "network"},
    {"source": "other", "stream": "0", "events": 40, "reason": "network"},
]
NUMBERS = [
    {"source": "udp", "stream": "0", "seq": 5},
    {"source": "udp", "stream": "0", "seq": 6},
    {"source": "udp", "stream": "1", "seq": 9},
    {"source": "other", "stream": "0", "seq": 77},
]


def test_a_table_that_names_exactly_what_was_left_out_has_no_differences():
    assert differences("udp", TRAFFIC, EVENTS, MISSING, NUMBERS) == []


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (TRAFFIC._replace(events=98), "98 events were sent, 97 are in the table"),
        (TRAFFIC._replace(lost={"0": 3, "1": 1}), "stream 0: 3 left out, 2 found"),
        (TRAFFIC._replace(lost={"0": 2, "1": 1, "2": 1}), "stream 2: 1 left out, 0 found"),
        (TRAFFIC._replace(lost={"0": 2}), "stream 1: 0 left out, 1 found"),
        (
            TRAFFIC._replace(numbers={("0", 5), ("1", 9)}),
            "stream 0, number 6: found and not left out",
        ),
        (
            TRAFFIC._replace(numbers=TRAFFIC.numbers | {("1", 4)}),
            "stream 1, number 4: left out and not found",
        ),
    ],
)
def test_each_difference_is_named(traffic, said):
    assert differences("udp", traffic, EVENTS, MISSING, NUMBERS) == [said]


def test_a_source_of_which_nothing_came_differs():
    assert differences("udp", TRAFFIC, [], [], [])[0] == "97 events were sent, 0 are in the table"


def test_many_differences_are_summed_up():
    traffic = TRAFFIC._replace(numbers=TRAFFIC.numbers | {("0", 100 + n) for n in range(20)})
    lines = differences("udp", traffic, EVENTS, MISSING, NUMBERS)
    assert len(lines) == NAMED_MAX + 1
    assert lines[-1] == f"… and {20 - NAMED_MAX} more left out and not found"
