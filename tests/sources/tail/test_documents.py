"""Documents are handed on when they are new to a stream, and read once however many there are."""

from __future__ import annotations

import os

import pytest

from tailrace.config.schema import TailConfig
from tailrace.decoding.contract import Files
from tailrace.sources.source import SourceFigures
from tailrace.sources.tail.location import Roots
from tailrace.sources.tail.session import Desk, DocumentWatch, Handoff
from tailrace.spool.payloads import FileFacts
from tests.sources.tail.recorder import Recorder

CONFIG = TailConfig(format="jets", paths=[])
FILES = Files(documents=lambda path: ("own.json", "../shared.txt"), document_max=100)


class Session:
    def __init__(self, number: int | None) -> None:
        self.number = number
        self.sent = {}


class Beside:
    def __init__(self, directory, monkeypatch) -> None:
        self.directory = directory
        self.intake = Recorder()
        self.failures = []
        self.roots = Roots(FILES.documents)
        self.roots.add(str(directory), is_file=False)
        self.documents = DocumentWatch(FILES, self.roots, self.intake, self.failures.append)
        self.opened = []
        open_ = self.roots.open

        def opened(path):
            self.opened.append(os.path.relpath(path, directory))
            return open_(path)

        monkeypatch.setattr(self.roots, "open", opened)
        self.ticks = 0

    def write(self, name, data):
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.ticks += 1
        os.utime(path, (self.ticks, self.ticks))

    def stream(self, name):
        facts = FileFacts(path=str(self.directory / name), device=1, inode=1, birth=0)
        session = Session(self.intake.open_file(facts, "", record_max=1, dialect="auto"))
        self.documents.follow(session, facts.path)
        return session

    def turn(self):
        for _ in self.documents.look_at_all():
            pass

    def have(self, session):
        return self.intake.sessions[session.number].documents


@pytest.fixture
def beside(tmp_path, monkeypatch):
    return Beside(tmp_path, monkeypatch)


def test_what_is_there_is_handed_on_at_once_and_what_comes_later_then(beside):
    beside.write("a/own.json", b"{}")
    session = beside.stream("a/stream")
    assert beside.have(session) == {"own.json": b"{}"}
    beside.write("shared.txt", b"1")
    beside.turn()
    assert beside.have(session) == {"own.json": b"{}", "../shared.txt": b"1"}
    assert beside.failures == []


def test_a_document_that_has_not_changed_is_handed_on_once(beside):
    beside.write("a/own.json", b"{}")
    session = beside.stream("a/stream")
    for _ in range(3):
        beside.turn()
    beside.write("a/own.json", b"{}")
    beside.turn()
    assert beside.intake.calls == ["document 0 own.json"]
    beside.write("a/own.json", b"")
    beside.turn()
    assert beside.have(session) == {"own.json": b""}


