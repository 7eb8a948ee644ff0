"""SIGHUP to a real daemon: another configuration runs whole, or the one before goes on."""

from __future__ import annotations

import collections
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from tailrace.config.reload import Takes
from tests import program, toml
from tests.docs.configuration import describe
from tests.ingest.log import heph_epoch, heph_event
from tests.system.collector import Collector, until
from tests.system.producers import TcpProducer, UdpProducer, free_ports


def source(name, type_="tcp", listen="127.0.0.1:0", format_="heph", **keys):
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return toml.source(name, type_, format_, listen=listen) + more


def write(collector, sources, more=""):
    text = f"{toml.section('admin', listen=toml.EPHEMERAL)}{more}\n{sources}"
    new = collector.config.with_suffix(".new")
    new.write_text(text)
    new.replace(collector.config)


def reload(collector, *what, **more):
    """Write the sources, if given, and reload; the status after it."""
    if what:
        write(collector, *what, **more)
    before = tries(collector)
    collector.process.send_signal(signal.SIGHUP)
    until(lambda: tries(collector) > before, "the reload")
    collector.wait_ready()  # the addresses may be others
    return collector.status()


def tries(collector):
    return sum(collector.status()["config"]["reloads"].values())


def connect(collector, name="tcp"):
    sock = socket.create_connection(collector.address(name), timeout=30)
    sock.sendall(heph_epoch(10**18) + heph_event(1, 0))
    return sock


def seen(collector, name, count):
    def look():
        return collector.status()["sources"][name]["seen_events"] == count

    until(look, f"{count} events of {name}")


def closes(collector):
    """Why sessions ended, by source."""
    collector.settle()
    rows = collector.rows(["source", "kind", "name", "attributes"])
    found = [(r["source"], re.search(r'"closed":"([^"]*)"', r["attributes"] or "")) for r in rows]
    return sorted((name, match[1]) for name, match in found if match)


def test_a_broken_file_changes_nothing_and_all_its_problems_are_said(collector_of):
    collector = collector_of(sources=source("tcp"))
    was = collector.status()["config"]
    assert was["last_reload"] is None
    assert was["path"] == str(collector.config)
    with connect(collector) as sock:
        seen(collector, "tcp", 1)
        broken = source("tcp", idle_timeout='"soon"', colour='"red"')
        now = reload(collector, broken)["config"]
        assert (now["sha256"], now["loaded_timestamp_seconds"]) == (
            was["sha256"],
            was["loaded_timestamp_seconds"],
        )
        assert now["last_reload"]["good"] is False
        problems = now["last_reload"]["problems"]
        assert len(problems) == 2
        for problem, key in zip(problems, ("idle_timeout", "colour"), strict=True):
            assert re.search(rf"tailrace\.toml:\d+: sources\.tcp\.{key}: ", problem)
            assert collector.logged(problem) == 1
        code, health = collector.get("/healthz")
        assert code == 200
        assert '"degraded"' in health
        assert "tailrace_config_reload_success 0.0" in collector.get("/metrics")[1]
        assert 'tailrace_condition{condition="reload"} 1.0' in collector.get("/metrics")[1]
        reload(collector)
        assert collector.logged(problems[0], times=2) == 2
        sock.sendall(heph_event(1, 1))
        seen(collector, "tcp", 2)
        now = reload(collector, source("tcp"))
        assert now["state"] == "ok"
        assert now["config"]["last_reload"]["problems"] == []
        assert now["config"]["reloads"] == {"done": 1, "failed": 2}
        assert "tailrace_config_reload_success 1.0" in collector.get("/metrics")[1]
        sock.sendall(heph_event(1, 2))
        seen(collector, "tcp", 3)
    assert now["sources"]["tcp"]["sessions_opened"] == 1


