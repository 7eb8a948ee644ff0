"""Test TLS and tokens with a real TLS peer: which clients are accepted, which are refused and why, and how much time
this takes from the program."""

from __future__ import annotations

import ctypes
import datetime
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from clients.python.tests.collectors import Answering, Authority, TcpCollector, until
from clients.python.tests.reader import events
from tailrace_client import Credentials, Emitter, JetsWriter, _descriptors, _link, _tls
from tailrace_client._transport import parse

TOKEN = "a-token-of-this-test"  # noqa: S105 - it opens nothing


@pytest.fixture
def answering():
    """Yield a function that creates and starts an answering collector, which is killed at the end of the test."""
    made = []

    def make(scheme, **options):
        made.append(Answering(scheme, **options).start())
        return made[-1]

    yield make
    for collector in made:
        collector.kill()


@pytest.fixture
def emitters():
    """Yield a function that creates emitters. They are closed at the end of the test, without waiting."""
    made = []

    def make(address, **credentials):
        made.append(Emitter(address, credentials=Credentials(**credentials)))
        return made[-1]

    yield make
    for emitter in made:
        emitter.close(0)


def says(emitter, words):
    """Wait until the emitter reports an error that contains `words`."""
    until(lambda: words in (emitter.last_error or ""))
    return True


def test_both_sides_know_each_other_and_everything_arrives_once(answering, emitters, authority):
    collector = answering("tls", context=authority.server(clients=authority), token=TOKEN.encode())
    certificate, key = authority.issue("client", "client@example.org")
    emitter = emitters(
        collector.address,
        token=TOKEN,
        tls_authority=str(authority.file),
        tls_certificate=str(certificate),
        tls_key=str(key),
    )
    for number in range(20_000):
        emitter.event("x", number=number)
    assert emitter.flush(20)
    assert emitter.last_error is None
    assert emitter.close(20)
    assert collector.only.stored[1] == set(range(20_000))
    assert collector.only.goodbyes[-1]["streams"] == {"1": 20_000}
    assert collector.refused == collector.only.twice == 0


def expired():
    return {"not_after": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (lambda own, other: {"context": other.server()}, "unable to get local issuer certificate"),
        (lambda own, other: {"context": own.server(**expired())}, "certificate has expired"),
        (lambda own, other: {"context": own.server("node7")}, "IP address mismatch"),
        (lambda own, other: {"context": own.server(clients=own)}, "certificate required"),
        (lambda own, other: {"context": own.server(), "token": b"another"}, "does it want a token"),
    ],
    ids=["wrong authority", "expired", "wrong host", "no client certificate", "no token"],
)
def test_who_is_refused_says_why_tries_again_and_accounts_for_every_event(
    answering, emitters, authority, tmp_path, server, words
):
    collector = answering("tls", **server(authority, Authority(tmp_path)))
    emitter = emitters(collector.address, tls_authority=str(authority.file))
    for _ in range(100):
        emitter.event("x")
    assert says(emitter, words)
    until(lambda: collector.refused >= 2)
    assert not emitter.flush(0.1)
    assert not emitter.close(0.1)
    assert words in emitter.last_error
    assert emitter.discarded["closed"] == 100
    assert not collector.sessions


def test_a_client_certificate_of_a_stranger_is_refused(answering, emitters, authority, tmp_path):
    collector = answering("tls", context=authority.server(clients=authority))
    certificate, key = Authority(tmp_path).issue("stranger", "stranger@example.org")
    emitter = emitters(
        collector.address,
        tls_authority=str(authority.file),
        tls_certificate=str(certificate),
        tls_key=str(key),
    )
    emitter.event("x")
    assert says(emitter, "unknown ca")


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_token_that_is_replaced_is_shown_by_the_next_connection(
    answering, emitters, authority, tmp_path, scheme
):
    context = authority.server() if scheme == "tls" else None
    collector = answering(scheme, context=context, token=TOKEN.encode())
    file = tmp_path / "token"
    emitter = emitters(collector.address, token_file=str(file), tls_authority=str(authority.file))
    emitter.event("x")
    assert says(emitter, f"No such file or directory: {file}")
    file.write_text("# of last year\n\n an-older-token-of-it \nsecond\n")
    until(lambda: collector.refused)
    assert says(emitter, "does it know the token?")
    file.write_text(f"\ufeff# of this year\n{TOKEN}\n")
    assert emitter.close(20)
    assert collector.only.stored[1] == {0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no token in"),
        ("# nothing else\n", "there is no token in"),
        (
            "short\n",
            "is not a valid token: it must have 16 to 256 printable ASCII characters without spaces",
        ),
        ("x" * 257, "is not a valid token"),
        ("sixteen or more and blanks", "is not a valid token"),
        ("sixteen-or-more-ümläut", "is not a valid token"),
    ],
)
def test_what_is_no_token_is_not_shown_to_anybody(answering, emitters, tmp_path, text, words):
    collector = answering("tcp")
    file = tmp_path / "token"
    file.write_text(text)
    emitter = emitters(collector.address, token_file=str(file))
    emitter.event("x")
    assert says(emitter, words)
    assert len(text) < 5 or text.strip()[-5:] not in emitter.last_error
    assert not collector.sessions
    if text.strip() and not text.startswith("#"):
        with pytest.raises(ValueError, match="is not a valid token"):
            Credentials(token=text.strip())


