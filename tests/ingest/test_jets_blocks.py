"""Blocks of JETS become the rows, figures and states that lists of records become, losses and broken rules included."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tests.forms import examples
from tests.ingest.log import Log, applied
from tests.ingest.test_blocks import same

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")

HEADER = '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}'
BEGIN = '{"clk":%d,"type":"record","name":"n%d","record_type":"T","id":%d,"parent_id":%s,"description":"d"}'
END = '{"clk":%d,"type":"record_end","record_id":%d%s}'
EVENT = '{"clk":%d,"type":"event","name":"e","record_id":%d,"description":"d"}'


def course(chance):
    """Lines of one producer, most of them usual, with losses and broken rules."""
    clk, number, opened = 0, chance.choice([0, 0, 1000, 2**63 - 40]), []
    yield HEADER
    for _ in range(chance.randrange(400)):
        clk += chance.randrange(3)
        odd, what = chance.random(), chance.random()
        if what < 0.2 or not opened:
            number += 1 + (odd > 0.97)
            parent = chance.choice(opened) if opened and what < 0.15 else "null"
            yield BEGIN % (clk, number % 7, number - (odd < 0.01), parent)
            if odd < 0.98:
                opened.append(number)
        elif what < 0.4:
            id_ = opened[0] if odd < 0.01 else opened.pop(chance.choice([0, -1]))
            yield END % (
                clk - 100 * (odd > 0.98),
                id_,
                ',"description":"end","x":1' * (odd > 0.9),
            )
        else:
            yield EVENT % (
                clk,
                chance.choice(opened) if odd < 0.98 else chance.randrange(number + 5),
            )
        if odd > 0.99:
            yield chance.choice(
                [
                    "",
                    "noise",
                    HEADER,
                    '{"type":"annotation","name":"a","record_id":1,"data":{}}',
                ]
            )
    if chance.random() < 0.5:
        yield f'{{"type":"footer","total_records":{number + 2},"total_events":400}}'


def sendings(seed):
    """Lines of two producers, in chunks that are cut anywhere, while time goes by."""
    chance, log = random.Random(seed), Log()
    limits = LedgerConfig(
        open_spans_max=chance.choice([4, 100]), references_max=chance.choice([4, 100])
    )
    numbers = [log.open("jets", transport=t, limits=limits) for t in ("tcp", "unix")]
    left = {n: "".join(f"{line}\n" for line in course(chance)).encode() for n in numbers}
    while left:
        number = chance.choice(list(left))
        cut = chance.choice([50, 3000, 50_000])
        log.data(number, left[number][:cut])
        left[number] = left[number][cut:]
        if not left[number]:
            del left[number]
        log.tick(chance.choice([0.0, 0.1, 10.0]))
    return log.entries


@examples(60)
@given(st.integers(0, 2**32))
def test_lines_with_ids(seed):
    same(sendings(seed))


def test_lines_with_ids_are_packed():
    assert sum(same(sendings(seed)) for seed in range(5)) > 10


def test_lines_that_are_read_one_by_one_are_counted():
    log = Log()
    tcp, udp = log.open("jets"), log.open("jets", transport="udp")
    usual = [HEADER, BEGIN % (1, 1, 1, "null"), *[EVENT % (1, 1)] * 50]
    odd = ['{"clk":1,' + (EVENT % (1, 1))[1:]] * 3
    log.data(tcp, "".join(f"{line}\n" for line in usual + odd + usual[1:]).encode())
    log.datagrams(udp, [f"{line}\n".encode() for line in [*usual, "noise"]])
    ingest = applied(log.entries)
    assert ingest.common("s").slow == len([HEADER, *odd, HEADER, "noise"])
