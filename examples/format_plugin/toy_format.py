"""The toy format: a letter and a rest on each line.

`e NAME` is an event. `k KEY` is an event that asks for the name of KEY. `n KEY NAME` gives this name.
`m COUNT` is an event; COUNT events are missing before it. Any other line is malformed. Each line of a
document gives a name, too. The event `e path` gets the path and the dialect of its file as its name.
"""

from __future__ import annotations

import json
import re
from operator import attrgetter

import msgspec

from tailrace.decoding.contract import Format
from tailrace.decoding.lines import Lines, LinesState, Piece, split_lines
from tailrace.model.gap import Reason
from tailrace.model.record import NAME_OF_ROW, Kind, Record, malformed, missing, named


class ToyState(msgspec.Struct):
    """State that a decoder keeps between calls."""

    lines: LinesState = msgspec.field(default_factory=LinesState)
    path: str = ""


class ToyDecoder:
    """Decode one session's bytes."""

    def __init__(self, limit: int, state: ToyState | None = None) -> None:
        state = state or ToyState()
        self._lines = Lines(limit, state.lines)
        self._path = state.path

    @property
    def state(self) -> ToyState:
        return ToyState(self._lines.state, self._path)

    @property
    def pending(self) -> int:
        return self._lines.pending

    def begin(self, path: str, dialect: str) -> None:
        self._path = f"{path} {dialect}"

    def document(self, name: str, data: bytes) -> list[Record]:  # noqa: ARG002 - all are alike
        at = self._lines.state.offset
        pairs = (line.split(maxsplit=1) for line in data.decode(errors="replace").splitlines())
        return [named(at, 0, pair[0], pair[1], scope="group") for pair in pairs if len(pair) == 2]

    def feed(self, data: bytes) -> list[Record]:
        return self._records(self._lines.feed(data))

    def end(self) -> list[Record]:
        return self._records(self._lines.end())

    def give_up(self) -> list[Record]:
        return self._records(self._lines.give_up())

    def _records(self, pieces: list[Piece]) -> list[Record]:
        records: list[Record] = []
        for piece in pieces:
            if piece.kind != "lines":
                records.append(malformed(piece.offset, piece.data, UNREADABLE[piece.kind]))
                continue
            offset = piece.offset
            for line in split_lines(piece.data):
                records += _decode(offset, line, self._path)
                offset += len(line)
        return records


COUNT = re.compile("[0-9]{1,18}")
"""A number that fits the table's 64 bits."""


def _decode(offset: int, line: bytes, path: str) -> list[Record]:
    letter, _, rest = line.decode(errors="replace").strip().partition(" ")
    match letter:
        case "n":
            key, _, name = rest.partition(" ")
            return [named(offset, len(line), key, name)]
        case "e":
            return [_event(offset, line, path if rest == "path" else rest, None)]
        case "k":
            return [_event(offset, line, None, json.dumps({NAME_OF_ROW: rest}))]
        case "m" if COUNT.fullmatch(rest):
            gap = missing(offset, Reason.NETWORK, int(rest), first=7, detail="counted")
            return [gap, _event(offset, line, "m", None)]
    return [malformed(offset, line, "bad_line")]


def _event(offset: int, line: bytes, name: str | None, attributes: str | None) -> Record:
    return Record(
        offset, len(line), Kind.INSTANT, "1",
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


UNREADABLE = {"tail": "truncated", "too_long": "too_long", "blank": "bad_line"}
"""Why a piece of the input is not a line."""

FORMAT = Format(
    name="toy",
    decoder=ToyDecoder,
    transports=("udp", "tcp", "tail"),
    state_type=ToyState,
    waiting=attrgetter("lines"),
    flaws=frozenset(),
    malformed=frozenset({"bad_line", "too_long", "truncated"}),
)
