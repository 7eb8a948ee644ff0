"""The same table at a URL: no sync, no local file, and answers that get lost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.errors import FencedError, LockedError, StoreError
from tailrace.rows.batch import Batch
from tailrace.store import durable, schema, upkeep
from tailrace.store.durable import CHECKPOINT_DUE
from tailrace.store.layout import TableSnapshot
from tailrace.store.turn import LEASE_NS, UpkeepState, turn
from tailrace.store.upkeep import DAY_NS, HOUR_NS
from tailrace.store.verify import verify
from tailrace.units import Size
from tests.store.writer import commit
from tests.system.collector import until
from tests.traffic.http_proxy import LossyProxy

URL = "s3://bucket/prefix"


@pytest.fixture
def open_at_url(open_table, s3, monkeypatch):
    def never(path):
        raise AssertionError(f"{path} was synced")

    monkeypatch.setattr(durable, "fsync", never)
    return lambda collector="one": open_table(collector, path=URL, options=s3.options)


@pytest.fixture
def seqs_at_url(seqs, s3):
    return lambda stream=None: seqs(stream, at=f"{URL}/events", options=s3.options)


def test_rows_and_position_are_in_the_bucket(open_at_url, numbered, seqs_at_url, s3):
    table = open_at_url()
    for number in range(4):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    assert table.checkpoint_every == CHECKPOINT_DUE, "each costs requests"
    assert table.checkpoint()
    commit(table, numbered("s", 20, 5), 5)
    assert open_at_url().position() == 5
    assert seqs_at_url() == list(range(25))
    uris = TableSnapshot.open(URL, options=s3.options).file_uris()
    assert len(uris) == 5
    assert all(uri.startswith(f"{URL}/events/day=2024-10-04/") for uri in uris)


def test_the_log_is_shortened_though_no_collector_lives_long(
    open_at_url, numbered, seqs_at_url, s3
):
    for life in range(21):
        table = open_at_url()
        for number in range(5 * life, 5 * life + 5):
            commit(table, numbered("s", number, 1), number + 1)
    with urlopen(f"{s3.url}/bucket/prefix/events/_delta_log/_last_checkpoint") as answer:  # noqa: S310 - http
        assert json.load(answer)["version"] == 100
    assert seqs_at_url() == list(range(105))


def test_a_commit_whose_answer_is_lost_is_found_to_have_landed(
    open_at_url, numbered, seqs_at_url, s3
):
    table = open_at_url()
    for number in range(6):
        s3.misbehave(drop=number % 2)
        commit(table, numbered("s", 5 * number, 5), number + 1)
    assert (table.position(), seqs_at_url()) == (6, list(range(30)))


def test_two_collectors_and_lost_answers_store_everything_once(
    open_at_url, numbered, seqs_at_url, s3
):
    one, two = open_at_url("one"), open_at_url("two")
    for number in range(4):
        s3.misbehave(drop=1)
        commit(one, numbered("a", 5 * number, 5), number + 1)
        commit(two, numbered("b", 5 * number, 5), number + 1)
    assert seqs_at_url("a") == seqs_at_url("b") == list(range(20))


def test_a_store_that_refuses_is_a_store_error_and_takes_the_same_batch_later(
    open_at_url, numbered, seqs_at_url, s3
):
    table = open_at_url()
    commit(table, numbered("s", 0, 5), 1)
    s3.misbehave(full=True)
    with pytest.raises(StoreError, match="cannot commit"):
        commit(table, numbered("s", 5, 5), 2)
    s3.misbehave()
    commit(table, numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_an_older_instance_is_fenced(open_at_url, numbered, seqs_at_url):
    older = open_at_url()
    commit(older, numbered("s", 0, 5), 1)
    commit(open_at_url(), numbered("s", 5, 5), 2)
    with pytest.raises(FencedError):
        commit(older, numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_upkeep_merges_in_the_bucket_and_notes_it_in_the_table(
    open_at_url, numbered, seqs_at_url, s3, clock
):
    table = open_at_url()
    for number in range(5):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    config = StoreConfig(path=URL, options=s3.options)
    report = upkeep.run(URL, config, clock=clock)
    assert (report.merged_files, report.made_files) == (5, 1)
    for number in range(5, 8):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    assert upkeep.run(URL, config, clock=clock).merged_files == 0
    clock.now += HOUR_NS
    assert upkeep.run(URL, config, clock=clock).merged_files == 4
    assert seqs_at_url() == list(range(40))


def test_one_upkeep_at_a_time_in_the_bucket(open_at_url, s3, clock):
    open_at_url()
    config = StoreConfig(path=URL, options=s3.options)
    mine = turn(f"{URL}/events", s3.options, clock)
    with mine, pytest.raises(LockedError, match="another upkeep"):
        upkeep.run(URL, config, clock=clock)
    upkeep.run(URL, config, clock=clock)


def test_the_turn_of_a_process_that_died_ends_by_itself(open_at_url, s3, clock):
    open_at_url()
    config = StoreConfig(path=URL, options=s3.options)
    turn(f"{URL}/events", s3.options, clock).__enter__()
    clock.now += LEASE_NS - 2 * 10**6  # a turn is dated to a millisecond
    with pytest.raises(LockedError):
        upkeep.run(URL, config, clock=clock)
    clock.now += 10**7
    upkeep.run(URL, config, clock=clock)


def test_of_two_that_begin_at_the_same_moment_one_gets_the_turn(open_at_url, s3, clock):
    open_at_url()
    both = [turn(f"{URL}/events", s3.options, clock) for _ in range(2)]
    stale = both[1]._open()
    both[1]._open = lambda: stale  # it looked before the other one had begun
    with both[0], pytest.raises(LockedError, match="at this moment"):
        both[1].__enter__()


def test_an_upkeep_whose_answers_are_lost_has_the_turn_and_ends_it(open_at_url, s3, clock):
    open_at_url()
    for _ in range(2):  # the second is not kept waiting by the first
        s3.misbehave(drop=1)
        with turn(f"{URL}/events", s3.options, clock) as mine:
            s3.misbehave(drop=1)
            mine.write(UpkeepState(merged=7 * 10**6))
            assert mine.read().merged == 7 * 10**6
            s3.misbehave(drop=1)
    assert not mine.is_taken()


@pytest.fixture
def behind_proxy(open_at_url, s3):
    """A proxy before the bucket, in which there is a table, and the options to use it."""
    open_at_url()
    with LossyProxy(s3.url, seed=1) as proxy:
        # The library asks again by itself for what it reads; it is not to hide what we do.
        yield proxy, s3.options | {"AWS_ENDPOINT_URL": proxy.url, "max_retries": "0"}


@pytest.mark.parametrize("deed", ["lost", "dropped"])
def test_an_upkeep_whose_connections_are_reset_ends_its_turn(behind_proxy, clock, deed):
    """The library does not try again then: the request may have been done, or not."""
    proxy, options = behind_proxy
    with turn(f"{URL}/events", options, clock) as mine:
        proxy.next("PUT", "version", deed)
        mine.write(UpkeepState(merged=7 * 10**6))
        assert mine.read().merged == 7 * 10**6
        proxy.next("PUT", "version", deed)
    assert proxy.counts[deed] == 2
    assert not mine.is_taken()


def test_an_upkeep_that_cannot_read_the_table_once_ends_its_turn(behind_proxy, clock):
    proxy, options = behind_proxy
    with turn(f"{URL}/events", options, clock) as mine:
        proxy.next("GET", "version", "lost")
    assert proxy.counts["lost"] == 1
    assert not mine.is_taken()


def test_an_upkeep_that_does_not_hear_that_it_has_the_turn_has_it(behind_proxy, clock):
    proxy, options = behind_proxy
    proxy.next("PUT", "version", "lost")
    with turn(f"{URL}/events", options, clock) as mine:
        assert proxy.counts["lost"] == 1
        assert mine.is_taken()
    assert not mine.is_taken()


def test_an_upkeep_that_can_neither_hear_nor_look_gives_its_turn_back(behind_proxy, clock):
    proxy, options = behind_proxy
    mine = turn(f"{URL}/events", options, clock)

    def free(_):
        proxy.next("PUT", "version", "lost")
        proxy.next("GET", "version", "lost")
        return 0

    mine._taken_since = free
    with pytest.raises(StoreError):
        mine.__enter__()
    assert proxy.counts["lost"] == 2
    assert not mine.is_taken()


def test_a_look_that_loses_any_answer_says_so_in_our_words(behind_proxy, clock):
    """The daemon expects nothing else, and would end."""
    proxy, options = behind_proxy
    config = StoreConfig(path=URL, options=options)
    for whole in range(50):
        proxy.next("GET", "version", *[""] * whole, "lost")
        try:
            upkeep.look(URL, config, clock)
        except StoreError:
            continue
        break
    assert 5 < whole < 49


def test_a_start_asks_again_for_an_answer_that_broke_off(open_table, open_at_url, s3):
    """The library does so only for an answer whose head did not come whole."""
    open_at_url()
    with LossyProxy(s3.url, seed=1) as proxy:
        options = s3.options | {"AWS_ENDPOINT_URL": proxy.url}
        for kind in ["other", "version"] * 10:
            proxy.next("GET", kind, "cut")
            open_table("one", path=URL, options=options)
        assert proxy.counts["cut"] == 20


def test_an_upkeep_that_cannot_take_the_turn_leaves_it_to_others(behind_proxy, clock):
    proxy, options = behind_proxy
    proxy.next("PUT", "version", "dropped")
    mine = turn(f"{URL}/events", options, clock)
    with pytest.raises(StoreError, match="begin an upkeep"):
        mine.__enter__()
    assert not mine.is_taken()


def test_a_turn_that_another_took_is_over_for_the_first(open_at_url, s3, clock):
    open_at_url()
    first = turn(f"{URL}/events", s3.options, clock).__enter__()
    clock.now += LEASE_NS + 10**7
    with turn(f"{URL}/events", s3.options, clock) as second:
        newest = DeltaTable(f"{URL}/events", storage_options=s3.options)
        second.check(newest)
        with pytest.raises(LockedError, match="stood still"):
            first.check(newest)
        with pytest.raises(LockedError, match="stood still"):
            first.write(UpkeepState())
        first.__exit__()
        assert second.is_taken()
        second.check(DeltaTable(f"{URL}/events", storage_options=s3.options))
    assert not second.is_taken()


PAUSED = """
import json, sys
from deltalake.table import TableOptimizer
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.store import turn, upkeep

