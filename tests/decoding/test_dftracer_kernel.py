"""Test the kernel of DFTracer: which lines it reads, and its limits. `test_kernels.py` has the tests for all kernels."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.spellings import OF_FORMAT, SPELLINGS
from tailrace import kernels
from tailrace.decoding.formats.dftracer.names import NAMES_MAX
from tailrace.decoding.formats.dftracer.run import HOLES_MAX
from tailrace.model.record import Record
from tailrace.rows.block import Block
from tests.decoding.blockwise import records
from tests.decoding.dftracer_lines import HOST, end, event, metadata, start, text
from tests.decoding.pair import Pair, rows
from tests.decoding.test_dftracer_usual import counter, counters, lines, no_objects, others, usual

if kernels.active():
    from tailrace.decoding.formats.dftracer import decoder
    from tailrace.decoding.formats.dftracer._kernel import ranges

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)
BEGIN = text(
    metadata("HH", "vm", HOST), metadata("CM", "time_metric", "US"), metadata("FH", "/a", "f1"), start()
)  # fmt: skip
KNOWN = f'"hhash":"{HOST}"'
SPELLED = SPELLINGS | OF_FORMAT["dftracer"]


def both(*lines, begin=BEGIN):
    """Return what the decoder with the kernel returns for lines after a usual beginning."""
    pair = Pair("dftracer")
    pair.feed(begin)
    units = pair.feed(text(*lines))
    pair.end()
    return units


@pytest.mark.parametrize("spelling", SPELLED)
def test_no_spelling_of_a_usual_record_leaves_the_kernel(spelling):
    lines = [naming(), *(event(n, args=f'{KNOWN},"fhash":"f2","ret":{n}') for n in range(2, 100))]
    pair = Pair("dftracer")
    pair.feed(BEGIN)
    left = {
        "numbers in quotes": 1,  # the first id in quotes makes ids untrusted
        "numbers in quotes, names and hashes": 1,
        "escapes in names": 1,
        "letters as \\u": 1,
        "escapes in arguments": 1,
        "nested arguments": 1,
        # Python reads the odd line, and the lines of the second process before its clock is known.
        "two processes in turn": 4,
        # Python reads the elements beside brackets.
        "array on one line": 2,
        "json.dump of a list": 2,
    }.get(spelling, 0)
    assert rows(pair.feed(SPELLED[spelling](lines))) == len(lines) - left


@pytest.mark.parametrize("host", ["", f'"hhash":"{HOST}"'])
@pytest.mark.parametrize("number", [2, 5, 80])
def test_records_of_processes_in_turn_take_the_kernel(number, host):
    """The rows of each process are grouped. If records of more than 64 processes alternate, Python reads them."""
    lines = [
        event(1 + n // number, pid=n % number, args=f'{host}{"," * bool(host)}"ret":{n}')
        for n in range(20 * number)
    ]
    pair = Pair("dftracer")
    pair.feed(BEGIN + text(*lines[:number]))
    units = pair.feed(text(*lines[number:]))
    assert rows(units) == (19 * number if number <= 64 else 0)
    found = [unit.column(unit.stream)[0] for unit in units if isinstance(unit, Block)]
    assert len(found) == len(set(found)) == (number if number <= 64 else 0)
    pair.exchange()
    pair.feed(text(*lines[:number]))
    pair.end()


def test_two_processes_of_one_pid_are_told_apart_by_their_hosts():
    lines = [
        event(n // 2 + 1, args=f'"hhash":"{(HOST, "5", "6")[n % 3]}"' if n % 4 else '"ret":1')
        for n in range(60)
    ]
    pair = Pair("dftracer")
    pair.feed(BEGIN)
    for at in range(0, 60, 20):
        pair.feed(text(*lines[at : at + 20]))
    pair.end()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(usual | usual | counters | lines | no_objects | others, min_size=1, max_size=12),
    st.lists(st.integers(0, 2000), max_size=4),
    st.booleans(),
)
def test_any_lines_are_the_same_under_any_cut(found, cuts, exchange):
    pair, data = Pair("dftracer"), BEGIN + text(*found, end(9))
    for at, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        pair.feed(data[at:stop])
        if exchange:
            pair.exchange()
    pair.end()


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_texts_are_the_same(name, key, value):
    both(event(2, name=name, cat=key, args=f'"{key}":"{value}","hhash":"{name}"'))


@given(st.from_regex(r"-?[0-9]{0,4}(\.[0-9]{0,3})?([eE][-+]?[0-9]{0,3})?", fullmatch=True))
def test_any_number_is_the_same(number):
    fields = [{"args": f'"x":{number}'}, {"dur": number}, {"ts": number}, {"pid": number}]
    both(*(event(2 + n, **changed) for n, changed in enumerate(fields)))


@pytest.mark.parametrize(
    "line",
    [
        event(2),
        event(2, args=None),
        event(2, args=""),
        event(2, args=f'{KNOWN},"count":4096,"fhash":"f1"'),
        event(2, args=f'{KNOWN},"fhash":"unknown","ret":1'),
        event(2, args='"fhash":"f1"'),
        event(2, args=f'"fhash":5,{KNOWN}'),
        event(2, args='"s":"ünïcode","f":1e-05,"g":-0.5E+3,"":""'),
        event(2, args='"dft_cnt":2'),
        event(2, ph='"X"').replace('"type":3,', ""),
        event(-1, ts=-5, tid=-1, dur=0, name="", cat=""),
        event(2, ts=2**63 - 6),
        event(2**63 - 1, ts=2**63 - 1, dur=0),
        counter(2, KNOWN),
        counter('"C"', f'{KNOWN},"x":0.5'),
        counter('"C"', '"x":0.5').replace('"type":3,', "").replace(',"args":{"x":0.5}', ""),
        counter(2, '"x":0.5').replace('"cat":"POSIX"', '"cat":"dftracer"'),
        event(2, args='"x": 1'),
        event(2, args=" "),
        event(2).replace(":", "\t: ").replace(",", " ,\r") + " ",
        event(2) + "\r",
        f" {event(2)}",
        f"\n \n{event(2)} , ",
        f", {event(2)},",
        event(2, name="a\\n", cat="\\u0041", args='"x":"\\ud83d\\ude00"'),
        event(2, name="end", cat="dft\\\\acer"),
        event(2, name="end", cat="\\u0064ft\\u0072acers"),
        event(2, args='"x":true,"y":[1],"z":{"a":null}'),
        event(2)[:-1] + ',"more":1,"and":["\\/"]}',
        metadata("FH", "a\\/b", "f2")[:-1] + ',"more":1}',
        event(2, pid='"7"', tid='"8"', ts='"5"', dur='"1"', args='"fname":"/\\/x","hostname":"h"'),
        event(2, pid='"7"', args=f'{KNOWN},"fname":"/x","fhash":"f1"'),
        event(2, pid='"7"', args=f'"fhash":"?",{KNOWN},"hostname":"h","fname":"/x"'),
        event(2, pid="7.0", tid="80E-1", ts="1.5e1", dur="-0", ph="1.0").replace(
            '"id":2', '"id":20E-1'
        ),
        event(2, ts='"05"', ph='"\\u0058"'),
        event(2, args='"\\u0078":1'),
        event(2, args=f"{KNOWN},{KNOWN}"),
        event(2, args=f'"fhash":null,"h\\u0068ash":"{HOST}","fhas\\u0068":"\\u0066\\/1"'),
        event(2).replace('"cat":"POSIX",', "").replace('"type":3', '"t\\u0079pe":"3"'),
        event(2, name="n" * 16_384),
        event(2, args='"x":' + "[" * 126 + "]" * 126),
        event(2)[:-1] + "".join(f',"m\\u00{n}":{n}' for n in range(10, 42)) + "}",
        event(2)[:-1] + "".join(f',"m{n}":{n}' for n in range(256)) + "}",
    ],
)
def test_what_is_usual_takes_the_kernel(line):
    assert rows(both(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        event(2, cat="dftracer"), event(2, name="end", cat="dft\\u0072acer"),
        event(2, name="start", cat="\\u0064" + "".join(f"\\u{ord(c):04x}" for c in "ftracer")), event(2, name='a"b'), event(2, name="a\tb"),
        event(2, name="\udcff"),
        event(2, args='"x":nan'), event(2, args='"fhash":1.5'),
        event(2, args=f'"fhash":"{"f" * 64}"'), event(2, args='"x":1,'), event(2, dur=-1), event(2, dur=2**63),
        event(2, ts=2**63 - 3), event(2, pid="-0"), event(2, pid="07"), event(2, ph=4),
        event(2, ph=12), event(2).replace('"type":3,', '"type":3,"type":3,'), event(2).replace('"id":2,', ""), event('"2"'),
        event(2, ts=1.5), event(2, ts="9007199254740993.0"), event(2, ts='"5.0"'), event(2)[:-1] + ",}", f"[{event(2)}",
        event(2).replace('"dur"', '"end"'), event(2)[:-1] + ',"$x":1}',
        metadata("FH", "/b", "f2")[:-1] + ',"hh\\u0061sh":1}', event(2)[:-1] + ',"fname":1}', event(2)[:-1] + ',"x":1,"x":1}', event(2)[:-1] + "".join(f',"m{n}":{n}' for n in range(257)) + "}",
        event(2)[:-1] + "".join(f',"m{n}":{n}' for n in range(200)) + ',"m3":1}', event(2, args='"s":"\\ud800"'), event(2, args='"fhash":"\\n"'), counter(3, KNOWN), counter(2, '"dft_cnt":2'), event(2, name="n" * 131_072),
        counter(2, KNOWN)[:-1] + ',"dur":5}', "{", "{}", "]", event(2)[:-1],
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python_alone(line):
    units = both(event(5), line, event(6), event(7), event(8))
    assert rows(units) <= 4
    assert len(records(units)) > rows(units)


def test_a_line_whose_beginning_waits_takes_the_kernel():
    pair, data = Pair("dftracer"), text(*(event(n) for n in range(2, 42)))
    pair.feed(BEGIN + data[:40])
    units = pair.feed(data[40:-40])
    assert [unit.rows for unit in units] == [39]
    pair.end()


def test_a_long_beginning_is_completed_by_python():
    pair = Pair("dftracer")
    pair.feed(BEGIN)
    long = text(event(2, args=f'"s":"{"x" * decoder.WAITING_MAX}"'))
    pair.feed(long[:-10])
    units = pair.feed(long[-10:] + text(*(event(n) for n in range(3, 43))))
    assert rows(units) == 40
    assert isinstance(units[0], Record)
    pair.end()


def test_a_line_over_the_limit_is_not_the_kernels():
    pair = Pair("dftracer", limit=len(event(2)) + 1)
    pair.feed(BEGIN)
    long = event(3, name="a longer name than all others")
    units = pair.feed(text(event(2), event(4), long, event(5), event(6)))
    assert rows(units) == 4
    assert "too_long" in [record.flaw for record in records(units)]


@pytest.mark.parametrize(("name", "taken"), [("read", True), ("reads", False)])
def test_an_element_must_be_shorter_than_the_longest_line(name, taken):
    """The limit counts the byte by which an element is known to have ended: a newline, or the next element's first."""
    usual, other = [event(2)] * 20, event(2, name=name)
    pair = Pair("dftracer", limit=len(event(2)) + 2)
    pair.feed(BEGIN)
    units = pair.feed(",".join([*usual, other, *usual]).encode() + b"\n")
    assert rows(units) == 40 + taken
    assert ("too_long" in [record.flaw for record in records(units)]) != taken
    pair.end()


