"""Whoever reads what a collector writes for others cannot go on with its clients' sessions."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

from tailrace.decoding.formats.heph.session import stored_name
from tests.cli.command import run
from tests.ingest.log import heph_epoch
from tests.system.announcing import Client, connected, option
from tests.system.collector import Collector, until

HEX = re.compile(r"[0-9A-Fa-f]{16,}")


def rows(collector, sql):
    out = run("query", "--config", collector.config, "--store", collector.store, "--json", sql)
    return [json.loads(line) for line in out.splitlines()]


def readable(collector):
    """All that others can read: rows, pages, log, and the files that their modes let others open."""
    texts = [json.dumps(rows(collector, f"FROM {view}")) for view in ("events", "sessions", "gaps")]
    texts += [collector.get(page)[1] for page in ("/status?format=json", "/status", "/metrics")]
    texts.append(collector.log())
    texts += [path.read_bytes().decode("latin-1") for path in open_to_others(collector.store)]
    return [text if isinstance(text, str) else text.decode() for text in texts]


def open_to_others(directory):
    """The files below a directory that another user may read."""
    for entry in os.scandir(directory):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
            yield from open_to_others(entry.path)
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            yield Path(entry.path)


def test_who_reads_everything_cannot_go_on_with_a_session(tmp_path):
    before = os.umask(0o022)
    collector = Collector(tmp_path).start()
    try:
        with Client(collector, "tcp") as honest:
            honest.announce()
            honest.emit(100)
            honest.hear_until(lambda: honest.told.get(1) == 100, "100 durable events")
            cut = heph_epoch(1) + option(b"tailrace.session", {"session": honest.session})
            with connected(collector, "tcp") as broken_off:
                broken_off.sendall(cut[:-2])
            until(lambda: rows(collector, "SELECT 1 FROM gaps"), "the cut packet's gap")

            read = readable(collector)
            assert [text for text in read if honest.session in text] == []
            found = sorted({word for text in read for word in HEX.findall(text)})
            assert stored_name(honest.session) in found
            for word in found:
                attack(collector, f"{word:0<32.32}")

            collector.stop()
            collector.start()
        with Client(collector, "tcp") as back:
            back.session, back.turn, back.epoch = honest.session, 1, honest.epoch
            back.next = {1: 100}
            back.announce()
            back.emit(50)
            back.goodbye()
            back.hear_until(lambda: back.told.get(1) == 150, "150 durable events")
        collector.stop()
        name = stored_name(honest.session)
        asked = "SELECT producer ->> 'session' AS name, events, missing, closed FROM sessions"
        (session,) = [row for row in rows(collector, asked) if row["name"] == name]
        assert session == {"name": name, "events": 150, "missing": 0, "closed": "goodbye"}
    finally:
        os.umask(before)
        collector.end()


def attack(collector, id_):
    """Say goodbye for a session, as if much of it were missing."""
    with connected(collector, "tcp") as sock:
        about = option(b"tailrace.session", {"session": id_, "turn": 9, "acknowledge": True})
        sock.sendall(heph_epoch(1) + about + option(b"tailrace.goodbye", {"streams": {"1": 9999}}))
        sock.settimeout(30)
        assert sock.recv(1)  # it was heard, whatever it was taken for


def test_the_spool_and_the_quarantine_are_nobody_elses(tmp_path):
    before = os.umask(0)
    collector = Collector(tmp_path).start()
    try:
        with Client(collector, "tcp") as client:
            client.announce()
            client.emit(10)
            client.send(b"no packet at all, and enough of it" * 3)
            client.hear_until(lambda: client.told.get(1) == 10, "10 durable events")
        collector.stop()
    finally:
        os.umask(before)
        collector.end()
    spool, quarantine = collector.store / "spool", collector.store / "quarantine"
    for directory in (spool, quarantine):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert [path for path in directory.rglob("*") if path.stat().st_mode & 0o077] == []
    assert list(quarantine.iterdir()) != []