def test_what_the_environment_has_is_taken_unless_the_program_says_otherwise(
    answering, monkeypatch, tmp_path
):
    collector = answering("tcp", token=TOKEN.encode())
    (tmp_path / "token").write_text(TOKEN)
    for name, value in (("TOKEN", TOKEN), ("TOKEN_FILE", str(tmp_path / "token"))):
        monkeypatch.setenv(f"TAILRACE_{name}", value)
        emitter = Emitter(collector.address)
        emitter.event("x")
        assert emitter.close(20)
        monkeypatch.delenv(f"TAILRACE_{name}")
    monkeypatch.setenv("TAILRACE_TOKEN", "a token with spaces")
    emitter = Emitter(collector.address)
    emitter.event("x")
    assert says(emitter, "TAILRACE_TOKEN is not a valid token")
    emitter.close(0)
    emitter = Emitter(collector.address, credentials=Credentials(token=TOKEN))
    emitter.event("x")
    assert emitter.close(20)
    assert len(collector.sessions) == 3


def test_a_token_is_in_nothing_that_people_read(emitters):
    with TcpCollector() as collector:
        credentials = Credentials(token=TOKEN, tls_key="a.key")
        emitter = emitters(collector.address, token=TOKEN)
        emitter.event("x")
        until(
            lambda: collector.sessions and events(bytes(collector.sessions[0]).partition(b"\n")[2])
        )
        transport = emitter._sender.transport
        shown = [credentials, emitter, transport, emitter.last_error, emitter.discarded]
        assert TOKEN not in repr(shown)
        assert "a.key" in repr(credentials)
        assert bytes(collector.sessions[0]).startswith(f"tailrace-token {TOKEN}\n".encode())
        assert bytes(collector.sessions[0]).count(TOKEN.encode()) == 1


@pytest.mark.parametrize("wrong", ["tls_authority", "tls_certificate", "tls_key"])
@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_cannot_be_used_is_named(answering, emitters, authority, tmp_path, wrong, text):
    collector = answering("tls", context=authority.server())
    certificate, key = authority.issue("client", "client@example.org")
    files = {
        "tls_authority": str(authority.file),
        "tls_certificate": str(certificate),
        "tls_key": str(key),
    }
    files[wrong] = str(tmp_path / "file")
    if text is not None:
        (tmp_path / "file").write_text(text)
    emitter = emitters(collector.address, **files)
    emitter.event("x")
    assert says(emitter, str(tmp_path / "file"))


def test_a_key_with_a_passphrase_asks_nobody(emitters, authority, tmp_path):
    certificate, key = authority.issue("client", "client@example.org")
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(command, check=True)
    with TcpCollector() as collector:
        emitter = emitters(
            collector.address.replace("tcp", "tls"),
            tls_certificate=str(certificate),
            tls_key=str(locked),
        )
        emitter.event("x")
        assert says(emitter, "has a passphrase")


def test_a_handshake_that_stalls_keeps_nobody_waiting_and_is_tried_again(
    emitters, authority, monkeypatch
):
    monkeypatch.setattr(_descriptors, "CONNECT_SECONDS", 0.3)
    with TcpCollector() as collector:
        emitter = emitters(
            collector.address.replace("tcp", "tls"), tls_authority=str(authority.file)
        )
        emitter.event("x")
        until(lambda: collector.sessions and collector.sessions[0])  # TLS has begun
        calls = []
        monkeypatch.setattr(socket.socket, "send", lambda *_: calls.append("send"))
        for _ in range(10_000):
            emitter.event("x")
        assert calls == []
        monkeypatch.undo()
        until(lambda: len(collector.sessions) >= 2)
        assert says(emitter, "the collector does not answer in TLS")
        begun = time.monotonic()
        assert not emitter.close(0.2)
        assert time.monotonic() - begun < 30
        assert emitter.discarded["closed"] == 10_001


def test_a_server_that_speaks_no_tls_is_told_from_one_that_does(emitters, authority):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def greet():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 ready\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        emitter = emitters(f"tls://127.0.0.1:{port}", tls_authority=str(authority.file))
        emitter.event("x")
        assert says(emitter, "wrong version number")
        thread.join()


def test_an_old_version_of_tls_is_refused(answering, emitters, authority):
    context = authority.server()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    collector = answering("tls", context=context)
    emitter = emitters(collector.address, tls_authority=str(authority.file))
    emitter.event("x")
    assert says(emitter, "TLS")
    assert not collector.sessions


