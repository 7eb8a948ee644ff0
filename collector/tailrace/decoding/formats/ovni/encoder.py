"""Turn ovni records back into streams, byte for byte, and into their metadata files and the table of clock offsets.

The table gets the lines of the hosts whose streams are written. With `repair`, the encoder leaves out streams without
events, and events that ovni's tools refuse. It writes missing ends of spans and threads, with the stream's latest
clock, and members that a thread's metadata lacks because the thread was killed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from tailrace.decoding.formats.ovni.document import PROCESS
from tailrace.decoding.formats.ovni.files import FILES, StreamOrigin, read_path
from tailrace.decoding.formats.ovni.frame import (
    HEAD,
    JUMBO,
    JUMBO_HEAD,
    NUMBERS,
    ORDERS,
    USUAL_JUMBO,
    plain_payload,
)
from tailrace.decoding.formats.ovni.order import LATE_BEGIN, LATE_END, STATES
from tailrace.decoding.formats.ovni.stack import OPEN_MAX
from tailrace.decoding.formats.ovni.table import EVENTS, EventType, PayloadLayout
from tailrace.model.record import BEGIN_WORDS, FLAW_OF_ROW, Kind, Record

Members = dict[str, Any]
"""The attributes of a record, by name."""

PAYLOAD_MAX = 16
"""Maximum size (bytes) of the payload of an event without a size field (not a jumbo)."""

_read_values = msgspec.json.Decoder(Members).decode


class Half(NamedTuple):
    """One of the two events of a span, or a single event: MCV (model, category and value), attributes and flaw."""

    mcv: str
    members: Members
    flaw: str | None
    ends: bool = False


def said(record: Record) -> Half | None:
    """Return the event from which a record was made; None if the record is not an event.

    A span's record has the attributes of its end, then those of its begin. If both have the same `payload` or `flags`,
    it is stored once."""
    members = _read_values(record.attributes or "{}")
    ends = record.kind == Kind.END
    if record.kind not in {Kind.BEGIN, Kind.END} or None in {record.start, record.end}:
        mcv = members.get("end_mcv" if ends else "mcv")
        return None if mcv is None else Half(mcv, members, record.flaw, ends)
    keys = list(members)
    at, flawed = keys.index("mcv"), keys[0] == FLAW_OF_ROW
    if ends:
        of_begin = {key: members[key] for key in keys[at:] if key not in {"payload", "flags"}}
        of_end = {key: members[key] for key in keys[:at]}
        flaw = members[FLAW_OF_ROW] if flawed else None
        return Half(members["end_mcv"], of_begin | of_end, flaw, ends)
    changed = members.get(BEGIN_WORDS, {})
    flaw = changed.get(FLAW_OF_ROW, members.get(FLAW_OF_ROW))
    begins = {key: members[key] for key in keys[at:]} | changed
    if "payload" in keys[:at] and "payload" not in begins:
        layout = layout_of(EVENTS[members["mcv"].encode()], members, "<")
        least = HEAD + (layout.size if layout else 0)
        if record.size > least:
            begins["payload"] = members["payload"]
    if "flags" in keys[:at] and "flags" not in begins:
        flags = members["flags"]
        if HEAD + plain_payload(flags) == record.size:
            begins["flags"] = flags
    return Half(members["mcv"], begins, flaw)


def layout_of(event: EventType, members: Mapping[str, Any], order: str) -> PayloadLayout | None:
    """Return the longest of an event type's payload layouts that have all their fields in `members`, or None."""
    for layout in event.layouts[order]:
        if members.keys() >= set(layout.names):
            return layout
    return None


def event_bytes(record: Record, half: Half, order: str) -> bytes:
    """Return the bytes of an event. If several payloads are possible, prefer one of the original size."""
    event = EVENTS.get(half.mcv.encode())
    clock = (record.end if half.ends else record.start) or 0
    numbers, given, ways = NUMBERS[order], half.members.get("flags"), []
    for data in _payloads(record, half, event, order):
        if given is None:
            usual = event.jumbo if event else len(data) > PAYLOAD_MAX
            jumbo = {HEAD + len(data): False, JUMBO_HEAD + len(data): True}.get(record.size, usual)
            flags = USUAL_JUMBO if jumbo else _plain_flags(data)
        else:
            jumbo, flags = bool(given & JUMBO), given
        head = numbers.head.pack(bytes([flags]) + half.mcv.encode(), clock)
        ways.append(head + (numbers.size.pack(len(data)) if jumbo else b"") + data)
    return next((way for way in ways if len(way) == record.size), ways[0])


