"""Test the strict reader of one JSON object against Python's parser."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, strategies as st

from tailrace.decoding.json_object import BEYOND, DEPTH_MAX, read_object

text = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(-1e300, 1e300) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
spellings = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r\n: ")])


@given(st.lists(st.tuples(text, values), max_size=5), spellings, st.booleans())
def test_fields_come_with_the_text_their_producer_wrote(
    fields: list[tuple[str, object]], separators: tuple[str, str], ascii_: bool
) -> None:
    texts = [json.dumps(v, separators=separators, ensure_ascii=ascii_) for _, v in fields]
    members = [
        json.dumps(key) + separators[1] + t for (key, _), t in zip(fields, texts, strict=True)
    ]
    found = read_object(("{" + separators[0].join(members) + "}").encode())
    assert [(field.key, field.value, field.text) for field in found] == [
        (key, value, t) for (key, value), t in zip(fields, texts, strict=True)
    ]


@given(st.dictionaries(text, values, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_damaged_line_is_what_another_parser_finds_or_refuses(
    fields: dict[str, object], rng: random.Random
) -> None:
    line = bytearray(json.dumps(fields, ensure_ascii=False).encode())
    line[rng.randrange(len(line))] = rng.choice(b'\x00\n "\\,:{}[]0e.-u\x80\xff')
    found = read_object(bytes(line))
    try:
        other = json.loads(line.decode(), object_pairs_hook=list)
    except ValueError:
        assert isinstance(found, str)
        return
    if isinstance(found, str):
        assert found in {"not_an_object", "lone_surrogate"}
    else:
        assert [field.key for field in found] == [key for key, _ in other]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "bad_json"),
        (b"{", "bad_json"),
        (b'{"a":1', "bad_json"),
        (b'{"a":1}}', "bad_json"),
        (b'{"a":1,}', "bad_json"),
        (b"{'a':1}", "bad_json"),
        (b'{"a":01}', "bad_json"),
        (b'{"a":"\t"}', "bad_json"),
        (b'"text"', "not_an_object"),
        (b"null", "not_an_object"),
        (b"NaN", "not_a_number"),
        (b'{"a":[Infinity]}', "not_a_number"),
        (b'{"a":"\xff"}', "invalid_utf8"),
        (b'{"a":"\\uDC00"}', "lone_surrogate"),
        (b'{"\\ud83d\\ud83d\\ude00":1}', "lone_surrogate"),
        (b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", "too_deep"),
        (b"[" * 200 + b"]" * 200, "too_deep"),
    ],
)
def test_what_is_no_object_says_why(line: bytes, reason: str) -> None:
    assert read_object(line) == reason


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":"\\\\ud800"}',
        b'{"a":' + b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1) + b"}",
        b'{"a":"' + b"[" * 300 + b'"}',
        b' \t{ } \r\n',
    ],
)  # fmt: skip
def test_what_only_looks_wrong_is_read(line: bytes) -> None:
    assert isinstance(read_object(line), list)


def test_integers_of_any_size_are_told_from_those_in_range() -> None:
    (small, large) = read_object(b'{"a":-9223372036854775808,"b":' + b"9" * 5000 + b"}")
    assert (small.value, large.value, len(large.text)) == (-(2**63), BEYOND, 5000)
