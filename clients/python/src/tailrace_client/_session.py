"""Encode a client's session packets, and decode the collector's answers (clients/PROTOCOL.md), without I/O.

No input raises: a session ignores bytes that are no answer, answers to other sessions, and impossible claims. Event
numbers have 32 bits on the wire, and are unwrapped here.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tailrace_client import _wire

RANKS = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""Environment variables with a process's rank, as Open MPI, PMIx, MPICH and Intel MPI, Flux and Slurm set them. The
innermost launcher comes first: each process of `mpirun` in a Slurm script inherits the script's rank."""

_SCHEDULERS = ("SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_LAUNCHES = {
    "OMPI_COMM_WORLD_RANK": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "PMIX_RANK": ("PMIX_NAMESPACE",),
    "PMI_RANK": ("PMI_JOBID",),
    "SLURM_PROCID": ("SLURM_STEP_ID",),
}
_NAME_MAX = 64
_DIGITS = 10


def place(environ: Mapping[str, str], host: str) -> dict[str, object]:
    """Return rank, node and job of this process, as far as known, from the launcher's environment variables.
    TAILRACE_JOB_NODE and TAILRACE_JOB_ID take precedence."""
    ranks = ((name, environ.get(name, "")) for name in RANKS)
    by = next((n for n, t in ranks if t.isascii() and t.isdecimal() and len(t) < _DIGITS), None)
    node, job = environ.get("TAILRACE_JOB_NODE"), environ.get("TAILRACE_JOB_ID")
    found: dict[str, object] = {}
    if by:
        found["rank"] = int(environ[by])
        # Use Slurm's node name only under Slurm's own launcher: under `mpirun` it would name another node.
        slurm = by == "SLURM_PROCID" or environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
        named = environ.get("SLURMD_NODENAME" if slurm else "PMIX_HOSTNAME")
        node = node or named or host.partition(".")[0]
        job = job or _job(by, environ)
    if node:
        found["node"] = node[:_NAME_MAX]
    if job:
        found["job"] = job[:_NAME_MAX]
    return found


def _job(by: str, environ: Mapping[str, str]) -> str | None:
    """Return the scheduler's job id, a dot, and the id of the step or launch, as far as they are known."""
    scheduler = _first(_SCHEDULERS, environ)
    launch = _first(_LAUNCHES.get(by, ()), environ)
    if scheduler is not None:
        # Flux spells job ids with U+0192 or with f, and f is easier to type.
        scheduler = scheduler.replace("\u0192", "f")
    if scheduler is None or launch is None:
        return scheduler or launch
    step = launch.removeprefix("slurm.pmix.").removeprefix(f"{scheduler}.")
    return f"{scheduler}.{step}"


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


CLIENT = "tailrace-python 0.1.0"

_EVENT = _wire.EVENT_MAGIC.to_bytes(4, "big")
_MASK = 2**32 - 1
_HALF = 2**31
_TEXT_MAX = 200
_ANSWER_MAX = 16 * 1024
"""Maximum size (bytes) of an answer that the client buffers. The protocol allows 1200."""

_HOLES_MAX = 64
"""Maximum number of holes in one answer, as the protocol defines."""

# In the packet, a stream takes at most 26 bytes, and all streams together some 100 KiB.
_STREAMS_PER_GOODBYE = 4096


class Range(NamedTuple):
    """A range of a stream's events: the numbers from `first` up to `next` (exclusive)."""

    stream: int
    first: int
    next: int


class Answer(NamedTuple):
    """The content of a `tailrace.ack` packet. An event that it acknowledges is durable, whatever later answers state."""

    turn: int
    below: Mapping[int, int]
    """For each stream, the number below which all events are durable, except those in `holes`."""
    holes: Mapping[int, Sequence[Range]] = MappingProxyType({})
    """For each stream, the ranges that the collector asks the client to send again."""
    goodbye: bool = False
    given_up: Mapping[int, int] = MappingProxyType({})
    """For each stream, the number of events that stay missing for ever, with numbers below the acknowledged one.
    Discarded events do not count."""
    uncounted: frozenset[int] = frozenset()
    """Streams whose numbers the collector does not check."""

    def has(self, stream: int, first: int, next_: int) -> bool:
        """Return whether the answer acknowledges all events from `first` up to `next_` (exclusive)."""
        return next_ <= self.below.get(stream, 0) and not self.lacks(stream, first, next_)

    def lacks(self, stream: int, first: int, next_: int) -> bool:
        """Return whether any event from `first` up to `next_` (exclusive) is in a hole of the answer."""
        holes = self.holes.get(stream, ())
        return any(hole.first < next_ and first < hole.next for hole in holes)


