"""The kernel of Heph against the decoder in Python: equal records and states, whatever the input; and its bounds."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tailrace import kernels
from tailrace.decoding.formats.heph import FORMAT
from tailrace.decoding.formats.heph.decoder import HephDecoder
from tailrace.rows.block import Block
from tests.decoding.blockwise import records
from tests.decoding.kernel_inputs import MAKERS, VECTORS, compare, damaged, heph
from tests.decoding.test_heph import attribute, attribute_lists, event, f64, string, u64

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)
ROOT = Path(__file__).parents[2]
REAL = ("busy", "busy_lossy", "contended", "restart_concat", "runtime")
"""Vectors from the real producer, of more than a few packets."""


def both(data, limit=1 << 20):
    """Return what the kernel's decoder says, after a check that the decoder in Python says the same."""
    python, kernel = HephDecoder(limit), FORMAT.decoder(limit, None)
    units = kernel.blocks(data)
    assert records(units) == python.feed(data)
    assert kernel.state == python.state
    return units


def rows(units):
    return sum(unit.rows for unit in units if isinstance(unit, Block))


@pytest.mark.parametrize("case", REAL)
def test_nearly_all_real_records_take_the_kernel(case):
    units = both((VECTORS / "heph" / f"{case}.in").read_bytes())
    assert rows(units) >= 0.95 * len(records(units))


@given(st.lists(attribute_lists, max_size=5))
def test_any_attributes_are_the_same(lists):
    both(b"".join(event(b"d", b"".join(attribute(*a) for a in one)) for one in lists))


@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.text(max_size=40), max_size=5))
def test_any_names_and_strings_are_the_same(raws, texts):
    for text in [*raws, *(text.encode(errors="surrogatepass") for text in texts)]:
        both(event(text))
        both(event(b"d", string(b"s") + b"\x04" + string(text)))
        both(event(b"d", string(text) + b"\x04" + string(b"s")))


@given(f64, u64)
def test_any_number_is_the_same(number, bits):
    float_ = attribute("f", "f64", number)
    both(event(b"d", float_ + string(b"u") + b"\x01" + bits.to_bytes(8, "big")))
    both(event(b"d", string(b"i") + b"\x02" + bits.to_bytes(8, "big")))
    both(event(b"d", string(b"f") + b"\x03" + bits.to_bytes(8, "big")))


@given(st.integers(1, 40 * 50), st.data())
def test_an_event_that_a_cut_tears_begins_the_next_block(cut, drawn):
    """A record between two blocks would be a part of its own in all later stages."""
    data = b"".join(event(b"event %2d" % i) for i in range(80))
    kernel, python = FORMAT.decoder(1 << 20, None), HephDecoder(1 << 20)
    first = kernel.blocks(data[:cut])
    if drawn.draw(st.booleans()):  # after a restart in between
        kernel = FORMAT.decoder(1 << 20, kernel.state)
    second = kernel.blocks(data[cut:])
    assert [type(unit) for unit in second] == [Block]
    assert records(first + second) == python.feed(data)
    assert kernel.state == python.state


def test_what_is_usual_takes_the_kernel():
    fields = [
        attribute("u", "u64", 2**64 - 1), attribute("i", "i64", 5), attribute("j", "i64", -5), attribute("", "f64", 0.5),
        attribute('quote"\\', "string", "\x00\x1f\n\"\\ é 電 😀"),
    ]  # fmt: skip
    counter = attribute("tailrace.counter", "u64", 1)
    usual = [
        event(b""),
        event("é".encode(), b"".join(fields)),
        event(b"c", counter),
        event(b"d", end=2**63 - 1),
    ]
    assert rows(both(b"".join(usual))) == len(usual)


