"""The clients before a real daemon that wants a token, TLS and a certificate: what they say where it does
not let them in, and that nothing they kept is missing once it does."""

from __future__ import annotations

import json
import socket

import pytest

import tailrace_client
from tests import toml
from tests.c.building import HERE, Program, build
from tests.security.authority import PAST, Authority, replace
from tests.system.collector import until
from tests.system.producers import free_ports

NAME = "localhost"
TOKEN = "a-token-of-the-clients"  # noqa: S105 - of this test
OTHER = "another-token-of-theirs"
EVENTS = 3000


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def collector(tmp_path, authority, collectors):
    """Its ports outlive it; `tls` wants a certificate and a token, `tcp` a token."""
    certificate, key = authority.issue(NAME)
    replace(tmp_path / "tokens", f"{TOKEN}\n".encode())
    keys = {
        "tls_certificate": certificate, "tls_key": key, "tls_client_authority": authority.certificate,
    }  # fmt: skip
    sources = ""
    for name, port in zip(("tls", "tcp"), free_ports(socket.SOCK_STREAM, 2), strict=True):
        sources += toml.source(name, "tcp", listen=f"127.0.0.1:{port}")
        sources += f"tokens = {json.dumps(str(tmp_path / 'tokens'))}\n"
        if name == "tls":
            sources += "".join(f"{k} = {json.dumps(str(v))}\n" for k, v in keys.items())
    return collectors(sources=sources).start()


@pytest.fixture
def emitters(collector, authority, tmp_path):
    """A function that makes clients of the `tls` source; they are closed with the test, at once."""
    certificate, key = authority.issue("client.test", stem="client")
    made = []

    def make(**other):
        options = {
            "token": TOKEN,
            "tls_authority": str(authority.certificate),
            "tls_certificate": str(certificate),
            "tls_key": str(key),
        }
        credentials = tailrace_client.Credentials(**options | other)
        _, port = collector.address("tls")
        made.append(tailrace_client.Emitter(f"tls://{NAME}:{port}", credentials=credentials))
        return made[-1]

    yield make
    for emitter in made:
        emitter.close(0)


def source(collector, name):
    return collector.status()["sources"][name]


def stored(collector, name):
    """Return the numbers of the source's events in the table, in order."""
    rows = collector.rows(["source", "kind", "seq"])
    return sorted(r["seq"] for r in rows if (r["source"], r["kind"]) == (name, "span"))


def says(emitter, words):
    until(lambda: words in (emitter.last_error or ""), f"{words!r}: {emitter.last_error}")


def test_a_restart_in_the_midst_of_tls_loses_nothing_and_repeats_nothing(collector, emitters):
    emitter = emitters()
    for number in range(EVENTS):
        emitter.event("step", number=number)
        if number == EVENTS // 3:
            assert emitter.flush(30), emitter.last_error
        if number == EVENTS // 2:
            collector.kill()
    collector.start()
    assert emitter.close(30), emitter.last_error
    until(lambda: source(collector, "tls")["sessions_closed"] >= 1, "the end of the session")
    collector.settle()
    assert stored(collector, "tls") == list(range(EVENTS))
    assert source(collector, "tls")["missing_events"] == 0


def test_a_token_that_is_not_known_yet_costs_time_and_no_event(collector, emitters, tmp_path):
    emitter = emitters(token=OTHER)
    for number in range(EVENTS):
        emitter.event("step", number=number)
    says(emitter, "does it know the token?")
    until(lambda: source(collector, "tls")["refused"]["wrong token"] >= 2, "another attempt")
    assert not emitter.flush(0.2)
    assert source(collector, "tls")["sessions_opened"] == 0
    replace(tmp_path / "tokens", f"{TOKEN}\n{OTHER}\n".encode())
    assert emitter.flush(60), emitter.last_error
    assert emitter.last_error is None
    assert emitter.close(30)
    collector.settle()
    assert stored(collector, "tls") == list(range(EVENTS))
    assert sum(emitter.discarded.values()) == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("authority", "certificate is not accepted: self-signed"),
        ("certificate", "certificate required"),
        ("expired", "certificate expired"),
    ],
)
def test_who_is_not_let_in_says_why_and_counts_what_was_not_delivered(
    collector, emitters, authority, tmp_path_factory, wrong, words
):
    other = Authority(tmp_path_factory.mktemp("other"))
    if wrong == "expired":
        old, key = authority.issue("client.test", stem="expired", expires=PAST)
        emitter = emitters(tls_certificate=str(old), tls_key=str(key))
    elif wrong == "authority":
        emitter = emitters(tls_authority=str(other.certificate))
    else:
        emitter = emitters(tls_certificate=None, tls_key=None)
    for _ in range(100):
        emitter.event("step")
    says(emitter, words)
    assert not emitter.close(0.2)
    assert emitter.discarded["closed"] == 100
    refused = source(collector, "tls")["refused"]
    assert refused["tls handshake"] >= 1
    assert source(collector, "tls")["sessions_opened"] == 0


def test_a_c_program_shows_its_token_and_waits_for_one_that_is_known(collector, tmp_path):
    token = tmp_path / "token of the program"
    token.write_text(f"{OTHER}\n")
    program = Program(build(HERE / "play.c"), TAILRACE_TOKEN_FILE=str(token))
    try:
        host, port = collector.address("tcp")
        assert program.ask(f"connect tcp://{host}:{port} linger=20000") == "connect 0 0"
        program.tell(f"many {EVENTS}")
        until(lambda: source(collector, "tcp")["refused"]["wrong token"] >= 2, "two attempts")
        until(lambda: "does it know the token?" in program.ask("wrong"), "the reason")
        token.write_text(f"{TOKEN}\n")
        program.end()
    finally:
        program.close()
    until(lambda: source(collector, "tcp")["sessions_closed"] == 1, "the end of the session")
    collector.settle()
    assert stored(collector, "tcp") == list(range(EVENTS))
    assert source(collector, "tcp")["missing_events"] == 0