def _packed(layout: PayloadLayout, members: Mapping[str, Any]) -> bytes:
    return layout.struct.pack(*(members[name] for name in layout.names))


def _plain_flags(payload: bytes) -> int:
    """Return the flags of an event without a size field (not a jumbo)."""
    return max(len(payload) - 1, 0)


def _payloads(record: Record, half: Half, event: EventType | None, order: str) -> Iterator[bytes]:
    """Yield the payloads that the original event may have had, the most likely payload first."""
    members = half.members
    rest = bytes.fromhex(members.get("payload", ""))
    layout = None
    if event is not None and half.flaw != "bad_payload":
        layout = layout_of(event, members, order)
    if event is None or layout is None:
        yield rest
        return
    fields = _packed(layout, members)
    if event.role == "type" and record.kind == Kind.NAME and "payload" not in members:
        label = str(record.name).encode()
        yield fields + label + b"\0"
        yield fields + label
        # The label may have been empty: the name is then "type", followed by the number of the task type.
        yield fields + b"\0"
        yield fields
    elif "deltas" in members:
        deltas = members["deltas"]
        yield Struct(f"{order}{len(deltas)}q").pack(*deltas) + rest
    else:
        yield fields + rest


_ENDS = {event.begin: event.mcv for event in EVENTS.values() if event.opens is False}
_RESUME, _DIE = "OHr", "OHe"
_HALTED = frozenset({"OHp", "OHw"})


class OpenEvent(NamedTuple):
    """A begin event whose end has not been written. `channel` is the result of `EventType.channel_of`."""

    id: int | None
    event: EventType
    channel: str
    members: Members


class OpenStream:
    """The open spans and the state of one thread. `added` counts added ends by MCV (model, category and value)."""

    def __init__(self, added: Counter[str]) -> None:
        self.models: set[str] = set()
        self._added = added
        self._open: list[OpenEvent] = []
        self._clock = 0
        self._late = False
        self._state = ""

    def whole(self, half: Half, id_: int | None) -> Half:
        """Return an end event with all its fields. If the end has a row of its own, add the fields that only its begin
        has."""
        event = EVENTS.get(half.mcv.encode())
        if half.ends and event and layout_of(event, half.members, "<") is None:
            begun = next((each for each in reversed(self._open) if each.id == id_), None)
            if begun is not None:
                return half._replace(members=begun.members | half.members)
        return half

    def take(self, record: Record, half: Half) -> None:
        mcv = half.mcv.encode()
        event = EVENTS.get(mcv)
        clock = (record.end if half.ends else record.start) or 0
        self._late = self._late and mcv != LATE_END
        if not self._late:
            self._clock = max(self._clock, clock)
        self._late = self._late or mcv == LATE_BEGIN
        if mcv in STATES:
            self._state = half.mcv
        if event is None:
            return
        self.models.add(event.model)
        if record.kind == Kind.BEGIN:
            layout = layout_of(event, half.members, "<")
            names = layout.names if layout else ()
            members = {name: half.members[name] for name in names}
            channel = event.channel_of(tuple(members.values()))
            self._open.append(OpenEvent(record.id, event, channel, members))
            if len(self._open) > 2 * OPEN_MAX:
                del self._open[0]
        elif half.ends and (inside := self._inside(record.id)):
            ended, *crossed = inside
            self._open = [each for each in self._open if each is not ended and each not in crossed]

    def ends_before(self, record: Record, half: Half, order: str) -> bytes | None:
        """Return the end events that must be written before `half`, the end of a span: those of the spans inside this
        span that are still open. Return None if the span has no begin."""
        if not half.ends:
            return b""
        inside = self._inside(record.id)
        if not inside:
            return None
        return b"".join(self._end(each, record.end or 0, order) for each in reversed(inside[1:]))

    def close(self, order: str) -> bytes:
        """Return the missing end events of the open spans, and the events that end the thread."""
        events = [self._end(each, self._clock, order) for each in reversed(self._open)]
        self._open.clear()
        if self._state and self._state != _DIE:
            states = [_RESUME, _DIE] if self._state in _HALTED else [_DIE]
            events += [self._made(mcv, self._clock, b"", order) for mcv in states]
        return b"".join(events)

    def _inside(self, id_: int | None) -> list[OpenEvent]:
        """Return the open span with this id, and the open spans of the same channel that began after it."""
        for i in range(len(self._open) - 1, -1, -1):
            ended = self._open[i]
            if id_ is not None and ended.id == id_:
                return [ended, *(e for e in self._open[i + 1 :] if e.channel == ended.channel)]
        return []

    def _end(self, begun: OpenEvent, clock: int, order: str) -> bytes:
        mcv = _ENDS[begun.event.begin]
        layout = layout_of(EVENTS[mcv.encode()], begun.members, order)
        return self._made(mcv, clock, _packed(layout, begun.members) if layout else b"", order)

    def _made(self, mcv: str, clock: int, payload: bytes, order: str) -> bytes:
        self._added[mcv] += 1
        flags = bytes([_plain_flags(payload)])
        return NUMBERS[order].head.pack(flags + mcv.encode(), clock) + payload


