"""Stores of earlier versions, stopped in order or killed in their work, as a later version finds them.

The later version is `later`. Until there are stores of releases, the earlier ones are made by today's
code and have the shape that `later.before` gives them. Their input is known to the byte (`feeding`), so that the table is held against that and not
against what any version made of it. See tests/vectors/upgrade/README.md.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
from collections import Counter
from functools import cache

import msgspec
import pytest
from deltalake import DeltaTable, Field

import tailrace
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.ingest.state import VERSION
from tailrace.spool.checkpoint import Checkpoints
from tailrace.store import upkeep
from tailrace.store.durable import NO_HOOKS
from tailrace.store.schema import SCHEMA_VERSION, VERSION_PROPERTY, version_of
from tests import toml
from tests.cli.command import run
from tests.ingest.log import as_seen
from tests.query.tables import rows_in
from tests.system.collector import until
from tests.upgrade import feeding, later
from tests.upgrade.make import CLIENTS, DOCUMENTS, FILES, TAILS, leave
from tests.upgrade.stored import NAMES, laid_out, unpack

SOURCES = (
    toml.source("udp", "udp", idle_timeout="36500 d")
    + toml.source("tcp", "tcp")
    + toml.source("jets", "tcp", "jets")
)

TAIL_SOURCES = {"simulator": "run.jets", "io": "trace.pfw.gz", "hpc": "ovni"}

COLUMNS = (
    "substream", "seq", "kind", "name", "category", "id", "parent", "start", "end", "attributes",
    "offset",
)  # fmt: skip


LOCKS = {"lock", "log.lock", "start.lock", "writers.lock"}


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A function that returns the directory in which a collector of today was "killed" or "stopped"."""

    @cache
    def leave_(how):
        directory = tmp_path_factory.mktemp(how)
        leave(directory, killed=how == "killed")
        return directory

    return leave_


@pytest.fixture(params=["killed", "stopped", *NAMES])
def stored(request, tmp_path, left):
    """A store of a version before `later`."""
    if request.param in NAMES:
        stored = unpack(request.param, tmp_path)
    else:
        stored = laid_out(left(request.param), tmp_path)
    yield stored
    stored.peer.close()


@pytest.fixture
def today(stored, collectors):
    """A collector of today on the stored store, not started."""
    more = TAILS.format(files=stored.files)
    collector = collectors(sources=SOURCES + CLIENTS + more)
    collector.store = stored.store
    return collector


@pytest.fixture
def upgraded(today):
    """The same of the later version."""
    _, _, _, *arguments = today.command()
    today.command = lambda: [sys.executable, later.__file__, *arguments]
    return today


def send_the_rest(collector, stored):
    host_port = {name: collector.address(name) for name in ("udp", "tcp", "clients")}
    for datagram in feeding.udp().rest:
        stored.peer.sendto(datagram, host_port["udp"])
    for name, parts in (("tcp", feeding.tcp()), ("clients", feeding.announced())):
        with socket.create_connection(host_port[name]) as sock:
            sock.sendall(b"".join(parts.rest))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
    for name, parts in FILES.items():
        with (stored.files / name).open("ab") as file:
            file.write(parts().whole[file.tell() :])


def numbers(rows, source, stream):
    return sorted(
        row["seq"]
        for row in rows
        if (row["source"], row["stream"], row["kind"]) == (source, stream, "span")
    )


def missing(rows, source):
    """The numbers that gap rows name and heal rows do not take back, by stream. Leave out gaps of connections that
    were cut."""
    found = Counter()
    for row in rows:
        if row["source"] == source and row["kind"] in {"gap", "heal"} and not is_cut(row):
            assert row["seq"] is not None, row
            count = json.loads(row["attributes"])["count"]
            sign = 1 if row["kind"] == "gap" else -1
            for n in range(row["seq"], row["seq"] + count):
                found[row["stream"], n] += sign
    return {number for number, times in found.items() if times}


def is_cut(row):
    return json.loads(row["attributes"] or "{}").get("detail") == "cut"


def test_an_older_store_is_taken_over_and_goes_on(stored, upgraded, imported, monkeypatch):
    upgraded.start()
    assert version_of(DeltaTable(str(stored.store / "events"))) == later.SCHEMA
    upgraded.logged(f"has schema {later.SCHEMA} now ({later.NEWS})")
    upgraded.logged(f"has decoder state of version {later.STATE} now, was {VERSION}")
    send_the_rest(upgraded, stored)
    until(lambda: all_read(upgraded), "the files to be read")
    upgraded.settle()
    upgraded.check_balance()
    upgraded.stop()
    later.register(monkeypatch.setattr)
    upkeep.run(str(stored.store), StoreConfig(), clock=SystemClock(), everything=True)
    if stored.died:
        upgraded.start().settle()
        upgraded.check_balance()
        upgraded.stop()

    rows = as_seen(upgraded.rows())
    assert numbers(rows, "udp", "1") == sorted(set(range(300)) - feeding.UDP_NEVER)
    assert numbers(rows, "tcp", "2") == list(range(100))
    assert numbers(rows, "tcp", "3") == list(range(50))
    assert missing(rows, "udp") == {("1", n) for n in feeding.UDP_NEVER}
    assert missing(rows, "tcp") == set()
    cut = sorted(row["source"] for row in rows if is_cut(row))
    assert cut == ["jets", "tcp"], "connections whose end nobody read"
    jets = Counter(row["kind"] for row in rows if row["source"] == "jets")
    assert (jets["begin"], jets["span"]) == (10, 10)
    for name in TAIL_SOURCES:
        assert events(rows, name) == events(imported, name) != Counter()
        assert missing_count(rows, name) == missing_count(imported, name)
    check_clients(rows, stored)


