"""When a checkpoint is due: seldom where sessions hold much state, since all of it is written each time."""

from __future__ import annotations

import shutil
from itertools import pairwise

import pytest
import trio

from tailrace.daemon.loops import commit, sync
from tailrace.errors import FullError, LostError, causes
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.spool import Spool
from tests import toml
from tests.daemon.virtual import CONFIG, configuration, opened, running
from tests.ingest.log import heph_event

OFTEN = toml.section(
    "spool", checkpoint_interval="1 h", checkpoint_bytes="16 KiB", max_size="1 GiB"
)
ROUNDS, NUMBERS = 40, 200


@pytest.fixture
def saved(monkeypatch):
    """The positions of the checkpoints that are saved."""
    positions = []
    save = Checkpoints.save

    def noted(self, position, state, *, since=None):
        positions.append(position)
        save(self, position, state, since=since)

    monkeypatch.setattr(Checkpoints, "save", noted)
    return positions


async def receive(life, streams, look=lambda: None, numbers=NUMBERS):
    """Let each stream bring some events in each of some rounds, which are all committed; call `look` behind each."""
    sock = await trio.open_tcp_stream(*life.address("tcp"))
    each = numbers // streams
    for begin in range(0, ROUNDS * each, each):
        events = (heph_event(s, n) for n in range(begin, begin + each) for s in range(streams))
        await sock.send_all(b"".join(events))
        await life.committed()
        look()
    await sock.aclose()


@pytest.mark.parametrize("streams", [1, 4])
async def test_those_who_hold_little_have_one_after_so_many_bytes(
    autojump_clock, calls, tmp_path, saved, streams
):
    with opened(configuration(tmp_path, CONFIG + OFTEN)) as life:
        async with running(life):
            await receive(life, streams)
            during = [*saved]
    assert len(during) > 10


async def test_a_disk_that_is_slow_is_not_asked_for_more_of_them(
    autojump_clock, calls, tmp_path, saved, monkeypatch
):
    """A checkpoint lets a full spool release segments. Bytes that wait for the disk would only wait longer."""
    with opened(configuration(tmp_path, CONFIG + OFTEN)) as life:
        async with running(life):
            monkeypatch.setattr(sync, "BUFFER_MAX", -4)
            await trio.sleep(60)
            during = [*saved]
    assert during == []


async def test_many_streams_have_one_after_sixteen_times_as_many_bytes_as_they_hold(
    autojump_clock, calls, tmp_path, saved, monkeypatch
):
    monkeypatch.setattr(commit, "LITTLE_STATE", 0)
    held = []
    with opened(configuration(tmp_path, CONFIG + OFTEN)) as life:
        async with running(life):

            def look():
                held.append(life.daemon.ingest.budget.total)

            await receive(life, 4, look, 4 * NUMBERS)
            during = [*saved]
    assert 1 < len(during) < 5
    assert all(behind - before >= commit.PER_STATE * held[1] for before, behind in pairwise(during))


async def test_a_spool_that_is_removed_right_behind_a_checkpoint_ends_the_collector_in_order(
    autojump_clock, calls, tmp_path, monkeypatch
):
    """The names were last checked before the checkpoint. All that was received is committed, and the error names the spool."""
    with opened(configuration(tmp_path, CONFIG + OFTEN)) as life:
        save, spool = Checkpoints.save, life.daemon.spool.directory

        def saved_and_removed(self, position, state, *, since=None):
            save(self, position, state, since=since)
            shutil.rmtree(spool, ignore_errors=True)

        async def live():
            async with running(life):
                await life.committed()
                monkeypatch.setattr(Checkpoints, "save", saved_and_removed)
                life.daemon.loops.committing.relieve()
                await trio.sleep(60)

        with pytest.raises(ExceptionGroup) as ended:
            await live()
        (error,) = causes(ended.value)
        assert isinstance(error, LostError)
        assert str(spool) in str(error)
        assert life.daemon.loops.committing.committed == life.daemon.spool.durable


@pytest.mark.parametrize("of", [Checkpoints, Spool], ids=["the need", "the release"])
async def test_a_log_that_cannot_be_released_for_now_is_named_and_released_later(
    autojump_clock, calls, tmp_path, saved, monkeypatch, of
):
    def refuses(*_):
        raise FullError("no descriptor is free")

    with opened(configuration(tmp_path, CONFIG + OFTEN)) as life:

        def condition():
            return life.daemon.health.conditions.get("checkpoint", "")

        async with running(life):
            with monkeypatch.context() as patch:
                name = "needed_from" if of is Checkpoints else "release"
                patch.setattr(of, name, property(refuses) if of is Checkpoints else refuses)
                before = len(saved)
                await receive(life, 1, numbers=NUMBERS // 2)
                assert len(saved) > before
                assert condition().endswith(
                    "no segment of the log is released: no descriptor is free"
                )
            await receive(life, 1, numbers=NUMBERS // 2)
            assert condition() == ""
