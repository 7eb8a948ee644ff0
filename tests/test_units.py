"""Sizes and durations: what is read, what is refused, and that printing is reading backwards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.units import Duration, Size

BINARY = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 B", 0),
        ("4 MiB", 4_194_304),
        ("4MiB", 4_194_304),
        ("1.5 KiB", 1536),
        ("2 kB", 2000),
        ("3 MB", 3_000_000),
        ("1 GB", 1_000_000_000),
        ("1 TB", 1_000_000_000_000),
        ("  7 B ", 7),
    ],
)
def test_sizes_are_whole_bytes(text, expected):
    assert Size.parse(text) == expected
    assert type(Size.parse(text)) is Size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250 ms", 0.25),
        ("250ms", 0.25),
        ("1.5 s", 1.5),
        ("10 us", 0.000_01),
        ("2 min", 120),
        ("1 h", 3600),
        ("7 d", 604_800),
    ],
)
def test_durations_are_seconds(text, expected):
    assert Duration.parse(text) == pytest.approx(expected, rel=1e-12)
    assert type(Duration.parse(text)) is Duration


@pytest.mark.parametrize(
    "text",
    ["", "5", "MiB", "-1 MiB", "1e3 B", "1 mib", "1 KB", "1 MiB MiB", "1,5 KiB", "1 s", ".5 B"],
)
def test_what_is_no_size_is_refused_with_all_units(text):
    with pytest.raises(ValueError, match=r"is not a size: a number and one of B, kB, .*TiB, as in"):
        Size.parse(text)


@pytest.mark.parametrize("text", ["", "5", "s", "-1 s", "1 S", "1 sec", "1 m", "1 MiB", "1 s 5 ms"])
def test_what_is_no_duration_is_refused_with_all_units(text):
    with pytest.raises(ValueError, match=r"is not a duration: a number and one of us, .*d, as in"):
        Duration.parse(text)


@settings(deadline=None)
@given(st.integers(0, 2**53), st.sampled_from(sorted(BINARY)))
def test_a_printed_size_parses_to_itself(number, unit):
    size = Size(min(number << BINARY[unit], 2**53))
    assert Size.parse(str(size)) == size


@settings(deadline=None)
@given(st.integers(1, 10**6 - 1), st.sampled_from(["us", "ms", "s", "min", "h", "d"]))
def test_a_printed_duration_parses_to_itself(number, unit):
    duration = Duration.parse(f"{number} {unit}")
    assert Duration.parse(str(duration)) == pytest.approx(duration, rel=1e-9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 us"), (0.05, "50 ms"), (1, "1 s"), (90, "90 s"), (3600, "1 h"), (86_400, "1 d")],
)
def test_durations_print_in_the_largest_unit_that_has_no_fraction(seconds, text):
    assert str(Duration(seconds)) == text


def test_sizes_print_in_the_largest_unit_that_has_no_fraction():
    assert [str(Size(n)) for n in (0, 1023, 1024, 1536, 2**20, 2**30, 2**40)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1536 B",
        "1 MiB",
        "1 GiB",
        "1 TiB",
    ]


def test_a_duration_has_whole_nanoseconds():
    assert Duration(0.1).ns == 100_000_000