def test_few_rows_stay_records(monkeypatch):
    monkeypatch.setattr(decoder, "ROWS_MIN", 16)
    assert rows(both(*(event(n) for n in range(2, 17)))) == 0
    assert rows(both(*(event(n) for n in range(2, 18)))) == 16


def test_more_attributes_than_a_block_takes_are_several_blocks():
    units = both(*(event(n, args=f'"s":"{"x" * 10_000}"') for n in range(2, 602)))
    assert rows(units) == 600
    assert all(isinstance(unit, Block) for unit in units)
    assert len(units) > 2


def test_more_words_than_are_remembered_begin_new_lists():
    """If a block has no room for more words, the next block begins with a new list of words. Earlier blocks keep their
    words.
    """
    units = both(
        *(
            event(n, name=f"name {n}", cat=f"category {n // 4}", tid=n, args=f'"fhash":"{n}"')
            for n in range(2, 20_002)
        )
    )
    assert rows(units) == 20_000
    for column, most in (("name", 4096), ("category", 1024), ("stream", 8192)):
        words = [getattr(unit, column) for unit in units]
        assert len({id(each.texts) for each in words}) > 1
        assert all(each.known <= len(each.texts) <= most for each in words)


def test_long_names_are_bounded_by_their_bytes():
    units = both(*(event(n, name=f"{n}" + "n" * 9000) for n in range(2, 302)))
    assert rows(units) == 300
    assert all(sum(map(len, unit.name.texts)) <= 2**20 for unit in units)


