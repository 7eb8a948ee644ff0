"""Test what passes to a terminal, piece by piece, and what does not."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading
from contextlib import redirect_stderr
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from tailrace import terminal
from tailrace.terminal import COLOUR, guarded, harmless, lines, unguarded, waiting

OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@given(st.text(st.characters(codec=None)))
@example("\x1b[2J\x07\x9b31m\u202e\r")
def test_nothing_that_is_obeyed_passes_but_colours(text: str) -> None:
    shown = harmless(text)
    assert not OBEYED.search(COLOUR.sub("", shown))
    assert shown.count("\n") == text.count("\n")
    assert not OBEYED.search(lines(text))


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" \n\t")))
def test_other_text_is_as_it_was(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize("text", ["\x1b[1m", "\x1b[0m", "\x1b[31m", "\x1b[m"])
def test_colours_pass(text: str) -> None:
    assert harmless(f"a{text}b") == f"a{text}b"
    assert lines(text) != text


@pytest.mark.parametrize("text", ["\x1b[8m", "\x1b[2J", "\x1b]0;title\x07", "\x1b[1;31m", "\x1b"])
def test_other_sequences_do_not(text: str) -> None:
    assert "\x1b" not in harmless(text)


class Pair:
    """A terminal: what is printed on one end comes out of the other."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream = os.fdopen(theirs, "w", encoding="utf-8")

    def shown(self) -> str:
        self.stream.close()
        found = b""
        try:
            while data := os.read(self._ours, 65536):
                found += data
        except OSError:  # how Linux says that the other end is closed
            pass
        finally:
            os.close(self._ours)
        return found.decode().replace("\r\n", "\n")


HOSTILE = "né\x1b[31m\x1b[2Jx\x9b\u202e\x07\n"


@given(st.lists(st.integers(0, len(HOSTILE.encode())), max_size=5))
def test_where_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    pair, data = Pair(), HOSTILE.encode()
    stream = guarded(pair.stream)
    places = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(places):
        stream.buffer.write(data[begin:end])
    stream.flush()
    assert pair.shown() == harmless(HOSTILE)


def test_our_own_movements_pass_beside_it_more_than_once() -> None:
    pair = Pair()
    stream = guarded(pair.stream)
    for _ in range(2):
        beside = unguarded(stream)
        beside.write("\r\x1b[K")
        beside.flush()
        stream.write("\x1b[K\n")
    assert pair.shown() == "\r\x1b[K\\x1b[K\n" * 2


def test_what_leads_to_no_terminal_is_left_alone() -> None:
    stream = io.StringIO()
    assert guarded(stream) is stream
    assert unguarded(stream) is stream


@pytest.fixture
def errors():
    """Return a terminal for standard error, and the end at which a person sees it.

    pytest replaces standard error between a fixture and its test, so the test redirects it.
    """
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield redirect_stderr(guarded(stream)), ours
    os.close(ours)


def seen(screen):
    """Return what a terminal shows, once it shows something."""
    return os.read(screen, 1000).decode()


def test_a_call_that_takes_long_is_shown_until_it_ends(errors, monkeypatch) -> None:
    monkeypatch.setattr(terminal, "FIRST_SECONDS", 0.0)
    redirected, screen = errors
    with redirected:
        line = waiting("merging \x07", lambda: seen(screen))
    assert line == "\r\x1b[Kmerging \\x07 ... 0 s"
    assert seen(screen) == "\r\x1b[K"


def test_the_line_is_cleared_when_the_call_fails(errors, monkeypatch) -> None:
    monkeypatch.setattr(terminal, "FIRST_SECONDS", 0.0)
    redirected, screen = errors

    def fail():
        seen(screen)
        raise ZeroDivisionError

    with redirected, pytest.raises(ZeroDivisionError):
        waiting("merging", fail)
    assert seen(screen) == "\r\x1b[K"


def test_a_call_that_is_short_shows_nothing(errors) -> None:
    redirected, screen = errors
    with redirected:
        assert waiting("merging", lambda: 7) == 7
        sys.stderr.write("next\n")
    assert seen(screen) == "next\r\n"


def test_without_a_terminal_a_call_is_not_shown(monkeypatch) -> None:
    monkeypatch.setattr(terminal, "FIRST_SECONDS", 0.0)
    with redirect_stderr(io.StringIO()) as shown:
        assert waiting("merging", threading.active_count) == threading.active_count()
    assert shown.getvalue() == ""


def test_a_call_needs_no_thread(errors, monkeypatch) -> None:
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    redirected, _ = errors
    with redirected:
        assert waiting("merging", lambda: 7) == 7
