"""The same table at a URL: no sync, no local file, and answers that get lost."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from tailrace.config.schema import StoreConfig
from tailrace.errors import FencedError, LockedError, StoreError
from tailrace.store import durable, schema, upkeep
from tailrace.store.snapshot import TableSnapshot
from tailrace.store.turn import LEASE_NS, turn
from tailrace.store.upkeep import HOUR_NS
from tailrace.store.verify import verify

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
        table.commit(numbered("s", 5 * number, 5), number + 1)
    assert table.checkpoint()
    table.commit(numbered("s", 20, 5), 5)
    assert open_at_url().position() == 5
    assert seqs_at_url() == list(range(25))
    uris = TableSnapshot.open(URL, options=s3.options).file_uris()
    assert len(uris) == 5
    assert all(uri.startswith(f"{URL}/events/day=2024-10-04/") for uri in uris)


def test_a_commit_whose_answer_is_lost_is_found_to_have_landed(
    open_at_url, numbered, seqs_at_url, s3
):
    table = open_at_url()
    for number in range(6):
        s3.misbehave(drop=number % 2)
        table.commit(numbered("s", 5 * number, 5), number + 1)
    assert (table.position(), seqs_at_url()) == (6, list(range(30)))


def test_two_collectors_and_lost_answers_store_everything_once(
    open_at_url, numbered, seqs_at_url, s3
):
    one, two = open_at_url("one"), open_at_url("two")
    for number in range(4):
        s3.misbehave(drop=1)
        one.commit(numbered("a", 5 * number, 5), number + 1)
        two.commit(numbered("b", 5 * number, 5), number + 1)
    assert seqs_at_url("a") == seqs_at_url("b") == list(range(20))


def test_a_store_that_refuses_is_a_store_error_and_takes_the_same_batch_later(
    open_at_url, numbered, seqs_at_url, s3
):
    table = open_at_url()
    table.commit(numbered("s", 0, 5), 1)
    s3.misbehave(full=True)
    with pytest.raises(StoreError, match="cannot commit"):
        table.commit(numbered("s", 5, 5), 2)
    s3.misbehave()
    table.commit(numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_an_older_instance_is_fenced(open_at_url, numbered, seqs_at_url):
    older = open_at_url()
    older.commit(numbered("s", 0, 5), 1)
    open_at_url().commit(numbered("s", 5, 5), 2)
    with pytest.raises(FencedError):
        older.commit(numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_upkeep_merges_in_the_bucket_and_notes_it_in_the_table(
    open_at_url, numbered, seqs_at_url, s3, clock
):
    table = open_at_url()
    for number in range(5):
        table.commit(numbered("s", 5 * number, 5), number + 1)
    config = StoreConfig(path=URL, options=s3.options)
    report = upkeep.run(URL, config, clock=clock)
    assert (report.merged_files, report.made_files) == (5, 1)
    for number in range(5, 8):
        table.commit(numbered("s", 5 * number, 5), number + 1)
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
    clock.now += LEASE_NS - 1
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


def test_an_older_table_is_upgraded_behind_a_url_too(open_at_url, numbered, seqs_at_url, s3):
    table = open_at_url()
    table.commit(numbered("s", 0, 5), 1)
    older = DeltaTable(f"{URL}/events", storage_options=s3.options)
    older.alter.set_table_properties({schema.VERSION_PROPERTY: "1"}, raise_if_not_exists=False)
    one, two = open_at_url(), open_at_url("two")
    assert one.upgrade() == list(schema.STEPS)
    two.upgrade()
    assert one.schema_version == two.schema_version == schema.SCHEMA_VERSION
    one.commit(numbered("s", 5, 5), 2)
    assert seqs_at_url() == list(range(10))


def test_files_at_a_url_are_read_and_unverifiable(open_at_url, numbered, s3):
    table = open_at_url()
    for number in range(3):
        table.commit(numbered("s", 5 * number, 5), number + 1)
    found = verify(URL, s3.options)
    assert (found.files, found.verified, found.unverifiable, found.damage) == (3, 0, 3, [])