def test_names_longer_than_are_remembered_stay_unknown():
    name = "\x7f电" * 5000
    line = event(2, args=f'"fhash":"f1",{KNOWN}')
    units = both(metadata("FH", name, "f1"), metadata("HH", name, HOST), line)
    assert rows(units) == 3


def naming(kind="FH", *, args=f'{KNOWN},"name":"/b","value":"f2"', ph=4, more='"type":1,'):
    return f'{{"name":"{kind}","cat":"dftracer",{more}"pid":7,"tid":7,"ph":{ph},"args":{{{args}}}}}'


@pytest.mark.parametrize(
    "line",
    [
        naming(),
        naming("HH", ph='"M"', more=""),
        naming("SH", ph='"H"'),
        naming(args=f'"value":"f2",{KNOWN},"name":"Größe"'),
        naming(args=f'{KNOWN},"name":"","value":-3'),
        naming(args=f'"hhash":"","name":"/b","value":{2**63 - 1}'),
        naming(args=f'{KNOWN},"name":"/b\x7f","value":""'),
        naming(args=f'{KNOWN},"name":"{"n" * 2000}","value":"{"f" * 63}"'),
        naming().replace(":", " : ") + " ",
    ],
)
def test_a_usual_name_takes_the_kernel(line):
    """Events after the name get the name for its hash, and events before it get the key."""
    use = event(2, args=f'"fhash":"f2",{KNOWN}')
    units = both(use, line, use.replace('"id":2', '"id":3'))
    assert [unit.rows for unit in units] == [3]
    assert rows(both(line, line)) == 2