@pytest.mark.parametrize(
    "unusual",
    [
        event(b"\xff"), event(b"d", start=2**63), event(b"d", attribute("$n", "u64", 1)),
        event(b"d", attribute("n", "u64", 1) * 2), event(b"d", attribute("n", "u64[]", [1])),
        event(b"d", attribute("n", "f64", float("nan"))), event(b"d", attribute("n" * 256, "u64", 1)),
        event(b"d", attribute("n", "u64", 1)[:-1]), event(b"d", b"\x00"), event(b"d" * 4096),
        event(b"d", b"".join(attribute(f"n{i}", "u64", i) for i in range(65))),
        event(b"d", string(b"n") + b"\x05" + bytes(8)),
    ],
    ids=[
        "name", "time", "dollar", "twice", "array", "nan", "long name", "torn", "one byte", "long", "many", "type",
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python_alone(unusual):
    units = both(event(b"a") + unusual + event(b"b"))
    assert rows(units) == 2
    assert len(records(units)) >= 3


def test_more_rows_than_a_block_takes_are_several_blocks():
    units = both(event(b"d", attribute("n", "u64", 1)) * 20_000)
    assert [unit.rows for unit in units] == [8192, 8192, 3616]


def test_more_attributes_than_a_block_takes_are_several_blocks():
    long = event(b"d", b"".join(attribute(n, "string", "\x01" * 1900) for n in "ab"))
    units = both(long * 200)
    assert rows(units) == 200
    assert all(isinstance(unit, Block) for unit in units)
    assert len(units) > 2


def test_more_names_and_streams_than_are_remembered_begin_new_lists():
    """The blocks before keep theirs."""
    data = b"".join(event(b"name %d" % i, stream=i) for i in range(20_000))
    units = both(data)
    assert rows(units) == 20_000
    assert len({id(unit.name.texts) for unit in units}) > 2
    assert len({id(unit.stream.texts) for unit in units}) > 1
    assert all(unit.name.known <= len(unit.name.texts) <= 4096 for unit in units)
    assert all(unit.stream.known <= len(unit.stream.texts) <= 8192 for unit in units)


def test_long_names_are_bounded_by_their_bytes():
    data = b"".join(event(b"%d" % i + b"n" * 4000) for i in range(1000))
    units = both(data)
    assert rows(units) == 1000
    assert all(sum(map(len, unit.name.texts)) <= 2**20 for unit in units)


def test_a_block_holds_no_more_than_its_rows():
    (block,) = both(event(b"d", attribute("n", "u64", 1)) * 9 + event(b"e"))
    assert block.rows == 10
    assert [len(c.values) for c in (block.offset, block.size, block.start, block.end)] == [80] * 4
    assert [len(c.codes) for c in (block.kind, block.stream, block.name)] == [40] * 3
    texts = block.attributes
    assert (len(texts.ends), len(texts.data), len(texts.valid)) == (44, 9 * len('{"n":1}'), 2)


def test_where_no_event_has_attributes_there_is_no_column():
    (block,) = both(event(b"d") * 9)
    assert block.attributes is None


def test_threads_may_share_the_kernel():
    """It lets go of the interpreter's lock; who comes meanwhile gets its records from Python."""
    data = b"".join(
        event(b"d%d" % (i % 50), attribute("n", "u64", i), stream=i) for i in range(3000)
    )
    expected = HephDecoder(1 << 20).feed(data)
    differing = []

    def read():
        for _ in range(30):
            found = records(FORMAT.decoder(1 << 20, None).blocks(data))
            differing.extend([found] if found != expected else [])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


@given(st.randoms(use_true_random=False))
def test_damaged_packets_are_the_same(rng):
    both(damaged(heph(rng), rng), rng.choice([64, 200, 4096]))


@pytest.mark.parametrize("count", [500, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_damaged_packets_are_the_same_by_the_thousand(count):
    inputs, found, from_blocks = compare("heph", count, seed=20261123)
    assert inputs == count
    assert from_blocks > found / 4


def sanitizer():
    """The sanitizer's library, which must be loaded first, or None."""
    if shutil.which("gcc") is None:
        return None
    said = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    path = Path(said.stdout.strip())
    return path if path.is_absolute() else None


@pytest.mark.slow
@pytest.mark.skipif(sanitizer() is None, reason="no address sanitizer: apt install gcc")
def test_sanitizers_find_nothing():
    command = ["make", "sanitize", "INPUTS=20000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("none differs") == len(MAKERS)
