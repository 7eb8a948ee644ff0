"""Make traces of all five formats, and copies of them that have lost something.

A trace is a list of units (a packet, a line, an event) between a head and a foot. `Made` is a span as its producer
knows it: the truth, which no decoder has seen. A loss takes bytes from a file so that the format can show it; what no
bytes can show is left out, as in *Blind spots* in ARCHITECTURE.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.decoding import dftracer_lines, ovni_bytes
from tests.ingest.log import Log, heph_epoch, heph_event, heph_goodbye, heph_report, heph_session

EPOCH = 1_795_046_400 * 10**9
NAMES = ("read", "write", "step", "solve", "rare")
WEIGHTS = (8, 6, 4, 3, 1)


class Made(NamedTuple):
    """A span, as its producer knows it. `wall` is the Unix time (ns) at which it begins, if the format tells. `own` is
    its self time. `length` and `own` are in `unit`."""

    source: str
    format: str
    file: str
    stream: str
    name: str
    category: str | None
    unit: str
    wall: int | None
    length: int
    own: int


class Unit(NamedTuple):
    """The bytes of an event. `shows` states whether the trace shows that it is missing if only it is."""

    data: bytes
    shows: bool = True


class Trace(NamedTuple):
    """A trace file with the documents beside it, by their names."""

    format: str
    path: str
    head: bytes
    units: list[Unit]
    foot: bytes
    spans: list[Made]
    documents: dict[str, str] = {}  # noqa: RUF012 - nobody changes it

    @property
    def data(self) -> bytes:
        return self.head + joined(self.units) + self.foot

    def write(self, root: Path, data: bytes, *, named: bool) -> None:
        path = root / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        for name, text in self.documents.items() if named else ():
            (path.parent / name).write_text(text)


def joined(units: Iterable[Unit]) -> bytes:
    return b"".join(unit.data for unit in units)


class Call:
    """A span while it is made. `inner` is the time that its children take."""

    def __init__(self, number: int, name: str, stream: int, parent: Call | None) -> None:
        self.number, self.name, self.stream, self.parent = number, name, stream, parent
        self.start = self.end = self.inner = 0

    def made(
        self, about: tuple[str, str, str], stream: str, category: str | None, *,
        unit: str = "ns", size: int = 1, epoch: int | None = None,
    ) -> Made:  # fmt: skip
        """Return the span. `about` has its source, format and file, `size` a tick in units, `epoch` the Unix time of
        tick 0."""
        length = self.end - self.start
        wall = None if epoch is None else epoch + self.start * size
        own = (length - self.inner) * size
        return Made(*about, stream, self.name, category, unit, wall, length * size, own)


class Step(NamedTuple):
    """A call begins or ends."""

    time: int
    begins: bool
    call: Call


def steps(rng: random.Random, streams: int, each: int, *, counted: bool = False) -> list[Step]:
    """Return calls within calls, in each of the streams, in order of time. If `counted`, a time is the number of the
    step."""
    found: list[tuple[int, bool, Call]] = []
    numbers = count(1)
    for stream in range(streams):
        clock, stack = rng.randrange(1, 10**5), list[Call]()
        for left in range(each, -each, -1):
            if left <= 0 and not stack:
                break
            clock += 1 + round(rng.expovariate(1 / rng.choice((5, 200, 4000))))
            begins = left > 0 and (not stack or (len(stack) < 4 and rng.random() < 0.5))
            if begins:
                above = stack[-1] if stack else None
                name = rng.choices(NAMES, WEIGHTS)[0]
                stack.append(Call(next(numbers), name, stream, above))
            found.append((clock, begins, stack[-1] if begins else stack.pop()))
    found.sort(key=lambda step: step[0])
    done = []
    for number, (clock, begins, call) in enumerate(found, 1):
        time = number if counted else clock
        done.append(Step(time, begins, call))
        if begins:
            call.start = time
        else:
            call.end = time
            if call.parent:
                call.parent.inner += call.end - call.start
    return done


def _ended(found: list[Step]) -> list[Call]:
    """Return the calls in the order of their ends."""
    return [call for _, begins, call in found if not begins]


def _without_last(units: list[tuple[int, bytes]]) -> list[Unit]:
    """Return units of streams, of which the last of each stream does not show that it is missing."""
    last = {stream: at for at, (stream, _) in enumerate(units)}
    return [Unit(data, last[stream] != at) for at, (stream, data) in enumerate(units)]


def _numbered(rng: random.Random) -> list[Call]:
    """Return calls in the order in which they take numbers. Threads that share stream 0 may take them late."""
    calls = _ended(steps(rng, 2, rng.randrange(6, 90)))
    return sorted(calls, key=lambda c: c.end + (c.stream == 0) * rng.choice((0, 0, 5000)))


def _packets(calls: list[Call]) -> list[tuple[int, bytes]]:
    numbers = {call.stream: count() for call in calls}
    return [
        (c.stream, heph_event(c.stream, next(numbers[c.stream]), c.start, c.end, c.name.encode())) for c in calls
    ]  # fmt: skip


def heph(rng: random.Random, path: str) -> Trace:
    calls, about = _numbered(rng), ("import_heph", "heph", path)
    spans = [call.made(about, str(call.stream), None, epoch=EPOCH) for call in calls]
    return Trace("heph", path, heph_epoch(EPOCH), _without_last(_packets(calls)), b"", spans)


def dftracer(rng: random.Random, path: str) -> Trace:
    calls, about = _ended(steps(rng, 2, rng.randrange(6, 90))), ("import_dftracer", "dftracer", path)  # fmt: skip
    pid, lines, spans = rng.randrange(10, 10**6), [], []
    micros = {"pid": pid, "cat": "POSIX"}
    for number, call in enumerate(calls, 2):
        about_line = {
            "tid": call.stream,
            "ts": EPOCH // 1000 + call.start,
            "dur": call.end - call.start,
        }
        lines.append(dftracer_lines.event(number, name=call.name, **micros, **about_line))
        stream = f"{pid}/{call.stream}"
        spans.append(call.made(about, stream, "POSIX", size=1000, epoch=EPOCH))
    host = dftracer_lines.metadata("HH", "node", dftracer_lines.HOST)
    own = {"pid": pid, "tid": pid, "cat": "dftracer", "args": None}
    start = dftracer_lines.event(1, name="start", ts=EPOCH // 1000, **own)
    own["args"] = '"cfg":{"aggregation_enable":0}'
    end = dftracer_lines.event(len(calls) + 2, name="end", ts=EPOCH // 1000 + 10**7, **own)
    host = host.replace('"pid":7,"tid":7', f'"pid":{pid},"tid":{pid}')
    head, foot = dftracer_lines.text(host, start), dftracer_lines.text(end)
    return Trace("dftracer", path, head, [Unit(dftracer_lines.text(line)) for line in lines], foot, spans)  # fmt: skip


def jets(rng: random.Random, path: str) -> Trace:
    """Return a trace at 500 MHz. The end of a record shows only by the record, so that each line shows."""
    found = steps(rng, 1, rng.randrange(12, 180))
    units, about = [], ("import_jets", "jets", path)
    for time, begins, call in found:
        line = {"clk": time, "type": "record_end", "record_id": call.number}
        if begins:
            parent = call.parent and call.parent.number
            line = {"clk": time, "type": "record", "name": call.name, "record_type": "Call"}
            line |= {"id": call.number, "parent_id": parent, "description": "", "data": {}}
        units.append(Unit(_line(line)))
    head = {"type": "header", "version": "2.0", "metadata": {"clock_frequency_mhz": 500}}
    calls = _ended(found)
    foot = {"type": "footer", "capture_end_clk": found[-1].time, "total_records": len(calls)}
    foot |= {"total_annotations": 0, "total_events": 0}
    spans = [call.made(about, "", "Call", size=2) for call in calls]
    return Trace("jets", path, _line(head), units, _line(foot), spans)


def _line(line: dict) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


CALLED = {"read": ("VS[", "VS]", "serve the scheduler"), "write": ("VU[", "VU]", "submit a task"),
          "step": ("VMa", "VMA", "allocate memory")}  # fmt: skip


def ovni(rng: random.Random, path: str) -> Trace:
    """Return the stream of a thread. Some of its spans are marks, of which only the metadata has the labels."""
    *_, process, thread, _ = Path(path).parts
    stream = f"node/{process.partition('.')[2]}/{thread.partition('.')[2]}"
    found, units, spans = steps(rng, 1, rng.randrange(12, 180)), [], []
    for time, begins, call in found:
        if call.name in CALLED:
            units.append(Unit(ovni_bytes.event(CALLED[call.name][not begins], time)))
        else:
            code = "OM[" if begins else "OM]"
            units.append(Unit(ovni_bytes.mark(code, time, 1, NAMES.index(call.name))))
        if not begins:
            shown = CALLED[call.name][2] if call.name in CALLED else call.name
            category = "nosv" if call.name in CALLED else "ovni"
            about = ("import_ovni", "ovni", path)
            spans.append(call.made(about, stream, category)._replace(name=shown))
    labels = {str(number): name for number, name in enumerate(NAMES) if name not in CALLED}
    marks = {"1": {"title": "Phase", "chan_type": "stack", "labels": labels}}
    document = {"version": 3, "ovni": {"part": "thread", "tid": 7, "finished": 1, "mark": marks}}
    head, foot = ovni_bytes.HEADER + ovni_bytes.starts(0), ovni_bytes.ends(found[-1].time + 5)
    return Trace("ovni", path, head, units, foot, spans, {"stream.json": json.dumps(document)})


def et3(rng: random.Random, path: str) -> Trace:
    """Return a trace in one of the two forms. In the specification's form, all lines but the last show. In the
    agent's, which has two threads, an entry shows, and an exit does not."""
    agent = rng.random() < 0.5
    found = steps(rng, 1 + agent, rng.randrange(12, 180), counted=True)
    units, spans = [], []
    for time, begins, call in found:
        method, thread = NAMES.index(call.name), 1_766_822_961 + call.stream
        line = f"M {method} 0" if begins else f"E {method}"
        shows = begins if agent else time != len(found)
        units.append(Unit(f"{line} {thread if agent else time}\n".encode(), shows))
        if not begins:
            stream = str(thread) if agent else ""
            made = call.made(("import_et3", "et3", path), stream, None, unit="ticks")
            spans.append(made._replace(name=f"A#{call.name}"))
    methods = "".join(f"{number},1,{name}\n" for number, name in enumerate(NAMES))
    return Trace("et3", path, b"", units, b"", spans, {"class_list": "1,A\n", "method_list": methods})  # fmt: skip


