"""Somebody removes, renames or replaces what a running collector holds by name: locks, spool, store, table.

After each of these, the events that a client was told to be durable are stored, or an error says which are not; no second
collector writes beside the first; and the collector ends soon where it cannot go on.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress

import pytest

from tests import toml
from tests.forms import in_turn
from tests.ingest.log import heph_event
from tests.system.announcing import Client
from tests.system.collector import Collector, until

EVENTS = 100


@pytest.fixture
def collector(collectors):
    """A collector that has committed some events, and keeps later ones in its batch for a minute."""
    made = collectors(
        more=toml.section("store", commit_interval="1 min")
        + toml.section("spool", segment_size="1 MiB")
    )
    return made.start()


@pytest.fixture
def client(collector):
    """A client whose first events are acknowledged, and in no commit yet."""
    with Client(collector, "tcp") as made:
        made.announce()
        made.emit(EVENTS)
        made.hear_until(lambda: made.told.get(1) == EVENTS, "the acknowledgement")
        yield made


def emit_more(client):
    """Send events that the collector may or may not take."""
    with suppress(OSError):
        client.emit(EVENTS)
        client.hear_all()


def stored(collector):
    return {
        row["seq"] for row in collector.rows(["seq", "kind", "source"], source="tcp", kind="span")
    }


def ends(collector, seconds=120):
    collector.process.wait(timeout=seconds)
    assert collector.process.returncode == 1
    return collector.log()


def newest_segment(store):
    return max((store / "spool").glob("[0-9]*.segment"))


def remove_tree(path):
    """Remove a directory, again where the collector made a file in it meanwhile."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


LOCKS = {
    "lock": lambda store: store / "lock",
    "writers": lambda store: store / "writers.lock",
    "spool": lambda store: store / "spool/lock",
}


def remove(path):
    path.unlink()


def put_file(path):
    path.rename(path.with_name("elsewhere"))
    path.write_text("1\n")


def put_directory(path):
    path.unlink()
    path.mkdir()


def put_link(path):
    (path.parent / "target").write_text("kept")
    path.unlink()
    path.symlink_to(path.parent / "target")


@pytest.mark.parametrize("what", [remove, put_file, put_directory, put_link])
def test_a_removed_lock_lets_nobody_in_and_is_made_again(collector, client, what):
    for lock in LOCKS.values():
        what(lock(collector.store))
    second = collector.cli("serve", "--config", collector.config)
    assert second.returncode == 1
    assert "in use by" in second.stderr or "it is not a file; remove it" in second.stderr
    until(lambda: collector.log().count("made again") == len(LOCKS), "the locks")
    for lock in LOCKS.values():
        assert lock(collector.store).is_file()
        assert not lock(collector.store).is_symlink()
    for target in collector.store.rglob("target"):
        assert target.read_text() == "kept"
    client.emit(EVENTS)
    client.hear_until(lambda: client.told[1] == 2 * EVENTS, "the acknowledgement")
    collector.stop()
    assert collector.process.returncode == 0
    assert stored(collector) == set(range(2 * EVENTS))


def spool_removed(store):
    remove_tree(store / "spool")


def spool_renamed(store):
    (store / "spool").rename(store / "old")


def spool_replaced(store):
    (store / "spool").rename(store / "old")
    (store / "spool").mkdir()


def newest_segment_removed(store):
    newest_segment(store).unlink()


def newest_segment_replaced(store):
    path = newest_segment(store)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def all_of_the_spool_removed(store):
    for path in (store / "spool").iterdir():
        path.unlink()


SPOOL = [
    spool_removed, spool_renamed, spool_replaced, newest_segment_removed, newest_segment_replaced,
    all_of_the_spool_removed,
]  # fmt: skip


@pytest.mark.parametrize("what", SPOOL)
def test_what_a_lost_spool_had_acknowledged_is_committed(collector, client, what):
    what(collector.store)
    emit_more(client)
    said = ends(collector)
    assert "while in use" in said
    assert "nothing is acknowledged any more" in said
    assert stored(collector) >= set(range(client.told[1]))
    assert client.told[1] == EVENTS


def store_emptied(store):
    for path in store.iterdir():
        remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)


def store_removed(store):
    shutil.rmtree(store, ignore_errors=True)


def store_removed_slowly(store):
    """Files that the collector made again meanwhile keep the directory from being removed."""
    (store / "ports.json").unlink()
    until((store / "ports.json").exists, "the port file that is made again")
    for path in store.iterdir():
        if path.name != "ports.json":
            remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)


def store_renamed(store):
    store.rename(store.with_name("old"))


def store_replaced(store):
    store.rename(store.with_name("old"))
    store.mkdir()


def table_removed(store):
    remove_tree(store / "events")


def log_removed(store):
    remove_tree(store / "events/_delta_log")


def table_renamed(store):
    (store / "events").rename(store / "old")


