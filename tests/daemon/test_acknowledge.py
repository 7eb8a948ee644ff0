"""The loop that answers clients sleeps while there is nothing to tell, and wakes when something comes.
News for clients waits while the names on disk are checked."""

from __future__ import annotations

import trio

from tailrace.errors import FullError
from tailrace.figures import Condition
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


async def test_what_is_decoded_before_a_stop_is_acknowledged_while_the_names_are_checked(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            loops, checked, checks = life.daemon.loops, trio.Event(), []

            def hanging(call):
                if call != loops.names._look:
                    return False
                checks.append(call)
                return checked

            await life.committed()
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            calls.hanging = hanging
            await trio.sleep(2)
            assert len(checks) == 1, "the watch has a check of its own"
            await stream.send_all(heph_session(7, acknowledge=True) + heph_event(1, 0))
            await life.until(lambda: len(checks) == 2)
            life.stop.set()
            await trio.sleep(0.1)
            checked.set()
            assert await stream.receive_some()
            await stream.aclose()


async def test_what_was_not_acknowledged_for_want_of_a_check_is_acknowledged_later(
    autojump_clock, calls, tmp_path, monkeypatch
):
    with opened(configuration(tmp_path)) as life:
        async with running(life):
            await life.committed()
            stream = await trio.open_tcp_stream(*life.address("tcp"))
            checks = Failing(monkeypatch, life.daemon.loops.names, "_spool")
            checks.error = FullError("out of descriptors")
            await stream.send_all(heph_session(7, acknowledge=True) + heph_event(1, 0))
            with trio.move_on_after(10):
                assert not await stream.receive_some()
            assert Condition.NAMES in life.conditions
            checks.error = None
            with trio.fail_after(SOON):
                assert await stream.receive_some()
            await stream.aclose()