def test_one_that_is_rewritten_within_a_tick_is_seen(beside):
    beside.write("a/own.json", b"{1}")
    session = beside.stream("a/stream")
    path = beside.directory / "a/own.json"
    before = path.stat()
    path.write_bytes(b"{2}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    beside.turn()
    assert beside.have(session) == {"own.json": b"{2}"}


def test_a_shared_document_is_read_once_for_all(beside):
    beside.write("shared.txt", b"1")
    sessions = [beside.stream(f"{n}/stream") for n in range(20)]
    assert beside.opened == ["shared.txt"] * 2  # again when it has come to rest
    beside.opened.clear()
    beside.write("shared.txt", b"2")
    beside.turn()
    assert beside.opened == ["shared.txt"]
    assert all(beside.have(session) == {"../shared.txt": b"2"} for session in sessions)


def test_a_document_that_vanishes_says_nothing_more(beside):
    beside.write("a/own.json", b"{}")
    session = beside.stream("a/stream")
    (beside.directory / "a/own.json").unlink()
    beside.turn()
    assert beside.have(session) == {"own.json": b"{}"}
    assert beside.failures == []


def test_what_was_handed_on_before_a_restart_is_not_again(beside):
    beside.write("a/own.json", b"{}")
    session = beside.stream("a/stream")
    again = DocumentWatch(FILES, beside.roots, beside.intake, beside.failures.append)
    resumed = Session(session.number)
    resumed.sent = beside.intake.sessions[0].state.documents.copy()
    again.follow(resumed, str(beside.directory / "a/stream"))
    assert beside.intake.calls == ["document 0 own.json"]


def test_a_stream_that_moved_has_the_documents_of_its_new_place(beside):
    beside.write("a/own.json", b"a")
    beside.write("b/own.json", b"b")
    session = beside.stream("a/stream")
    beside.documents.follow(session, str(beside.directory / "b/stream"))
    assert beside.have(session) == {"own.json": b"b"}
    assert len(beside.documents) == 2


def test_streams_that_have_ended_are_told_nothing(beside):
    beside.write("a/own.json", b"a")
    session = beside.stream("a/stream")
    beside.documents.forget(session)
    beside.write("a/own.json", b"b")
    beside.turn()
    assert beside.have(session) == {"own.json": b"a"}
    assert len(beside.documents) == 0


def test_a_document_that_is_too_long_is_counted_and_left(beside):
    beside.write("a/own.json", bytes(101))
    session = beside.stream("a/stream")
    assert beside.have(session) == {}
    assert set(beside.failures) == {"document_max"}
    beside.write("a/own.json", bytes(100))
    beside.turn()
    assert beside.have(session) == {"own.json": bytes(100)}


def test_links_out_of_the_roots_and_what_is_no_file_are_left(beside, tmp_path_factory):
    secret = tmp_path_factory.mktemp("outside") / "secret"
    secret.write_bytes(b"secret")
    (beside.directory / "a").mkdir()
    (beside.directory / "a/own.json").symlink_to(secret)
    os.mkfifo(beside.directory / "shared.txt")
    session = beside.stream("a/stream")
    beside.turn()
    assert beside.have(session) == {}
    assert set(beside.failures) == {"EXDEV", "EINVAL"}


def test_a_link_within_the_roots_is_where_it_leads(beside):
    beside.write("real.json", b"{}")
    (beside.directory / "a").mkdir()
    (beside.directory / "a/own.json").symlink_to("../real.json")
    assert beside.have(beside.stream("a/stream")) == {"own.json": b"{}"}
    assert beside.failures == []


class Unread:
    """Paths that no stream's documents need."""

    def __getattr__(self, name):
        raise AssertionError(name)


def desk_of(beside):
    unread = Unread()
    return Desk(
        intake=beside.intake, config=CONFIG, files=FILES, figures=SourceFigures(),
        descriptors=unread, documents=beside.documents, clock=unread, writers=unread,
            remember=lambda *_: None,
    )  # fmt: skip


def opened(beside, path):
    """The session of the file at a path."""
    session, facts = Handoff(desk_of(beside)), FileFacts(path=path, device=1, inode=1, birth=0)
    session.number = beside.intake.open_file(facts, "", record_max=1, dialect="auto")
    session.documents(path)
    return session


def test_what_changed_last_is_handed_on_before_a_session_ends(beside):
    path = str(beside.directory / "a/stream")
    beside.write("a/own.json", b"{}")
    session = opened(beside, path)
    assert beside.have(session) == {"own.json": b"{}"}
    beside.write("a/own.json", b"{finished}")
    session.end(path, "deleted")
    assert beside.intake.sessions[0].documents == {"own.json": b"{finished}"}
    assert beside.intake.sessions[0].closed == "deleted"
    assert len(beside.documents) == 0


def test_so_it_is_of_a_file_that_was_gone_after_a_restart(beside):
    path = str(beside.directory / "a/stream")
    facts = FileFacts(path=path, device=1, inode=1, birth=0)
    number = beside.intake.open_file(facts, "", record_max=1, dialect="auto")
    beside.write("a/own.json", b"{finished}")
    session, state = Handoff(desk_of(beside)), beside.intake.files()[number]
    session.number, session.sent = number, state.documents.copy()
    session.end(path, "deleted")
    assert beside.intake.sessions[0].documents == {"own.json": b"{finished}"}


def test_what_one_stream_finds_changed_is_told_to_all(beside):
    beside.write("shared.txt", b"one")
    first, second = beside.stream("a/stream"), beside.stream("b/stream")
    beside.write("shared.txt", b"two")
    beside.documents.follow(first, str(beside.directory / "a/stream"))
    beside.turn()
    assert beside.have(second) == beside.have(first) == {"../shared.txt": b"two"}


@pytest.mark.parametrize("reason", ["replaced", "rewritten", "truncated"])
def test_what_stands_beside_the_next_incarnation_is_not_told_of_the_last(beside, reason):
    path = str(beside.directory / "a/stream")
    beside.write("a/own.json", b"{}")
    session = opened(beside, path)
    beside.write("a/own.json", b"{next}")
    session.end(path, reason)
    assert beside.intake.sessions[0].documents == {"own.json": b"{}"}
    assert len(beside.documents) == 0
