"""Records that are never finished: what they take is bounded, whoever holds the most gives way, and a
checkpoint holds hardly anything of them."""

from __future__ import annotations

import contextlib
import socket

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until
from tests.system.test_attacks import Honest, figures
from tests.system.test_import import jets

KIB, MIB = 2**10, 2**20
OFTEN = toml.section("spool", checkpoint_interval="100 ms")
TCP = toml.source("tcp", "tcp", pending_max="4 MiB")
ATTACKERS, PART = 24, 900 * KIB


def of_files(directory, format_="jets", more=""):
    return toml.source("runs", "tail", format_, paths=[directory]) + more


def checkpoints(collector):
    return sorted((collector.store / "spool").glob("*.checkpoint"))


def checkpoint_after(collector):
    """Wait until a checkpoint holds what is decoded now, and return its size in bytes."""
    decoded = collector.status()["spool"]["decoded"]

    def found():
        # Other commits make the next checkpoint due.
        return any(int(path.stem) >= decoded for path in checkpoints(collector))

    until(found, "a checkpoint")
    return checkpoints(collector)[-1].stat().st_size


def test_whoever_holds_the_most_gives_way_and_an_honest_peer_does_not(collector_of):
    """24 connections with 900 KiB of one record each, against a limit of 4 MiB."""
    collector = collector_of(sources=TCP, more=OFTEN)
    unfinished = heph_event(7, 0, attributes=bytes(1000 * KIB))[:PART]
    with Honest(collector, "tcp") as honest:
        with contextlib.ExitStack() as stack:
            slow = stack.enter_context(socket.create_connection(collector.address("tcp")))
            slow.sendall(heph_event(8, 0)[:30])
            for _ in range(ATTACKERS):
                attacker = stack.enter_context(socket.create_connection(collector.address("tcp")))
                with contextlib.suppress(OSError):
                    attacker.sendall(unfinished)
                honest.send(3)
                assert figures(collector, "tcp")["pending_bytes"] <= 4 * MIB
            source = until_given_up(collector, ATTACKERS - 4)
            assert source["refused"]["too many pending bytes"] == source["gave_way"]
            assert "sources.tcp" in collector.status()["conditions"]["pending"]
            code, body = collector.get("/healthz")
            assert (code, "pending" in body) == (200, True)
            honest.send()
            slow.sendall(heph_event(8, 0)[30:])
            collector.settle()
            assert checkpoint_after(collector) < 512 * KIB
        _, missing = honest.check()
    assert not missing
    rows = collector.rows(["session", "stream", "kind", "name", "attributes"])
    assert [row["kind"] for row in rows if row["stream"] == "8"] == ["span"]
    gave = {row["session"] for row in rows if row["name"] == "gave_way"}
    gaps = {row["session"] for row in rows if '"too_long"' in (row["attributes"] or "")}
    assert gave == gaps
    assert len(gave) == figures(collector, "tcp")["gave_way"]
    ends = {row["session"] for row in rows if "too many pending bytes" in (row["attributes"] or "")}
    assert ends == gave
    collector.check_balance()


def until_given_up(collector, least):
    until(lambda: figures(collector, "tcp")["gave_way"] >= least, "records to be given up")
    until(lambda: "pending" in collector.status()["conditions"], "the condition")
    return figures(collector, "tcp")


def test_a_file_gives_up_its_record_and_goes_on_with_the_next(collector_of, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    limits = 'record_max = "1 MiB"\npending_max = "1 MiB"\n'
    collector = collector_of(sources=of_files(runs, more=limits))
    (runs / "honest.jets").write_bytes(jets(5) + b'{"type":"rec')
    begin = jets(5)
    (runs / "first.jets").write_bytes(begin + b'{"x":"' + b"a" * 600 * KIB)
    until(lambda: figures(collector, "runs")["pending_bytes"] > 600 * KIB, "the first record")
    (runs / "second.jets").write_bytes(begin + b'{"x":"' + b"b" * 700 * KIB)
    until(lambda: figures(collector, "runs")["gave_way"] == 1, "a record to be given up")
    until(lambda: figures(collector, "runs")["pending_bytes"] > 700 * KIB, "the second record")
    with (runs / "first.jets").open("ab") as file:
        file.write(b'more of it"}\n' + jets(3).partition(b"\n")[2])
    until(lambda: figures(collector, "runs")["records"]["begin"] == 18, "the records behind it")
    collector.settle()
    rows = collector.rows(["kind", "name", "attributes", "offset"])
    gaps = [row for row in rows if row["kind"] == "gap"]
    assert [row["offset"] for row in gaps if '"count":1' in row["attributes"]] == [len(begin)]
    assert all('"detail":"too_long"' in row["attributes"] for row in gaps)
    malformed = figures(collector, "runs")["malformed_bytes"]
    assert malformed == len(b'{"x":"') + 600 * KIB + len(b'more of it"}\n')
    collector.check_balance()


def test_a_checkpoint_leaves_unfinished_records_to_the_spool(collector_of, tmp_path):
    """Killed with half a record of each size in a file, and started again, it reads them to their ends."""
    runs = tmp_path / "runs"
    runs.mkdir()
    collector = collector_of(sources=of_files(runs), more=OFTEN)
    sizes = [100, 5 * KIB, 300 * KIB, 3 * MIB]
    for size in sizes:
        (runs / f"{size}.jets").write_bytes(jets(1) + long_line(size)[: -size // 2])
    held = sum(len(long_line(size)) + (-size // 2) for size in sizes)
    until(lambda: figures(collector, "runs")["pending_bytes"] == held, "the unfinished records")
    for number in range(3):  # each commit makes room for a checkpoint
        (runs / f"other{number}.jets").write_bytes(jets(1))
        until(lambda n=number: figures(collector, "runs")["files"] == len(sizes) + n + 1, "a file")
        assert checkpoint_after(collector) < 64 * KIB
    collector.kill()
    collector.start()
    until(lambda: figures(collector, "runs")["pending_bytes"] == held, "them to be read again")
    for size in sizes:
        with (runs / f"{size}.jets").open("ab") as file:
            file.write(long_line(size)[-size // 2 :])
    until(lambda: figures(collector, "runs")["pending_bytes"] == 0, "their ends")
    collector.settle()
    rows = collector.rows(["kind", "attributes"])
    long = sorted(len(r["attributes"]) for r in rows if "xxx" in (r["attributes"] or ""))
    assert len(long) == len(sizes)
    assert all(row["kind"] != "gap" for row in rows)
    collector.check_balance()


def long_line(size):
    text = b"x" * size
    return b'{"type":"event","clk":5,"name":"e","record_id":1,"description":"%s"}\n' % text