STORE = [
    store_emptied, store_removed, store_removed_slowly, store_renamed, store_replaced, table_removed,
    log_removed, table_renamed,
]  # fmt: skip


@pytest.mark.parametrize(("what", "signalled"), in_turn(STORE, [False, True]))
def test_nothing_is_acknowledged_after_the_store_is_lost(collector, client, what, signalled):
    what(collector.store)
    if signalled:
        collector.process.terminate()
    emit_more(client)
    said = ends(collector)
    assert "while in use" in said
    assert "bytes that came last are not in the table" in said
    assert client.told[1] == EVENTS
    assert "0 missing" not in said
    left = [path for path in collector.store.rglob("*") if path.suffix in {".parquet", ".json"}]
    if what not in {table_removed, log_removed, table_renamed}:
        assert not left, "nothing is made in another's directory"


@pytest.mark.parametrize("what", STORE)
def test_a_batch_that_is_full_does_not_delay_the_end_of_a_collector_without_a_store(
    collectors, what
):
    collector = collectors(
        more=toml.section("store", commit_rows=1, commit_interval="10 ms")
    ).start()
    what(collector.store)
    with socket.create_connection(collector.address("tcp")) as sock, suppress(OSError):
        sock.sendall(b"".join(heph_event(1, number, name=b"n" * 2000) for number in range(300)))
    assert "while in use" in ends(collector)


@pytest.mark.parametrize("what", [store_renamed, table_renamed, spool_renamed])
def test_a_start_after_the_rename_is_undone_has_all_that_was_acknowledged(collector, client, what):
    store = collector.store
    what(store)
    emit_more(client)
    ends(collector)
    if what is store_renamed:
        shutil.rmtree(store, ignore_errors=True)
        store.with_name("old").rename(store)
    else:
        place = store / ("events" if what is table_renamed else "spool")
        shutil.rmtree(place, ignore_errors=True)
        (store / "old").rename(place)
    collector.start()
    collector.stop()
    assert stored(collector) >= set(range(client.told[1]))


def test_a_renamed_parent_is_noticed(tmp_path, collectors):
    (tmp_path / "parent").mkdir()
    collector = collectors(store=tmp_path / "parent/store").start()
    (tmp_path / "parent").rename(tmp_path / "old")
    assert "while in use" in ends(collector)


def test_a_store_that_is_mounted_over_is_noticed(tmp_path, collector, client):
    (tmp_path / "other").mkdir()
    mounted = subprocess.run(
        ["mount", "--bind", tmp_path / "other", collector.store], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no bind mount here: {mounted.stderr.decode().strip()}")
    try:
        emit_more(client)
        assert "while in use" in ends(collector)
        assert client.told[1] == EVENTS
        assert not [*(tmp_path / "other").iterdir()]
    finally:
        subprocess.run(["umount", collector.store], check=True)
    collector.start()
    collector.stop()
    assert stored(collector) >= set(range(EVENTS))


def test_files_that_can_be_made_again_are(collector, client):
    """A preallocated segment, the port file, and the mark that readers need to call nothing complete too early."""
    (collector.store / "spool/next.segment").unlink()
    (collector.store / "ports.json").unlink()
    (collector.store / "unfinished").unlink()
    shutil.rmtree(collector.store / "quarantine")
    client.emit(EVENTS)
    client.send(b"no packet at all, and long enough to be named as unreadable" * 3)
    client.hear_until(lambda: client.told[1] == 2 * EVENTS, "the acknowledgement")
    for name in ("spool/next.segment", "ports.json", "unfinished"):
        until((collector.store / name).exists, name)
    collector.stop()
    assert collector.process.returncode == 0
    assert [*(collector.store / "quarantine").iterdir()]
    assert stored(collector) >= set(range(2 * EVENTS))


class Uncapable(Collector):
    """A collector whose process may not enter a directory that nobody may enter, although root runs it."""

    def command(self):
        return [
            "setpriv", "--bounding-set=-dac_override,-dac_read_search", *map(str, super().command())
        ]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root and util-linux")
def test_names_that_cannot_be_looked_up_for_a_while_are_waited_for(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    collector = Uncapable(tmp_path, store=parent / "store").start()
    try:
        with Client(collector, "tcp") as client:
            client.announce()
            client.emit(EVENTS)
            client.hear_until(lambda: client.told.get(1) == EVENTS, "the acknowledgement")
            parent.chmod(0)
            until(lambda: "names" in collector.get("/healthz")[1], "the condition")
            client.emit(EVENTS)
            parent.chmod(0o755)
            client.hear_until(lambda: client.told.get(1) == 2 * EVENTS, "the second one")
        until(lambda: "names" not in collector.get("/healthz")[1], "the end of the condition")
        collector.stop()
        assert collector.process.returncode == 0
        assert stored(collector) == set(range(2 * EVENTS))
    finally:
        collector.end()
