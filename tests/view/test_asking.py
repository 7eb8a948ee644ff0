"""Answers that are kept are those of the snapshot that they are kept for."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from threading import Lock

import msgspec
import pytest
from starlette.requests import Request

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.rollups.sidecar import LatestUsed
from tailrace.view.answers import AnswerPool, Endpoint
from tailrace.view.leases import LeftError, ServedStore, SnapshotLease
from tailrace.view.questions import OfNothing
from tailrace.view.streaming import EXPORT_SECONDS
from tests.query.tables import commit, make, row


class Counted(msgspec.Struct):
    rows: int


def count(lease):
    return sum(1 for _ in lease.snapshot().engine.rows("SELECT seq FROM events"))


def test_an_engine_that_was_given_back_is_not_interrupted(tmp_path, monkeypatch):
    """The client leaves at the moment at which its request ends, and another request takes the engine."""
    store = make(tmp_path / "store", [row(seq=0)])
    interrupted = []
    with closing(ServedStore(choose(None, store), SystemClock())) as served:
        lease = SnapshotLease([served])
        engine = lease.snapshot().engine
        monkeypatch.setattr(engine, "interrupt", lambda: interrupted.append(engine))
        give_back = served.give_back

        def leave(engine):
            give_back(engine)
            lease.interrupt()

        monkeypatch.setattr(served, "give_back", leave)
        lease.end(good=True)
    assert not interrupted


@pytest.mark.parametrize(
    ("lock", "asks"),
    [
        ("live_lock", SnapshotLease.snapshot),
        ("names_lock", SnapshotLease.names),
        ("timeline_lock", SnapshotLease.timeline),
    ],
)
def test_a_request_whose_client_leaves_stops_waiting_for_another_request(tmp_path, lock, asks):
    store = make(tmp_path / "store", [row(seq=0)])
    with closing(ServedStore(choose(None, store), SystemClock())) as served:
        lease = SnapshotLease([served])
        with getattr(served, lock), ThreadPoolExecutor(1) as thread:
            asked = thread.submit(asks, lease)
            try:
                assert not wait([asked], timeout=0.5).done
                lease.interrupt()
                assert wait([asked], timeout=30).done
                assert isinstance(asked.exception(), LeftError)
            finally:
                if not asked.done():
                    getattr(served, lock).release()
                    wait([asked])
                    getattr(served, lock).acquire()
                lease.end(good=False)
        lease = SnapshotLease([served])
        asks(lease)
        lease.end(good=True)


@pytest.mark.parametrize("moves", [False, True])
def test_an_answer_of_two_snapshots_is_not_kept(tmp_path, moves):
    """As where upkeep deletes the files of a snapshot between two statements."""
    store = make(tmp_path / "store", [row(seq=0)])
    asked = []

    def answer(lease, _):
        asked.append(first := count(lease))
        if moves:
            commit(store, [row(seq=len(asked))])
            lease.snapshot().engine.refresh()
        return Counted(first + count(lease))

    endpoint = Endpoint("GET", "/count", "", answer)
    with closing(AnswerPool([ServedStore(choose(None, store), SystemClock())])) as asking:
        for _ in range(2):
            lease = SnapshotLease(asking.stores)
            asking._answer(endpoint, lease, OfNothing())
            lease.end(good=True)
        held = len(asking._kept)
    assert (len(asked), held) == ((2, 0) if moves else (1, 1))


def test_roll_ups_are_not_written_while_a_request_is_answered(tmp_path):
    store = make(tmp_path / "store", [row(seq=0)])
    idle = []

    async def receive():
        await asyncio.Event().wait()

    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []}, receive)
    with closing(AnswerPool([ServedStore(choose(None, store), SystemClock())])) as asking:

        def note(_=None):
            idle.append(asking.idle.is_set())

        def fail(_):
            note()
            raise LeftError("")

        async def ask():
            note()
            await asking.run(request, note)
            note()
            with pytest.raises(LeftError):
                await asking.run(request, fail)
            note()
            await asking.run(request, note, EXPORT_SECONDS)

        asyncio.run(ask())
    assert idle == [True, False, True, False, True, True]


class Interrupted:
    """A lock. When it is released first, another thread does something before this one goes on."""

    def __init__(self, other):
        self._lock = Lock()
        self._others = [other]

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()
        for other in [self._others.pop()] if self._others else ():
            other()


def test_an_answer_that_two_requests_keep_at_once_has_its_room_once():
    kept = LatestUsed(10, len)
    kept._lock = Interrupted(lambda: kept.put("asked", b"1234"))
    kept.put("asked", b"1234")
    kept.put("other", b"123456")
    assert (kept.get("asked"), kept.get("other")) == (b"1234", b"123456")
