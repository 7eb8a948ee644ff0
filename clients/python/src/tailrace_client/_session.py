"""The conversation of a client and a collector beside events (clients/PROTOCOL.md). Pure.

A `Session` makes the client's packets and reads the collector's answers. No input raises: a session
ignores bytes that are no answer, another session's answers, and claims that cannot be true. Numbers
of events are unwrapped here, and 32 bits wide on the wire.

The session names the process's place in its job (`place`), by the variables of its launcher. One launcher may run inside
another: a batch script of Slurm has a rank of Slurm's, which `mpirun` hands on to each of its processes. So the inner
launcher counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tailrace_client import _wire

RANKS = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""The variables in which Open MPI, PMIx, MPICH and Intel MPI, Flux and Slurm say a process's rank, from the
inside out."""

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
    """Return `rank`, `node` and `job`, as far as a launcher or TAILRACE_JOB_NODE and TAILRACE_JOB_ID say them."""
    by = next((name for name in RANKS if _is_rank(environ.get(name, ""))), None)
    node = environ.get("TAILRACE_JOB_NODE") or (_node(by, environ, host) if by else None)
    job = environ.get("TAILRACE_JOB_ID") or (_job(by, environ) if by else None)
    found = {
        "rank": int(environ[by]) if by else None,
        "node": node and node[:_NAME_MAX],
        "job": job and job[:_NAME_MAX],
    }
    return {word: value for word, value in found.items() if value is not None}


def _job(by: str, environ: Mapping[str, str]) -> str | None:
    """Return the scheduler's id, a dot, and the step or the launcher's own id."""
    scheduler = _first(_SCHEDULERS, environ)
    launch = _first(_LAUNCHES.get(by, ()), environ)
    if scheduler is not None:
        scheduler = scheduler.replace(
            "\u0192", "f"
        )  # Flux takes either, not everybody can type the former
    if scheduler is None or launch is None:
        return scheduler or launch
    step = launch.removeprefix("slurm.pmix.").removeprefix(f"{scheduler}.")
    return f"{scheduler}.{step}"


def _node(by: str, environ: Mapping[str, str], host: str) -> str:
    """Return the launcher's name of the node, or the host's. Slurm's would be another node's under `mpirun`."""
    ours = by == "SLURM_PROCID" or environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    named = environ.get("SLURMD_NODENAME") if ours else environ.get("PMIX_HOSTNAME")
    return named or host.partition(".")[0]


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _DIGITS


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


CLIENT = "tailrace-python 0.1.0"

_EVENT = _wire.EVENT_MAGIC.to_bytes(4, "big")
_MASK = 2**32 - 1
_HALF = 2**31
_TEXT_MAX = 200
_ANSWER_MAX = 16 * 1024
"""Bytes of an answer, which are kept until the answer is whole. The protocol allows 1200."""

_HOLES_MAX = 64
"""Holes in one answer, as the protocol says."""

_STREAMS_PER_GOODBYE = 4096  # at most 26 bytes each: some 100 KiB


class Range(NamedTuple):
    """The events from `first` to below `next` of a stream."""

    stream: int
    first: int
    next: int


class Answer(NamedTuple):
    """One `tailrace.ack`. An answer stays true: a number that it calls durable is durable, whatever an
    earlier answer says that arrives later."""

    turn: int
    below: Mapping[int, int]
    """By stream, the number below which everything but `holes` is durable."""
    holes: Mapping[int, Sequence[Range]] = MappingProxyType({})
    """By stream, the ranges that the collector asks for again."""
    goodbye: bool = False
    given_up: Mapping[int, int] = MappingProxyType({})
    """By stream, how many events below the number are missing for good, discarded events apart."""
    uncounted: frozenset[int] = frozenset()
    """Streams for which the collector cannot say which events have arrived."""

    def has(self, stream: int, first: int, next_: int) -> bool:
        """Return whether the answer calls all events from `first` to below `next_` durable."""
        return next_ <= self.below.get(stream, 0) and not self.lacks(stream, first, next_)

    def lacks(self, stream: int, first: int, next_: int) -> bool:
        """Return whether the answer names one of these events in a hole."""
        holes = self.holes.get(stream, ())
        return any(hole.first < next_ and first < hole.next for hole in holes)


class Dialogue(Protocol):
    """The packets beside the recorded ones: an announcement, reports and a goodbye."""

    asks: bool
    turn: int
    answered: int

    def announcement(self) -> bytes:
        """Return what comes first on a connection."""
        ...

    def report(
        self, discarded: Mapping[str, int], ranges: Sequence[Range] = (), *, elsewhere: bool = False
    ) -> bytes:
        """Return a report of discarded events or, with `elsewhere`, of events that another collector has acknowledged;
        empty if the format has none."""
        ...

    def reached(self, numbers: Mapping[int, int]) -> bytes:
        """Return a packet that says how far some streams go at least."""
        ...

    def goodbyes(
        self, numbers: Mapping[int, int], discarded: Mapping[str, int], size: int
    ) -> Iterator[bytes]:
        """Return the last packets, none longer than about `size` bytes."""
        ...

    def hear(
        self, option: bytes, numbers: Mapping[int, int], sent: Mapping[int, int]
    ) -> Answer | None:
        """Read an answer; return None if it says nothing to this session."""
        ...

    def count(self, data: bytes) -> int:
        """Return the number of events in a chunk's bytes."""
        ...


