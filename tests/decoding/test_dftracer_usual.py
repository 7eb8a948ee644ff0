"""Test that the fast reader of usual records (`usual`) returns the same records as the slow reader (`line`), and that
it is used.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from benchmarks.spellings import OF_FORMAT, SPELLINGS, respelled
from tailrace.decoding.formats.dftracer import decoder as dftracer
from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder
from tailrace.decoding.formats.dftracer.usual import FoundLine
from tailrace.model.record import Kind, Record
from tests.decoding.dftracer_lines import HOST, end, event, metadata, start, text
from tests.forms import examples

LIMIT = 1 << 16
BEGIN = text(
    metadata("HH", "vm", HOST), metadata("CM", "time_metric", "US"), metadata("FH", "/a", "f1"), start()
)  # fmt: skip

KNOWN = f'"hhash":"{HOST}"'

hashes = st.sampled_from(
    [KNOWN, '"hhash":"00"', '"hhash":5', '"hhash":1.5', KNOWN.replace(":", " :")]
)
members = st.sampled_from(
    ['"ret":0', '"f":0.5', '"s":"v"', '"s":"ü"', '"s":"fhash"', '"fhash":"f1"', '"fhash":"f2"',
     '"fhash":7', '"fhash" :"f1"', '"a":{"fhash":"f1"}', '"a":[{"hhash":"x"}]', '"a":{"x":1}',
     '"myhash":"f1"', '"p_idx":3', '"dft_cnt":1', '"s":"a{b"', '"s":"a\\\\b"', '"s":"a"b"', '"s":nan',
     '"s":"\udcff"', '"s":"C:\\new"', '"fname":"/x"', '"hostname":"\\/"', '"fname":5','"fhas\\u0068":"f2"', '"s":"\\ud83d\\ude00"', '"s":"\\ud83d\\u0041"',
     '"fhash":"f\\u0031"', '"s":"hash\\""', '"dft\\u005fcnt":1', '"s":true', '"a":{"\\n":[null]}', '"a":' + "[" * 130 + "]" * 130]
)  # fmt: skip
args = st.none() | st.builds(
    lambda host, rest: ",".join([*host, *rest]),
    st.lists(hashes, min_size=1, max_size=1) | st.just([]),
    st.lists(members, max_size=3) | st.lists(hashes, max_size=1),
)
lines = st.builds(
    lambda number, changed: event(number, **changed),
    st.integers(-1, 9) | st.sampled_from([2**63, '"5"', '"6"']),
    st.fixed_dictionaries(
        {"args": args},
        optional={
            "name": st.sampled_from(
                ["read", "start", "end", "a\\n", "\\u0072ead", "\\/\\u001f", "ü"]
            ),
            "cat": st.sampled_from(["POSIX", "dftracer", "dft\\u0072acer", "\\u0050OSIX"]),
            "ph": st.sampled_from([1, 2, 3, 4, 5, '"X"', '"C"', '"M"', "1.0", "true"]),
            "ts": st.sampled_from([0, -5, 2**63 - 3, 2**63, '"17"', 1.5]),
            "dur": st.sampled_from([0, -1, 2**64 - 1, 2**64, '"5"', '"-5"']),
            "tid": st.sampled_from(['"8"', '"08"', '"-0"']),
            "pid": st.sampled_from([-1, 8, 8, '"7"', 2**63, 10**30]),
        },
    ),
)
usual = st.builds(
    lambda number, rest: event(number, args=",".join([KNOWN, *rest])),
    st.integers(2, 9),
    st.lists(st.sampled_from(['"ret":0', '"s":"v"', '"fhash":"f1"', '"fhash":"f2"']), max_size=2),
)
no_objects = st.sampled_from(["null", "5", "[]", '"x"', "{}"]).map(
    lambda text: event(3, args=None)[:-1] + f',"args":{text}}}'
)
counters = st.builds(
    lambda line, ph, host, rest: line % (ph, ",".join([*host, *rest])),
    st.sampled_from(
        [
            '{"name":"cpu","cat":"sys","type":7,"ts":5,"ph":%s,"pid":0,"tid":0,"args":{%s}}',
            '{"name":"cpu","cat":"sys","ts":5,"ph":%s,"pid":0,"tid":0,"args":{%s}}',
            '{"name":"cpu","cat":"sys","type":7,"ph":%s,"pid":0,"tid":0,"args":{%s}}',
        ]
    ),
    st.sampled_from([2, 3, '"C"']),
    st.sampled_from([[], [KNOWN], ['"hhash":"00"']]),
    st.lists(
        st.sampled_from(
            [
                '"x":0.5',
                '"dft_cnt":2',
                '"fhash":"f1"',
                '"fhash":"f2"',
                '"a":{"dft_cnt":1}',
                '"s":"dft_cnt"',
            ]
        ),
        max_size=2,
    ),
)
others = st.sampled_from(
    [event('"5"').replace('"5"', '"\\u0035"'), event(5, tid='"\\u0038"'),
     metadata("FH", "/b", "f1"), metadata("FH", "/c", "f2"), metadata("HH", "other", HOST), "", "]",
     "{", event(3)[:50] + event(4), " " + event(5), event(6).replace(":", ": "), event(7)[:-1] + ',"id":8}',
     event(7)[:-1] + ',"more":{"x":"\\u00e9"}}', event(7)[:-1] + ',"m\\u006f":1,"mo":2}', event(7)[:-1] + ',"$x":1}',
     event(7)[:-1] + ',"fname":1}', event(7)[:-1] + ',"more":1,"more":2}', event(7).replace('"name"', '"n\\u0061me"'),
     event(2).replace('"cat":"POSIX",', ""), event(2).replace('"type":3,', ""), end(5)]
)  # fmt: skip


def counter(ph: object, args: str) -> str:
    return event(2, ph=ph, args=args).replace('"id":2,', "").replace('"dur":5,', "")


FILE = event(2, args=f'{KNOWN},"fhash":"f1"')


def decode(data: bytes, begin: bytes = BEGIN) -> list[Record]:
    """Decode the lines in one piece after the beginning, because the unit of time is then known."""
    decoder = DFTracerDecoder(LIMIT)
    return decoder.feed(begin) + decoder.feed(data) + decoder.end()


def read_each(offset: int, found: list[FoundLine], *about: Any) -> None:
    """Make the decoder read no line with the fast reader."""
    *_, other, _ = about
    for line in found:
        other(offset, line.whole)
        offset += len(line.whole)


def decode_slowly(data: bytes) -> list[Record]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dftracer, "read_usual", read_each)
        return decode(data)


@examples(400)
@given(st.lists(usual | usual | counters | lines | no_objects | others, min_size=1, max_size=8))
@example([event(2, ts=2**63 - 3, args=None)])
@example([event(2, args=f'{KNOWN},"a":{"[" * 130}{"]" * 130}')])
@example([FILE, metadata("FH", "/b", "f1"), FILE, metadata("HH", "other", HOST), FILE])
# The events are late, so that each of them heals its gap.
@example([event(2), end(5), event(4), event(3)])
@example([event(3, args=None)[:-1] + ',"args":null}'])
@example([event('"5"').replace('"5"', '"\\u0035"')])
@example([event(2, name="end", cat="dft\\u0072acer")])
@example([event(2, args=None), event(3, args=KNOWN + ',"a":{"fhash":"f1"}')])
def test_both_ways_say_the_same(found: list[str]) -> None:
    data = text(*found, end(9))
    assert decode(data) == decode_slowly(data)


@examples(200)
@given(
    st.lists(usual | usual | counters | lines | others, min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_both_ways_say_the_same_of_other_spellings(found: list[str], rng: random.Random) -> None:
    data = respelled(text(*found, end(9)), rng)
    assert decode(data) == decode_slowly(data)


@pytest.mark.parametrize("begin", [BEGIN, BEGIN.partition(b"\n")[2]], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    "line",
    [
        event(2),
        event(2, args=None),
        event(2, args=f'{KNOWN},"count":4096,"fhash":"f1"'),
        event(2, args=f'{KNOWN},"fhash":"unknown","ret":1'),
        event(2, args=f'{KNOWN},"s":"ünïcode","f":1e-05,"a":[1,{{"b":2}}]'),
        event(2, ph='"X"').replace('"type":3,', ""),
        counter(2, KNOWN),
        counter(3, f'{KNOWN},"dft_cnt":2'),
        event(2, args='"ret":1'),
        counter('"C"', f'{KNOWN},"x":0.5'),
        counter('"C"', f'{KNOWN},"dft_cnt":3,"fhash":"f1"'),
        counter(2, f'{KNOWN},"dft_cnt":3'),
        counter('"C"', '"x":0.5').replace('"type":3,', ""),
    ],
)
def test_events_as_the_tracer_writes_them_go_the_quick_way(
    line: str, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = decode(text(line), begin)
    decoder = DFTracerDecoder(LIMIT)
    records = decoder.feed(begin)
    monkeypatch.setattr(dftracer, "find_fields", None)
    records += decoder.feed(text(line))
    assert records + decoder.end() == expected


@pytest.mark.parametrize("spelling", SPELLINGS | OF_FORMAT["dftracer"])
def test_no_spelling_of_a_usual_record_is_slow(spelling: str) -> None:
    known = [event(n, args=f'{KNOWN},"fhash":"f1","ret":{n}') for n in range(2, 100)]
    known += [counter('"C"', f'{KNOWN},"dft_cnt":3'), counter(2, '"x":0.5')]
    decoder = DFTracerDecoder(LIMIT)
    decoder.feed(BEGIN)
    decoder.take_slow()
    spelled = (SPELLINGS | OF_FORMAT["dftracer"])[spelling](known)
    records = [record for record in decoder.feed(spelled) if record.kind != Kind.SESSION]
    assert len(records) == len(known)
    brackets = spelled.count(b"]\n") + spelled.startswith(b"[")
    assert decoder.take_slow() == brackets + (spelling == "two processes in turn")
