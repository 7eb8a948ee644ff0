"""Test what a C program shows to a collector that wants a token, and what it says where that is not enough."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.c.building import HERE, Program, build, play
from tests.c.listening import Stream, hear
from tests.system.collector import until

TOKEN = "a-token-of-this-test"  # noqa: S105 - it opens nothing
LINE = f"tailrace-token {TOKEN}\n".encode()


@pytest.fixture(scope="module")
def program():
    return build(HERE / "play.c")


@pytest.fixture
def client(program):
    """A function that starts a program; it is gone at the end of the test."""
    started = []

    def start(**environ):
        started.append(Program(program, **environ))
        return started[-1]

    yield start
    for one in started:
        one.close()


class Guard:
    """Takes connections that show the token first, after it has refused the first `doubts` of them; `refused` are
    these, and those that did not."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.refused = self.doubts = 0
        self.received = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(20)
                data = b""
                while len(data) < len(LINE) and (piece := connection.recv(len(LINE) - len(data))):
                    data += piece
                if data != LINE or self.refused < self.doubts:
                    self.refused += 1
                    continue
                data = b""
                while piece := connection.recv(65536):
                    data += piece
                self.received.append(data)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def guard():
    made = Guard()
    yield made
    made.close()


@pytest.mark.parametrize("options", ["", "no_thread"])
@pytest.mark.parametrize("way", ["option", "variable", "file", "variable of a file"])
def test_the_token_comes_before_all_else(program, tmp_path, guard, way, options):
    file = tmp_path / "token"
    file.write_text(f"\ufeff# the token\n\n  {TOKEN}\t\r\nanother-one-of-later\n")
    given = {"option": f"token={TOKEN}", "file": f"token_file={file}"}.get(way, "")
    environ = {
        "variable": {"TAILRACE_TOKEN": TOKEN, "TAILRACE_TOKEN_FILE": "/nowhere"},
        "variable of a file": {"TAILRACE_TOKEN_FILE": str(file)},
    }.get(way, {})
    connect = " ".join(filter(None, ["connect", guard.address, "linger=20000", given, options]))
    said = play(program, connect, "many 5000", "flush 20000", "wrong", **environ)
    assert said == ["connect 0 0", "flush 0", "0 "]
    until(lambda: guard.received, "the connection's end")
    heard = hear(guard.received[0])
    heard.check_complete()
    assert len(heard.events) == 5000
    assert guard.refused == 0


@pytest.mark.parametrize("options", ["", "no_thread"])
def test_a_session_that_ends_at_once_says_its_goodbye_once_behind_its_announcement(
    program, guard, options
):
    """Nothing waits, and the token is still being shown."""
    connect = f"connect {guard.address} linger=20000 token={TOKEN} {options}".rstrip()
    assert play(program, connect, "close") == ["connect 0 0"]
    until(lambda: guard.received, "the connection's end")
    heard = hear(guard.received[0])
    assert [name for name, _ in heard.metadata] == ["tailrace.session", "tailrace.goodbye"]


def test_a_wrong_token_is_said_costs_no_event_and_a_new_one_is_shown_next(client, tmp_path, guard):
    file = tmp_path / "token"
    file.write_text("a-wrong-token-of-this-test\n")
    one = client()
    one.ask(f"connect {guard.address} linger=20000 token_file={file}")
    one.tell("many 1000")
    until(lambda: guard.refused >= 3, "three attempts")
    until(lambda: "does it know the token?" in one.ask("wrong"), "the reason")
    assert one.ask("flush 50") == "flush -1"
    file.write_text(TOKEN)
    one.end("event 61")
    until(lambda: guard.received, "the connection's end")
    heard = hear(guard.received[0])
    heard.check_complete()
    assert len(heard.events) == 1001


@pytest.mark.parametrize("options", ["", "no_thread"])
@pytest.mark.parametrize("vouches", ["for another address", "but the program has its own token"])
def test_events_wait_for_a_collector_that_may_not_take_the_token(client, guard, vouches, options):
    guard.doubts = 3
    other = vouches == "for another address"
    one = client(
        TAILRACE_TOKEN=TOKEN,
        TAILRACE_TOKEN_ADDRESS="tcp://127.0.0.1:1" if other else guard.address,
    )
    own = "" if other else f"token={TOKEN}"
    one.ask(" ".join(filter(None, ["connect", guard.address, "linger=20000", own, options])))
    one.tell("many 1000")
    until(lambda: one.ask("flush 50") and guard.refused >= 3, "three attempts")
    one.end("event 61")
    until(lambda: guard.received, "the connection's end")
    heard = hear(guard.received[0])
    heard.check_complete()
    assert len(heard.events) == 1001


def test_a_collector_that_refuses_a_token_it_was_to_take_is_trusted_once(client, guard):
    guard.doubts = 3
    one = client(TAILRACE_TOKEN=TOKEN, TAILRACE_TOKEN_ADDRESS=guard.address)
    one.ask(f"connect {guard.address} linger=20000")
    until(lambda: "does it know the token?" in one.ask("wrong"), "the reason")
    one.tell("many 1000")
    until(lambda: guard.refused >= 3, "three attempts")
    one.end("event 61")
    until(lambda: guard.received, "the connection's end")
    heard = hear(guard.received[0])
    heard.check_complete()
    assert len(heard.events) == 1001


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file or directory"),
        ("", "has no token or cannot be read"),
        ("# nothing\n", "has no token or cannot be read"),
        ("short\n", "the token is not valid"),
        ("x" * 257, "the token is not valid"),
        ("sixteen or more and blanks", "the token is not valid"),
    ],
)
def test_what_is_no_token_is_not_shown(client, tmp_path, guard, text, words):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    one = client(TAILRACE_TOKEN_FILE=str(file))
    one.ask(f"connect {guard.address} linger=1")
    one.tell("event 61")
    until(lambda: words in one.ask("wrong"), "the reason")
    one.end()
    assert not guard.received


def test_a_token_of_the_program_that_is_none_is_an_error_at_once(program, guard):
    assert play(program, f"connect {guard.address} token=short")[0].startswith("connect -1 22")


def test_only_tcp_shows_a_token(program, tmp_path):
    peer = Stream(tmp_path / "socket")
    play(program, f"connect {peer.address} token={TOKEN}", "event 61")
    data = b"".join(peer.close())
    assert TOKEN.encode() not in data
    hear(data).check_complete()


def test_tls_is_refused_in_words_that_say_what_to_do(program):
    refused, words = play(program, "connect tls://127.0.0.1:7701", "wrong")
    assert refused == "connect -1 93"
    assert "unix socket" in words
    assert "stunnel" in words


def test_a_collector_that_is_away_is_said_until_it_is_there(client):
    peer = Stream()
    address, port = peer.address, peer.port
    peer.close()
    one = client()
    one.ask(f"connect {address}")
    one.tell("event 61")
    until(lambda: "connecting failed: Connection refused" in one.ask("wrong"), "the reason")
    peer = Stream(port=port)
    until(lambda: one.ask("wrong") == "0 ", "the error to be forgotten")
    one.end()
    hear(b"".join(peer.close())).check_complete()
