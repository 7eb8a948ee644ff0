"""Every cell of the table of phases is reached by a real file, and leads where the table says."""

from __future__ import annotations

import gzip

import pytest

from tailrace.config.schema import TailConfig
from tailrace.sources.tail.phase import NEXT, WAITING, FileEvent, Phase
from tailrace.sources.tail.watch import Watch
from tests.sources.tail.recorder import Recorder

TEXT = bytes(range(33, 127)) * 10 + b"\n"
DECISIONS = {
    FileEvent.MAY_BE_COPY: Phase.COPY,
    FileEvent.OF_OTHER_SOURCE: Phase.FOREIGN,
    FileEvent.OF_OTHER_FORMAT: Phase.LEFT_OUT,
    FileEvent.TOO_MANY: Phase.CROWDED,
    FileEvent.CHOSEN: Phase.FOLLOWED,
    FileEvent.CHOSEN_AS_SHADOW: Phase.SHADOW,
}
AFTER_REWRITING = {
    Phase.NEW: Phase.NEW,
    Phase.COPY: Phase.NEW,
    Phase.FOREIGN: Phase.NEW,
    Phase.CROWDED: Phase.CROWDED,
    Phase.LEFT_OUT: Phase.NEW,
    Phase.FOLLOWED: Phase.NEW,
    Phase.SHADOW: Phase.FOLLOWED,
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def wall_ns(self) -> int:
        return int((1e9 + self.now) * 1e9)

    def monotonic(self) -> float:
        return self.now


class Following:
    """A watch on the files of a directory, without an event loop."""

    def __init__(self, files, **keys) -> None:
        self.files, self.clock, self.intake = files, Clock(), Recorder()
        config = TailConfig(format="jets", paths=[str(files.directory)], rest_time=1e18, **keys)
        self.watch = Watch("files", config, self.clock, self.intake)
        self._steps = self.watch.steps()

    def settle(self) -> None:
        until = self.clock.now + 30
        while self.clock.now < until:
            wait = next(self._steps)
            self.clock.now += wait if isinstance(wait, float) else 0.001

    def file(self, name):
        return self.watch._catalog.at(str(self.files / name))


@pytest.fixture
def followed(files):
    """A function that returns a watch that has read the file `a`."""

    def read(**keys) -> Following:
        files.write("a", TEXT)
        following = Following(files, **keys)
        following.settle()
        return following

    return read


def decision(monkeypatch, following, name, phase):
    """Put a file into a phase before the watch decides about the file first; return the phases after
    each decision."""
    decide, found = Watch._decide, []

    def decided(watch, file, now):
        if file.location.path == str(following.files / name):
            file.phase = file.phase if found else phase
            decide(watch, file, now)
            found.append(file.phase)
        else:
            decide(watch, file, now)

    monkeypatch.setattr(Watch, "_decide", decided)
    following.settle()
    return found


@pytest.mark.parametrize("phase", WAITING)
@pytest.mark.parametrize(("event", "then"), DECISIONS.items())
def test_a_decision_about_a_waiting_file(monkeypatch, followed, files, event, then, phase):
    following = followed(files_max=1 if event is FileEvent.TOO_MANY else 10)
    if event is FileEvent.OF_OTHER_SOURCE:
        monkeypatch.setattr(following.intake, "take_up", lambda *_: "claimed")
    if event is FileEvent.CHOSEN_AS_SHADOW:
        (files / "a").unlink()
        following.settle()
    text = b"ovni" + TEXT if event is FileEvent.OF_OTHER_FORMAT else TEXT
    name = "b" if event is FileEvent.CHOSEN else "a.gz"
    files.write(name, text if name == "b" else gzip.compress(text))
    first, *_ = decision(monkeypatch, following, name, phase)
    assert first is NEXT[event][phase] is then


@pytest.mark.parametrize("phase", Phase)
def test_a_file_that_is_rewritten(followed, files, phase):
    following = followed()
    file = following.file("a")
    file.phase = phase
    files.write("a", b"short")
    file.look(following.clock.now)
    assert file.phase is NEXT[FileEvent.REWRITTEN][phase] is AFTER_REWRITING[phase]


def test_a_file_without_content_that_may_be_a_copy(monkeypatch, files):
    files.write("a.gz", gzip.compress(TEXT)[:10])
    following = Following(files)
    following.settle()
    copy = following.file("a.gz")
    assert copy.phase is Phase.FOLLOWED
    files.write("a", TEXT)
    first, *_ = decision(monkeypatch, following, "a.gz", Phase.NEW)
    assert first is Phase.COPY
    assert following.file("a").phase is Phase.FOLLOWED
    assert NEXT[FileEvent.GIVEN_UP] == {Phase.FOLLOWED: Phase.NEW}


def test_a_shadow_with_more_content(followed, files):
    following = followed()
    (files / "a").unlink()
    following.settle()
    files.write("a.gz", gzip.compress(TEXT))
    following.settle()
    assert following.file("a.gz").phase is Phase.SHADOW
    files.append("a.gz", gzip.compress(b"more"))
    following.settle()
    assert following.file("a.gz").phase is NEXT[FileEvent.LONGER][Phase.SHADOW] is Phase.FOLLOWED
    assert following.intake.contents == [TEXT, TEXT + b"more"]


def test_the_table_has_no_other_cell():
    tested = {event: set(WAITING) for event in DECISIONS}
    tested[FileEvent.REWRITTEN] = set(Phase)
    tested[FileEvent.GIVEN_UP] = {Phase.FOLLOWED}
    tested[FileEvent.LONGER] = {Phase.SHADOW}
    assert {event: set(row) for event, row in NEXT.items()} == tested