def test_sources_come_and_go_and_others_do_not_notice(collector_of):
    collector = collector_of(sources=source("stays") + source("goes") + source("other"))
    was = collector.status()["config"]
    stays, goes, other = (connect(collector, name) for name in ("stays", "goes", "other"))
    with stays, goes, other:
        for name in ("stays", "goes", "other"):
            seen(collector, name, 1)
        # The kernel's bytes when the signal comes were sent while the source was there.
        goes.sendall(heph_event(1, 1))
        other.sendall(heph_event(1, 1))
        before = collector.address("other")
        now = reload(
            collector,
            source("stays", idle_timeout='"2 h"')
            + source("other", format_="jets")
            + source("comes", "udp"),
        )
        assert now["config"]["sha256"] != was["sha256"]
        assert now["config"]["loaded_timestamp_seconds"] > was["loaded_timestamp_seconds"]
        assert set(now["sources"]) == {"stays", "other", "comes"} == {*collector.ports["sources"]}
        assert collector.address("other") == before, "it goes on with its socket"
        assert goes.recv(1) == b""
        stays.sendall(heph_event(1, 1))
        seen(collector, "stays", 2)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(heph_event(7, 0), collector.address("comes"))
        seen(collector, "comes", 1)
    assert now["sources"]["stays"]["sessions_opened"] == 1
    until(lambda: len(closes(collector)) == 3, "the connection to end")
    assert closes(collector) == [
        ("goes", "source removed"),
        ("other", "source changed"),
        ("stays", "eof"),
    ]
    spans = [r for r in collector.rows() if r["kind"] == "span" and r["source"] != "comes"]
    assert sorted((r["source"], r["seq"]) for r in spans) == [
        (name, seq) for name in ("goes", "other", "stays") for seq in (0, 1)
    ]


def test_an_address_that_is_taken_fails_the_reload_and_all_is_as_it_was(collector_of):
    collector = collector_of(sources=source("tcp") + source("goes"))
    with socket.create_server(("127.0.0.1", 0)) as taken, connect(collector) as sock:
        seen(collector, "tcp", 1)
        port = taken.getsockname()[1]
        now = reload(
            collector,
            source("tcp", format_="jets") + source("new", listen=f"127.0.0.1:{port}"),
        )
        (problem,) = now["config"]["last_reload"]["problems"]
        start = f"sources.new.listen: cannot listen on 127.0.0.1:{port}: another process does; "
        assert problem.startswith(start)
        assert {*now["sources"]} == {"tcp", "goes"}
        sock.sendall(heph_event(1, 1))
        seen(collector, "tcp", 2)
        connect(collector, "goes").close()
        seen(collector, "goes", 1)
    assert reload(collector)["state"] == "ok", "the port is free now"


def test_a_source_may_change_its_address_its_name_and_its_interface(collector_of):
    (port,) = free_ports(socket.SOCK_STREAM, 1)
    collector = collector_of(sources=source("a", listen=f"127.0.0.1:{port}"))
    connect(collector, "a").close()
    reload(collector, source("b", listen=f"127.0.0.1:{port}"))
    connect(collector, "b").close()
    seen(collector, "b", 1)
    everywhere = source("b", listen=f"0.0.0.0:{port}", open_to_all="true")
    assert reload(collector, everywhere)["state"] == "ok"
    connect(collector, "b").close()
    seen(collector, "b", 2)
    # The one that is in the way is back when the other cannot be had.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        elsewhere = source("c", listen=f"127.0.0.1:{taken.getsockname()[1]}")
        now = reload(collector, source("b", listen=f"127.0.0.1:{port}") + elsewhere)
    assert now["state"] == "degraded"
    assert now["sources"]["b"]["address"] == f"0.0.0.0:{port}"
    connect(collector, "b").close()
    seen(collector, "b", 3)


