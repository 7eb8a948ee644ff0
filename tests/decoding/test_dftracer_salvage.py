"""Test text that the tracer has not escaped. It is read with its original meaning, or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, strategies as st

from tailrace.decoding.formats.dftracer.salvage import RECORD_MAX, find_fields, repair
from tests.decoding.dftracer_lines import event

characters = st.sampled_from('ab ,:{}[]"\\/\n\t\x01é1-') | st.characters(codec="utf-8")
strings = st.text(characters, max_size=12).filter(lambda text: '":' not in text)
keys = st.text(characters, min_size=1, max_size=6).filter(lambda key: not set(key) & set('",:'))
scalars = st.sampled_from(["0", "-5", "1e+300", "0.5", "true", "null", '["a",{"b":1}]'])
members = st.dictionaries(
    keys, st.tuples(st.just("text"), strings) | st.tuples(st.just("other"), scalars), max_size=4
)


@given(strings, strings, members)
def test_strings_are_what_the_program_gave(
    name: str, category: str, args: dict[str, tuple[str, str]]
) -> None:
    """Strings may contain anything except a text that looks like the key of a member."""
    written = [f'"{k}":"{v}"' if kind == "text" else f'"{k}":{v}' for k, (kind, v) in args.items()]
    record = event(1, name=name, cat=category, args=",".join(written))
    assume(not is_json(record))
    repaired = repair(record.encode())
    assert repaired
    text, flaw = repaired
    found = json.loads(text)
    assert (found["name"], found["cat"], found["dur"]) == (name, category, 5)
    assert found["args"] == {
        key: value if kind == "text" else json.loads(value) for key, (kind, value) in args.items()
    }
    assert flaw == ("split_line" if "\n" in record else "unescaped")


def is_json(record: str) -> bool:
    try:
        json.loads(record)
    except ValueError:
        return False
    return True


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_bytes_that_are_not_utf8_are_kept(name: bytes, value: bytes) -> None:
    assume(b'"' not in name + value)
    spelled = [raw.decode(errors="surrogateescape") for raw in (name, value)]
    record = event(1, name=spelled[0], args=f'"s":"{spelled[1]}"')
    repaired = repair(record.encode(errors="surrogateescape"))
    if repaired is None:
        assert is_json(record.encode().decode())
        return
    found = json.loads(repaired[0])
    for raw, said in ((name, found["name"]), (value, found["args"]["s"])):
        assert (bytes.fromhex(said["$bytes"]) if isinstance(said, dict) else said.encode()) == raw


@pytest.mark.parametrize(
    ("spelled", "bits"),
    [
        ("nan", "7ff8000000000000"),
        ("-nan", "fff8000000000000"),
        ("inf", "7ff0000000000000"),
        ("-inf", "fff0000000000000"),
    ],
)
def test_numbers_that_json_lacks_are_their_bits(spelled: str, bits: str) -> None:
    text, flaw = repair(event(1, args=f'"f":{spelled}').encode()) or (b"{}", "")
    assert flaw == "bare_nan"
    assert json.loads(text)["args"] == {"f": {"$f64": bits}}


@pytest.mark.parametrize(
    "args",
    [
        '"s":"{"a":"b","c":"d"}","i":1',  # JSON within a string: the string's end is not certain
        '"s":"x"y","n":[1,]',
        '"s":"x"y" "i":1',
        '"a":01',
        '"s":"x"y","\udcff":1',
    ],
)
def test_what_is_not_certain_is_not_read(args: str) -> None:
    assert repair(event(1, args=args).encode(errors="surrogateescape")) is None


@pytest.mark.parametrize("size", [RECORD_MAX, RECORD_MAX + 1])
def test_the_tracer_writes_no_longer_records(size: int) -> None:
    short = event(1, args='"s":"a"b"')
    record = event(1, args=f'"s":"a"b{"x" * (size - len(short))}"')
    assert len(record) == size
    assert (repair(record.encode()) is None) == (size > RECORD_MAX)


def test_a_string_of_escaped_quotes_without_end_takes_no_time_to_refuse():
    assert find_fields(b'{"a":"' + b'\\"' * 200_000) == "bad_json"