MAKERS: dict[str, tuple[Callable[[random.Random, str], Trace], str]] = {
    "heph": (heph, "heph/{}.trace"), "dftracer": (dftracer, "dftracer/{}.pfw"), "jets": (jets, "jets/{}.jets"),
    "ovni": (ovni, "ovni{0}/loom.node/proc.{0}/thread.{0}/stream.obs"), "et3": (et3, "et3_{0}/{0}.et3"),
}  # fmt: skip


def traces(rng: random.Random) -> list[Trace]:
    return [make(rng, path.format(n + 1)) for make, path in MAKERS.values() for n in range(2)]


def cut(rng: random.Random, trace: Trace) -> bytes:
    """Lose single events, or a row of them."""
    share, first = rng.choice((0.02, 0.1, 0.4)), rng.randrange(len(trace.units))
    row = range(first, first + rng.choice((0, 1, 5, 40)))
    kept = [u for n, u in enumerate(trace.units) if not (u.shows and (n in row or rng.random() < share))]  # fmt: skip
    return trace.head + joined(kept) + trace.foot


def overwritten(rng: random.Random, trace: Trace) -> bytes:
    """Lose a range of bytes, which begins with an event, to NULs or noise."""
    at = len(trace.head) + len(joined(trace.units[: rng.randrange(len(trace.units))]))
    size = min(rng.choice((8, 30, 200)), len(trace.data) - len(trace.foot) - at)
    noise = bytes(size) if rng.random() < 0.5 else b"\xff" * size
    return trace.data[:at] + noise + trace.data[at + size :]