@pytest.mark.parametrize("host", ['"' + HOST + '"', "-5692", '"h"'])
def test_the_first_record_of_a_process_is_left_to_python(host):
    mine = [event(n, args=f'"hhash":{host}') for n in range(2, 50)]
    other = [event(n, pid=8, args=f'"hhash":{host}') for n in range(2, 50)]
    twin = [event(n, args='"hhash":"other"') for n in range(2, 50)]
    begin = BEGIN.replace(f'"{HOST}"'.encode(), host.encode())
    units = both(*mine, *other, *twin, *mine, begin=begin)
    turns = [unit for unit in units if not isinstance(unit, Block) and unit.name == "process"]
    assert [turn.detail.process for turn in turns] == [1, 2, 0]
    assert rows(units) > 3 * len(mine)


def test_leading_zeros_of_the_pid_do_not_keep_the_kernel_away():
    begin = BEGIN.replace(b'"pid":7', b'"pid":"007"')
    units = both(*(event(n) for n in range(2, 50)), begin=begin)
    assert rows(units) == 48
    assert not [unit for unit in units if not isinstance(unit, Block) and unit.name == "process"]


@pytest.mark.parametrize(
    "line",
    [
        naming("XH"), naming("FHX"), naming("CM"), naming(ph='"N"'), naming(ph=5),
        naming(more='"id":4,'), naming(more='"ts":4,'), naming(more='"dur":4,'), naming(more='"$x":4,'),
        naming(args=f'{KNOWN},"name":"/b"'), naming(args='"name":"/b","value":"f2"'),
        naming(args=f'{KNOWN},"value":"f2"'), naming(args=f'{KNOWN},"name":"/b","value":"f2","x":1'),
        naming(args=f'{KNOWN},"name":"/b","name":"/c"'), naming(args=f'{KNOWN},"value":"f2","value":"f3"'),
        naming(args=f'{KNOWN},"name":"/b","value":"ü"'), naming(args=f'{KNOWN},"name":"/b","value":"\x7f"'), naming(args=f'{KNOWN},"name":"/b","value":{2**63}'),
        naming(args=f'{KNOWN},"name":"/b","value":1.5'), naming(args=f'{KNOWN},"name":"/b","value":true'),
        naming(args=f'{KNOWN},"name":5,"value":"f2"'), naming(args=f'{KNOWN},"name":"a","value":"\\n"'),
        naming(args=f'{KNOWN},"name":"/b","value":"{"f" * 64}"'), naming(args='"hhash":1.5,"name":"/b","value":"f2"'),
        naming(args=f'{KNOWN},"name":"/b","fhash":"f2"'),
        naming(args=f'{KNOWN},"name":"/b","value":"f2",'),
    ],
)  # fmt: skip
def test_any_other_metadata_is_pythons(line):
    use = event(2, args='"fhash":"f2"')
    units = both(use, line, use.replace('"id":2', '"id":3'))
    assert rows(units) == 2


