"""Durations as people read them."""

from __future__ import annotations

import pytest

from tailrace.cli.output.durations import spell


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, None),
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (1_234_567, "1.235 ms"),
        (-1_500, "-1.5 us"),
        (59 * 10**9, "59 s"),
        (86_400 * 10**9, "86400 s"),
    ],
)
def test_nanoseconds(duration, text):
    assert spell(duration, "ns") == text


def test_ticks_stay_as_they_are():
    assert spell(123_456, "ticks") == "123456"
