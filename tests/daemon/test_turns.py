"""Test that a long entry is decoded in turns, between which other tasks run, and that commits wait for its end."""

from __future__ import annotations

import trio

from tailrace.daemon.loops.steps import Between
from tailrace.flags import Flag
from tests import toml
from tests.daemon.virtual import CONFIG, configuration, opened, running
from tests.ingest.log import heph_epoch, heph_option

PACKETS = 300
QUIET = toml.section("heartbeat", interval="none")


class Decoded:
    """Notes the tasks that run while a daemon decodes entries, each step of which takes a whole turn."""

    def __init__(self, daemon):
        self.daemon = daemon
        daemon.loops.decoding.turn_seconds = 0
        self.within = 0
        """How often another task ran within an entry."""
        self.taken = []
        """For each time that rows were taken, whether it was within an entry."""
        self._steps = daemon.ingest.steps
        self._take = daemon.loops.committing._take
        self._is_within = False
        self._token = trio.lowlevel.current_trio_token()
        daemon.ingest.steps = self._noted
        daemon.loops.committing._take = self._note_taken

    def _noted(self, entry):
        self._is_within = True
        for step in self._steps(entry):
            self._token.run_sync_soon(self._run)
            yield step
        self._is_within = False

    def _run(self):
        """Run as another task, and ask for a commit, as a full spool does."""
        if self._is_within:
            self.within += 1
            self.daemon.loops.committing.relieve()

    def _note_taken(self):
        self.taken.append(self._is_within)
        return self._take()


async def flood(life, packet):
    """Send many packets as one entry, and return what ran meanwhile once its rows are in the table."""
    await life.committed()
    decoded = Decoded(life.daemon)
    stream = await trio.open_tcp_stream(*life.address("tcp"))
    before = life.daemon.ingest.tally("tcp").decoded
    await stream.send_all(b"".join(packet(n) for n in range(PACKETS)))
    await life.until(lambda: life.daemon.ingest.tally("tcp").decoded > before)
    await life.committed()
    await stream.aclose()
    return decoded


async def test_others_run_within_an_entry_and_its_rows_are_taken_at_its_end(
    autojump_clock, calls, tmp_path
):
    with opened(configuration(tmp_path, CONFIG + QUIET)) as life:
        async with running(life):
            for packet in (lambda n: heph_option("x", n), lambda n: heph_epoch(10**18 + n)):
                decoded = await flood(life, packet)
                assert decoded.within > PACKETS // 2, "the stream may come as several entries"
                assert decoded.taken
                assert not any(decoded.taken)


def ended(steps):
    """The result of steps that wait for nothing."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("they wait")


def test_a_call_between_entries_is_made_at_once_and_one_within_at_the_end():
    between, made = Between(), []
    assert ended(between.do(lambda: 1)) == 1
    between.begun()
    steps = between.do(lambda: made.append(1) or 2)
    wait = next(steps)
    assert isinstance(wait.flag, Flag)
    assert not made
    assert not wait.flag.is_set
    between.over()
    assert made == [1]
    assert wait.flag.is_set
    assert ended(steps) == 2
    between.begun()
    between.over()
    assert made == [1]
