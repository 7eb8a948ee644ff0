"""The loop that answers clients sleeps while there is nothing to tell, and wakes when something comes."""

from __future__ import annotations

import trio

from tests.daemon.virtual import Failing, configuration, opened, running
from tests.ingest.log import heph_event, heph_session

SOON = 0.5
"""Seconds within which a client has its answer: a sync, and the time between two rounds."""


async def test_no_rounds_are_made_while_there_is_nothing_to_tell(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            await life.committed()
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            rounds = Failing(monkeypatch, life.daemon.loops.acknowledging, "once")
            entries = Failing(monkeypatch, life.daemon.spool, "append")
            await trio.sleep(600)
            assert len(rounds.times) <= 3 * len(entries.times) + 3
            assert len(entries.times) < 1000, "else the former says nothing"
            for packet in (heph_session(7, acknowledge=True), heph_event(1, 0), heph_event(1, 1)):
                await stream.send_all(packet)
                with trio.fail_after(SOON):
                    assert await stream.receive_some()
                await trio.sleep(60)
            await stream.aclose()