def all_read(collector):
    """Whether the sources have the content of their files, as it is when inflated."""
    sources = collector.status()["sources"]
    sizes = {
        "simulator": len(feeding.jets().whole),
        "io": len(gzip.decompress(feeding.dftracer().whole)),
        "hpc": len(feeding.ovni().whole),
    }
    return sizes == {name: sources[name]["received_bytes"] for name in sizes}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The rows of the whole files as only today's version stores them."""
    directory = tmp_path_factory.mktemp("whole")
    for name, data in [*DOCUMENTS.items(), *((n, parts().whole) for n, parts in FILES.items())]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    for source, path in TAIL_SOURCES.items():
        run("import", "--store", directory / "store", "--source", source, directory / path)
    return rows_in(directory / "store")


def events(rows, source):
    """Those of one source, with all that is stored of them but where they came from."""
    ours = {"session", "gap", "heal"}
    return Counter(
        tuple(row[column] for column in COLUMNS)
        for row in rows
        if row["source"] == source and row["kind"] not in ours
    )


def missing_count(rows, source):
    sign = {"gap": 1, "heal": -1}
    return sum(
        sign[row["kind"]] * json.loads(row["attributes"])["count"]
        for row in rows
        if row["source"] == source and row["kind"] in sign
    )


def check_clients(rows, stored):
    """The session that was away before is one with what came after."""
    numbers_of = sorted({*range(120)} - {*range(20, 25)})
    assert missing(rows, "clients") == {("5", n) for n in range(20, 25)}
    assert numbers(rows, "clients", "5") == numbers_of
    with tailrace.open(stored.store) as reading:
        [session] = reading.sessions(source="clients")
        assert session["events"] == len(numbers_of)


@pytest.mark.parametrize("stored", ["killed", "stopped"], indirect=True)
def test_an_older_store_is_read_as_it_is(stored, monkeypatch):
    """By whoever reads before a collector has started, and nothing is changed by it."""
    later.register(monkeypatch.setattr)
    table = stored.store / "events"
    before = sorted((path, path.stat().st_mtime_ns) for path in table.rglob("*"))
    with tailrace.open(stored.store) as reading:
        seqs = sorted(row["seq"] for row in reading.spans(source="udp", columns=["seq"]))
        assert {*range(40), *range(45, 120)} <= set(seqs)
        assert len(seqs) == len(set(seqs))
        sessions = {row["source"]: row for row in reading.sessions()}
        assert sessions["udp"]["events"] == len(seqs)
        [stream] = reading.streams(source="udp")
        [missing] = {row["reason"] for row in reading.gaps(source="udp")}
        assert (stream["events"], missing) == (len(seqs), "network")
        names = reading.spans(source="jets", columns=["name", "parent"], order="id")
        assert [row["name"] for row in names] == [f"r{n}" for n in range(1, 21)]
    for command in (["gaps"], ["query", "SELECT count(*) FROM spans"]):
        assert run(command[0], "--store", stored.store, *command[1:])
    assert sorted((path, path.stat().st_mtime_ns) for path in table.rglob("*")) == before


@pytest.mark.parametrize("stored", ["killed"], indirect=True)
def test_a_state_of_a_newer_version_is_refused_before_anything_is_changed(today, stored):
    checkpoints = Checkpoints(stored.store / "spool")
    newest = checkpoints.newest(2**64 - 1)
    state = msgspec.msgpack.decode(newest.state, strict=False) | {"version": VERSION + 1}
    checkpoints.save(newest.position, msgspec.msgpack.encode(state))
    before = contents(stored.store)
    today.start(wait=False)
    assert today.process.wait(30) == 1
    assert f"version {VERSION + 1}; this version reads {VERSION}" in today.log()
    assert "move the directory away" in today.log()
    assert contents(stored.store) == before


@pytest.mark.parametrize("stored", ["stopped"], indirect=True)
def test_a_table_of_a_newer_version_is_refused_to_a_collector_and_read_with_a_warning(
    today, stored
):
    table = DeltaTable(str(stored.store / "events"))
    table.alter.add_columns([Field("extra", "long")], post_commithook_properties=NO_HOOKS)
    newer = {VERSION_PROPERTY: str(SCHEMA_VERSION + 1)}
    table.alter.set_table_properties(
        newer, raise_if_not_exists=False, post_commithook_properties=NO_HOOKS
    )
    before = contents(stored.store / "events")
    today.start(wait=False)
    assert today.process.wait(30) == 1
    assert "was written by a newer Tailrace (schema 2; this one knows 1)" in today.log()
    done = today.cli("query", "--csv", "SELECT count(*) AS n FROM spans WHERE source = 'tcp'")
    assert (done.returncode, done.stdout) == (0, "n\n100\n")
    assert done.stderr.count("was written by a newer Tailrace") == 1
    assert contents(stored.store / "events") == before


def contents(directory):
    """Every file and what is in it, but for locks and what a reader of the spool leaves prepared."""
    return {
        path: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in {*LOCKS, "next.segment"}
    }
