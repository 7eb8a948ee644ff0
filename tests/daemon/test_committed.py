"""The position up to which the table has every row: it follows entries without rows, never falls, and is not late."""

from __future__ import annotations

import pytest
import trio

from tests.daemon.virtual import CONFIG, configuration, opened, running
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
            await life.until(ingest.open_sessions)
            await life.committed()
            event = heph_event(1, 0)
            await stream.send_all(event[:20])
            await life.until(lambda: ingest.pending("tcp") == 20)
            without_rows = committing.committed
            assert without_rows == ingest.position
            await stream.send_all(event[20:])
            await life.until(lambda: ingest.yielded.some)
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
    keys = f'[store]\ncommit_interval = "{interval}"\n[spool]\nsync_interval = "{sync}"\n'
    quiet = '[heartbeat]\ninterval = "none"\n'
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