MODELS = {
    "ovni": "1.1.0", "nanos6": "1.1.0", "nosv": "2.7.0", "nodes": "1.0.0", "tampi": "1.0.0", "mpi": "1.0.0",
    "kernel": "1.0.0", "openmp": "1.2.1",
}  # fmt: skip
"""Versions of the event models, such as `nosv`, whose events the module `table` lists."""

VERSION = 3
"""The version of ovni's metadata in which each thread has a single document."""

CPUS_MAX = 65_536
"""Upper limit of a CPU index. A larger index is damaged data."""

RawMembers = dict[str, msgspec.Raw]
"""Members of a JSON object as texts, since a document may have numbers that do not fit in any type."""

_read = msgspec.json.Decoder(RawMembers).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_integer = msgspec.json.Decoder(int).decode


class Loom(msgspec.Struct):
    """The CPUs of a loom: threads that share a node's CPUs."""

    declared: dict[int, int] = {}  # Physical ids in the metadata, by CPU index.
    used: set[int] = set()  # CPU indexes in events.

    def declare(self, cpus: msgspec.Raw | None) -> None:
        for cpu in _items(cpus):
            about = _object(cpu)
            index, physical = _integer(about.get("index")), _integer(about.get("phyid"))
            if index is not None and physical is not None and 0 <= index < CPUS_MAX:
                self.declared[index] = physical

    def use(self, index: int) -> None:
        if 0 <= index < CPUS_MAX:
            self.used.add(index)

    def lacking(self) -> list[dict[str, int]]:
        """Declare and return the CPUs that no metadata declares, up to the highest index, with invented ids."""
        taken = set(self.declared.values())
        found = []
        for index in range(max(self.used | self.declared.keys() | {0}) + 1):
            if index not in self.declared:
                physical = next(i for i in itertools.count(index) if i not in taken)
                taken.add(physical)
                self.declared[index] = physical
                found.append({"index": index, "phyid": physical})
        return found


def ovni_of(text: str) -> RawMembers:
    return _object(_read(text).get("ovni"))


def amended(
    text: str | None, place: StreamOrigin, loom: Loom, models: set[str], added: Counter[str]
) -> str:
    """Return the metadata of a thread with all members that ovni's emulator requires. `added` counts the new ones."""
    text = f'{{"version":{VERSION}}}' if text is None else text
    metadata = _read(text)
    if _integer(metadata.get("version")) != VERSION:
        return text
    given = _object(metadata.get("ovni"))
    ovni: dict[str, object] = {**given}
    name, pid, tid = place.stream.split("/")
    required = {
        "lib": {"version": "unknown", "commit": "unknown"},
        "part": "thread",
        "tid": _number(tid),
        "pid": _number(pid),
        "loom": name,
        "app_id": 1,
        "require": {model: MODELS[model] for model in MODELS if model in models | {"ovni"}},
    }
    for key, value in required.items():
        if key not in ovni:
            ovni[key] = value
            added[f"metadata {key}"] += 1
    if cpus := loom.lacking():
        ovni["loom_cpus"] = [*_items(given.get("loom_cpus")), *cpus]
        added["metadata CPU"] += len(cpus)
    if _integer(given.get("finished")) != 1:
        ovni["finished"] = 1
        added["metadata finished"] += 1
    return msgspec.json.encode({**metadata, "ovni": ovni}).decode()


def _object(raw: msgspec.Raw | None) -> RawMembers:
    return _read(raw) if raw and bytes(raw)[:1] == b"{" else {}


