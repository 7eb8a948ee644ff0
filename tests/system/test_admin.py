"""The admin endpoint of a real daemon: who is let in, and that nobody keeps it from its work."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import shutil
import socket
import ssl
from datetime import UTC, datetime

import pytest

from tests.deploy.test_prometheus import Prometheus
from tests.ingest.log import heph_event
from tests.security.authority import PAST, Authority, replace
from tests.system.collector import Collector, until
from tests.system.producers import TcpProducer, UdpProducer

TOKEN, OTHER = "0123456789abcdef-scraper", "0123456789abcdef-another"
HOST = "127.0.0.1"
NOISE = b"\x16\x03\x01" + random.Random(1).randbytes(2000)


class Guarded(Collector):
    """A collector whose admin endpoint asks for what `keys` say."""

    def __init__(self, directory, **keys):
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        super().__init__(directory, more=lines)
        self.context = None

    def ask(self, path, *, context=None, token=None, headers=(), source=None, method="GET"):
        """Status code, headers and body; OSError where there is no answer."""
        kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
        host, _, port = self.ports["admin"].rpartition(":")
        more = {} if context is None else {"context": context}
        connection = kind(host, int(port), timeout=60, source_address=source, **more)
        with contextlib.closing(connection):
            sent = dict(headers) | ({"Authorization": f"Bearer {token}"} if token else {})
            connection.request(method, path, headers=sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def guarded(tmp_path):
    """A function that starts such a collector; it is stopped in order at the end."""
    made = []

    def make(**keys):
        made.append(Guarded(tmp_path, **keys).start())
        return made[-1]

    yield make
    for collector in made:
        if collector.running:
            collector.stop()
            assert collector.process.returncode == 0
        collector.check_final_ledgers()
        collector.end()


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    replace(path, f"# who scrapes\n{TOKEN}\n".encode())
    return path


def refused(page, cause):
    """How many connections were, by what /metrics says."""
    line = next(
        x
        for x in page.splitlines()
        if x.startswith(f'tailrace_admin_refused_total{{cause="{cause}"')
    )
    return float(line.rpartition(" ")[2])


def test_without_a_token_there_is_no_more_than_the_status_word(guarded, tokens):
    collector = guarded(tokens=str(tokens))
    for path in ("/metrics", "/status", "/", "/metrics/", "/healthz/"):
        for token in (None, OTHER, TOKEN[:-1], f"{TOKEN}x", "é" * 20, "", " "):
            code, headers, body = collector.ask(path, token=token)
            assert (code, headers["WWW-Authenticate"]) == (401, "Bearer"), (path, token)
            assert len(body) < 40
    assert collector.ask("/metrics", headers={"Authorization": f"Basic {TOKEN}"})[0] == 401
    assert collector.ask(f"/metrics?token={TOKEN}")[0] == 401
    for path in ("/healthz", "/readyz"):
        code, _, body = collector.ask(path)
        assert (code, json.loads(body)) == (200, {"status": "ok"})
        assert json.loads(collector.ask(path, token=TOKEN)[2])["conditions"] == {}
    assert collector.ask("/metrics", token=TOKEN)[0] == 200
    assert collector.ask("/metrics", headers={"authorization": f"bearer  {TOKEN}"})[0] == 200
    replace(tokens, OTHER.encode())
    until(lambda: collector.ask("/status", token=OTHER)[0] == 200, "the new token to count")
    assert collector.ask("/status", token=TOKEN)[0] == 401


def test_nothing_is_written_and_nothing_is_for_other_sites(guarded):
    collector = guarded()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
        code, headers, _ = collector.ask("/metrics", method=method)
        assert (code, headers["Allow"]) == (405, "GET, HEAD")
    for path in ("/x", "/metrics/../status", "/..%2f", "//status", "/%2e%2e/etc/passwd"):
        assert collector.ask(path)[0] == 404
    code, headers, body = collector.ask("/status", method="HEAD")
    assert (code, body) == (200, "")
    assert int(headers["Content-Length"]) > 100
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert re.fullmatch(
        "default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; base-uri 'none'; form-action"
        " 'none'; frame-ancestors 'none'",
        policy,
    )
    assert not {"Server", "Access-Control-Allow-Origin"} & headers.keys()


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_page_lists_what_there_is_and_every_link_leads_there(guarded):
    collector = guarded()
    code, headers, body = collector.ask("/")
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    links = re.findall(r'href="([^"]+)"', body)
    assert {link.partition("?")[0] for link in links} == {
        "/status", "/metrics", "/healthz", "/readyz",
    }  # fmt: skip
    assert all(collector.ask(link)[0] == 200 for link in links)
    assert all(link in collector.ask("/no-such")[2] for link in ("/,", "/status", "/metrics"))


def test_the_status_is_html_for_a_browser_and_json_for_all_others(guarded):
    collector = guarded()
    for headers, path, form in [
        ({}, "/status", "json"),
        ({"Accept": "*/*"}, "/status", "json"),
        ({"Accept": "application/json"}, "/status", "json"),
        (BROWSER, "/status", "html"),
        ({"Accept": "text/html"}, "/status", "html"),
        ({"Accept": "text/html;q=0.5, application/json"}, "/status", "json"),
        ({"Accept": "text/html;q=0, */*"}, "/status", "json"),
        ({"Accept": "text/html;q=x"}, "/status", "html"),
        (BROWSER, "/status?format=json", "json"),
        ({}, "/status?format=html", "html"),
        ({}, "/status?other=1", "json"),
    ]:
        code, answered, body = collector.ask(path, headers=headers)
        assert code == 200
        assert form in answered["Content-Type"], (headers, path)
        if form == "json":
            assert json.loads(body)["state"] == "ok"
        else:
            assert "<h1>Tailrace: ok</h1>" in body
    code, _, body = collector.ask("/status?format=xml")
    assert (code, "must be html or json" in body) == (400, True)


def test_the_page_shows_what_is_missing_and_nothing_of_a_producer_is_html(guarded):
    collector = guarded()
    evil = b'<script>alert("1")</script>'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(collector.address("udp"))
        for number in (0, 1, 5):
            sock.send(heph_event(7, number, name=evil))
        until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 3, "the events")
    with socket.create_connection(collector.address("jets")) as sock:
        sock.sendall(b'{"' + evil.replace(b'"', b"'") + b'": 1}\n')
        until(lambda: collector.status()["sources"]["jets"]["received_bytes"], "the line")
    body = collector.ask("/status", headers=BROWSER)[2]
    assert re.search(r'<th>missing events</th><td class="bad">3</td>', body)
    assert re.search(r"<th>seen events</th><td>3</td>", body)
    assert "<script" not in body
    for name in ("udp", "tcp", "jets"):
        assert f"<h2>{name}</h2>" in body


def answered(collector, context):
    try:
        collector.ask("/healthz", context=context, token=TOKEN)
    except (OSError, http.client.HTTPException):
        return False
    return True


def test_only_certificates_of_the_authority_are_let_in(guarded, authority, tokens, tmp_path):
    day = datetime(2100, 1, 1, tzinfo=UTC)
    certificate, key = authority.issue(HOST, expires=day)
    collector = guarded(
        tls_certificate=str(certificate), tls_key=str(key),
        tls_client_authority=str(authority.certificate), tokens=str(tokens),
    )  # fmt: skip
    (tmp_path / "others").mkdir()
    others = Authority(tmp_path / "others")
    good = authority.client(*authority.issue("scraper", stem="scraper"))
    assert collector.ask("/metrics", context=good, token=TOKEN)[0] == 200
    assert collector.ask("/metrics", context=good)[0] == 401
    expired = authority.client(*authority.issue("scraper", stem="expired", expires=PAST))
    foreign = authority.client(*others.issue("scraper", stem="foreign"))
    old = authority.client(*authority.issue("scraper", stem="old"))
    with pytest.deprecated_call():
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    unknown = others.client()
    cases = {
        "none": authority.client(),
        "expired": expired,
        "foreign": foreign,
        "old": old,
        "unknown": unknown,
    }
    for name, context in cases.items():
        assert not answered(collector, context), name
    assert not answered(collector, None), "without TLS"
    page = collector.ask("/metrics", context=good, token=TOKEN)[2]
    assert refused(page, "handshake") == len(cases) + 1
    expiry = re.search(
        r"^tailrace_admin_certificate_expiry_timestamp_seconds (.+)$", page, re.MULTILINE
    )
    assert float(expiry[1]) == day.timestamp()


def serial(collector, context):
    host, _, port = collector.ports["admin"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return secured.getpeercert()["serialNumber"]


def test_certificates_are_replaced_under_way_and_no_scrape_fails(guarded, authority):
    certificate, key = authority.issue(HOST)
    collector = guarded(tls_certificate=str(certificate), tls_key=str(key))
    context = authority.client()
    kept = http.client.HTTPSConnection(*collector.ports["admin"].split(":"), context=context)
    seen, scrapes = [serial(collector, context)], 0
    for round_ in range(3):
        if round_ == 1:
            replace(certificate, b"half of a certifi")  # and none of it is used
        kept.request("GET", "/healthz")
        assert kept.getresponse().read()
        authority.issue(HOST)

        def changed():
            nonlocal scrapes
            assert collector.ask("/metrics", context=context)[0] == 200
            scrapes += 1
            now = serial(collector, context)
            if now != seen[-1]:
                seen.append(now)
            return len(seen) == round_ + 2  # noqa: B023 - at once

        until(changed, "the new certificate")
    kept.close()
    assert len(set(seen)) == 4
    assert scrapes >= 3
    page = collector.ask("/metrics", context=context)[2]
    assert refused(page, "handshake") == 0


def test_an_address_outside_the_list_gets_no_answer(guarded):
    collector = guarded(allow=["127.0.0.2/32", "192.0.2.0/24"])
    assert collector.ask("/metrics", source=("127.0.0.2", 0))[0] == 200
    for source in (None, ("127.0.0.3", 0)):
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            collector.ask("/healthz", source=source)
    assert refused(collector.ask("/metrics", source=("127.0.0.2", 0))[2], "address") == 2


def test_a_file_that_cannot_be_used_is_a_clear_error(tmp_path, authority):
    certificate, key = authority.issue(HOST)
    key.write_bytes(b"nothing")
    collector = Guarded(tmp_path, tls_certificate=str(certificate), tls_key=str(key))
    collector.start(wait=False)
    try:
        assert collector.process.wait(60) == 2
    finally:
        collector.end()
    assert f": admin.tls_key: {key}: holds no private key in PEM" in collector.log()


def connected(collector):
    host, _, port = collector.ports["admin"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def unread(collector, requests):
    """A client that asks and asks and reads nothing."""
    host, _, port = collector.ports["admin"].rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect((host, int(port)))
    sock.settimeout(0)
    with contextlib.suppress(OSError):
        for _ in range(requests):
            sock.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return sock


def test_no_client_keeps_the_daemon_from_its_work_or_from_its_end(guarded):
    collector = guarded(connections_max=32)
    producers = [
        TcpProducer(collector.address("tcp"), 1),
        UdpProducer(collector.address("udp"), 2),
    ]
    for producer in producers:
        producer.start()
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(unread(collector, 400))
        for round_ in range(40):
            for _ in range(5):
                silent = stack.enter_context(connected(collector))
                with contextlib.suppress(OSError):
                    silent.sendall([b"", b"GET /metr", NOISE, b"GET / HTTP/1.1\r\n"][round_ % 4])
            # An honest scraper is answered all the time.
            assert collector.ask("/healthz")[0] == 200
            assert collector.ask("/metrics")[0] == 200
        for producer in producers:
            producer.end()
        page = collector.ask("/metrics")[2]
        assert refused(page, "too many connections") > 100
        assert refused(page, "malformed") > 0

        def all_in():
            status = json.loads(collector.ask("/status")[2])["sources"]
            return [status[name]["expected_events"] for name in ("tcp", "udp")] == [
                producer.sent for producer in producers
            ]

        until(all_in, "what honest producers sent")
        collector.settle()
        for name in ("tcp", "udp"):
            status = collector.status()["sources"][name]
            assert status["missing_events"] == 0
        collector.stop()
        assert collector.process.returncode == 0


def test_a_flood_of_requests_leaves_the_ingest_its_time(guarded):
    """Sixteen clients ask as fast as they are answered: a producer's events are in meanwhile."""
    collector = guarded()
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(unread(collector, 1)) for _ in range(16)]
        producer = TcpProducer(collector.address("tcp"), 1, most=5000, pause=0)
        producer.start()
        while producer.is_alive():
            for sock in asking:
                with contextlib.suppress(BlockingIOError):
                    while sock.recv(65536):
                        sock.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        producer.end()
        collector.settle()
        assert collector.status()["sources"]["tcp"]["missing_events"] == 0
    assert collector.status()["admin_requests"]["200"] > 16


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus: apt-get install prometheus"
)
def test_prometheus_scrapes_with_its_certificate_and_token(guarded, authority, tokens, tmp_path):
    certificate, key = authority.issue(HOST)
    collector = guarded(
        tls_certificate=str(certificate), tls_key=str(key),
        tls_client_authority=str(authority.certificate), tokens=str(tokens),
    )  # fmt: skip
    own, own_key = authority.issue("prometheus", stem="prometheus")
    (tmp_path / "token").write_text(TOKEN)
    server = Prometheus(tmp_path, collector.ports["admin"])
    tls = f"{{ca_file: {authority.certificate}, cert_file: {own}, key_file: {own_key}}}"
    less = f"{{ca_file: {authority.certificate}}}"
    target = f"static_configs: [{{targets: ['{collector.ports['admin']}']}}]"
    authorization = f"authorization: {{credentials_file: {tmp_path}/token}}"
    server.config.write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: both, scheme: https, tls_config: {tls}, {authorization}, {target}}}
  - {{job_name: no_token, scheme: https, tls_config: {tls}, {target}}}
  - {{job_name: no_certificate, scheme: https, tls_config: {less}, {authorization}, {target}}}
""")
    with server:
        until(lambda: server.ask("tailrace_uptime_seconds{job='both'}"), "a scrape", pause=0.2)
        until(lambda: len(server.ask("up")) == 3, "the others", pause=0.2)
        assert server.ask("up{job='both'}") == [1.0]
        assert server.ask("up{job!='both'}") == [0.0, 0.0]
        assert server.ask("max(tailrace_admin_requests_total{code='401'})")[0] >= 0
