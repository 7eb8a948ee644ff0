"""Test the kernel of ovni: which events it reads, and its limits. `test_kernels.py` has the tests for all kernels."""

from __future__ import annotations

import pytest

from tailrace import kernels
from tailrace.decoding.formats.ovni.stack import OPEN_MAX
from tailrace.rows.block import Block
from tests.decoding.blockwise import records
from tests.decoding.ovni_bytes import HEADER, event, jumbo, mark, starts, u32
from tests.decoding.pair import Pair, rows

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)
PATH = "/runs/ovni/loom.node.1/proc.7/thread.7/stream.obs"
TYPE = jumbo("VYc", 1, u32(4) + b"gemm\0")


def both(*parts, limit=1 << 20, path=PATH):
    """Return what the decoder with the kernel returns for some chunks. The Python decoder must return the same records."""
    pair = Pair("ovni", limit, path)
    found = pair.feed(*parts)
    pair.end()
    return found


def test_an_event_behind_bytes_that_were_given_up_ends_their_fault():
    pair = Pair("ovni")
    pair.feed(stream(), TYPE[:-3])
    pair.give_up()
    pair.feed(b"".join(event("VS@", clock) for clock in range(1, 40)), b"\xff" * 30)
    assert pair.end()[0].flaw == "bad_event"


def stream(*events):
    return b"".join([HEADER, starts(0), *events])


def test_what_is_usual_takes_the_kernel():
    usual = [
        event("VU[", 1), event("VU]", 1), event("VTx", 2, u32(1, 0)), event("VTp", 3, u32(1, 0)), event("VS@", 4),
        event("VTr", 5, u32(1, 0)), event("VTe", 6, u32(1, 0)), event("KCO", 7), event("KCI", 8), mark("OM[", 9, 1, -2**63),
        mark("OM]", 10, 1, -2**63), mark("OM=", 11, 2, 5), event("VTc", 12, u32(3, 4)), event("OCn", 13, u32(4)),
        event("OHC", 14, u32(2**32 - 1) + b"\xff" * 8), event("OF]", 15),
        event("KCO", 16), event("OU[", 16), event("KCI", 1), event("KCO", 1), event("OU[", 2), event("OU]", 17), event("OU]", 17),
    ]  # fmt: skip
    units = both(stream(event("OF[", 0), *usual))
    assert rows(units) == len(usual)


@pytest.mark.parametrize(
    "unusual",
    [
        event("VU[", 0), event("OU[", 2) + event("KCO", 1) + event("OU]", 1), event("VU]", 2), event("VU[", 2, u32(1)), event("XYZ", 2), event("OHp", 2), TYPE,
        event("VU[", 2, flags=0x20), event("VTx", 2, u32(1)) + event("VTe", 3, u32(1, 0)), mark("OM]", 2, 1, 1), b"\xff" * 30,
    ],
    ids=[
        "clock", "late", "end", "payload", "unknown", "state", "jumbo", "flags", "other task", "mark", "noise",
    ],
)  # fmt: skip
def test_what_is_not_is_left_to_python(unusual):
    units = both(stream(event("VS@", 1), unusual, event("VS@", 4)))
    assert 1 <= rows(units) <= 4


@pytest.mark.parametrize("cut", range(0, 240, 5))
def test_late_events_out_of_order_are_left_to_python(cut):
    """Each end finds its begin, even if the end comes first in the file, and wherever the chunk ends."""
    calm = b"".join(event("VS@", 1) for _ in range(20))
    late = (
        event("OU[", 20)
        + event("KCI", 9)
        + event("KCO", 8)
        + event("VU[", 7)
        + event("VU]", 12)
        + event("OU]", 21)
    )
    whole = stream(calm, late, event("VS@", 30) * 20)
    units = both(whole[:cut] + whole[cut:300], whole[300 : 300 + cut], whole[300 + cut :])
    assert {record.flaw for record in records(units)} == {None}
    assert [record.id for record in records(units) if record.name == "out of the CPU"] == [3, 3]
    assert rows(units) >= 19


def test_a_task_is_named_once_its_type_is_known():
    units = both(
        stream(
            event("VTx", 1, u32(9, 0)), event("VTc", 1, u32(5, 4)), event("VTx", 1, u32(5, 0)), TYPE,
            event("VTx", 2, u32(5, 1)), event("VTc", 2, u32(6, 4)), event("VTx", 2, u32(6, 0)), event("VTx", 2, u32(9, 1)),
        ),
        event("VTx", 3, u32(6, 1)),
    )  # fmt: skip
    assert [record.name for record in records(units)][2:] == [
        None, None, None, "gemm", "gemm", "gemm", "gemm", None, "gemm",
    ]  # fmt: skip


def test_more_tasks_than_are_remembered():
    both(
        stream(*(event("VTc", n, u32(n, 4)) + event("VTx", n, u32(n // 2, 0)) for n in range(5000)))
    )


def test_more_open_spans_than_are_remembered():
    both(stream(*(event("VU[", n) for n in range(OPEN_MAX + 9)), event("VS@", 10**4)))
    both(stream(*(event("KCO", n) for n in range(OPEN_MAX + 9)), *[event("KCI", 10**4)] * 9))


def test_the_open_spans_are_not_copied_for_each_event_that_is_not_usual(monkeypatch):
    """If there is no room for another open span, a begin is not usual. A copy of all open spans before such a begin
    took 60 µs, for 12 bytes.
    """
    from tailrace.decoding.formats.ovni import decoder

    asked, scan = [], decoder._scan
    monkeypatch.setattr(decoder, "_scan", lambda *about: asked.append(about) or scan(*about))
    many = 2000
    both(stream(*(event("VS[", 10 * n) for n in range(OPEN_MAX + many))))
    assert len(asked) < many // 10


def test_more_names_than_are_remembered_begin_a_new_list():
    """Earlier blocks keep their names."""
    named = (
        jumbo("VYc", n, u32(n) + b"type %d\0" % n) + event("VTc", n, u32(n, n)) for n in range(9000)
    )
    units = both(stream(*named))
    blocks = [unit for unit in units if isinstance(unit, Block)]
    assert len({id(unit.name.texts) for unit in blocks}) > 1
    assert all(unit.name.known <= len(unit.name.texts) <= 4096 for unit in blocks)


def test_attributes_longer_than_a_block_takes_are_several_blocks():
    path = f"/runs/ovni/loom.{'é' * 3000}/proc.7/thread.7/stream.obs"
    units = both(stream(event("VTx", 1, u32(1, 0)) * 500), path=path)
    assert len([unit for unit in units if isinstance(unit, Block)]) > 1
