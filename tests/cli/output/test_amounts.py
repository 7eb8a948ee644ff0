"""Amounts for eyes."""

from __future__ import annotations

import pytest

from tailrace.cli.output.console import spell, spell_bytes, spell_seconds


@pytest.mark.parametrize(
    ("duration", "text"),
    [
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


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (0.4, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (45_600_000, "45.6 MB"),
        (10**12, "1 TB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_bytes_are_three_digits_and_a_unit(amount, text):
    assert spell_bytes(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 us"),
        (12e-6, "12 us"),
        (0.00234, "2.34 ms"),
        (1, "1 s"),
        (61, "1.02 min"),
        (7200, "2 h"),
        (400 * 86_400, "400 d"),
    ],
)
def test_durations_are_three_digits_and_a_unit(amount, text):
    assert spell_seconds(amount) == text
