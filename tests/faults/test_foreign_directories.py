"""Another user made the directory of the store, or may write there, and has put links where the collector's files belong."""

from __future__ import annotations

import os
import shutil

import pytest

from tailrace import owned
from tailrace.errors import StoreError
from tests.system.announcing import Client
from tests.system.collector import until

OTHER = 65534
FILES = (
    "lock", "writers.lock", "start.lock", "journal.lock", "upkeep.lock", "upkeep.json", "ports.json", "unfinished",
    "ports.json.new", "collector.json", "collector.json.new", "unfinished.new", "spool/lock", "spool/identity",
    "spool/identity.new", "spool/next.segment", "spool/starting.new", "events/_journal", "events/_journal.new",
)  # fmt: skip
"""Names under which the collector writes."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user")


def contents(directory):
    return {path: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def planted(tmp_path):
    """A store with links to the victim's files, and these files."""
    store, victim = tmp_path / "store", tmp_path / "victim"
    victim.mkdir()
    for number, name in enumerate(FILES):
        (victim / f"{number}").write_text("precious" * 100)
        link = store / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(victim / f"{number}")
    return store, victim


@needs_root
@pytest.mark.parametrize("command", ["serve", "upkeep"])
def test_a_store_of_another_user_is_refused_and_no_link_is_followed(collectors, planted, command):
    store, victim = planted
    for path in (store, *store.rglob("*")):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    before = contents(victim)
    collector = collectors(store=store)
    more = ("--config", collector.config) if command == "serve" else ()
    done = collector.cli(command, *more)
    assert done.returncode == 1
    assert f"{store}: belongs to user {OTHER}" in done.stderr
    assert "chown" in done.stderr
    assert contents(victim) == before


@needs_root
@pytest.mark.parametrize("name", ["spool", "quarantine", "events", "events/_delta_log"])
def test_a_part_of_another_user_is_refused(collectors, tmp_path, name):
    part = tmp_path / "store" / name
    part.mkdir(parents=True)
    os.chown(part, OTHER, OTHER)
    done = (collector := collectors(store=tmp_path / "store")).cli(
        "serve", "--config", collector.config
    )
    assert done.returncode == 1
    assert f"{part}: belongs to user {OTHER}" in done.stderr


def test_a_store_that_every_user_may_write_is_refused_unless_it_is_sticky(collectors, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o777)
    collector = collectors(store=store)
    done = collector.cli("serve", "--config", collector.config)
    assert done.returncode == 1
    assert f"chmod o-w {store}" in done.stderr
    assert not [*store.iterdir()]
    store.chmod(0o1777)
    collector.start()


def test_links_in_a_directory_of_ours_are_not_followed(collectors, planted):
    """As in one that was made for all users: what is no file makes way, or is refused in words."""
    store, victim = planted
    before = contents(victim)
    collector = collectors(store=store)
    for name in FILES:
        done = (
            collector.cli("serve", "--config", collector.config) if name.endswith("lock") else None
        )
        assert contents(victim) == before
        if done is not None and (store / name).is_symlink():
            assert done.returncode == 1
            (store / name).unlink()
    shutil.rmtree(store / "spool")
    collector.start()
    with Client(collector, "tcp") as client:
        client.announce()
        client.emit(10)
        client.hear_until(lambda: client.told.get(1) == 10, "the acknowledgement")
    until(lambda: collector.status()["commits"] > 0, "a commit")
    collector.cli("upkeep", "--all")
    collector.stop()
    assert contents(victim) == before


def test_roots_directory_is_anybodys_and_a_missing_one_is_no_error(tmp_path):
    owned.refuse_foreign(tmp_path / "none")
    owned.refuse_foreign(tmp_path)
    owned.refuse_foreign(tmp_path.anchor and tmp_path.parents[-1])
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError, match="chmod"):
        owned.refuse_foreign(tmp_path)