def test_what_there_is_no_room_for_is_gone_on_with_when_there_is(authority):
    """The peer reads only when the send buffer is full. Data that is offered meanwhile must not be sent twice, not even
    in part."""
    context = authority.server()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        transport = parse(
            f"tls://127.0.0.1:{listener.getsockname()[1]}",
            Credentials(tls_authority=str(authority.file)),
        )
        peers = []

        def accept():
            peers.append(context.wrap_socket(listener.accept()[0], server_side=True))

        thread = threading.Thread(target=accept)
        thread.start()
        transport.open()
        thread.join()
        data = os.urandom(2**22)
        sent = waits = 0
        received = bytearray()
        while sent < len(data):
            pieces = [data[at : at + 50_000] for at in range(sent, len(data), 50_000)]
            taken = transport.send(pieces)
            sent += taken
            if not taken:
                waits += 1
                received += peers[0].recv(2**20)
        assert waits > 1
        while len(received) < len(data):
            received += peers[0].recv(2**20)
        assert bytes(received) == data
        finishing = threading.Thread(target=transport.finish, args=(20,))
        finishing.start()
        peers[0].suppress_ragged_eofs = False  # TLS must state the end
        assert peers[0].recv(10) == b""
        peers[0].close()
        finishing.join()


def test_a_jets_trace_goes_through_tls_behind_its_token(authority):
    context = authority.server()
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read():
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as peer:
                lines.extend(peer.makefile("rb"))

        thread = threading.Thread(target=read)
        thread.start()
        credentials = Credentials(token=TOKEN, tls_authority=str(authority.file))
        address = f"tls://127.0.0.1:{listener.getsockname()[1]}"
        with JetsWriter(address, credentials=credentials) as jets:
            jets.header(hardware_model="SoC")
            with jets.record(0, "core", "Core"):
                jets.event(3, "tick")
        thread.join(20)
    assert lines[0] == f"tailrace-token {TOKEN}\n".encode()
    assert b'"header"' in lines[1]
    assert b'"footer"' in lines[-1]


FORKING = """
import os, sys
import tailrace_client as trace
trace.connect()
children = []
for child in range(20):
    trace.event("parent")
    if child % 5 == 0:  # a handshake begins: some of the forks come amid it
        trace.close(20)
        trace.connect()
        trace.event("parent")
    pid = os.fork()
    if not pid:
        trace.event("child")
        delivered = trace.close(20)
        os._exit(0 if delivered else 1)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children].count(0), trace.close(20))
"""


def test_children_forked_amid_handshakes_have_connections_of_their_own(answering, authority):
    collector = answering("tls", context=authority.server())
    environ = {
        "PYTHONPATH": ":".join(sys.path),
        "TAILRACE_ADDRESS": collector.address,
        "TAILRACE_TLS_AUTHORITY": str(authority.file),
    }
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    said = subprocess.check_output(command, env=environ, text=True, timeout=60)
    assert said == "20 True\n"
    stored = [sum(map(len, session.stored.values())) for session in collector.sessions.values()]
    assert len(stored) == 20 + 5
    assert sum(stored) == 20 + 24


def test_a_fork_waits_for_who_is_within_openssl_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(_tls, "_FORK_SECONDS", 0.05)
    with _tls._Inside():
        pid = os.fork()
        if not pid:
            os._exit(0 if not _tls._inside.locked() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert _tls._inside.locked()
    assert not _tls._inside.locked()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the threads of the kernel")
def test_a_fork_waits_for_the_end_of_a_thread_that_was_within_openssl():
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    libc = ctypes.CDLL(None)
    started = libc.pthread_create(
        ctypes.byref(ctypes.c_ulong()), None, libc.usleep, ctypes.c_void_p(200_000)
    )
    assert started == 0
    (ending,) = set(tasks.iterdir()) - before
    _tls._visitors[int(ending.name)] = None
    pid = os.fork()
    if not pid:
        os._exit(len(_tls._visitors))
    assert not ending.exists()
    assert os.waitpid(pid, 0)[1] == 0


def test_threads_that_were_within_openssl_are_forgotten_but_for_the_newest():
    def enter():
        with _tls._Inside(wait=True):
            pass

    for _ in range(_tls._VISITORS_MAX + 1):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(_tls._visitors) <= _tls._VISITORS_MAX


def test_other_addresses_do_not_pay_for_tls():
    program = (
        "import sys, tailrace_client as t; t.connect();"
        "e = [t.Emitter(a) for a in ('tcp://127.0.0.1:9', 'udp://127.0.0.1:9', 'unix:///nowhere')];"
        "[x.close(0) for x in e]; print('ssl' in sys.modules)"
    )
    environ = {"PYTHONPATH": ":".join(sys.path)}
    said = subprocess.check_output([sys.executable, "-c", program], env=environ, text=True)
    assert said == "False\n"


def test_an_error_is_forgotten_once_the_collector_has_stayed(emitters, monkeypatch):
    monkeypatch.setattr(_link, "ANSWER_SECONDS", 0.1)
    with TcpCollector() as closed:
        port = closed.port
    emitter = emitters(f"tcp://127.0.0.1:{port}")
    emitter.event("x")
    assert says(emitter, "Connection refused")
    with TcpCollector(port):
        until(lambda: emitter.last_error is None)
