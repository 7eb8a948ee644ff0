"""Sources of a real daemon that demand TLS, certificates, tokens or an address, from client to table."""

from __future__ import annotations

import json
import socket
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import tailrace_client
from tests import toml
from tests.ingest.log import heph_epoch, heph_event
from tests.metrics.scrape import Scrape
from tests.security.authority import Authority, replace
from tests.system.collector import Collector, until
from tests.system.producers import TcpProducer

NAME = "localhost"
TOKEN = "0123456789abcdef-producers"  # noqa: S105 - of this test
EVENTS = 2000
DAY = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def collector(tmp_path, authority, collectors):
    """One with a source that demands all, and one that demands nothing."""
    certificate, key = authority.issue(NAME)
    replace(tmp_path / "tokens", f"# producers\n{TOKEN}\n".encode())
    keys = {
        "tls_certificate": certificate, "tls_key": key,
        "tls_client_authority": authority.certificate, "tokens": tmp_path / "tokens",
    }  # fmt: skip
    more = "".join(f"{key} = {json.dumps(str(value))}\n" for key, value in keys.items())
    tcp = '[sources.{}]\ntype = "tcp"\nformat = "heph"\nlisten = "127.0.0.1:0"\n'
    udp = toml.source("udp", "udp", allow=["192.0.2.0/24"])
    sources = tcp.format("guarded") + more + tcp.format("open") + udp
    return collectors(sources=sources).start()


def source(collector, name):
    return collector.status()["sources"][name]


def test_what_a_client_sends_through_all_of_it_is_in_the_table(collector, authority, tmp_path):
    certificate, key = authority.issue("producer.test", stem="producer", common_name="rack7")
    credentials = tailrace_client.Credentials(
        token_file=str(tmp_path / "tokens"), tls_authority=str(authority.certificate),
        tls_certificate=str(certificate), tls_key=str(key),
    )  # fmt: skip
    _, port = collector.address("guarded")
    emitter = tailrace_client.Emitter(f"tls://{NAME}:{port}", credentials=credentials)
    for number in range(EVENTS):
        emitter.event("step", number=number)
        if number == EVENTS // 2:  # certificates and tokens change, the connection goes on
            until(lambda: source(collector, "guarded")["sessions_opened"] == 1, "the connection")
            authority.issue(NAME)
            replace(tmp_path / "tokens", b"another-token-of-theirs\n")
    assert emitter.flush(timeout=30), emitter.last_error
    emitter.close()
    until(lambda: source(collector, "guarded")["sessions_closed"] == 1, "the end of the session")
    collector.settle()
    status = source(collector, "guarded")
    # On a busy machine the client may run out of patience and send events again.
    assert status["seen_events"] - status["duplicate_events"] == EVENTS
    assert status["missing_events"] == 0
    assert sum(status["refused"].values()) == 0
    assert status["malformed_bytes"] == 0
    rows = collector.rows(["source", "kind", "attributes"])
    kinds = Counter(row["kind"] for row in rows if row["source"] == "guarded")
    assert kinds["span"] + kinds["instant"] == EVENTS
    about = [
        json.loads(row["attributes"])
        for row in rows
        if row["kind"] == "session" and row["source"] == "guarded"
    ]
    peers = {peer for each in about if (peer := each.get("peer")) is not None}
    assert peers
    assert all(peer.endswith(",certificate=rack7") for peer in peers)


