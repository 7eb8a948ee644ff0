"""The end of a daemon: in which order it goes, and what a table that does not answer leaves to the next start."""

from __future__ import annotations

import threading

import pytest
import trio
from deltalake import DeltaTable

from tailrace.daemon.loops import upkeep
from tailrace.daemon.loops.loops import LAST_ANSWERS_SECONDS, STOP_SECONDS, TICK_SECONDS
from tailrace.errors import FullError, StoreError
from tailrace.spool.entry import EntryKind
from tailrace.store import presence as running_file
from tests import toml
from tests.daemon.virtual import Failing, configuration, opened, running, seqs
from tests.ingest.log import heph_event, heph_session


class Order:
    """The calls in their order: a name for each call that it was told to watch."""

    def __init__(self, monkeypatch):
        self.done = []
        self._monkeypatch = monkeypatch

    def watch(self, owner, method, name=lambda *_, **__: None):
        real = getattr(owner, method)

        def call(*arguments, **named):
            result = real(*arguments, **named)
            self.done.append(name(*arguments, **named) or method)
            return result

        self._monkeypatch.setattr(owner, method, call)


def table(tmp_path):
    return DeltaTable(str(tmp_path / "store" / "events"))


async def test_sources_end_first_and_then_all_is_synced_decoded_committed_and_saved(
    autojump_clock, calls, tmp_path, monkeypatch
):
    order = Order(monkeypatch)
    with opened(configuration(tmp_path)) as life:
        daemon = life.daemon
        order.watch(daemon.spool, "append", lambda kind, *_: kind.name)
        async with running(life):
            await life.committed()
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            await stream.send_all(heph_session(7, acknowledge=True))
            await life.until(daemon.ingest.open_sessions)
            await life.committed()
            order.done.clear()
            order.watch(daemon.spool, "sync")
            order.watch(daemon.ingest, "steps", lambda entry: f"decode {entry.kind.name}")
            order.watch(daemon.disk.table, "land")
            order.watch(daemon.disk.checkpoints, "save")
            order.watch(daemon.sources["tcp"], "reply", lambda *_: "acknowledge")
            order.watch(daemon.marks, "finish")
            # Sent, and not taken in yet when the stop begins.
            await stream.send_all(heph_event(1, 0) + heph_event(1, 1))
        await stream.aclose()
        done = [what for what in order.done if what not in {"TICK", "decode TICK"}]
        data, close, stop = map(done.index, ("DATA", "CLOSE", "STOP"))
        assert data < done.index("acknowledge") < close < stop
        assert done[stop:] == [
            "STOP", "sync", "decode CLOSE", "decode STOP", "land", "save", "finish",
        ]  # fmt: skip
        assert daemon.loops.committing.committed == daemon.spool.end == daemon.spool.durable
        assert daemon.ingest.position == daemon.disk.checkpoints.newest(2**64 - 1).position
    assert seqs(tmp_path) == [0, 1]


