from __future__ import annotations

import array
import enum
import math

import pytest
from hypothesis import given, strategies as st

from clients.python.tests.reader import Event, Metadata, packets, same
from tailrace_client import _wire

# The two examples in the specification of the format, as bytes.
EPOCH_EXAMPLE = bytes.fromhex("75d11d4d 00000017 0005 65706f6368 165845e91214ec90")
EVENT_EXAMPLE = bytes.fromhex(
    "c1fc1fb7 0000005b 00000000 00000000 0000000000000001 0000000000000064 00000000000000c8"
    "0008 4d79206576656e74"
    "0004 54657374 01 000000000000007b"
    "0005 5465737432 83 0002 405edd2f1a9fbe77 4088a80000000000"
)

U64 = st.integers(0, 2**64 - 1)
NEGATIVE = st.integers(-(2**63), -1)
TEXT = st.text(max_size=50)  # contains no surrogates, which have a test of their own
FLOAT = st.floats()


def attribute(value):
    """Return the type byte and the value of an encoded attribute."""
    (event,) = packets(_wire.event(0, 0, 0, 0, 0, _wire.body("", {"x": value})))
    ((name, kind, read),) = event.attributes
    assert name == "x"
    return kind, read


def test_the_specifications_metadata_example_comes_out_byte_for_byte():
    assert _wire.epoch(1610113734118010000) == EPOCH_EXAMPLE


def test_the_specifications_event_example_comes_out_byte_for_byte():
    body = _wire.body("My event", {"Test": 123, "Test2": [123.456, 789.0]})
    assert _wire.event(0, 0, 1, 100, 200, body) == EVENT_EXAMPLE


@given(TEXT, st.binary(max_size=50))
def test_any_metadata_is_read_back(name, option):
    assert packets(_wire.metadata(name, option)) == [Metadata(name, option)]


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), U64, U64, U64, TEXT,
    st.dictionaries(TEXT, st.one_of(U64, NEGATIVE, FLOAT, TEXT, st.lists(U64), st.lists(TEXT)), max_size=6),
)  # fmt: skip
def test_any_event_is_read_back(stream, counter, substream, start, end, description, attributes):
    packet = _wire.event(
        stream, counter, substream, start, end, _wire.body(description, attributes)
    )
    (event,) = packets(packet)
    assert event[:6] == Event(stream, counter, substream, start, end, description, [])[:6]
    assert [name for name, _, _ in event.attributes] == list(attributes)
    assert same([value for _, _, value in event.attributes], list(attributes.values()))


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        (False, 4, "false"),
        (True, 4, "true"),
        (0, 1, 0),
        (2**64 - 1, 1, 2**64 - 1),
        (-1, 2, -1),
        (-(2**63), 2, -(2**63)),
        (2**64, 4, "18446744073709551616"),
        (-(2**63) - 1, 4, "-9223372036854775809"),
        (0.5, 3, 0.5),
        (-math.inf, 3, -math.inf),
        ("é", 4, "é"),
        ("\udc80", 4, "\\udc80"),
        (b"x", 4, "b'x'"),
        ({"a": 1}, 4, "{'a': 1}"),
        (enum.IntEnum("Level", {"low": 3}).low, 1, 3),
        ([], 0x84, []),
        ([True, False], 0x84, ["true", "false"]),
        ([True, None, 7, "x"], 0x84, ["true", "null", "7", "x"]),
        (ValueError("no such cell: 7"), 4, "ValueError: no such cell: 7"),
        (KeyError("x"), 4, "KeyError: 'x'"),
        (StopIteration(), 4, "StopIteration"),
        ([OSError(2, "gone"), 1], 0x84, ["FileNotFoundError: [Errno 2] gone", "1"]),
        ((1, -1), 0x82, [1, -1]),
        ([1, -1, 2**63], 0x84, ["1", "-1", "9223372036854775808"]),
        ([1, 0.5], 0x83, [1.0, 0.5]),
        ([2**53 + 1, 0.5], 0x84, ["9007199254740993", "0.5"]),
        (["a", 1], 0x84, ["a", "1"]),
        ([[1], [2]], 0x84, ["[1]", "[2]"]),
        (array.array("d", [1.5, 2.5]), 0x83, [1.5, 2.5]),
    ],
)
def test_every_python_value_has_its_place(value, kind, read):
    assert attribute(value)[0] == kind
    assert same(attribute(value)[1], read)


def test_what_is_none_is_left_out():
    body = _wire.body("x", {"a": 1, "b": None, "c": 2})
    (event,) = packets(_wire.event(0, 0, 0, 0, 0, body))
    assert event.attributes == [("a", 1, 1), ("c", 1, 2)]


def test_nan_is_a_number_like_others():
    kind, read = attribute([math.nan, 1])
    assert kind == 0x83
    assert same(read, [math.nan, 1.0])
    assert attribute(math.nan)[0] == 3
    assert math.isnan(attribute(math.nan)[1])


def test_an_exception_without_words_is_an_encoding_error():
    class Mute(Exception):  # noqa: N818 - no error of the program
        def __str__(self):
            raise RuntimeError

    with pytest.raises(_wire.EncodingError):
        _wire.body("x", {"a": Mute()})


def test_an_integer_too_long_for_decimal_digits_goes_as_hexadecimal():
    assert attribute(-(10**5000)) == (4, hex(-(10**5000)))
    assert attribute([10**5000]) == (0x84, [hex(10**5000)])


def test_an_object_with_tolist_is_what_that_gives():
    class Scalar:  # numpy's scalars have this interface, and are no subclasses of int
        def tolist(self):
            return -5

    assert attribute(Scalar()) == (2, -5)


def test_texts_too_long_for_their_length_are_cut_at_a_character():
    assert attribute("é" * 40_000) == (4, "é" * 32_767)
    (event,) = packets(
        _wire.event(0, 0, 0, 0, 0, _wire.body("a" + "€" * 30_000, {"n" * 70_000: 1}))
    )
    assert event.description == "a" + "€" * 21_844
    assert event.attributes == [("n" * 65_535, 1, 1)]


@pytest.mark.parametrize(
    ("item", "kind", "read"), [(7, 0x81, 7), (-7, 0x82, -7), (0.5, 0x83, 0.5), ("x", 0x84, "x")]
)
def test_arrays_too_long_for_their_length_are_cut(item, kind, read):
    assert attribute([item] * 70_000) == (kind, [read] * 65_535)


def test_remembered_texts_are_bounded():
    for number in range(10_000):
        _wire.text(f"name {number}")
    _wire.text("long" * 1000)
    assert len(_wire._texts) <= 4096
    assert max(map(len, _wire._texts)) <= 256
    assert _wire.text("name 9999") == b"\x00\x09name 9999"