def test_a_name_is_known_to_the_events_of_its_block_from_there_on():
    use = '"fhash":"f2"'
    lines = [event(2, args=use), metadata("FH", "/b", "f2"), event(3, args=use)]
    lines += [metadata("FH", "/c", "f2"), event(4, args=use)]
    (block,) = both(*lines)
    files = [msgspec.json.decode(text) for text in block.column(block.attributes)]
    assert [each.get("fname") for each in files] == [None, None, "/b", None, "/c"]
    assert block.column(block.start) == [1_002, None, 1_003, None, 1_004]
    assert block.column(block.name) == ["read", "/b", "read", "/c", "read"]


def test_names_alone_have_no_times():
    (block,) = both(*(metadata("FH", f"/{n}", f"g{n}") for n in range(20)))
    assert block.start is None
    assert block.end is None


def test_more_names_than_are_remembered_in_one_chunk_are_the_same():
    """Each name comes before the events that refer to it, as the tracer writes it. Meanwhile, old names are evicted."""
    lines = []
    for n in range(2 * NAMES_MAX):
        lines += [metadata("FH", f"/{n}", f"g{n}"), event(n + 2, args=f'{KNOWN},"fhash":"g{n}"')]
        lines += [event(n + 2, args=f'"fhash":"g{n // 2}"')] * (n % 7 == 0)
    units = both(*lines)
    assert rows(units) >= 0.99 * len(lines)


def test_a_name_among_lines_for_python_is_defined_once(monkeypatch):
    """If a line for Python follows, the kernel returns a short block with the name instead of reading it again, because
    the name is already stored.
    """
    monkeypatch.setattr(decoder, "ROWS_MIN", 16)
    odd = event(2, args='"fhash":"f2"')[:-1] + ',"$x":1}'
    units = both(
        *[event(3), metadata("FH", "/b", "f2"), odd, metadata("FH", "/c", "f2"), *[odd] * 9] * 30
    )
    assert (
        0 < rows(units) < 60
    )  # Python does not read one unusual line at a time, but larger and larger pieces.


@pytest.mark.parametrize("before", [naming(), naming(more='"id":4,'), naming(args='"x":1')])
@pytest.mark.parametrize("after", [naming(), event(5)])
def test_what_names_tell_of_the_release_is_the_same(before, after):
    """If metadata has no ids, the ids count events (see `TracedRun.shown`)."""
    units = both(
        before,
        after,
        event(9),
        end(12),
        "]",
        begin=text(metadata("CM", "time_metric", "US"), start()),
    )
    assert records(units)


