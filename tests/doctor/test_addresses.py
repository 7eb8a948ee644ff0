"""Addresses that are free, taken, not this host's, not to be had, or a running daemon's."""

from __future__ import annotations

import json
import socket

import pytest

from tailrace.config.schema import AdminConfig
from tailrace.doctor import network
from tailrace.store.presence import RunningCollector
from tests.doctor.hosts import host, only, severities, tail, tcp, udp, unix

ADMIN = AdminConfig(listen="127.0.0.1:0")


@pytest.fixture
def taken():
    """Two addresses that something listens on, by the kind of the socket."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connections,
    ):
        for sock in (datagrams, connections):
            sock.bind(("127.0.0.1", 0))
        connections.listen()
        yield {
            "udp": f"127.0.0.1:{datagrams.getsockname()[1]}",
            "tcp": f"127.0.0.1:{connections.getsockname()[1]}",
        }


def check(sources, admin=ADMIN):
    return list(network.check_addresses(host(sources=sources, admin=admin)))


def test_free_ones_are_said_once_each():
    finding = only(check({"a": udp(), "b": tcp(), "c": tail("/x")}))
    assert finding.severity.value == "good"
    assert finding.what == "Free to listen on: 127.0.0.1:0."


def test_taken_ones_are_problems(taken):
    found = check({"a": udp(listen=taken["udp"]), "b": tcp(taken["tcp"]), "c": tcp()})
    assert severities(found) == ["problem", "problem", "good"]
    assert found[0].what == f"a cannot listen on {taken['udp']}: another process does."
    port = taken["udp"].rpartition(":")[2]
    assert found[0].commands[0] == f"sudo ss -lnup 'sport = :{port}'  # which one"
    assert found[1].commands[0].startswith("sudo ss -lntp ")
    assert found[1].commands[1].startswith("export TAILRACE_SOURCES_B_LISTEN=127.0.0.1:0")


def test_a_unix_socket_may_be_made_where_none_is_and_where_one_was_left(tmp_path):
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(left))
    finding = only(check({"a": unix(left), "b": unix(tmp_path / "new.sock")}))
    assert finding.what == f"Free to listen on: 127.0.0.1:0, {left}, {tmp_path}/new.sock."
    assert left.exists()
    assert not (tmp_path / "new.sock").exists()


def test_a_unix_socket_that_cannot_be_made_is_a_problem(tmp_path):
    (tmp_path / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "taken.sock"))
        sock.listen()
        names = ["taken.sock", "file", "none/a.sock"]
        found = check({f"s{n}": unix(tmp_path / name) for n, name in enumerate(names)})
    assert severities(found) == ["problem", "problem", "problem", "good"]
    assert [finding.what.rpartition(": ")[2] for finding in found[:3]] == [
        "another process does.",
        "there is something that is no socket.",
        f"{tmp_path}/none does not exist.",
    ]
    assert found[0].commands == [
        f"sudo ss -lxp src {tmp_path}/taken.sock  # which one",
        'export TAILRACE_SOURCES_S0_LISTEN="$XDG_RUNTIME_DIR/taken.sock"'
        "  # or listen in [sources.s0] of the file",
    ]


def test_the_admin_address_is_one_of_them(taken):
    finding = only(check({}, AdminConfig(listen=taken["tcp"])))
    assert finding.severity.value == "problem"
    assert finding.commands[-1].startswith("export TAILRACE_ADMIN_LISTEN=")


def test_an_address_of_another_host_is_a_problem():
    finding = check({"a": udp(listen="192.0.2.1:7701")})[0]
    assert "no such address" in finding.what


def test_a_name_without_an_address_is_a_problem():
    finding = check({"a": udp(listen="nobody.invalid:7701")})[0]
    assert "the name has no address" in finding.what
    assert finding.commands[0] == "getent ahosts nobody.invalid"


def test_a_port_that_is_not_allowed_is_a_problem(monkeypatch):
    """As root every port is: the refusal is the kernel's, made here."""

    def bound(listen, kind, *, shared):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(network, "bound", bound)
    finding = check({"a": udp(listen="127.0.0.1:514")})[0]
    assert "below 1024" in finding.what
    assert finding.commands[0] == "sudo sysctl -w net.ipv4.ip_unprivileged_port_start=514"


def test_what_a_running_daemon_has_is_not_tried(taken):
    running = RunningCollector(4711, {"a": taken["udp"], "admin": taken["tcp"]})
    asked = host(
        sources={"a": udp(listen=taken["udp"]), "new": tcp(taken["tcp"])},
        admin=AdminConfig(listen=taken["tcp"]),
    )._replace(daemon=running)
    found = list(network.check_addresses(asked))
    assert severities(found) == ["good", "problem"]
    assert "process 4711" in found[0].what
    assert found[1].what.startswith("new cannot listen")


def test_the_daemon_is_the_process_that_holds_the_stores_lock(tmp_path):
    """Not the one whose pid was left there, and not one that holds another lock."""
    store, root = tmp_path / "store", tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    store.mkdir()
    (store / "lock").write_text("4711\n")
    inode = (store / "lock").stat().st_ino
    ports = {"sources": {"a": "127.0.0.1:7701"}, "admin": "127.0.0.1:9464", "pid": 4711}
    (store / "ports.json").write_text(json.dumps(ports))

    def daemon(*locks):
        (root / "proc/locks").write_text("".join(f"1: {lock} 0 EOF\n" for lock in locks))
        return host(store, root=root).with_daemon().daemon

    held = f"FLOCK  ADVISORY  WRITE 4711 fe:00:{inode}"
    assert daemon() is None
    assert daemon(held.replace("4711", "4712")) is None
    assert daemon(held.replace(str(inode), "1")) is None
    assert daemon(held.replace("FLOCK", "POSIX")) is None
    assert daemon(held) == RunningCollector(
        4711, {"a": "127.0.0.1:7701", "admin": "127.0.0.1:9464"}
    )
    (store / "ports.json").write_text(json.dumps(ports | {"pid": 4710}))
    assert daemon(held) == RunningCollector(4711, {}), "the file is of an earlier life"
    (store / "ports.json").write_text("[")
    assert daemon(held) == RunningCollector(4711, {})
