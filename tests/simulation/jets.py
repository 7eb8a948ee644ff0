"""Simulate a program that writes JETS: records, events and annotations on them, ends of records, and a footer or none.

A *life* begins with a header; its ids begin at 1. If the connection of a program breaks, the program begins a new life
on the next connection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulation.wire import Part, Sender
from tests.simulation.world import Time

KINDS = ("begin", "instant", "annotation", "end")
NOISE = (
    b"\xff\xfe\x80 no text",
    b"[1,2]",
    b'{"clk":5,"type":"event","name":"x"',
    b'{"clk":5,"type":"record","name":"lacks its id","record_type":"T","description":""}',
    b'{"clk":"five","type":"event","name":"x","record_id":1,"description":""}',
)
"""Lines that cannot be read."""


@dataclass
class Life:
    """The lines from one header up to the next."""

    number: int
    emitted: Counter[str] = field(default_factory=Counter)
    """Number of emitted lines of each kind."""
    kinds: dict[str, str] = field(default_factory=dict)
    """By event (its name), the kind of its line."""
    begins: dict[int, str] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    """By record, the event of its begin and the event of its end."""
    ended: bool = False
    """Whether the footer was written."""


class Jets:
    def __init__(
        self,
        make: Callable[[Callable[[], list[Part]]], Sender],
        time: Time,
        random: Random,
        program: int,
    ) -> None:
        """`make` returns the sender, given a function that returns the header."""
        self._time = time
        self._random = random
        self._program = program
        self._open: dict[int, list[int]] = {}
        """By stream, its open record, and how many of the record's lines were written."""
        self.lives: list[Life] = []
        self.sender = make(self._greet)
        if self.sender.connectionless:
            self.sender.send([])

    def event(self, stream: int, number: int, name: str) -> None:
        """Write a line for an event."""
        if self._reach():
            self.sender.send([self._line(stream, name)])

    def discard(self, stream: int, number: int, count: int) -> None:
        """Discard events. They are not reported, because JETS cannot express this."""

    def garble(self, how: str, stream: int, number: int, name: str) -> None:
        """Send bytes that cannot be read (see `producers.GARBLES`): beside an event, or with `torn` in place of one."""
        if not self._reach():
            return
        line = self._line(stream, name)
        noise = Part(self._random.choice(NOISE) + b"\n", good=False)
        if how == "torn":
            cut = self._random.randrange(1, len(line.data) - 1)
            self.sender.send([Part(line.data[:cut] + b"\n", good=False)])
        else:
            self.sender.send([line, noise] if how == "behind" else [noise, line])

    def close(self) -> None:
        """Write the footer, and end."""
        if not self._reach():
            return
        life = self.lives[-1]
        life.ended = True
        totals = {
            "total_records": life.emitted["begin"],
            "total_events": life.emitted["instant"],
            "total_annotations": life.emitted["annotation"],
            "total_record_ends": life.emitted["end"],
        }
        self.sender.send([Part(_line(type="footer", capture_end_clk=self._clk(), **totals))])
        self.sender.end()

    def _reach(self) -> bool:
        """Begin a life if the last one has ended. Return whether there is an open life now."""
        connection = self.sender.connection
        if not self.lives or (connection is not None and connection.lost):
            before = len(self.lives)
            self.sender.send([])
            return len(self.lives) > before
        return connection is not None or self.sender.connectionless

    def _line(self, stream: int, name: str) -> Part:
        life, open_ = self.lives[-1], self._open.get(stream)
        if open_ is None:
            record = len(life.begins) + 1
            parent = next(iter(self._open.values()), [None])[0]
            self._open[stream] = [record, 1]
            life.begins[record] = name
            about = {
                "type": "record",
                "name": name,
                "record_type": "T",
                "id": record,
                "parent_id": parent,
            }
        else:
            record, step = open_
            open_[1] += 1
            kind = KINDS[step] if step < 4 else "end"
            if kind == "end":
                del self._open[stream]
                life.ends[record] = name
                return self._emitted(
                    "end", name, _line(clk=self._clk(), type="record_end", record_id=record)
                )
            type_ = "event" if kind == "instant" else kind
            about = {"type": type_, "name": name, "record_id": record, "data": {}}
        kind = "begin" if open_ is None else kind
        return self._emitted(kind, name, _line(clk=self._clk(), **about, description="d"))

    def _emitted(self, kind: str, name: str, data: bytes) -> Part:
        life = self.lives[-1]
        life.emitted[kind] += 1
        life.kinds[name] = kind
        return Part(data, name)

    def _clk(self) -> int:
        return self._time.monotonic_ns()

    def _greet(self) -> list[Part]:
        life = Life(len(self.lives))
        self.lives.append(life)
        self._open.clear()
        metadata = {"clock_frequency_mhz": 1000, "life": f"{self._program}/{life.number}"}
        return [Part(_line(type="header", version="2.0", metadata=metadata))]


def _line(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
