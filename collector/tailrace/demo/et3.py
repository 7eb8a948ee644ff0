"""Generate an Elephant Tracks 3 trace of a Java program: its calls, and what it does with objects.

A trace has one of two forms. Agents end each line with the thread, and write no line for a death. The
specification ends each line with the logical clock, which counts entries and exits. Map files, which
contain the names, are written when the program ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from tailrace.demo.traffic import Write

_CLASSES = ("Main", "Tree", "Tree$Node", "Räume", "java.util.ArrayList")
_METHODS = ("run", "insert", "find", "rotate", "size", "toArray")
_FIELDS = ("root", "left", "right", "elementData")
_AGENT_THREADS = 3
_DEPTH_MAX = 14
_OBJECTS_MAX = 200

PIECE_BYTES = 1000
"""Bytes of one write. (Agents write line by line.)"""


class AgentLine(NamedTuple):
    """One line with its newline. `clock` counts the entries and exits up to and including it."""

    letter: str
    clock: int
    data: bytes


class _AgentEvent(NamedTuple):
    """A line without its last field."""

    letter: str
    fields: tuple[int, ...]
    thread: int


def agent_form(seed: int, steps: int = 4000) -> list[AgentLine]:
    """Return a trace as the agents write it, with the entry of the thread that ends the program."""
    random = Random(f"et3/{seed}")  # noqa: S311 - traffic, not secrets
    lines = []
    clock = 0
    ending = _identity(random)
    for event in [*_program(random, steps, _AGENT_THREADS), _AgentEvent("M", (1, ending), ending)]:
        if event.letter != "D":
            clock += event.letter in "ME"
            lines.append(_line(event, event.thread, clock))
    return lines


def specification_form(seed: int, steps: int = 4000) -> list[AgentLine]:
    """Return a trace in the specification's form, which has neither witnesses nor threads."""
    random = Random(f"et3/{seed}")  # noqa: S311 - traffic, not secrets
    lines = []
    clock = 0
    for event in _program(random, steps, threads=1):
        if event.letter != "W":
            clock += event.letter in "ME"
            lines.append(_line(event, clock, clock))
    return lines


def agent_maps() -> dict[str, bytes]:
    """Return the agents' map files, in their spelling. Every class has all methods."""
    members = [f"{class_}#{method}" for class_ in _CLASSES for method in _METHODS]
    fields = [f"{_CLASSES[1 + number % 4]}#{field}" for number, field in enumerate(_FIELDS)]
    named = {"methods.list": members, "fields.list": fields, "classs.list": list(_CLASSES)}
    return {
        file: "".join(f"{name},{id_}\n" for id_, name in enumerate(names, 1)).encode()
        for file, names in named.items()
    }


def specification_maps() -> dict[str, bytes]:
    """Return the specification's map files."""
    slashed = [name.replace(".", "/") for name in _CLASSES]
    methods = [(class_, method) for class_ in range(1, len(_CLASSES) + 1) for method in _METHODS]
    return {
        "class_list": "".join(f"{id_},{name}\n" for id_, name in enumerate(slashed, 1)).encode(),
        "method_list": "".join(
            f"{id_},{class_},{method}\n" for id_, (class_, method) in enumerate(methods, 1)
        ).encode(),
    }


def writes(path: str, lines: Iterable[AgentLine]) -> Iterator[Write]:
    """Yield the writes of a trace file, piece by piece, so that lines are cut."""
    data = b"".join(line.data for line in lines)
    for at in range(0, len(data), PIECE_BYTES):
        yield Write(path, data[at : at + PIECE_BYTES])


def _program(random: Random, steps: int, threads: int) -> Iterator[_AgentEvent]:
    """Yield the events of threads that take turns. At the end, each thread returns from all its calls."""
    running = [_TracedThread(random) for _ in range(threads)]
    for _ in range(steps):
        yield from random.choice(running).step()
    for thread in running:
        while thread.depth:
            yield from thread.leave()


class _TracedThread:
    """A thread's calls, and the objects it knows, the youngest last."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = _identity(random)
        self._methods: list[int] = []
        self._objects: list[int] = []

    @property
    def depth(self) -> int:
        return len(self._methods)

    def step(self) -> Iterator[_AgentEvent]:
        """Yield the events of one step of the program. Sometimes an object dies in it."""
        chance = self._random.random()
        if not self.depth or (chance < 0.28 and self.depth < _DEPTH_MAX):
            method = self._random.randrange(1, len(_CLASSES) * len(_METHODS) + 1)
            self._methods.append(method)
            yield self._event("M", method, self._object())
        elif chance < 0.56:
            yield from self.leave()
        elif chance < 0.74:
            yield self._allocation()
        elif chance < 0.87:
            field = self._random.randrange(1, len(_FIELDS) + 1)
            yield self._event("U", self._object(), self._object(), field)
        else:
            class_ = self._random.randrange(1, len(_CLASSES) + 1)
            yield self._event("W", self._object(), class_)

    def leave(self) -> Iterator[_AgentEvent]:
        """Yield the return from the innermost call.

        An exception ends that call without a line, and also the calls that it passes on its way."""
        if self.depth > 4 and self._random.random() < 0.02:
            del self._methods[-3:]
        yield self._event("E", self._methods.pop())
        if len(self._objects) > _OBJECTS_MAX:
            dead = self._objects.pop(self._random.randrange(len(self._objects)))
            yield self._event("D", dead, self._number)

    def _allocation(self) -> _AgentEvent:
        object_ = _identity(self._random)
        self._objects.append(object_)
        class_ = self._random.randrange(1, len(_CLASSES) + 1)
        site = self._random.randrange(1, 200)
        if self._random.random() < 0.25:
            length = self._random.randrange(1, 64)
            return self._event("A", object_, 16 + 8 * length, class_, site, length)
        return self._event("N", object_, 8 * self._random.randrange(2, 9), class_, site, 0)

    def _object(self) -> int:
        """Return an object that the thread knows, or 0 for a static method or field, or null."""
        if not self._objects or self._random.random() < 0.2:
            return 0
        return self._random.choice(self._objects)

    def _event(self, letter: str, *fields: int) -> _AgentEvent:
        return _AgentEvent(letter, fields, self._number)


def _identity(random: Random) -> int:
    """Return an identity hash code."""
    return random.randrange(2**24, 2**31)


def _line(event: _AgentEvent, last: int, clock: int) -> AgentLine:
    fields = " ".join(map(str, (*event.fields, last)))
    return AgentLine(event.letter, clock, f"{event.letter} {fields}\n".encode())
