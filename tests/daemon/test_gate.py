"""The order in which sources wait for room, and in which they go on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.daemon.loops.sync import BEHIND_MAX, Gate
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.entry import EntryKind
from tailrace.spool.segment import HEAD_SIZE, Segment
from tailrace.spool.spool import BUFFER_MAX, Spool

HELD_MAX = 2**30


def gate(*, buffered=0, held=0, undecoded=0, refuses=False):
    spool = SimpleNamespace(buffered=buffered, held=held, held_max=HELD_MAX, end=undecoded)
    return Gate(spool, SimpleNamespace(position=0), lambda: refuses)


def waiting(of):
    return [name for name in ("behind", "closed", "shut") if getattr(of, name)]


@pytest.mark.parametrize(
    ("state", "wait"),
    [
        ({}, []),
        ({"undecoded": BEHIND_MAX + 1}, ["behind"]),
        ({"undecoded": BEHIND_MAX + 1, "refuses": True}, []),
        ({"buffered": BUFFER_MAX * 3 // 4 + 1}, ["behind", "closed"]),
        ({"buffered": BUFFER_MAX + 1}, ["behind", "closed", "shut"]),
        ({"held": HELD_MAX - 2**20}, ["behind", "closed"]),
        ({"held": HELD_MAX + 1}, ["behind", "closed", "shut"]),
    ],
    ids=str,
)
def test_files_wait_first_and_datagrams_last(state, wait):
    assert waiting(gate(**state)) == wait


def test_all_wait_where_the_disk_has_no_room():
    of = gate()
    of.full = True
    assert waiting(of) == ["behind", "closed", "shut"]
    assert of.wants_release


@pytest.mark.parametrize(
    ("state", "wants"),
    [({}, False), ({"buffered": BUFFER_MAX + 1}, False), ({"held": HELD_MAX - 2**20}, True)],
    ids=str,
)
def test_a_release_makes_room_in_a_full_spool_and_not_for_a_slow_disk(state, wants):
    assert gate(**state).wants_release == wants


async def test_those_who_wait_go_on_in_their_order_and_no_more_than_find_room():
    spool = SimpleNamespace(buffered=BUFFER_MAX, held=0, held_max=HELD_MAX, end=0)
    of = Gate(spool, SimpleNamespace(position=0), lambda: False)
    gone: list[int] = []

    async def take(number):
        await of.of_connections.wait()
        gone.append(number)
        spool.buffered += BUFFER_MAX // 8

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(take, number)
            await trio.testing.wait_all_tasks_blocked()
        assert gone == []
        for opened in ([0, 1, 2], [0, 1, 2, 3, 4, 5]):
            spool.buffered = BUFFER_MAX // 2 - 1
            of.opened.pulse()
            await trio.testing.wait_all_tasks_blocked()
            assert gone == opened
            late = len(gone)
        nursery.start_soon(take, 8)
        await trio.testing.wait_all_tasks_blocked()
        assert len(gone) == late
        spool.buffered = 0
        of.opened.pulse()
    assert gone == list(range(9))


async def test_one_that_gives_up_waiting_lets_the_next_one_go_on():
    spool = SimpleNamespace(buffered=BUFFER_MAX, held=0, held_max=HELD_MAX, end=0)
    of = Gate(spool, SimpleNamespace(position=0), lambda: False)
    scope = trio.CancelScope()

    async def leave():
        with scope:
            await of.of_datagrams.wait()
            raise AssertionError("it was cancelled")

    async with trio.open_nursery() as nursery:
        spool.buffered = BUFFER_MAX + 1
        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(of.of_datagrams.wait)
        await trio.testing.wait_all_tasks_blocked()
        spool.buffered = 0
        scope.cancel()


async def test_files_go_on_when_entries_were_decoded():
    spool = SimpleNamespace(buffered=0, held=0, held_max=HELD_MAX, end=BEHIND_MAX + 1)
    ingest = SimpleNamespace(position=0)
    of = Gate(spool, ingest, lambda: False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of.of_files.wait)
        await trio.testing.wait_all_tasks_blocked()
        ingest.position = 1
        of.turned.pulse()


def test_the_log_keeps_what_files_may_be_behind_in_memory(tmp_path, monkeypatch):
    spool = Spool.open(tmp_path, SpoolConfig(), SystemClock())
    try:
        for _ in range(BEHIND_MAX // CHUNK_MAX):
            spool.append(EntryKind.DATA, 1, bytes(CHUNK_MAX - HEAD_SIZE))
            spool.sync()
        assert spool.durable - spool.begin == BEHIND_MAX
        monkeypatch.setattr(Segment, "scan", None)  # the disk is not read
        assert len(spool.read(spool.begin, 1)) == 1
    finally:
        spool.close()
