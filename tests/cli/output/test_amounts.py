"""Amounts for eyes."""

from __future__ import annotations

import pytest

from tailrace.cli.output.amounts import spell_bytes, spell_seconds


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
