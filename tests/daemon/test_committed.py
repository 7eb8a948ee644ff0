"""The position up to which the table has every row: it follows entries without rows, never falls, and is not late."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tailrace.store.durable import CHECKPOINT_EVERY
from tailrace.store.log import DeltaLog
from tests import toml
from tests.daemon.virtual import CONFIG, Failing, configuration, opened, running, seqs
from tests.ingest.log import heph_event

LOOK_SECONDS = 0.011
"""How late `committed` may say so."""


async def test_it_does_not_fall_when_rows_come_behind_entries_without_rows(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            committing, ingest = life.daemon.loops.committing, life.daemon.ingest
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            await stream.send_all(heph_event(1, 0))
            await life.until(ingest.open_sessions)
            await life.committed()
            event = heph_event(1, 1)
            await stream.send_all(event[:20])
            await life.until(lambda: ingest.pending("tcp") == 20)
            without_rows = committing.committed
            assert without_rows == ingest.position
            await stream.send_all(event[20:])
            await life.until(lambda: ingest.batch.some)
            assert without_rows <= committing.committed < ingest.position
            await life.committed()
            await stream.aclose()


@pytest.mark.parametrize(
    ("interval", "sync", "at_most"),
    [("1 s", "50 ms", 1.0), ("250 ms", "50 ms", 0.25), ("60 ms", "50 ms", 0.08)],
)
async def test_rows_are_committed_within_the_interval_after_their_arrival(
    autojump_clock, calls, tmp_path, interval, sync, at_most
):
    """Blocking calls take no time here. Where the interval is short, rows wait for half of it after the spool's sync."""
    keys = toml.section("store", commit_interval=interval) + toml.section(
        "spool", sync_interval=sync
    )
    quiet = toml.section("heartbeat", interval="none")
    with opened(configuration(tmp_path, CONFIG + keys + quiet)) as life:
        async with running(life):
            await life.committed()
            for number in range(3):
                sent = trio.current_time()
                await life.send(heph_event(1, number))
                spool, committing = life.daemon.spool, life.daemon.loops.committing
                assert committing.committed < spool.end
                await life.committed()
                assert at_most / 2 < trio.current_time() - sent <= at_most + LOOK_SECONDS


FEW = CONFIG + toml.section("store", commit_rows=20) + toml.section("heartbeat", interval="none")


async def test_a_full_batch_is_prepared_while_the_one_before_lands(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path, FEW)) as life:
        table = life.daemon.disk.table
        prepared = Failing(monkeypatch, table, "prepare")
        async with running(life):
            await life.committed()
            go_on = calls.hold(table.land)
            before, commits = len(prepared.times), life.daemon.loops.committing.commits
            for number in range(90):
                await life.send(heph_event(1, number))
            await trio.sleep(60)
            # The first lands, the second is ready, the third is full, and nothing more is decoded.
            committing, ingest = life.daemon.loops.committing, life.daemon.ingest
            assert len(prepared.times) - before == 2
            assert committing.commits == commits
            assert 25 <= ingest.account("udp").seen < 90
            assert committing.committed < ingest.position
            assert not committing.pipeline.idle.is_set
            go_on.set()
            await life.committed()
            assert committing.commits - commits == len(prepared.times) - before >= 4
    assert seqs(tmp_path) == list(range(90))


async def test_a_commit_that_landed_says_nothing_of_the_rows_behind_it(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path, FEW)) as life:
        table, committing = life.daemon.disk.table, life.daemon.loops.committing
        async with running(life):
            await life.committed()
            first = calls.hold(table.land)
            await life.send(*(heph_event(1, number) for number in range(90)))
            await trio.sleep(60)
            second = calls.hold(table.land)
            commits = committing.commits
            first.set()
            await life.until(lambda: committing.commits > commits)
            assert committing.committed == table.position() < life.daemon.ingest.position
            second.set()
            await life.committed()
            assert committing.committed == table.position()
    assert seqs(tmp_path) == list(range(90))


async def test_a_batch_with_room_waits_while_another_lands(
    autojump_clock, calls, tmp_path, monkeypatch
):
    """Otherwise a table that takes long for a commit would get many small ones, each of which waits for the one before."""
    with opened(configuration(tmp_path, FEW)) as life:
        table = life.daemon.disk.table
        prepared = Failing(monkeypatch, table, "prepare")
        async with running(life):
            await life.committed()
            go_on = calls.hold(table.land)
            before = len(prepared.times)
            for number in range(5):
                await life.send(heph_event(1, number))
                await trio.sleep(3)
            assert life.daemon.ingest.account("udp").seen == 5
            assert len(prepared.times) - before == 1
            go_on.set()
            await life.committed()
            assert len(prepared.times) - before == 2
    assert seqs(tmp_path) == list(range(5))


async def test_a_checkpoint_on_its_way_is_not_made_a_second_time(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(
        configuration(tmp_path, FEW + toml.section("spool", checkpoint_bytes="1 KiB"))
    ) as life:
        daemon = life.daemon
        saved = Failing(monkeypatch, daemon.disk.checkpoints, "save")
        async with running(life):
            await life.committed()
            taken = Failing(monkeypatch, daemon.ingest, "checkpoint")
            go_on = calls.hold(daemon.disk.table.land)
            for number in range(90):
                await life.send(heph_event(1, number))
            await trio.sleep(60)
            before = len(saved.times)
            assert len(taken.times) == 1
            go_on.set()
            await life.committed()
            assert len(saved.times) > before
    assert seqs(tmp_path) == list(range(90))


async def test_the_log_has_a_checkpoint_after_every_twenty_commits(autojump_clock, calls, tmp_path):
    with opened(configuration(tmp_path, FEW)) as life:
        async with running(life):
            await life.committed()
            begun, root = life.daemon.loops.committing.commits, Path(life.daemon.disk.table.root)
            first = life.daemon.disk.table.version() - begun
            for number in range(45 - begun):
                await life.send(heph_event(1, number))
                await life.committed()
            assert life.daemon.loops.committing.commits == 45
            made = [first + CHECKPOINT_EVERY, first + 2 * CHECKPOINT_EVERY]
            assert list(DeltaLog(root).checkpoints()) == made
    assert seqs(tmp_path) == list(range(45 - begun))