def _items(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    return _read_list(raw) if raw and bytes(raw)[:1] == b"[" else []


def _integer(raw: msgspec.Raw | None) -> int | None:
    try:
        return _read_integer(raw) if raw else None
    except msgspec.MsgspecError:
        return None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


HEADING = "rank       hostname             offset_median        offset_mean          offset_std          \n"
"""The heading of the table of clock offsets, as ovnisync writes it."""

COLUMNS = len(HEADING.split())

REFUSED = frozenset({"bad_payload", "clock_back", "duplicate", "stale_tail", "unknown_event"})
"""Flaws of events that ovni's tools refuse."""

_HEADERS = {order: header for header, order in ORDERS.items()}


class TraceFacts(msgspec.Struct):
    lines: dict[str, str] = {}  # Lines of the table of clock offsets, by host.
    looms: dict[str, Loom] = {}  # CPUs of the looms, by name.


class OvniEncoder:
    def __init__(self, repair: bool) -> None:
        self.added: Counter[str] = Counter()
        self._repair = repair
        self._order = "<"
        self._path = ""
        self._place = read_path("")
        self._trace = TraceFacts()
        self._loom = Loom()
        # The JSON texts of the metadata documents: under "" the thread's document, under `PROCESS` the process's.
        self._texts: dict[str, str] = {}
        self._headed = False
        self._left_out = False
        self._stream = OpenStream(self.added)

    def begin(self, path: str, run: dict[str, Any]) -> None:
        self._path = path
        self._place = read_path(path)
        self._trace = run.setdefault("ovni", self._trace)
        name = self._place.stream.partition("/")[0]
        self._loom = self._trace.looms.setdefault(name, Loom())

    def encode(self, record: Record, *, following: Record | None) -> bytes | None:  # noqa: ARG002 - all events are alike
        if record.kind == Kind.SESSION:
            return self._session(record)
        half = said(record)
        if half is None:
            return b""
        if self._repair and half.flaw in REFUSED:
            return None
        before = self._stream.ends_before(record, half, self._order) if self._repair else b""
        if before is None:
            return None
        data = event_bytes(record, self._stream.whole(half, record.id), self._order)
        self._stream.take(record, half)
        self._loom.use(half.members.get("cpu", -1))
        return (self._header() if self._repair else b"") + before + data

    def close(self) -> bytes | None:
        if not self._repair:
            return b""
        self._left_out = not self._stream.models
        return None if self._left_out else self._stream.close(self._order)

    def documents(self) -> dict[str, bytes]:
        if not FILES.stream(self._path) or self._left_out:
            return {}
        own, *others = FILES.documents(self._path)
        texts = {own if name == "" else name: text for name, text in self._texts.items()}
        if self._repair:
            texts[own] = amended(
                texts.get(own), self._place, self._loom, self._stream.models, self.added
            )
        found = {name: msgspec.json.format(text, indent=4).encode() for name, text in texts.items()}
        if self._trace.lines:
            lines = sorted(self._trace.lines.values(), key=_rank)
            found[others[-1]] = (HEADING + "".join(f"{line}\n" for line in lines)).encode()
        return found

    def _session(self, record: Record) -> bytes:
        """Store what a session record states about the stream. Return the bytes of a stream header."""
        about = _read(record.attributes or "{}")
        if record.name == "header":
            self._order = ">" if "byte_order" in about else "<"
            return self._header()
        if record.name == "metadata" and record.flaw != "bad_metadata":
            text = str(about["producer"], "utf-8")
            own = "document" not in about
            self._texts["" if own else PROCESS] = text
            if own:
                self._loom.declare(ovni_of(text).get("loom_cpus"))
        elif record.name == "clock_offset":
            mine = [msgspec.json.decode(about["line"])] if "line" in about else []
            for line in mine or msgspec.json.decode(about.get("lines", b"[]")):
                columns = line.split()
                # The file of clock offsets may have no line for this host. The session record then has lines of other
                # hosts, and the last of these lines may be cut off.
                if len(columns) == COLUMNS:
                    self._trace.lines[columns[1]] = line
        return b""

    def _header(self) -> bytes:
        """Return the stream header at the first call, and no bytes at later calls. With `repair`, a stream whose header
        was damaged gets a header, too."""
        if self._headed:
            return b""
        self._headed = True
        return _HEADERS[self._order]


def _rank(line: str) -> tuple[int, str, str]:
    """Return the sort key of a line of the table of clock offsets. A rank may have too many digits for `int`."""
    rank = line.split(maxsplit=1)[0]
    digits = rank.lstrip("0") if rank.isdecimal() else ""
    return (len(digits), digits, line)