url, options, lease = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
turn.LEASE_NS = lease
real = TableOptimizer.compact

def compact(optimizer, *arguments, **options):
    print("merging", flush=True)
    sys.stdin.readline()
    done = real(optimizer, *arguments, **options)
    print("merged", flush=True)
    return done

TableOptimizer.compact = compact
upkeep.run(url, StoreConfig(path=url, options=options), clock=SystemClock(), everything=True)
"""


class LaterClock(SystemClock):
    """The time when the turn of whoever stands still now has ended."""

    def wall_ns(self):
        return super().wall_ns() + LEASE_NS


def alarmed(process):
    """Whether the alarm of a process that stands still has gone off."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [pending] = re.findall(r"^ShdPnd:\s+(\w+)", status, re.MULTILINE)
    return int(pending, 16) >> (signal.SIGALRM - 1) & 1


def test_an_upkeep_that_stood_still_within_a_merge_ends_before_it_does_anything_more(
    open_at_url, numbered, seqs_at_url, s3
):
    """The library alone would let both merges succeed, and every row would be there twice."""
    table = open_at_url()
    for number in range(5):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    lease = 12 * 10**9  # it has half of that to come to its merge
    command = [sys.executable, "-c", PAUSED, URL, json.dumps(s3.options), str(lease)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as paused:
        assert paused.stdout.readline() == b"merging\n"
        paused.send_signal(signal.SIGSTOP)
        config = StoreConfig(path=URL, options=s3.options)
        with pytest.raises(LockedError):
            upkeep.run(URL, config, clock=SystemClock(), everything=True)
        done = upkeep.run(URL, config, clock=LaterClock(), everything=True)
        assert done.merged_files == 5
        until(lambda: alarmed(paused), "the alarm")
        paused.stdin.write(b"go on\n")
        paused.stdin.flush()
        paused.send_signal(signal.SIGCONT)
        assert paused.stdout.read() == b""
        assert paused.wait() == -signal.SIGALRM
    assert seqs_at_url() == list(range(25))


def test_a_merge_whose_answer_is_lost_is_done_once(
    open_at_url, numbered, seqs_at_url, s3, clock, monkeypatch
):
    table = open_at_url()
    for number in range(5):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    real = TableOptimizer.compact

    def compact(optimizer, *arguments, **options):
        s3.misbehave(drop=1)
        return real(optimizer, *arguments, **options)

    monkeypatch.setattr(TableOptimizer, "compact", compact)
    config = StoreConfig(path=URL, options=s3.options)
    report = upkeep.run(URL, config, clock=clock, everything=True)
    assert seqs_at_url() == list(range(25))
    assert len(TableSnapshot.open(URL, options=s3.options).file_uris()) == 1
    assert report.skipped == []


def test_old_days_are_deleted_in_the_bucket(open_at_url, numbered, s3, clock):
    """The rows are of 2024, and today is later."""
    table = open_at_url()
    commit(table, numbered("s", 0, 5), 1)
    newer = Batch()
    newer.day = clock.now // DAY_NS
    newer.extend("test", "heph", "later", numbered("s", 5, 5).parts[0].rows, 1)
    commit(table, newer, 2)
    config = StoreConfig(path=URL, options=s3.options, retention_size=Size(1))
    report = upkeep.run(URL, config, clock=clock, everything=True)
    assert report.deleted_days == ["2024-10-04"]
    days = [file.day for file in TableSnapshot.open(URL, options=s3.options).files()]
    assert days == [clock.now // DAY_NS]


def test_an_older_table_is_upgraded_behind_a_url_too(open_at_url, numbered, seqs_at_url, s3):
    table = open_at_url()
    commit(table, numbered("s", 0, 5), 1)
    older = DeltaTable(f"{URL}/events", storage_options=s3.options)
    older.alter.set_table_properties({schema.VERSION_PROPERTY: "1"}, raise_if_not_exists=False)
    one, two = open_at_url(), open_at_url("two")
    assert one.upgrade() == list(schema.STEPS)
    two.upgrade()
    assert one.schema_version == two.schema_version == schema.SCHEMA_VERSION
    commit(one, numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_files_at_a_url_are_read_and_unverifiable(open_at_url, numbered, s3):
    table = open_at_url()
    for number in range(3):
        commit(table, numbered("s", 5 * number, 5), number + 1)
    found = verify(URL, s3.options)
    assert (found.files, found.verified, found.unverifiable, found.damage) == (3, 0, 3, [])