class Session:
    """One process's conversation with a collector, over any number of connections."""

    def __init__(
        self,
        *,
        epoch: int | None,
        ticks: Callable[[], int] | None = None,
        process: str | None = None,
        asks: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Begin a session. `epoch` is tick 0 in Unix nanoseconds, or None for a clock without relation
        to wall time. `ticks` returns the time since the epoch (ns). `asks`: whether answers are wanted.
        `labels` go into each announcement."""
        self.id = os.urandom(16).hex()
        """A secret, since whoever knows it can go on with the session."""
        self.name = hashlib.sha256(self.id.encode()).hexdigest()[:24]
        """The session's name in the collector's table."""
        self.asks = asks
        self.turn = 0
        self.answered = -1
        """The highest turn that was answered; -1 if none was."""
        self._epoch, self._ticks = epoch, ticks
        self._fields: dict[str, object] = {
            "process": (process or _program())[:_TEXT_MAX],
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
        """Return the epoch and the announcement of this session."""
        fields = {"session": self.id, "turn": self.turn, "acknowledge": self.asks, **self._fields}
        if self._ticks is not None:
            fields["now"] = self._ticks()
        epoch = b"" if self._epoch is None else _wire.epoch(self._epoch)
        return epoch + _option("tailrace.session", fields)

    def report(
        self, discarded: Mapping[str, int], ranges: Sequence[Range] = (), *, elsewhere: bool = False
    ) -> bytes:
        """Return a report of how many events were discarded, by reason, and which, or which ones are `elsewhere`."""
        spans = [[r.stream, r.first & _MASK, r.next - r.first] for r in ranges]
        where = {"elsewhere": True} if elsewhere else {}
        return _option("tailrace.report", {"discarded": _some(discarded), "ranges": spans, **where})

    def reached(self, numbers: Mapping[int, int]) -> bytes:
        """Return a goodbye of some streams, behind which the session goes on."""
        return _goodbye(numbers.items(), more=True)

    def goodbyes(
        self, numbers: Mapping[int, int], discarded: Mapping[str, int], size: int
    ) -> Iterator[bytes]:
        """Yield the goodbye, with the next number of each stream, in packets of about `size` bytes."""
        each = min(_STREAMS_PER_GOODBYE, max(1, (size - 256) // 26))
        streams = sorted(numbers.items())
        last = max(0, len(streams) - 1) // each
        for part in range(last):
            yield _goodbye(streams[part * each : (part + 1) * each], more=True, part=part)
        which = {"part": last} if last else {}
        yield _goodbye(streams[last * each :], more=False, **which, discarded=_some(discarded))

    def count(self, data: bytes) -> int:
        """Return the number of events among packets."""
        found = at = 0
        while at + 8 <= len(data):
            found += data[at : at + 4] == _EVENT
            at += int.from_bytes(data[at + 4 : at + 8], "big")
        return found

    def hear(
        self, option: bytes, numbers: Mapping[int, int], sent: Mapping[int, int]
    ) -> Answer | None:
        """Read the value of a `tailrace.ack`; return None if it says nothing to this session.

        By stream, `numbers` holds the number of the next event and `sent` one more than the last
        number sent. The session ignores claims about events that do not exist yet, and never calls
        an event durable that was not sent.
        """
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
                stream: min(_count(n), numbers[stream])
                for text, n in fields.get("given_up", {}).items()
                if (stream := int(text)) in numbers
            }
            below = {s: _unwrap(n, numbers[s]) for s, n in named.items() if s in numbers}
            holes: dict[int, list[Range]] = {}
            for stream, first, lost in missing:
                if stream not in numbers:
                    continue
                # A hole lies below its stream's number, and less than half the range below it.
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
    """Cuts a connection's bytes into answers. After bytes that are no packet, or a packet longer than
    any answer, it ignores the rest: no collector that keeps the protocol sends such bytes."""

    def __init__(self) -> None:
        self._pending = b""
        self._deaf = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the values of the `tailrace.ack` packets that `data` completes."""
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


def _some(discarded: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in discarded.items() if count}


def _unsigned(number: Any) -> int:  # noqa: ANN401 - whatever JSON held
    if type(number) is not int or not 0 <= number <= _MASK:
        raise ValueError
    return number


def _count(number: Any) -> int:  # noqa: ANN401 - whatever JSON held
    if type(number) is not int or number < 0:
        raise ValueError
    return number


def _unwrap(number: int, following: int) -> int:
    """Return the highest number up to `following` with these 32 bits; -1 if the number would lie half
    the range below or further."""
    behind = (following - number) & _MASK
    return following - behind if behind < min(_HALF, following + 1) else -1


def _program() -> str:
    """Return a name of the running program for people: the script's, or the interpreter's."""
    return Path((sys.argv or [""])[0]).name or Path(sys.executable).name or "python"