@pytest.mark.parametrize("first", [event(1, ph='"X"'), counter(2, KNOWN)])
def test_a_phase_spelled_otherwise_is_kept_until_the_release_is_known(first):
    """The first number shows that ids count. Until then, each text differs from a number of the record with the clock."""
    pair = Pair("dftracer")
    pair.feed(text(first))
    as_text = [event(n, ph='"X"') for n in range(2, 22)]
    units = pair.feed(text(*as_text, *(event(n) for n in range(22, 42)), *as_text))
    found = [record for record in records(units) if '"ph":' in record.attributes]
    assert [record.start for record in found] == (
        [1022] if first.startswith('{"id"') else [1000 + n for n in range(2, 22)]
    )
    assert rows(units) >= 20
    pair.end()


def test_columns_without_values_are_none():
    bare = counter(2, "").replace(',"args":{}', "").replace('"type":3,', "")
    (block,) = both(*[bare] * 9)
    assert block.attributes is None
    assert block.end is None


@given(st.lists(st.integers(-3, 40), max_size=40))
def test_ranges_of_ids(ids):
    found = ranges(b"".join(each.to_bytes(8, "little", signed=True) for each in ids))
    if len(set(ids)) < len(ids):
        assert found is None
        return
    listed, breaks = found
    assert [n for first, last in listed for n in range(first, last + 1)] == sorted(ids)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(listed))
    assert breaks == sum(b != a + 1 for a, b in pairwise(ids))


def test_ids_that_are_far_apart_are_taken_one_by_one():
    ids = [1 - 2**63, 2**63 - 1, 5]
    assert ranges(b"".join(each.to_bytes(8, "little", signed=True) for each in ids)) is None
    assert rows(both(*(event(number) for number in (2, 2**40, 3)))) == 3


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2**63 - 1, -(2**63)], None),
        ([2**63 - 1, 2**63 - 3], ([(2**63 - 3, 2**63 - 3), (2**63 - 1, 2**63 - 1)], 1)),
        ([2**63 - 2, 2**63 - 1], ([(2**63 - 2, 2**63 - 1)], 0)),
    ],
)
def test_nothing_comes_behind_the_greatest_id(ids, expected):
    assert ranges(b"".join(each.to_bytes(8, "little", signed=True) for each in ids)) == expected
    both(*map(event, ids), end(5))


@pytest.mark.parametrize("seed", range(3))
def test_ids_in_disorder_are_the_same(seed):
    rng, ids = random.Random(seed), list(range(2, 3000))
    ids = sorted(ids, key=lambda number: number + rng.randrange(300))
    del ids[100:110], ids[2000:2001]
    assert rows(both(*map(event, ids), end(3000))) == len(ids)


@pytest.mark.parametrize("count", [HOLES_MAX - 1, HOLES_MAX, HOLES_MAX + 1])
def test_many_holes_are_the_same(count):
    odd = [2 * number + 3 for number in range(count)]
    both(*map(event, [*odd, *(number - 1 for number in odd)]), end(2 * count + 2))


def test_names_that_become_known_or_are_evicted_change_what_comes_next():
    pair = Pair("dftracer")
    line = text(event(2, args=f'{KNOWN},"fhash":"f2"'), event(3, args='"fhash":"f3"'))
    pair.feed(BEGIN + line)
    pair.feed(text(metadata("FH", "/b", "f2")) + line)
    pair.feed(text(metadata("FH", "/c", "f2")) + line)
    for decoder in (pair.python, pair.kernel):
        decoder.holdings[0].give_way(1)
    pair.feed(line)
    pair.feed(text(*(metadata("FH", f"/{n}", f"g{n}") for n in range(NAMES_MAX))) + line)
    pair.feed(line)


def test_files_read_in_turn_keep_their_names_apart():
    one, other = Pair("dftracer"), Pair("dftracer")
    line = text(*[event(2, args=f'{KNOWN},"fhash":"f1"')] * 20)
    one.feed(BEGIN)
    other.feed(BEGIN.replace(b'"/a"', b'"/other"'))
    for _ in range(3):
        assert '"fname":"/a"' in records(one.feed(line))[0].attributes
        assert '"fname":"/other"' in records(other.feed(line))[0].attributes