def test_who_lacks_anything_has_no_session_and_an_honest_one_loses_nothing(
    collector, authority, tmp_path
):
    context = authority.client(*authority.issue("producer.test", stem="producer"))
    honest = TcpProducer(collector.address("open"), 1)
    honest.start()
    address = collector.address("guarded")
    tries = {"tls handshake": 0, "wrong token": 0, "no token": 0}
    for _ in range(10):
        for first, cause in (
            (f"tailrace-token {TOKEN[:-1]}\n".encode(), "wrong token"),
            (heph_epoch(1) + heph_event(1, 0), "no token"),
        ):
            with (
                socket.create_connection(address, timeout=30) as plain,
                context.wrap_socket(plain, server_hostname=NAME) as sock,
            ):
                sock.sendall(first)
                assert sock.recv(1) == b""
            tries[cause] += 1
        with socket.create_connection(address, timeout=30) as plain:
            plain.sendall(heph_epoch(1) + heph_event(1, 0))
            assert plain.recv(100)[:1] in {b"", b"\x15"}  # an alert
        with pytest.raises(OSError), socket.create_connection(address, timeout=30) as plain:  # noqa: PT011, PT012, SIM117 - however it is put
            with authority.client().wrap_socket(plain, server_hostname=NAME) as sock:
                sock.sendall(f"tailrace-token {TOKEN}\n".encode())
                assert sock.recv(1) == b"never"
        tries["tls handshake"] += 2
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(10):
            sock.sendto(heph_event(1, 0), collector.address("udp"))

    def counted():
        refused = source(collector, "guarded")["refused"]
        return all(refused[cause] == count for cause, count in tries.items())

    until(counted, "all that were refused to be counted")
    until(lambda: source(collector, "udp")["refused"]["address not allowed"] == 10, "the datagrams")
    honest.end()
    until(
        lambda: source(collector, "open")["seen_events"] == honest.sent, "the honest one's events"
    )
    assert source(collector, "open")["missing_events"] == 0
    for name in ("guarded", "udp"):
        assert (source(collector, name)["sessions_opened"], source(collector, name)["rows"]) == (
            0,
            0,
        )


def test_a_bad_pair_degrades_and_is_said_until_it_is_good_again(collector, authority, tmp_path):
    replace(tmp_path / "server.pem", b"oops")
    until(lambda: collector.status()["state"] == "degraded", "the condition")
    said = collector.status()["conditions"]["credentials"]
    assert said.startswith(f"sources.guarded: {tmp_path}/server.pem: holds no certificate in PEM")
    assert collector.get("/healthz")[0] == 200
    assert 'tailrace_condition{condition="credentials"} 1.0' in collector.get("/metrics")[1]
    context = authority.client(*authority.issue("producer.test", stem="producer"))
    with (
        socket.create_connection(collector.address("guarded"), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as sock,
    ):
        sock.sendall(f"tailrace-token {TOKEN}\n".encode() + heph_epoch(1) + heph_event(1, 0))
        until(lambda: source(collector, "guarded")["seen_events"] == 1, "the event")
    authority.issue(NAME)
    until(lambda: collector.status()["state"] == "ok", "the condition's end")


def test_when_a_certificate_expires_is_a_metric_and_a_renewed_one_moves_it(collector, authority):
    name = "tailrace_tcp_certificate_expiry_timestamp_seconds"

    def told():
        """Nothing of a source without TLS."""
        return Scrape(collector.metrics()).sums(name, ["source"])

    for day in (DAY, DAY + timedelta(days=90)):
        authority.issue(NAME, expires=day)
        until(lambda day=day: told() == {("guarded",): day.timestamp()}, "the certificate's end")


def test_files_that_cannot_be_used_prevent_the_start_and_are_named(tmp_path, authority):
    certificate, _ = authority.issue(NAME)
    _, other = authority.issue("other.test", stem="other")
    sources = toml.source("a", "tcp", tls_certificate=certificate, tls_key=other, tokens="/nowhere")
    collector = Collector(tmp_path, sources=sources)
    collector.start(wait=False)
    assert collector.process.wait(timeout=180) == 2
    lines = collector.config.read_text().splitlines()
    key, tokens = (
        lines.index(line) + 1 for line in (f'tls_key = "{other}"', 'tokens = "/nowhere"')
    )
    assert collector.log().splitlines()[-2:] == [
        f"{collector.config}:{key}: sources.a.tls_key: {other}: is not the key of {certificate}",
        f"{collector.config}:{tokens}: sources.a.tokens: /nowhere: cannot be read: No such file or directory",
    ]
    assert not (tmp_path / "store").exists()
