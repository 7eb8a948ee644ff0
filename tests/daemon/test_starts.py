"""Starts that were killed, as their notes on disk tell; and the limits that a process has."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import trio

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.daemon.context import Health
from tailrace.daemon.loops.decode import replay
from tailrace.daemon.memory import Limit, ProcessMemory, memory
from tailrace.daemon.starts import KILLED_MAX, REST_SECONDS, Starts
from tailrace.errors import MemoryLimitError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.segment import HEAD_SIZE, HEADER_SIZE
from tailrace.spool.spool import Spool
from tests.ingest.log import Log, heph_event
from tests.spool.conftest import kill
from tests.spool.test_recovery import damage, newest_segment

MIB = 2**20


def used():
    """Memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


USED = used()


class FixedClock:
    def __init__(self):
        self.now = 1_000_000.0

    def wall_ns(self):
        return round(self.now * 1e9)

    def monotonic(self):
        return trio.current_time()


def limits(share, size=100 * MIB, root=Path("/")):
    """A limit of which this process uses about this share."""
    return ProcessMemory(
        [Limit(round(USED / share) * size // (100 * MIB), "VmRSS", "the limit")], root
    )


@pytest.fixture
def clock():
    return FixedClock()


@pytest.fixture
def begun(tmp_path, clock):
    """A function for a start that comes to a stage and is killed there."""

    def begin(memory, stage="state"):
        starts = Starts(tmp_path, memory, clock)
        starts.begin(Checkpoints(tmp_path))
        if stage == "log":
            starts.decoding()
        return starts

    return begin


def test_the_first_start_is_as_any(begun, tmp_path):
    starts = begun(limits(0.9))
    assert (starts.killed, starts.rest) == (0, 0)
    assert (tmp_path / "starting").exists()
    starts.end()
    assert not (tmp_path / "starting").exists()
    assert begun(limits(0.9)).killed == 0


def test_after_some_that_were_killed_as_they_decoded_one_does_not_decode(begun, clock):
    for killed in range(KILLED_MAX):
        starts = begun(limits(0.9), "log")
        assert (starts.killed, starts.rest) == (killed, 0)
        clock.now += 5
    starts = begun(limits(0.9), "log")
    assert (starts.killed, starts.rest) == (KILLED_MAX, REST_SECONDS - 5)
    clock.now += REST_SECONDS + 1
    assert begun(limits(0.9)).rest == 0, "now and then it is tried"


def test_after_some_that_were_killed_as_they_read_the_state_one_is_refused(begun, clock, tmp_path):
    for _ in range(KILLED_MAX):
        begun(limits(0.9))
    for _ in range(3):
        refused = Starts(tmp_path, limits(0.9), clock)
        with pytest.raises(MemoryLimitError, match=r"3 starts in a row .* raise the limit"):
            refused.begin(Checkpoints(tmp_path))
        refused.end()
    clock.now += REST_SECONDS + 1
    begun(limits(0.9))
    with pytest.raises(MemoryLimitError, match="4 starts in a row"):
        begun(limits(0.9))
    (tmp_path / "starting").unlink()
    assert begun(limits(0.9)).killed == 0


def test_a_higher_limit_is_tried_at_once(begun):
    for _ in range(KILLED_MAX):
        begun(limits(0.9))
    assert begun(limits(0.9, size=200 * MIB)).killed == 0


def test_a_start_that_used_little_was_killed_for_something_else(begun):
    for _ in range(2 * KILLED_MAX):
        assert begun(limits(0.1), "log").rest == 0


def test_a_large_state_counts_before_it_is_read(begun, tmp_path):
    Checkpoints(tmp_path).save(1, bytes(MIB))
    tight = ProcessMemory([Limit(2 * USED + 3 * MIB, "VmRSS", "the limit")])
    for _ in range(KILLED_MAX):
        begun(tight)
    with pytest.raises(MemoryLimitError):
        begun(tight)


def test_only_a_checkpoint_that_fits_is_read(tmp_path, clock):
    """Half of what is left of the limit is about 32 MiB."""
    starts = Starts(
        tmp_path, ProcessMemory([Limit(used() + 64 * MIB, "VmRSS", "the limit")]), clock
    )
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, bytes(1000))
    checkpoints.save(2, bytes(8 * MIB))
    checkpoints.size_max = starts.readable
    assert checkpoints.newest(2).position == 2
    checkpoints.size_max = 4 * MIB
    assert checkpoints.newest(2).position == 1
    assert [sentence.endswith(" bytes") for sentence in checkpoints.too_large] == [True]
    assert 8 * MIB < starts.readable < 40 * MIB


def test_a_note_that_nobody_can_read_is_none(begun, tmp_path):
    begun(limits(0.9))
    (tmp_path / "starting").write_text('{"killed":')
    assert begun(limits(0.9)).killed == 0


def test_memory_that_was_refused_counts_as_killed(begun):
    for _ in range(KILLED_MAX):
        assert "raise the limit" in str(begun(limits(0.1), "log").out_of_memory())
    assert begun(limits(0.1), "log").rest > 0


async def test_one_that_does_not_decode_says_so_until_it_does(begun, clock, autojump_clock):
    for _ in range(KILLED_MAX):
        begun(limits(0.9), "log")
    starts, health = begun(limits(0.9), "log"), Health()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(starts.wait, health)
        await trio.sleep(REST_SECONDS - 10)
        assert "nothing into the table" in health.conditions[Condition.MEMORY]
        assert health.refusals >= REST_SECONDS - 20, "a watchdog sees signs of life"
    assert health.conditions == {}
    assert starts.rest == 0


GROUPS = {
    "version 2": ("0::/a/b\n", "sys/fs/cgroup/a", "memory.max"),
    "version 2 in a container": ("0::/\n", "sys/fs/cgroup", "memory.max"),
    "version 2 beside version 1": ("0::/a\n", "sys/fs/cgroup/unified/a", "memory.max"),
    "version 1": (
        "4:cpu,memory:/a/b\n1:cpu:/x\n0::/\n", "sys/fs/cgroup/memory/a", "memory.limit_in_bytes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_the_limit_of_a_control_group_or_of_one_above_it_counts(tmp_path, name):
    text, directory, file = GROUPS[name]
    group = tmp_path / directory
    (group / "b").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(text)
    (tmp_path / "proc/self/status").write_text("Name:\tx\nVmSize:\t9000 kB\nVmRSS:\t 512 kB\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       4096 kB\n")
    (group / "b" / file).write_text("max\n" if file == "memory.max" else f"{2**63 - 4096}\n")
    (group / file).write_text(f"{MIB}\n")
    found = memory(tmp_path)
    assert (found.tightest.size, found.share(), found.share(MIB // 4)) == (MIB, 0.5, 0.75)
    assert "MemoryMax=" in found.tightest.name
    (group / file).write_text("max\n")
    assert memory(tmp_path).tightest.size == 4 * MIB


def test_addresses_count_against_their_own_limit(tmp_path):
    pid = os.fork()
    if not pid:
        size = 2**40
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        found = [limit for limit in memory().limits if limit.used == "VmSize"]
        os._exit(found[0].size != size)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_replay_passes_over_what_is_lost_and_ends_where_the_table_ends(tmp_path):
    def opened():
        return Spool.open(tmp_path / "spool", SpoolConfig(), SystemClock())

    spool, log = opened(), Log()
    session = log.open(transport="udp")
    for number in range(4):
        log.datagrams(session, [heph_event(1, number)])
    for entry in log.entries:
        spool.append(entry.kind, entry.session, entry.payload)
        spool.sync()
    kill(spool)
    lost, committed = log.entries[2], log.entries[3].end
    damage(newest_segment(spool), HEADER_SIZE + lost.position + HEAD_SIZE, b"rot")
    spool, ingest, health, looks = opened(), Ingest(), Health(), []
    replay(spool, ingest, committed, health, lambda: looks.append(ingest.position))
    assert looks == [log.entries[0].position, log.entries[1].position, lost.end]
    assert ingest.position == committed
    assert ingest.account("s").seen == 2
    assert len(ingest.batch) == 0
    assert f"positions {lost.position} to {lost.end} " in health.conditions[Condition.DAMAGE]
    assert ingest.tell_lacking() == lost.end - lost.position
    spool.close()
