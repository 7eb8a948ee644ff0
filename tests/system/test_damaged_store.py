"""A killed daemon's store is damaged in one file, of any kind and in any way: the next start gives every
acknowledged row that can be had, names the others, or refuses, says what to do, and changes nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tailrace.daemon.loops.steps import drive
from tailrace.errors import TailraceError
from tailrace.query.completeness import Scope, completeness
from tailrace.query.engine import Engine
from tailrace.query.filters import Selection
from tailrace.store.presence import DirectoryLock
from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until
from tests.system.corruption import FORMS

MORE = (
    toml.section("store", commit_interval="5 ms")
    + toml.section("spool", sync_interval="5 ms", segment_size="64 KiB", checkpoint_bytes="16 KiB")
    + toml.section("heartbeat", interval="1 h")
)

COMMITS = 104, 20
"""In the first life so many that the log has a checkpoint and upkeep merges; in the second so few that it
does not, and more than a start doubts."""

ADVICE = re.compile(
    r"restore|move (it|the|\S+) away|move .* away|remove|rename it back|use that one",
    re.IGNORECASE,
)


class Prepared(NamedTuple):
    """A store as `kill -9` left it, and the numbers of the events of stream 1 that it acknowledged, of
    each source."""

    store: Path
    config: Path
    events: dict[str, int]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    collector = Collector(tmp_path_factory.mktemp("prepared"), more=MORE)
    sent = {"tcp": 0, "udp": 0}
    try:
        for commits in COMMITS:
            _receive(collector.start(), sent, commits)
            collector.kill()
            _vacuum(collector.store)
    finally:
        collector.end()
    return Prepared(collector.store, collector.config, sent)


def _receive(collector, sent, commits):
    """Take in events, a batch a commit, and noise, until there were so many commits more."""

    def send(number):
        sock.sendall(b"".join(heph_event(1, sent["tcp"] + n) for n in range(number)))
        sent["tcp"] += number
        peer.sendto(heph_event(1, sent["udp"]), collector.address("udp"))
        sent["udp"] += 1

    def seen():
        sources = collector.status()["sources"]
        return all(sources[name]["seen_events"] == number for name, number in sent.items())

    def later(than):
        """How many commits there are once there are more."""
        found = []

        def more():
            found.append(collector.status()["commits"])
            return found[-1] > than

        until(more, "a commit", pause=0.1)
        return found[-1]

    with _no_upkeep(collector.store):
        pass
    with (
        socket.create_connection(collector.address("tcp")) as sock,
        socket.create_connection(collector.address("tcp")) as noise,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        noise.sendall(b"this is no event " * 40)
        now = collector.status()["commits"]
        last = now + commits
        while now < last:
            send(100)
            now = later(than=now)
        until(seen, "the events")
        collector.settle()
        send(30)
        until(seen, "the last events")
        until(lambda: any(collector.store.glob("quarantine/*")), "the noise in the quarantine")


def _no_upkeep(store):
    """A lock; entering waits for an upkeep, which outlives its daemon."""
    return DirectoryLock(store, name="upkeep.lock", wait=True)


def _vacuum(store):
    """Delete the files that were merged into others, as an upkeep does after an hour."""
    with _no_upkeep(store):
        live = {Path(uri).name for uri in DeltaTable(str(store / "events")).file_uris()}
        for path in (store / "events").glob("day=*/*.parquet"):
            if path.name not in live:
                path.unlink()


KINDS = {
    "segment": ["spool/*.segment"],
    "checkpoint": ["spool/*.checkpoint"],
    "identity": ["spool/identity"],
    "lock": ["*lock", "spool/lock"],
    "mark": ["ports.json", "unfinished", "upkeep.json", "collector.json"],
    "log entry": ["events/_delta_log/*.json"],
    "log checkpoint": ["events/_delta_log/*checkpoint*"],
    "journal": ["events/_journal"],
    "data": ["events/day=*/*.parquet"],
    "quarantine": ["quarantine/*"],
    "roll-up": ["rollups/v*/*"],
}
"""By name, where the files of the kind are; together these are all that there are."""


def _files(store, kind):
    return sorted(path for place in KINDS[kind] for path in store.glob(place) if path.is_file())


def test_every_file_of_a_store_is_of_a_kind_that_is_damaged_here(prepared):
    found = {path for kind in KINDS for path in _files(prepared.store, kind)}
    there = {path for path in prepared.store.rglob("*") if path.is_file()}
    assert {path.name for path in there - found} == set()
    assert all(_files(prepared.store, kind) for kind in KINDS)


def _damage(store, kind, form, seed):
    """Damage a file, drawn by chance; what it was, and the bytes that it had."""
    chance = random.Random(f"{kind} {form} {seed}")
    files = _files(store, kind)
    if kind == "data":
        files.sort(key=lambda path: path.stat().st_size, reverse=True)
        files = files[: chance.choice([2, len(files)])]  # the merged file, or any
    elif chance.random() < 0.5:
        files = files[-8:]  # the newest are treated in their own ways
    victim = chance.choice(files)
    before = victim.read_bytes()
    FORMS[form](victim, chance, [path for path in files if path != victim])
    return victim, before


class Refused(NamedTuple):
    text: str


def _live_once(config, store):
    """Start a daemon in this process, let it catch up, and stop it; Refused if it does not start."""
    loaded = load(config, environ={}, flags={"store": str(store)}, formats=transports)
    ended = []

    async def main(daemon):
        stop = trio.Event()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: daemon.run(stop, started=lambda: None))
                await daemon.replayed.wait()
                await drive(daemon.loops.decoding.reached(daemon.spool.durable))
                stop.set()
        ended.append(daemon.health.conditions)

    try:
        with collecting(loaded, SystemClock()) as daemon:
            trio.run(main, daemon)
    except TailraceError as error:
        return Refused(str(error))
    assert ended
    return None


def _check(store, events):
    """How many events are gone. All others are there once and as they were sent, those are named."""
    engine = Engine(str(store))
    try:
        gone = 0
        for source, number in events.items():
            rows = list(
                engine.rows(
                    "SELECT seq, start, \"end\", name FROM stored WHERE source = ? AND kind = 'span'",
                    (source,),
                )
            )
            assert len(rows) == len(set(rows)), "a row is there twice"
            assert set(rows) <= {(n, 1000 * n, 1000 * n + 500, "work") for n in range(number)}
            lost = number - len(rows)
            if lost:
                said = completeness(engine, Scope.of(Selection(sources=(source,))))
                assert not said.complete
                assert said.unknown or sum(said.missing.values()) >= lost
            gone += lost
        return gone
    finally:
        engine.close()


def _try(prepared, store, kind, form, seed):
    """Return what a start made of the damage: `whole`, `named` or `refused`, and how many events are gone."""
    shutil.copytree(prepared.store, store, symlinks=True)
    victim, before = _damage(store, kind, form, seed)
    what = f"{victim.relative_to(store)} {form}"
    refused = _live_once(prepared.config, store)
    if refused:
        assert ADVICE.search(refused.text), f"{what}: {refused.text}"
        _put_back(victim, before)
        assert _live_once(prepared.config, store) is None, f"{what}: the refusal changed something"
        assert _check(store, prepared.events) == 0, f"{what}: the refusal changed something"
        return "refused", 0, f"{what}: {refused.text}"
    try:
        gone = _check(store, prepared.events)
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error
    if kind not in ("data", "segment"):
        assert gone == 0, f"{what}: {gone} events are gone that could be had"
    assert _live_once(prepared.config, store) is None, f"{what}: only the first start went well"
    assert _check(store, prepared.events) == gone
    return "named" if gone else "whole", gone, what


def _put_back(path, data):
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(data)


FEW = [
    ("segment", "flipped"),
    ("segment", "deleted"),
    ("checkpoint", "garbage"),
    ("identity", "flipped"),
    ("lock", "directory"),
    ("lock", "garbage"),
    ("mark", "directory"),
    ("log entry", "flipped"),
    ("log entry", "deleted"),
    ("log checkpoint", "truncated"),
    ("journal", "zeroed"),
    ("data", "flipped"),
    ("data", "deleted"),
    ("quarantine", "directory"),
    ("log checkpoint", "unreadable"),
    ("segment", "emptied"),
]


@pytest.mark.parametrize(("kind", "form"), FEW)
def test_a_damaged_file_costs_no_row_that_can_be_had(prepared, tmp_path, kind, form):
    _try(prepared, tmp_path / "store", kind, form, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thirty_kinds_of_damage_to_each_kind_of_file(prepared, tmp_path, capsys, kind):
    forms = list(FORMS)
    results, failures = [], []
    for number in range(30):
        form = forms[number % len(forms)]
        store = tmp_path / f"store-{number}"
        try:
            results.append(_try(prepared, store, kind, form, number))
        except AssertionError as error:
            failures.append(str(error))
        shutil.rmtree(store)
    sums = {word: sum(r[0] == word for r in results) for word in ("whole", "named", "refused")}
    told = [" ".join(map(str, result)) for result in results if result[0] != "whole"]
    with capsys.disabled():
        sys.stderr.write("\n".join([f"\n{kind}: {sums}", *told, ""]))
    assert not failures, "\n".join(failures)


def test_a_daemon_starts_on_a_damaged_file_says_it_and_receives(prepared, tmp_path):
    """Events that the spool cannot give again are named; a peer beside it loses nothing."""
    collector = Collector(tmp_path, more=MORE)
    shutil.copytree(prepared.store, collector.store, symlinks=True)
    table = DeltaTable(str(collector.store / "events"))
    sizes = {path.stat().st_size: path for path in map(Path, table.file_uris())}
    largest = sizes[max(sizes)]  # of a merge, so of rows that the spool has let go
    largest.write_bytes(largest.read_bytes()[:-100])
    collector.start()
    try:
        collector.logged(largest.name)
        collector.logged("set aside")
        assert largest.name in collector.get("/healthz")[1]
        with socket.create_connection(collector.address("tcp")) as sock:
            sock.sendall(b"".join(heph_event(2, n) for n in range(50)))
            before = prepared.events["tcp"]
            until(
                lambda: collector.status()["sources"]["tcp"]["seen_events"] == before + 50,
                "the events of a peer",
            )
        collector.check_balance()
        collector.stop()
    finally:
        collector.end()
    rows = [row for row in collector.rows() if row["kind"] == "span" and row["source"] == "tcp"]
    assert sorted(row["seq"] for row in rows if row["stream"] == "2") == list(range(50))
    there = {row["seq"] for row in rows if row["stream"] == "1"}
    assert 0 < len(there) < prepared.events["tcp"]
    said = collector.cli("gaps", "--json", "--source", "tcp").stdout.splitlines()
    damaged = [gap for gap in map(json.loads, said) if gap["reason"] == "damaged"]
    lost = sum(gap["remaining"] or 0 for gap in damaged)
    assert lost == prepared.events["tcp"] - len(there)