async def test_a_long_log_is_left_out_once_the_table_has_its_rows(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        daemon, order = life.daemon, Order(monkeypatch)
        daemon.loops.log_at_rest = 100
        async with running(life):
            await life.committed()
            for number in range(10):
                await life.send(heph_event(1, number))
            await life.committed()
            assert daemon.spool.begin == 0
            for call in ("append", "seal", "release"):
                order.watch(daemon.spool, call, lambda kind="", *_: getattr(kind, "name", None))
            order.watch(daemon.disk.table, "land")
            order.watch(daemon.disk.checkpoints, "save")
        done = [what for what in order.done if what != "TICK"]
        stop = done.index("STOP")
        assert done[stop - 1 :] == [
            "seal", "STOP", "land", "save", "STOP", "land", "save", "release",
        ]  # fmt: skip
        checkpoints, end = daemon.disk.checkpoints, daemon.spool.end
        newest = checkpoints.newest(end)
        older = checkpoints.newest(newest.position - 1)
        assert 0 < daemon.spool.begin <= older.position < newest.position == end
        assert daemon.spool.held < 200
    assert seqs(tmp_path) == list(range(10))
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            await life.committed()
            await life.send(heph_event(1, 11))
    assert seqs(tmp_path) == [*range(10), 11]


async def test_a_table_that_does_not_take_it_leaves_the_rest_to_the_next_start(
    autojump_clock, calls, tmp_path, monkeypatch, caplog
):
    with opened(configuration(tmp_path)) as life:
        commits = Failing(monkeypatch, life.daemon.disk.table, "land")
        async with running(life):
            await life.committed()
            commits.error = StoreError("the table is away")
            await life.send(heph_event(1, 0))
            await life.until(lambda: "store" in life.conditions)
            begun = trio.current_time()
        assert STOP_SECONDS <= trio.current_time() - begun <= STOP_SECONDS + 1
        assert "the rest stays in the spool" in caplog.text
        assert life.daemon.spool.durable == life.daemon.spool.end
    assert seqs(tmp_path) == []
    assert not running_file.is_finished(tmp_path / "store")
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            await life.committed()
    assert seqs(tmp_path) == [0]


async def test_a_stop_without_room_on_the_disk_says_that_the_last_bytes_are_lost(
    autojump_clock, calls, tmp_path, monkeypatch, caplog
):
    with opened(configuration(tmp_path)) as life:
        syncs = Failing(monkeypatch, life.daemon.spool, "sync")
        async with running(life):
            await life.committed()
            syncs.error = FullError("no room")
            await life.send(heph_event(1, 0))
            await life.until(lambda: "spool" in life.conditions)
            begun = trio.current_time()
        assert STOP_SECONDS <= trio.current_time() - begun <= STOP_SECONDS + 1
        assert "the disk did not take the last" in caplog.text
        assert "stays in the spool" not in caplog.text
    assert not running_file.is_finished(tmp_path / "store")


async def test_nothing_that_a_source_hears_after_its_end_is_taken_in(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        kinds = []
        real = life.daemon.spool.append
        monkeypatch.setattr(
            life.daemon.spool, "append",
            lambda kind, *arguments: kinds.append(kind) or real(kind, *arguments),
        )  # fmt: skip
        async with running(life):
            await life.committed()
            await life.send(heph_event(1, 0))
            await life.committed()
        taken = {EntryKind.DATAGRAMS, EntryKind.DATA, EntryKind.OPEN, EntryKind.CLOSE}
        assert taken.isdisjoint(kinds[kinds.index(EntryKind.STOP) :])
    assert seqs(tmp_path) == [0]


async def test_a_stop_does_not_wait_for_a_look_at_a_table_that_answers_slowly(monkeypatch):
    """Time is real, and so is the thread."""
    looks, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

    def look(store, context):
        looks.set()
        may_answer.wait(30)
        answered.set()

    monkeypatch.setattr(upkeep, "_is_due", look)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upkeep.run, "", None, int)
            await trio.to_thread.run_sync(looks.wait)
            nursery.cancel_scope.cancel()
        assert not answered.is_set()
    finally:
        may_answer.set()


@pytest.mark.parametrize("_", range(8))
async def test_a_stop_while_a_commit_lands_commits_the_rest_behind_it(
    autojump_clock, calls, tmp_path, _
):
    """The loop that commits and the stop wake at the same time, when the commit has landed; trio draws who goes on first."""
    with opened(configuration(tmp_path)) as life:
        daemon = life.daemon
        async with running(life):
            await life.committed()
            go_on = calls.hold(daemon.disk.table.land)
            await life.send(heph_event(1, 0))
            await trio.sleep(5)
            await life.send(heph_event(1, 1))
            await trio.sleep(5)
            begun = daemon.loops.committing.commits
            life.stop.set()
            await trio.sleep(5)
            assert daemon.loops.committing.commits == begun
            go_on.set()
        assert daemon.loops.committing.committed == daemon.spool.end == daemon.spool.durable
        assert daemon.ingest.position == daemon.disk.checkpoints.newest(2**64 - 1).position
    assert seqs(tmp_path) == [0, 1]
    assert running_file.is_finished(tmp_path / "store")


async def test_a_stop_beside_a_full_spool_ends_though_commits_are_slower_than_ticks(
    autojump_clock, calls, tmp_path, monkeypatch
):
    """Each tick wants room in the spool, by one more commit."""
    with opened(configuration(tmp_path)) as life:
        daemon = life.daemon
        async with running(life):
            await life.committed()
            await life.send(heph_event(1, 0))
            real, land = trio.to_thread.run_sync, daemon.disk.table.land

            async def slow(call, *arguments, **named):
                if getattr(call, "func", None) == land:
                    await trio.sleep(1.4 * TICK_SECONDS)
                return await real(call, *arguments, **named)

            monkeypatch.setattr(trio.to_thread, "run_sync", slow)
            monkeypatch.setattr(type(daemon.spool), "full", True)
            daemon.loops.gate.full = True
            begun = trio.current_time()
            life.stop.set()
        assert trio.current_time() - begun < STOP_SECONDS / 4
    assert seqs(tmp_path) == [0]
    assert running_file.is_finished(tmp_path / "store")


async def test_a_collector_of_finished_files_waits_for_no_interval_of_its_log(
    autojump_clock, calls, tmp_path
):
    """Events wake the loops. Only waits for a time move virtual time on, so none passes."""
    trace = tmp_path / "heph.trace"
    trace.write_bytes(heph_session(7) + heph_event(1, 0))
    followed = toml.source("files", "tail", paths=[str(trace)])
    config = followed + toml.section("spool", sync_interval="1 h")
    with opened(configuration(tmp_path, config), once=True) as life:
        begun = trio.current_time()
        await life.daemon.run(life.stop, started=lambda: None)
        assert trio.current_time() - begun < LAST_ANSWERS_SECONDS
    assert seqs(tmp_path) == [0]


async def test_a_collector_of_finished_files_ends_when_its_last_source_has_read_all(
    autojump_clock, calls, tmp_path
):
    """Sources start one after another. The first ones have nothing to read, and end while the last one starts."""
    files, empty = tmp_path / "files", tmp_path / "empty"
    files.mkdir()
    empty.mkdir()
    for number in range(300):
        content = heph_session(number) + heph_event(1, number)
        (files / f"{number}.heph.trace").write_bytes(content)
    config = "".join(toml.source(f"empty_{n}", "tail", paths=[str(empty)]) for n in range(30))
    config += toml.source("files", "tail", paths=[str(files)])
    with opened(configuration(tmp_path, config), once=True) as life:
        await life.daemon.run(life.stop, started=lambda: None)
    assert seqs(tmp_path) == list(range(300))