def test_datagram_peers_go_on_when_their_source_starts_anew(collector_of):
    collector = collector_of(sources=source("udp", "udp"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        sent = 0
        for peers_max in (100, 200, 300):
            # Some of these are in the kernel when the signal comes, and some come after it.
            for _ in range(200):
                sock.send(heph_event(1, sent))
                sent += 1
            collector.process.send_signal(signal.SIGHUP)
            assert reload(collector, source("udp", "udp", peers_max=peers_max))["state"] == "ok"
        seen(collector, "udp", sent)
    now = collector.status()["sources"]["udp"]
    assert now["missing_events"] == 0
    assert now["duplicate_events"] == 0
    assert now["sessions_opened"] == 1


def test_files_go_on_when_their_source_starts_anew(collector_of, tmp_path):
    def followed(more):
        return toml.source("files", "tail", "jets", paths=[f"{tmp_path}/*.jets"]) + more

    def append(numbers):
        with (tmp_path / "a.jets").open("a") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in numbers)

    collector = collector_of(sources=followed(""))
    append(range(100))
    taken = 0
    for round_ in range(3):
        until(
            lambda taken=taken: collector.status()["sources"]["files"]["received_bytes"] > taken,
            "the lines",
        )
        taken = collector.status()["sources"]["files"]["received_bytes"]
        reload(collector, followed(f"descriptors_max = {100 + round_}\n"))
        append(range(100, 110))
    size = (tmp_path / "a.jets").stat().st_size
    until(
        lambda: collector.status()["sources"]["files"]["received_bytes"] == size, "all of the file"
    )
    now = collector.status()["sources"]["files"]
    assert now["sessions_opened"] == 1
    assert now["sessions_closed"] == 0


def test_relative_patterns_are_refused_where_the_working_directory_is_gone(collectors, tmp_path):
    def followed(*patterns):
        return toml.source("files", "tail", "jets", paths=list(patterns))

    (tmp_path / "cwd").mkdir()
    collector = collectors(
        sources=followed("*.jets"), before=lambda: os.chdir(tmp_path / "cwd")
    ).start()
    (tmp_path / "cwd").rmdir()
    (problem,) = reload(collector, followed("*.more"))["config"]["last_reload"]["problems"]
    assert problem.startswith("sources.files.paths: *.more: the working directory is gone")
    now = reload(collector, followed(f"{tmp_path}/*.jets"))
    assert now["state"] == "ok"
    (tmp_path / "a.jets").write_text('{"n": 1}\n')
    until(lambda: collector.status()["sources"]["files"]["received_bytes"], "the line")


OTHER = {
    "size": '"3 MiB"',
    "duration": '"77 s"',
    "whole number": "77",
    "boolean": "true",
    "list of strings": '["192.0.2.0/24", "127.0.0.0/8"]',
    "table of strings": '{a = "b"}',
}
BY_NAME = {
    "mode": '"0640"',
    "level": '"warning"',
    "format": '"jets"',
    "dialect": '"jets"',
    "name": '"other"',
    "id": '"7.0"',
    "node": '"other"',
}


def test_each_key_does_at_a_reload_what_the_reference_says(collector_of, tmp_path):
    """Changes of sections: taken over, or refused. Changes of sources: connections stay, or are closed."""
    socket_ = f"{tmp_path}/s"
    base = {
        "udp": 'type = "udp"\nformat = "heph"\nlisten = "127.0.0.1:0"\n',
        "tcp": 'type = "tcp"\nformat = "heph"\nlisten = "127.0.0.1:0"\n',
        "unix": f'type = "unix"\nformat = "heph"\nlisten = "{socket_}"\n',
        "tail": f'type = "tail"\nformat = "heph"\npaths = ["{tmp_path}/*.heph"]\n',
    }

    def text(section=None, line=""):
        def body(type_):
            lines = base[type_].splitlines(keepends=True)
            if section == f"sources ({type_})":
                key = line.partition(" ")[0]
                lines = [old for old in lines if not old.startswith(f"{key} ")] + [line]
            return "".join(lines)

        sections = {"admin": 'listen = "127.0.0.1:0"\n'}
        if section and not section.startswith("sources"):
            sections[section] = line if "listen" in line else sections.get(section, "") + line
        return "".join(
            [f"[{name}]\n{body_}" for name, body_ in sections.items()]
            + [toml.section(f"sources.{type_}") + body(type_) for type_ in base]
        )

    collector = collector_of(sources=source("tcp"))
    collector.config.write_text(text())
    reload(collector)
    with_files = {"tls_certificate", "tls_key", "tls_client_authority", "tokens"}
    keys = [d for d in describe() if d.key not in {"type", *with_files}]
    assert len(keys) > 60
    for described in keys:
        section, key, takes = described.section, described.key, described.takes
        value = BY_NAME.get(key) or OTHER.get(described.type)
        if key == "paths":
            value = f'["{tmp_path}/*.other"]'
        elif key == "listen":
            value = f'"{socket_}2"' if section == "sources (unix)" else '"localhost:0"'
        elif key == "path":
            value = f'"{tmp_path}/elsewhere"'
        elif key == "pending_max":
            value = '"65 MiB"'  # not less than a record
        elif (section, key) == ("log", "format"):
            value = '"json"'
        if key == "dialect" or (section, key) == ("store", "path"):
            continue  # formats with dialects are told below; --store is an option of this daemon
        connection = connect(collector)
        before = collector.status()
        collector.config.write_text(text(section, f"{key} = {value}\n"))
        now = reload(collector)
        said = f"{section} {key}: {takes}"
        problems = now["config"]["last_reload"]["problems"]
        if takes is Takes.RESTART:
            assert len(problems) == 1, said
            assert problems[0].startswith(f"{section}.{key}: "), said
            assert problems[0].endswith("needs a restart"), said
        else:
            assert problems == [], said
        changed = now["config"]["sha256"] != before["config"]["sha256"]
        assert changed == (takes is not Takes.RESTART), said
        closed = section == "sources (tcp)" and takes is Takes.SOURCE
        ended = now["sources"]["tcp"]["open"] == 0
        assert ended == closed, said
        connection.close()
        collector.config.write_text(text())
        assert reload(collector)["state"] == "ok", said
    until(
        lambda: re.search(r'^{.*"reload: done', collector.log(), re.MULTILINE),
        "log.format to take effect",
    )


def test_store_path_needs_a_restart(collectors, tmp_path):
    collector = collectors(sources=source("tcp"), more=toml.section("store", path=f"{tmp_path}/a"))
    collector.store = tmp_path / "a"
    collector.command = lambda: [
        *program.COMMAND, "serve", "--config", collector.config,
    ]  # fmt: skip
    collector.start()
    more = toml.section("store", path=f"{tmp_path}/b") + toml.section("spool", segment_size="1 MiB")
    now = reload(collector, source("tcp", connections_max=7), more=more)
    problems = now["config"]["last_reload"]["problems"]
    assert [p.partition(":")[0] for p in problems] == ["store.path", "spool.segment_size"]
    collector.stop()


def test_without_a_file_a_reload_is_good_and_changes_nothing(tmp_path):
    collector = Collector(tmp_path)
    (port,) = free_ports(socket.SOCK_STREAM, 1)
    environ = {"TAILRACE_ADMIN_LISTEN": f"127.0.0.1:{port}"}
    for name in ("HEPH_UDP", "HEPH_TCP", "JETS_TCP"):
        environ[f"TAILRACE_SOURCES_{name}_LISTEN"] = "127.0.0.1:0"
    collector.environ = environ
    collector.command = lambda: [
        *program.COMMAND, "serve", "--store", collector.store,
    ]  # fmt: skip
    try:
        collector.start()
        now = reload(collector)
        assert now["state"] == "ok"
        assert now["config"]["path"] is None
        collector.logged("the environment is unchanged")
        assert collector.stop()
        assert collector.process.returncode == 0
    finally:
        collector.end()


def test_signals_before_everything_listens_and_while_it_ends(collectors):
    collector = collectors(sources=source("tcp"))
    process = collector.start(wait=False).process
    # As soon as it can be heard: before that the system ends a process, as any other.
    until(lambda: hears_hangups(process.pid), "the daemon to listen to SIGHUP", pause=0.001)
    write(collector, source("tcp") + source("late"))
    for _ in range(20):
        process.send_signal(signal.SIGHUP)
    collector.wait_ready()
    until(lambda: "late" in collector.status()["sources"], "the later source")
    # Many at once are one or two reloads, not as many.
    before = tries(collector)
    for _ in range(200):
        process.send_signal(signal.SIGHUP)
    until(lambda: tries(collector) > before, "a reload")
    assert tries(collector) < before + 200
    process.send_signal(signal.SIGTERM)
    for _ in range(50):
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
            time.sleep(0.001)
    assert process.wait(timeout=180) == 0
    assert "final ledger" in collector.log()


def hears_hangups(pid):
    status = subprocess.run(
        ["/bin/cat", f"/proc/{pid}/status"], capture_output=True, text=True, check=True
    ).stdout
    caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16)
    return bool(caught >> (signal.SIGHUP - 1) & 1)


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_under_load_nothing_is_unaccounted_for_however_often_it_reloads(collectors, count):
    """Good, broken and changed files while producers send; then a crash, and a start."""
    udp, changing = free_ports(socket.SOCK_DGRAM, 2)
    tcp, cut = free_ports(socket.SOCK_STREAM, 2)

    def sources(n):
        base = source("tcp", listen=f"127.0.0.1:{tcp}", idle_timeout=f'"{n + 100} s"')
        base += source("udp", "udp", f"127.0.0.1:{udp}")
        base += source("changing", "udp", f"127.0.0.1:{changing}", peers_max=100 + n)
        kind = n % 5
        if kind == 1:
            return base + "[sources.broken\n"
        if kind == 2:
            return base + source("cut", listen=f"127.0.0.1:{cut}", garbage_max=f'"{n + 1} MiB"')
        if kind == 3:
            return base + source("cut", listen=f"127.0.0.1:{cut}", tls_certificate='"/none"')
        if kind == 4:
            return base.replace(f"127.0.0.1:{tcp}", f"127.0.0.1:{udp}")  # closes connections
        return base + source("cut", listen=f"127.0.0.1:{cut}", format_="heph")

    collector = collectors(sources=sources(0)).start()
    producers = {
        "tcp": TcpProducer(("127.0.0.1", tcp), 1),
        "udp": UdpProducer(("127.0.0.1", udp), 2),
        "changing": UdpProducer(("127.0.0.1", changing), 3),
        "cut": TcpProducer(("127.0.0.1", cut), 4),
    }
    for producer in producers.values():
        producer.start()
    outcomes = {"done": 0, "failed": 0}
    for n in range(count):
        now = reload(collector, sources(n))
        outcomes["done" if now["config"]["last_reload"]["good"] else "failed"] += 1
        collector.check_balance()
    assert now["config"]["reloads"] == outcomes
    assert min(outcomes.values()) >= count // 5
    reload(collector, sources(0))
    reached = {name: producer.sent for name, producer in producers.items()}
    until(lambda: all(p.sent > reached[n] + 100 for n, p in producers.items()), "them to go on")
    for producer in producers.values():
        producer.end()
    collector.settle()
    collector.kill()
    collector.start()
    collector.settle()
    now = collector.status()["sources"]
    stored = collections.defaultdict(list)
    continuing = set()
    for row in collector.rows(["source", "session", "kind", "name", "seq"]):
        if row["kind"] == "span":
            stored[row["source"], row["session"]].append(row["seq"])
        elif row["kind"] == "session" and row["name"] == "continue":
            continuing.add((row["source"], row["session"]))
    for name in ("udp", "changing"):
        # One session for all of its life, on a socket that nobody ever closed.
        (numbers,) = [sorted(n) for (owner, _), n in stored.items() if owner == name]
        assert numbers == list(range(producers[name].sent))
        assert now[name]["missing_events"] == now[name]["kernel_drops"] == 0
    for name in ("tcp", "cut"):
        # Each connection is a session, of which all is here from the first event to the last; what
        # went down with the one before is missing, and nothing else where the session continues it.
        sessions = sorted((sorted(n), key) for key, n in stored.items() if key[0] == name)
        assert len(sessions) > count // 5
        assert all(n == list(range(n[0], n[-1] + 1)) for n, _ in sessions)
        assert sum(key in continuing for _, key in sessions) > len(sessions) // 2
        ends = [0, *(n[-1] + 1 for n, _ in sessions)]
        assert now[name]["missing_events"] == sum(
            n[0] - (end if key in continuing else 0)
            for (n, key), end in zip(sessions, ends, strict=False)
        )
        assert now[name]["seen_events"] == sum(len(n) for n, _ in sessions)
        assert max(n[-1] for n, _ in sessions) < producers[name].sent
    collector.stop()


def test_what_the_environment_names_is_read_anew(collectors, tmp_path):
    """The environment of a process stays, the files that it names do not."""
    value = tmp_path / "interval"
    value.write_text("1 s\n")
    collector = collectors(
        sources=source("tcp"), environ={"TAILRACE_STORE_COMMIT_INTERVAL_FILE": str(value)}
    )
    collector.start()
    value.write_text("2 s\n")
    now = reload(collector)
    collector.logged("store.commit_interval")
    value.write_text("never\n")
    again = reload(collector)
    assert again["config"]["sha256"] == now["config"]["sha256"]
    assert "TAILRACE_STORE_COMMIT_INTERVAL_FILE" in again["config"]["last_reload"]["problems"][0]
    os.kill(collector.process.pid, signal.SIGTERM)
    collector.process.wait(timeout=180)
