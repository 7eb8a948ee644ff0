"""Blocks of a kernel become the rows, figures and states that lists of records become."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ingest import session
from tailrace.ingest.machine import Ingest, read_state
from tailrace.kernels import active
from tailrace.model.record import Kind
from tailrace.rows.records import listed
from tests.decoding import et3_lines, kernel_inputs
from tests.decoding.dftracer_lines import HOST, end, event, metadata, start, text
from tests.decoding.test_dftracer_usual import counter
from tests.forms import examples
from tests.ingest import test_announced_wild, test_machine, test_wild
from tests.ingest.log import Log, applied, heph_epoch, heph_event, rows

if active():
    from tailrace.decoding.formats.dftracer import decoder as dftracer
    from tailrace.decoding.formats.et3 import decoder as et3
    from tailrace.decoding.formats.heph import decoder as heph
    from tailrace.decoding.formats.jets import decoder as jets
    from tailrace.decoding.formats.ovni import decoder as ovni

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")


def in_python(decoder):
    return lambda data: listed(decoder.feed(data))


def played(entries, *, packed):
    """The rows of entries, and the state after each tenth of them."""
    with pytest.MonkeyPatch.context() as patch:
        if packed:
            for kernel in (dftracer, et3, heph, jets, ovni):
                patch.setattr(kernel, "ROWS_MIN", 1)
        else:
            patch.setattr(session, "decoding", in_python)
        ingest, states = Ingest(), []
        for number, entry in enumerate(entries):
            ingest.apply(entry)
            if number % 10 == 0:
                states.append(read_state(ingest.snapshot()))
        batch = ingest.batch.take()
        packs = sum(not isinstance(part.rows, list) for part in batch.parts)
        return (
            rows(batch),
            [*states, read_state(ingest.snapshot())],
            ingest.rejected,
            batch.quarantined,
            packs,
        )


def same(entries):
    *found, packs = played(entries, packed=True)
    *expected, none = played(entries, packed=False)
    assert none == 0
    assert found == expected
    return packs


def test_records_in_blocks_are_counted(monkeypatch):
    monkeypatch.setattr(heph, "ROWS_MIN", 16)  # other tests' modules lower it
    log = Log()
    tcp = log.open(transport="tcp")
    log.data(tcp, b"".join(heph_event(1, number) for number in range(100)))
    log.data(tcp, b"noise" + heph_event(1, 100))
    ingest = applied(log.entries)
    assert ingest.common("s").packed == 100
    assert ingest.tally("s").records == {Kind.SPAN: 101}


def test_the_kernels_part_of_a_hole_is_estimated_alike():
    """The hole closes while a block and a list of one entry are counted: either counts as one."""
    log = Log()
    udp = log.open(transport="udp", limits=LedgerConfig(holes_max=1))
    log.datagrams(udp, [b"".join(heph_event(1, number) for number in range(10))])
    log.drops(3)
    several = b"".join(heph_event(1, number) for number in range(10, 14))
    flawed = heph_event(1, 14, start=2**63, end=5)
    log.datagrams(udp, [several, flawed, heph_event(1, 30), heph_event(1, 50)])
    assert same(log.entries) > 1


@examples(150)
@given(
    st.sampled_from([test_wild.wild, test_announced_wild.wild, test_machine.traffic]),
    st.integers(0, 2**32),
)
def test_wild_producers(wild, seed):
    same(wild(seed))


def sendings(seed):
    """Long runs of events of some streams over TCP and UDP, with losses, copies, restarts and odd packets."""
    chance, log = random.Random(seed), Log()
    limits = LedgerConfig(reorder_events=32, streams_max=6)
    transports = {log.open(transport=t, limits=limits): t for t in ("tcp", "udp", "tcp")}
    counts = dict.fromkeys(range(chance.choice([1, 8])), 0)
    name = b"\x00\x04name"
    odd = [
        b"noise", heph_epoch(10**18), heph_event(1, 0, start=2**63, end=5),
        heph_event(2, 7, attributes=name + b"\x83" + struct.pack(">H", 0)),
        heph_event(3, 9, attributes=name + b"\x03" + struct.pack(">d", 0.1)),
    ]  # fmt: skip
    time = 0
    for _ in range(chance.randrange(1, 12)):
        number = chance.choice(list(transports))
        packets = []
        for _ in range(chance.randrange(1, 200)):
            stream = chance.choice(list(counts))
            time += 1000
            packets.append(
                heph_event(
                    stream, counts[stream] % 2**32, start=time, end=time + 5,
                    attributes=chance.choice([b"", name + b"\x02" + struct.pack(">q", time)]),
                )
            )  # fmt: skip
            counts[stream] += 1
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(packets))
            what = chance.random()
            if what < 0.3:
                del packets[at : at + chance.randrange(1, 50)]
                packets = packets or [chance.choice(odd)]
            elif what < 0.6:
                packets.insert(at, chance.choice(packets))
            elif what < 0.9:
                packets.insert(at, chance.choice(odd))
            else:
                counts = dict.fromkeys(counts, 0)
        if transports[number] == "udp":
            log.datagrams(number, packets)
        else:
            whole = b"".join(packets)
            cut = chance.randrange(len(whole) + 1)
            log.data(number, whole[:cut])
            log.data(number, whole[cut:])
        log.tick(chance.choice([0.0, 0.1, 10.0]))
    return log.entries


@examples(60)
@given(st.integers(0, 2**32))
def test_long_runs(seed):
    same(sendings(seed))


def ovni_file(chance):
    return b"".join(
        [kernel_inputs.ovni(chance), *(kernel_inputs.ovni(chance)[8:] for _ in range(4))]
    )


def et3_file(chance):
    return b"".join(et3_lines.et3(chance) for _ in range(4))


def files(seed, format_, make):
    """Files of one run, some of them damaged, which grow in turn; commits in between."""
    chance, log = random.Random(seed), Log()
    paths = [f"/runs/loom.a.1/proc.1/thread.{n}/stream.obs" for n in range(chance.choice([1, 3]))]
    streams = {log.open_file(format_, path): b"" for path in paths}
    for number in streams:
        data = make(chance)
        streams[number] = data if chance.random() < 0.5 else kernel_inputs.damaged(data, chance)
    while any(streams.values()):
        number = chance.choice([number for number, left in streams.items() if left])
        size = chance.choice([1, 30, 300, 3000])
        log.data(number, streams[number][:size])
        streams[number] = streams[number][size:]
        log.tick(chance.choice([0.0, 0.1, 10.0]))
    for number in streams:
        log.close(number)
    return log.entries


FILES = pytest.mark.parametrize(("format_", "make"), [("ovni", ovni_file), ("et3", et3_file)])


@FILES
@examples(60)
@given(seed=st.integers(0, 2**32))
def test_files_with_spans(format_, make, seed):
    same(files(seed, format_, make))


@FILES
def test_spans_of_usual_events_are_packed(format_, make):
    assert sum(same(files(seed, format_, make)) for seed in range(5)) > 10


def test_events_of_an_epoch_beyond_64_bits_have_no_time():
    log = Log()
    session = log.open()
    log.data(session, heph_epoch(2**64 - 1) + b"".join(heph_event(1, n) for n in range(40)))
    same(log.entries)
    found, *_ = played(log.entries, packed=True)
    assert [row["time"] for row in found if row["kind"] == "span"] == [None] * 40


def test_runs_of_usual_events_are_packed():
    assert sum(same(sendings(seed)) for seed in range(5)) > 10


def traced(seed):
    """Files of DFTracer that grow, with metadata among the events, ids in disorder and missing, and odd lines."""
    chance, log = random.Random(seed), Log()
    unit = chance.choice(["US", "NS", "MS", "SEC"])
    for number in [log.open_file("dftracer", f"/runs/{name}.pfw") for name in "ab"]:
        lines = [metadata("HH", "vm", HOST), metadata("CM", "time_metric", unit), start()]
        ids = list(range(2, chance.randrange(3, 400)))
        ids.sort(key=lambda id_: id_ + chance.choice([0, 0, 7]))
        for id_ in ids:
            what = chance.random()
            file = f"f{chance.randrange(4)}"
            if what < 0.03:
                lines.append(metadata("FH", f"/data/{file}", file))
            elif what < 0.05:
                lines.append(chance.choice(["", "{", event(id_)[:40], event(id_, name='a"b')]))
            elif what < 0.1:
                lines.append(counter(chance.choice([2, 2, 3]), f'"hhash":"{HOST}","x":{id_}'))
            elif what < 0.98:
                args = f'"hhash":"{HOST}","ret":{id_},"fhash":"{file}"'
                lines.append(event(id_, tid=id_ % 3, args=chance.choice([args, None])))
        data = text(*lines, end(len(ids) + 2))
        cuts = sorted(chance.randrange(len(data)) for _ in range(chance.randrange(4)))
        for begin, stop in pairwise([0, *cuts, len(data)]):
            log.data(number, data[begin:stop])
    return log.entries


@examples(60)
@given(st.integers(0, 2**32))
def test_files_of_dftracer(seed):
    same(traced(seed))


def test_usual_events_of_dftracer_are_packed():
    assert sum(same(traced(seed)) for seed in range(5)) > 10