class Dialogue(Protocol):
    """The packets that a client sends beside events."""

    asks: bool
    turn: int
    answered: int

    def announcement(self) -> bytes:
        """Return the packet that the client sends first on a connection."""
        ...

    def report(
        self, discarded: Mapping[str, int], ranges: Sequence[Range] = (), *, elsewhere: bool = False
    ) -> bytes:
        """Return a report of discarded events or, with `elsewhere`, of events that another collector has acknowledged;
        empty if the format has no such report."""
        ...

    def reached(self, numbers: Mapping[int, int]) -> bytes:
        """Return a packet that states, for each given stream, the number after the stream's last event so far."""
        ...

    def goodbyes(
        self, numbers: Mapping[int, int], discarded: Mapping[str, int], size: int
    ) -> Iterator[bytes]:
        """Return the packets that end the session (together called the goodbye). Each packet has at most about `size`
        bytes."""
        ...

    def hear(
        self, option: bytes, numbers: Mapping[int, int], sent: Mapping[int, int]
    ) -> Answer | None:
        """Decode an answer of the collector; None if it does not concern this session."""
        ...

    def count(self, data: bytes) -> int:
        """Return the number of events in a chunk's bytes."""
        ...


class Session:
    """The conversation of one process with a collector, over any number of connections."""

    def __init__(
        self,
        *,
        epoch: int | None,
        ticks: Callable[[], int] | None = None,
        process: str | None = None,
        asks: bool = True,
        labels: Mapping[str, str] | None = None,
        cost: Callable[[int], Mapping[str, int] | None] | None = None,
    ) -> None:
        """Begin a session. `epoch` is the time of tick 0 (Unix ns), or None for a clock without relation to wall time.
        `ticks` returns the time since tick 0 (ns). `asks` states whether the client asks the collector for answers.
        `cost` returns what a number of events has cost the program, which the client states in the goodbye (the packet
        that ends the session)."""
        self.id = os.urandom(16).hex()
        """Secret id of the session. Any process that knows it can continue the session."""
        self.name = hashlib.sha256(self.id.encode()).hexdigest()[:24]
        """Public name of the session in the collector's table."""
        self.asks = asks
        self.turn = 0
        self.answered = -1
        """The number (turn) of the latest announcement of the session that the collector has answered; -1 before the
        first answer."""
        self._epoch, self._ticks = epoch, ticks
        self._cost = cost
        self._stated: tuple[int, dict[str, object]] = (-1, {})
        """The number of events, and the CPU time that recording them has cost, as the last goodbye (the packet that
        ends the session) states them. A repeated goodbye states the same."""
        # Look at `sys.argv` only without a given name: in an embedded interpreter, a program may have set it to anything.
        name = process or Path((sys.argv or [""])[0]).name or Path(sys.executable).name or "python"
        self._fields: dict[str, object] = {
            "process": name[:_TEXT_MAX],
            "pid": os.getpid(),
            "host": socket.gethostname()[:_TEXT_MAX],
            "client": CLIENT,
            **place(os.environ, socket.gethostname()),
        }
        if labels:
            self._fields["labels"] = dict(labels)
        if epoch is None:
            self._fields |= {"clock": "logical", "ticks_per_second": 10**9}

    def announcement(self) -> bytes:
        """Return the packets that announce this session: the packet with the time of tick 0, and the announcement
        itself."""
        fields = {"session": self.id, "turn": self.turn, "acknowledge": self.asks, **self._fields}
        if self._ticks is not None:
            fields["now"] = self._ticks()
        epoch = b"" if self._epoch is None else _wire.epoch(self._epoch)
        return epoch + _option("tailrace.session", fields)

    def report(
        self, discarded: Mapping[str, int], ranges: Sequence[Range] = (), *, elsewhere: bool = False
    ) -> bytes:
        """Return a report with the number of discarded events for each reason, and with their `ranges`. With
        `elsewhere`, the `ranges` are instead those of events that are durable at another collector."""
        spans = [(r.stream, r.first, r.next - r.first) for r in ranges]
        return _wire.report(discarded, spans, **({"elsewhere": True} if elsewhere else {}))

    def reached(self, numbers: Mapping[int, int]) -> bytes:
        """Return a packet with the next event number of each given stream. It has the form of a goodbye (the end of a
        session), but states that the session goes on."""
        return _goodbye(numbers.items(), more=True)

    def goodbyes(
        self, numbers: Mapping[int, int], discarded: Mapping[str, int], size: int
    ) -> Iterator[bytes]:
        """Yield packets of about `size` bytes that form the goodbye (the end of the session). They contain the next
        event number of each stream."""
        each = min(_STREAMS_PER_GOODBYE, max(1, (size - 400) // 26))
        streams = sorted(numbers.items())
        last = max(0, len(streams) - 1) // each
        for part in range(last):
            yield _goodbye(streams[part * each : (part + 1) * each], more=True, part=part)
        which = {"part": last} if last else {}
        events = sum(numbers.values())
        if self._cost and self._stated[0] != events:
            cost = self._cost(events)
            self._stated = (events, {"cost": dict(cost)} if cost else {})
        some = {reason: count for reason, count in discarded.items() if count}
        rest = {**which, "discarded": some, **self._stated[1]}
        yield _goodbye(streams[last * each :], more=False, **rest)

    def count(self, data: bytes) -> int:
        found = at = 0
        while at + 8 <= len(data):
            found += data[at : at + 4] == _EVENT
            at += int.from_bytes(data[at + 4 : at + 8], "big")
        return found

    def hear(
        self, option: bytes, numbers: Mapping[int, int], sent: Mapping[int, int]
    ) -> Answer | None:
        """Decode a `tailrace.ack` packet; None if it does not concern this session. `numbers` has the number of each
        stream's next event, `sent` the number after the last event sent. Events beyond these numbers never count as
        durable."""
        if not self.asks:
            return None
        try:
            fields = json.loads(option)
            turn = fields.get("turn", 0)
            if fields["session"] != self.id or not 0 <= _unsigned(turn) <= self.turn:
                return None
            named = {int(text): _unsigned(n) for text, n in fields.get("streams", {}).items()}
            missing = [tuple(map(_unsigned, hole)) for hole in fields.get("holes", ())]
            if len(missing) > _HOLES_MAX:
                return None
            uncounted = frozenset(map(_unsigned, fields.get("uncounted", ())))
            given_up = {
                stream: min(_unsigned(n, inf), numbers[stream])
                for text, n in fields.get("given_up", {}).items()
                if (stream := int(text)) in numbers
            }
            below = {s: _unwrap(n, numbers[s]) for s, n in named.items() if s in numbers}
            holes: dict[int, list[Range]] = {}
            for stream, first, lost in missing:
                if stream not in numbers:
                    continue
                # A hole lies below the stream's number, less than half the 32-bit range away from it.
                begin = _unwrap(first, max(0, below.get(stream, 0)))
                below[stream] = below.get(stream, 0) if begin >= 0 else -1
                end = min(begin + lost, numbers.get(stream, 0))
                holes.setdefault(stream, []).append(Range(stream, begin, end))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        self.answered = max(self.answered, turn)
        known = {s: min(n, sent.get(s, 0)) for s, n in below.items() if n >= 0}
        goodbye = fields.get("goodbye") is True
        return Answer(turn, known, holes, goodbye, given_up, uncounted)


class Answers:
    """Divides the bytes of a connection into answers. After a violation of the protocol, all further bytes are ignored."""

    def __init__(self) -> None:
        self._pending = b""
        self._deaf = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the values of the `tailrace.ack` packets that end within `data`."""
        if self._deaf:
            return []
        found = []
        data = self._pending + data
        at = 0
        while len(data) - at >= 8:
            magic = int.from_bytes(data[at : at + 4], "big")
            size = int.from_bytes(data[at + 4 : at + 8], "big")
            if magic != _wire.METADATA_MAGIC or not 10 <= size <= _ANSWER_MAX:
                self._deaf = True
                data = b""
                break
            if len(data) - at < size:
                break
            if data[at + 8 : at + 10 + len(_ACK)] == _ACK_NAMED:
                found.append(data[at + 10 + len(_ACK) : at + size])
            at += size
        self._pending = data[at:]
        return found


_ACK = b"tailrace.ack"
_ACK_NAMED = len(_ACK).to_bytes(2, "big") + _ACK


def _option(name: str, fields: Mapping[str, object]) -> bytes:
    return _wire.metadata(name, json.dumps(fields, separators=(",", ":")).encode())


def _goodbye(numbers: Iterable[tuple[int, int]], *, more: bool, **fields: object) -> bytes:
    streams = {str(stream): number & _MASK for stream, number in numbers}
    return _option("tailrace.goodbye", {"streams": streams, "more": more, **fields})


def _unsigned(number: Any, most: float = _MASK) -> int:  # noqa: ANN401 - whatever JSON held
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError
    return number


def _unwrap(number: int, following: int) -> int:
    """Return the highest number up to `following` whose low 32 bits are the given ones. Return -1 if this number is
    negative, or 2^31 or more below `following`."""
    behind = (following - number) & _MASK
    return following - behind if behind < min(_HALF, following + 1) else -1
