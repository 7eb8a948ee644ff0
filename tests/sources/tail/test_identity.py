"""The rules by which a file is the one it was."""

from __future__ import annotations

import os

from hypothesis import given, strategies as st

from tailrace.sources.tail import identity
from tailrace.sources.tail.identity import Trail, follows_on, judge, relation
from tailrace.spool.payloads import HEAD, LAST, FileFacts, FileLoss, FileState

TEXT = bytes(range(256)) * 4


def trail_of(*pieces):
    trail = Trail()
    for piece in pieces:
        if isinstance(piece, int):
            trail.pass_over(piece)
        else:
            trail.add(piece)
    return trail


def judged(before, now, *, grown=False):
    trail = trail_of(before)
    at = trail.offset - len(trail.last)
    return judge(trail, now[: len(trail.head)], now[at : trail.offset], grown=grown)


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 600)), max_size=8))
def test_a_trail_is_the_first_and_last_of_what_came_holes_as_zeros(pieces):
    trail = trail_of(*pieces)
    content = b"".join(bytes(piece) for piece in pieces)
    assert (trail.offset, trail.head, trail.last) == (len(content), content[:HEAD], content[-LAST:])


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 600)), max_size=8))
def test_a_trail_says_what_the_ingest_remembers(pieces):
    """A source goes on after a restart from what the ingest kept."""
    state = FileState(FileFacts(path="/a", device=1, inode=1, birth=0))
    for piece in pieces:
        if isinstance(piece, int):
            state.lose(FileLoss(detail="hole", size=piece))
        else:
            state.read(piece)
    trail, kept = trail_of(*pieces), Trail(state.offset, state.head, state.last)
    assert (kept.offset, kept.head, kept.last) == (trail.offset, trail.head, trail.last)


def test_a_huge_hole_costs_nothing():
    trail = trail_of(b"x", 10**12, b"y")
    assert (trail.offset, len(trail.head), trail.last[-1:]) == (10**12 + 2, HEAD, b"y")


def test_what_has_not_changed_is_the_same():
    assert judged(TEXT, TEXT).verdict == "same"
    assert judged(TEXT, TEXT + b"more", grown=True).verdict == "same"
    assert judged(b"", b"anything", grown=True).verdict == "same"


def test_another_head_is_another_incarnation():
    assert judged(TEXT, TEXT[:2] + b"?" + TEXT[3:]).verdict == "rewritten"
    assert judged(TEXT, TEXT[:255] + b"?" + TEXT[256:]).verdict == "rewritten"
    assert judged(b"abc", b"abd").verdict == "rewritten"


def test_the_first_two_bytes_say_nothing():
    assert judged(b"  " + TEXT, b"[[" + TEXT) == ("overwritten", 2)
    assert judged(b"  " + TEXT, b" \n" + TEXT, grown=True) == ("overwritten", 1)
    assert judged(b"  ", b"[[").verdict == "overwritten"


def test_what_dftracer_1_writes_there_at_the_end_is_no_loss():
    assert judged(b"  " + TEXT, b"[\n" + TEXT, grown=True).verdict == "same"
    assert judged(b"  ", b"[\n").verdict == "same"
    assert judged(b"[\n", b"  ") == ("overwritten", 2)


def test_the_first_two_bytes_say_nothing_where_they_are_the_last_too():
    assert judged(b"  abc", b"[[abc", grown=True) == ("overwritten", 2)
    assert judged(b"  abc", b"[\nabd").verdict == "rewritten"


def test_bytes_before_our_place_that_differ_were_overwritten_if_nothing_was_added():
    now = TEXT[:-10] + bytes(10)
    assert judged(TEXT, now) == ("overwritten", 10)


def test_bytes_before_our_place_that_differ_are_another_incarnation_if_the_file_has_grown():
    assert judged(TEXT, TEXT[:-1] + b"?more", grown=True).verdict == "rewritten"


def test_bytes_that_are_not_there_any_more_differ():
    assert judged(TEXT, TEXT[:-5], grown=True).verdict == "rewritten"


def test_two_heads_tell_whether_the_content_is_the_same():
    assert relation(TEXT[:HEAD], TEXT[:HEAD]) == "same"
    assert relation(b"??" + TEXT[2:HEAD], TEXT[:HEAD]) == "same"
    assert relation(TEXT[:HEAD], TEXT[:10]) == "open"
    assert relation(TEXT[:HEAD], TEXT[:10] + b"?") == "other"
    assert relation(b"", TEXT[:HEAD]) == "open"


def test_content_inflated_again_must_end_as_it_did():
    known = trail_of(TEXT)
    assert follows_on(known, trail_of(TEXT))
    assert not follows_on(known, trail_of(TEXT[:-1] + b"?"))
    assert not follows_on(known, trail_of(b"?" * 100 + TEXT[100:]))
    part = Trail(len(TEXT) - 10)
    part.add(TEXT[-10:])
    assert follows_on(known, part)
    part.last = b"?" + part.last[1:]
    assert not follows_on(known, part)


def test_two_files_of_one_inode_differ_in_their_birth(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    before = os.open(path, os.O_RDONLY)
    first = identity.birth(before)
    os.close(before)
    assert first == 0 or abs(first - path.stat().st_ctime_ns) < 10**9
    path.write_bytes(b"more")
    again = os.open(path, os.O_RDONLY)
    assert identity.birth(again) == first
    os.close(again)


def test_a_system_that_knows_no_births_says_none(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_statx", None)
    with (tmp_path / "a").open("wb") as file:
        assert identity.birth(file.fileno()) == 0


def test_a_birth_that_cannot_be_had_is_none():
    assert identity.birth(-1) == 0
