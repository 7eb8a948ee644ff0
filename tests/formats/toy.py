"""A format made up for tests of what files bring: one letter and a rest a line.

`e NAME` is an event, `k KEY` an event that asks for its name, `n KEY NAME` a name, `m COUNT` says
that events are missing, anything else cannot be read. A document's lines are names, too.
"""

from __future__ import annotations

import json
from operator import attrgetter

import msgspec

from tailrace.decoding.contract import Format
from tailrace.decoding.lines import Lines, LinesState, split_lines
from tailrace.model.gap import Reason
from tailrace.model.record import Kind, Record, malformed, missing, named


class ToyState(msgspec.Struct):
    lines: LinesState = msgspec.field(default_factory=LinesState)
    path: str = ""


class ToyDecoder:
    def __init__(self, limit, state=None):
        state = state or ToyState()
        self._lines = Lines(limit, state.lines)
        self._path = state.path

    @property
    def state(self):
        return ToyState(self._lines.state, self._path)

    @property
    def pending(self):
        return self._lines.pending

    def begin(self, path, dialect):
        self._path = f"{path} {dialect}"

    def document(self, name, data):
        at = self._lines.state.offset
        pairs = [line.split(maxsplit=1) for line in data.decode().splitlines()]
        return [named(at, 0, key, text, scope="group") for key, text in pairs]

    def feed(self, data):
        return self._read(self._lines.feed(data))

    def end(self):
        return self._read(self._lines.end())

    def give_up(self):
        return self._read(self._lines.give_up())

    def _read(self, pieces):
        records = []
        for piece in pieces:
            offset = piece.offset
            if piece.kind != "lines":
                why = {"tail": "truncated", "too_long": "too_long"}.get(piece.kind, "bad_line")
                records.append(malformed(offset, piece.data, why))
                continue
            for line in split_lines(piece.data):
                records += self._line(offset, line)
                offset += len(line)
        return records

    def _line(self, offset, line):
        letter, _, rest = line.decode(errors="replace").strip().partition(" ")
        if letter == "n":
            key, _, text = rest.partition(" ")
            return [named(offset, len(line), key, text)]
        if letter in {"e", "k"}:
            name = rest if letter == "e" else None
            attributes = None if name else json.dumps({"$name": rest})
            if rest == "path":
                name = self._path
            return [self._event(offset, line, name, attributes)]
        if letter == "m" and rest.isascii() and rest.isdecimal():
            event = self._event(offset, line, "m", None)
            return [missing(offset, Reason.NETWORK, int(rest), first=7, detail="counted"), event]
        return [malformed(offset, line, "bad_line")]

    def _event(self, offset, line, name, attributes):
        return Record(
            offset, len(line), Kind.INSTANT, "1",
            None, None, name, None, None, None, None, None, attributes, None, None,
        )  # fmt: skip


FORMAT = Format(
    name="toy",
    decoder=ToyDecoder,
    transports=("udp", "tcp", "tail"),
    state_type=ToyState,
    waiting=attrgetter("lines"),
    flaws=frozenset(),
    malformed=frozenset({"bad_line", "too_long", "truncated"}),
)