def halved(rng: random.Random, trace: Trace) -> bytes:
    """Lose the second half of a line and perhaps the next lines, so that two halves are one line."""
    first = rng.randrange(len(trace.units))
    after = min(first + rng.randrange(1, 4), len(trace.units) - 1)
    half = trace.units[first].data[: rng.randrange(1, len(trace.units[first].data))]
    if not all(unit.shows for unit in trace.units[first : after + 1]):
        return cut(rng, trace)
    rest = joined(trace.units[after:]) + trace.foot
    return trace.head + joined(trace.units[:first]) + half + rest


def torn(rng: random.Random, trace: Trace) -> bytes:
    """Lose the end of the last event."""
    whole = trace.data
    return whole[: -rng.randrange(1, len(trace.units[-1].data))]


def killed(rng: random.Random, trace: Trace) -> bytes:
    """Lose everything behind some byte, as a writer does that is killed: an unknown number of events."""
    return trace.data[: rng.randrange(len(trace.head) + 1, len(trace.data))]


def blanked(rng: random.Random, trace: Trace) -> bytes:
    """Lose the end to NULs, as after a power cut."""
    size = rng.randrange(1, len(trace.data) - len(trace.head))
    return trace.data[:-size] + bytes(size)


def headless(rng: random.Random, trace: Trace) -> bytes:
    """Lose the head and the first events, perhaps within a line."""
    first, *rest = trace.units[rng.randrange(len(trace.units) // 2) :]
    return first.data[rng.choice((0, rng.randrange(len(first.data)))) :] + joined(rest) + trace.foot


def empty(_rng: random.Random, _trace: Trace) -> bytes:
    """Lose everything but the first bytes, as a thread of ovni that never flushed."""
    return ovni_bytes.HEADER


def unnamed(_rng: random.Random, trace: Trace) -> bytes:
    """Lose the documents that have the names."""
    return trace.data


def nothing(_rng: random.Random, trace: Trace) -> bytes:
    return trace.data


LOSSES = {
    "heph": (cut, overwritten, torn), "dftracer": (cut, halved, killed, headless, blanked),
    "jets": (cut, halved, killed, blanked), "ovni": (overwritten, killed, empty, unnamed),
    "et3": (cut, halved, torn, blanked, unnamed),
}  # fmt: skip


def live(rng: random.Random, *, lossy: bool, seed: int, dies: bool) -> tuple[list, list[Made]]:
    """Return the log of a collector with a datagram session and a connection, which clients announced, and their
    spans. If `lossy`, packets are lost or late, the kernel drops some, the client discards some, or the client is killed.
    If the collector dies, it closes no session."""
    log, spans = Log(), list[Made]()
    for number, transport in enumerate(("udp", "tcp")):
        mine, loss = random.Random(seed * 10 + number), rng.random() * 0.3 * lossy
        calls, peer, epoch = _numbered(mine), f"live{number}", EPOCH + number * 3 * 86_400 * 10**9
        about = ("live", "heph", peer)
        spans += [call.made(about, str(call.stream), None, epoch=epoch) for call in calls]
        session = log.open(source="live", transport=transport, peer=peer)

        def send(packets: list[bytes], session: int = session, transport: str = transport) -> None:
            if transport == "udp":
                log.datagrams(session, packets)
            else:
                log.data(session, b"".join(packets))
            log.tick(0.1)

        send([heph_epoch(epoch) + heph_session(number + 1)])
        packets = [data for _, data in _packets(calls)]
        dead = len(packets) if not lossy or rng.random() < 0.5 else rng.randrange(1, len(packets))
        lost = [rng.random() < loss for _ in packets]
        send([packet for packet, gone in zip(packets[:dead], lost, strict=False) if not gone])
        if transport == "udp" and lossy:
            log.drops(rng.choice((0, sum(lost[:dead]), 3)), source="live")
        if rng.random() < 0.3 * lossy:
            send([heph_report([calls[0].stream, 0, 1])])
        if rng.random() < 0.3 * lossy:
            log.tick(5)
            send([packet for packet, gone in zip(packets[:dead], lost, strict=False) if gone and rng.random() < 0.3])  # fmt: skip
        if dead == len(packets):
            send([heph_goodbye({str(s): sum(c.stream == s for c in calls) for s in (0, 1)})])
        if not dies:
            log.close(session)
    if not dies:
        log.tick(3600)
        log.stop()
    return log.entries, spans
