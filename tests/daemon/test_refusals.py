"""A daemon whose table or disk refuses, in virtual time: what it says, when it tries again, and that nothing is lost."""

from __future__ import annotations

import errno
import os

import pytest
import trio

from tailrace.daemon.loops import commit, sync
from tailrace.errors import FullError, StoreError, SyncError
from tests import toml
from tests.daemon.virtual import CONFIG, Failing, configuration, opened, running, seqs
from tests.ingest.log import heph_event


def events(*numbers):
    return [heph_event(1, number) for number in numbers]


async def test_the_log_is_synced_while_all_other_threads_wait_for_the_store(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path)) as life:
        spool = life.daemon.spool
        async with running(life):
            await life.committed()
            trio.to_thread.current_default_thread_limiter().total_tokens = 1
            answers = trio.Event()
            calls.hanging = lambda call: call != spool.sync and answers
            await life.send(*events(0, 1, 2))
            await trio.sleep(10)
            await life.send(*events(3))
            await life.until(lambda: spool.durable == spool.end)
            assert seqs(tmp_path) == []
            answers.set()
            await life.committed()
    assert seqs(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("refused", ["prepare", "land"])
async def test_a_commit_is_tried_again_ever_more_seldom_and_then_done_once(
    autojump_clock, calls, tmp_path, monkeypatch, refused
):
    with opened(configuration(tmp_path)) as life:
        table = Failing(monkeypatch, life.daemon.disk.table, refused)
        async with running(life):
            await life.committed()
            table.times.clear()
            table.error = StoreError("the table is away")
            await life.send(*events(0, 1, 2))
            await life.until(lambda: len(table.times) == 12)
            assert "the table is away; the spool keeps what comes" in life.conditions["store"]
            assert life.daemon.health.refusals == 12
            # From commit to commit a delay that doubles, between its half and its whole.
            waits = [b - a for a, b in zip(table.times, table.times[1:], strict=False)]
            delay = commit.RETRY_FIRST
            for wait in waits:
                assert delay / 2 <= wait <= delay * 1.001
                delay = min(2 * delay, commit.RETRY_MOST)
            assert delay == commit.RETRY_MOST
            await life.send(*events(3, 4))
            assert seqs(tmp_path) == []
            table.error = None
            await life.committed()
            assert "store" not in life.conditions
    assert seqs(tmp_path) == [0, 1, 2, 3, 4]


async def test_decoding_waits_until_a_descriptor_is_free_to_read_the_log(
    autojump_clock, calls, tmp_path, monkeypatch
):
    """Otherwise synced entries would count as lost by the disk."""
    with opened(configuration(tmp_path)) as life:
        daemon = life.daemon
        monkeypatch.setattr("tailrace.spool.spool.RECENT_MAX", 0)
        async with running(life):
            await life.committed()
            log = Failing(monkeypatch, daemon.disk.spool._disk, "read")
            log.error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            await life.send(*events(0, 1, 2))
            before = daemon.progress
            await life.until(lambda: daemon.figures.log_descriptors > 3)
            assert daemon.progress.lives_on(before), "a watchdog sees signs of life"
            log.error = None
            await life.committed()
            assert "damage" not in life.conditions
    assert seqs(tmp_path) == [0, 1, 2]


async def test_sources_wait_while_the_spool_is_full_and_go_on_when_it_has_room(
    autojump_clock, calls, tmp_path, monkeypatch
):
    text = CONFIG + toml.section("spool", max_size="4 MiB", segment_size="1 MiB")
    text += (
        'checkpoint_interval = "1 h"\ncheckpoint_bytes = "1 GiB"\n'  # only want of room is a reason
    )
    numbers = iter(range(10**6))
    with opened(configuration(tmp_path, text)) as life:
        daemon = life.daemon
        table = Failing(monkeypatch, daemon.disk.table, "land")
        async with running(life):
            await life.committed()
            table.error = StoreError("the table is away")
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            async with trio.open_nursery() as nursery:
                sent = []

                async def send():
                    while len(sent) < 300:
                        name = b"x" * 20_000
                        sent.append(next(numbers))
                        await stream.send_all(heph_event(1, sent[-1], name=name))
                    await stream.aclose()

                nursery.start_soon(send)
                await life.until(lambda: "spool" in life.conditions)
                assert "receiving waits until the table has taken them" in life.conditions["spool"]
                assert not daemon.health.ready
                await trio.sleep(60)
                held = daemon.spool.end - daemon.spool.begin
                before = daemon.sources["tcp"].figures().bytes
                assert held < 5 * 2**20
                await trio.sleep(60)
                assert daemon.sources["tcp"].figures().bytes == before < 300 * 20_000
                table.error = None
            await life.until(lambda: "spool" not in life.conditions)
            assert daemon.health.ready
            await life.until(lambda: daemon.ingest.account("tcp").seen == 300)
            await life.committed()
    assert seqs(tmp_path) == list(range(300))


async def test_a_disk_without_room_is_asked_again_and_nothing_is_decoded_before(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        spool = Failing(monkeypatch, life.daemon.spool, "sync")
        async with running(life):
            await life.committed()
            spool.error = FullError("no space left on device")
            spool.times.clear()
            await life.send(*events(0))
            await trio.sleep(10)
            assert "no space left on device; receiving waits" in life.conditions["spool"]
            assert not life.daemon.health.ready
            assert life.daemon.ingest.account("udp").seen == 0
            waits = [b - a for a, b in zip(spool.times, spool.times[1:], strict=False)]
            assert len(waits) > 10
            assert waits == pytest.approx([sync.RETRY_AFTER] * len(waits))
            spool.error = None
            await life.committed()
            assert life.conditions == {}
    assert seqs(tmp_path) == [0]


async def test_a_failed_sync_ends_the_daemon_before_anything_of_it_is_decoded(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        spool = Failing(monkeypatch, life.daemon.spool, "sync")
        with pytest.RaisesGroup(SyncError, flatten_subgroups=True):
            async with running(life):
                await life.committed()
                spool.error = SyncError("input/output error")
                await life.send(*events(0))
                await trio.sleep(10)
        assert life.daemon.ingest.account("udp").seen == 0
        assert life.daemon.spool.durable < life.daemon.spool.end
    assert seqs(tmp_path) == []
    # Nobody had been told that it is safe, so a client would send it again.
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            await life.send(*events(0))
            await life.committed()
    assert seqs(tmp_path) == [0]


async def test_the_store_is_well_again_only_when_nothing_is_refused(
    autojump_clock, calls, tmp_path, monkeypatch
):
    """A commit lands while the files of the next are refused."""
    text = (
        CONFIG + toml.section("store", commit_rows=20) + toml.section("heartbeat", interval="none")
    )
    with opened(configuration(tmp_path, text)) as life:
        table, committing = life.daemon.disk.table, life.daemon.loops.committing
        async with running(life):
            await life.committed()
            prepares = Failing(monkeypatch, table, "prepare")
            go_on = calls.hold(table.land)
            await life.send(*events(*range(15)))
            await life.until(lambda: prepares.times)
            prepares.error = FullError("no room")
            await life.send(*events(*range(15, 60)))
            await life.until(lambda: "store" in life.conditions)
            commits = committing.commits
            go_on.set()
            await life.until(lambda: committing.commits > commits)
            assert "no room" in life.conditions["store"]
            prepares.error = None
            await life.committed()
            assert "store" not in life.conditions
    assert seqs(tmp_path) == list(range(60))
