"""The position up to which the table has every row: it follows entries without rows, and never falls."""

from __future__ import annotations

import trio

from tests.daemon.virtual import configuration, opened, running
from tests.ingest.log import heph_event


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
