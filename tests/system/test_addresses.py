"""A start whose address cannot be had ends with an exit code of its own and one message: a service manager tries again."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from tailrace_client import Emitter
from tests.system.collector import Collector

SOURCE = '[sources.a]\ntype = "{}"\nformat = "heph"\nlisten = "{}"\n'


@pytest.fixture
def refused(tmp_path):
    """Start a daemon that is to fail; return its exit code and the lines that it wrote."""

    def refused(sources, **options):
        collector = Collector(tmp_path, sources=sources, **options)
        try:
            collector.start(wait=False)
            return collector.process.wait(60), collector.log().splitlines()
        finally:
            collector.end()

    return refused


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_port_that_is_taken(refused, kind):
    with socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == "tcp":
            taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused(SOURCE.format(kind, listen)) == (5, [
            f"sources.a.listen: cannot listen on {listen}: another process does;"
            " `ss -lntuxp` says which process; end it, or change the key"
        ])  # fmt: skip


def test_the_admin_endpoints_port_that_is_taken(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, lines = refused("", environ={"TAILRACE_ADMIN_LISTEN": listen})
    assert (code, len(lines)) == (5, 1)
    assert lines[0].startswith(f"admin.listen: cannot listen on {listen}: another process does;")


def test_a_unix_socket_that_is_taken(refused, tmp_path):
    with socket.socket(socket.AF_UNIX) as taken:
        path = tmp_path / "taken.sock"
        taken.bind(str(path))
        taken.listen()
        code, lines = refused(SOURCE.format("unix", path))
    assert (code, len(lines)) == (5, 1)
    assert lines[0].startswith(f"sources.a.listen: cannot listen on {path}: another process does;")


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_an_address_that_is_not_up(refused, kind):
    # TEST-NET-1 of RFC 5737: no host has it.
    source = SOURCE.format(kind, "192.0.2.1:7701") + 'allow = ["192.0.2.0/24"]\n'
    assert refused(source) == (5, [
        "sources.a.listen: cannot listen on 192.0.2.1:7701: this host has no such address;"
        " `ip -brief address` lists this host's; wait for this one, or change the key"
    ])  # fmt: skip


def test_a_file_in_the_place_of_a_socket(refused, tmp_path):
    path = tmp_path / "file"
    path.write_text("kept")
    code, lines = refused(SOURCE.format("unix", path))
    assert (code, len(lines)) == (5, 1)
    assert lines[0].startswith(f"sources.a.listen: cannot listen on {path}: there is something")
    assert path.read_text() == "kept"


def test_localhost_takes_in_events_and_questions_of_both_families(tmp_path):
    sources = "".join(
        f'[sources.{kind}]\ntype = "{kind}"\nformat = "heph"\nlisten = "localhost:0"\nallow = ["127.0.0.0/8", "::1/128"]\n'
        for kind in ("udp", "tcp")
    )
    environ = {"TAILRACE_ADMIN_LISTEN": "localhost:0"}
    collector = Collector(tmp_path, sources=sources, environ=environ).start()
    try:
        ports = {**collector.ports["sources"], "admin": collector.ports["admin"]}
        assert {place.rpartition(":")[0] for place in ports.values()} == {"localhost"}
        numbers = {name: place.rpartition(":")[2] for name, place in ports.items()}
        for host in ("127.0.0.1", "[::1]", "localhost"):
            for kind in ("udp", "tcp"):
                emitter = Emitter(f"{kind}://{host}:{numbers[kind]}")
                emitter.event(f"{kind} {host}")
                assert emitter.close(30), emitter.last_error
            with urllib.request.urlopen(f"http://{host}:{numbers['admin']}/healthz") as answer:
                assert answer.status == 200
        collector.stop()
        names = {row["name"] for row in collector.rows(["name"]) if row["name"]}
        hosts = ("127.0.0.1", "[::1]", "localhost")
        assert {f"{kind} {host}" for kind in ("udp", "tcp") for host in hosts} <= names
    finally:
        collector.end()
