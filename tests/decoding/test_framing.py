"""Compare the division of input into lines (`Lines`) with a plain model of its docstring."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from tailrace.decoding.formats import FORMATS
from tailrace.decoding.lines import PIECE, WHITE, Lines, LinesState, Piece, split_lines


def cut(lines: Lines, parts: list[bytes]) -> list[Piece]:
    pieces = [piece for part in parts for piece in lines.feed(part)]
    return pieces + lines.end()


def units(pieces: list[Piece]) -> list[tuple[str, int, bytes]]:
    """Return the pieces with one line each, because the contract does not state how `Lines` groups whole lines."""
    found = []
    for piece in pieces:
        offset = piece.offset
        for data in split_lines(piece.data) if piece.kind == "lines" else [piece.data]:
            found.append((piece.kind, offset, data))
            offset += len(data)
    return found


def model(data: bytes, limit: int) -> list[tuple[str, int, bytes]]:
    """Return the pieces that `Lines` must return, computed line by line from the whole input. The limit must be below
    `PIECE`.
    """
    found = []
    at = 0
    while at < len(data):
        content = at
        while (newline := data.find(b"\n", content) + 1) and not data[content:newline].strip(WHITE):
            content = newline
        end = data.find(b"\n", content) + 1
        newline = data.rfind(b"\n", at, at + limit) + 1
        if end and end - at <= limit:
            parts = [("lines", end)]
        elif len(data) - at >= limit and newline:
            parts = [("blank", newline)]
        elif len(data) - at >= limit:
            end = data.find(b"\n", at) + 1 or len(data)  # also the limit of a blank line
            parts = [("too_long", stop) for stop in (*range(at + limit, end, limit), end)]
        else:
            rest = "tail" if data[content:].strip(WHITE) else "blank"
            parts = [("blank", content), (rest, len(data))]
        for kind, stop in parts:
            if stop > at:
                found.append((kind, at, data[at:stop]))
                at = stop
    return found


noise = st.lists(
    st.sampled_from([b"\x1a", b"\0", b"{", b"}", b"\n", b"M 1", b" ", b"\xff", b'"id":1,']),
    max_size=60,
).map(b"".join)


@pytest.mark.parametrize("format_", ["jets", "et3"])
@given(noise)
def test_ctrl_zs_of_noise_have_no_rows_of_their_own(format_, data):
    records = [
        FORMATS[format_].decoder(2**16, None).feed(each)
        for each in (data, data.replace(b"\x1a", b"?"))
    ]
    assert len(records[0]) <= len(records[1])


inputs = st.lists(
    st.sampled_from([b"\n", b"\r\n", b" ", b" \n", b"x", b"line\n", b"a longer line, really\n", b"y" * 20]),
    max_size=25,
).map(b"".join)  # fmt: skip


@given(inputs, st.integers(4, 40), st.lists(st.integers(0, 200), max_size=12))
@example(b"   \r\n\n", 4, [])
def test_lines_are_cut_as_the_model_cuts_them(data: bytes, limit: int, cuts: list[int]) -> None:
    edges = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    parts = [data[begin:stop] for begin, stop in pairwise(edges)]
    assert units(cut(Lines(limit), parts)) == model(data, limit)


@given(inputs, st.integers(4, 40), st.integers(0, 200))
def test_cutting_goes_on_from_its_state(data: bytes, limit: int, place: int) -> None:
    first = Lines(limit)
    pieces = first.feed(data[:place])
    assert first.pending < limit
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(first.state), type=LinesState)
    pieces += cut(Lines(limit, state), [data[place:]])
    assert units(pieces) == units(cut(Lines(limit), [data]))


@given(inputs, st.integers(4, 40))
def test_pieces_tile_the_input_and_keep_the_limit(data: bytes, limit: int) -> None:
    at = 0
    for kind, offset, part in units(cut(Lines(limit), [data])):
        assert (offset, kind in {"lines", "tail", "blank", "too_long"}) == (at, True)
        assert 0 < len(part) <= limit
        at += len(part)
    assert at == len(data)


@pytest.mark.parametrize("line", [b"x", b"\n", b" ", b"x\n"])
def test_many_single_bytes_are_linear_work(line: bytes) -> None:
    """If the run time were quadratic, the test would take minutes. It measures no time."""
    lines = Lines(1 << 18)
    data = (line * (1 << 19))[: 1 << 19]
    handed = sum(len(p.data) for i in range(len(data)) for p in lines.feed(data[i : i + 1]))
    assert handed + sum(len(piece.data) for piece in lines.end()) == len(data)


def test_a_line_too_long_comes_in_pieces_counted_from_its_beginning() -> None:
    lines = Lines(4 * PIECE)
    pieces = cut(lines, [b"short\n", b"x" * (5 * PIECE), b"y\nnext\n"])
    assert [(piece.kind, len(piece.data)) for piece in pieces] == [
        ("lines", 6),
        *[("too_long", PIECE)] * 5,
        ("too_long", 2),
        ("lines", 5),
    ]
