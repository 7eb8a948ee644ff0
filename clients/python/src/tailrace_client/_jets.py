"""Write a JETS trace line by line while a simulator runs (JETS specification 2.0).

    with JetsWriter("tcp://127.0.0.1:7702") as trace:
        trace.header(hardware_model="SoC", clock_frequency_mhz=1000)
        with trace.record(0, "core 0", "Core"):
            with trace.record(1000, "ADD", "Instruction", "add a0, a1, a2", pc="0x80") as add:
                trace.event(1001, "F1", "Fetch")
                trace.annotation("operands", {"a1": 1, "a2": 2})
                add.end(1010)

`clk` is the hardware's own clock, in cycles. Records are numbered from 1 in the order in which they begin. The footer, written
by `close` at the latest, carries the totals that a reader compares with its own counts.

Over TCP, the writer never waits or raises because of the network. Lines that do not fit into the buffer are discarded
and counted. After a reconnect, and in a forked child, the header is sent again, and the trace continues. The footer then has
no totals, because a reader counts the lines of one connection. Only one thread may use a writer."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from tailrace_client._chunk import UNNUMBERED, Chunk
from tailrace_client._credentials import Credentials
from tailrace_client._emitter import BUFFER_BYTES
from tailrace_client._sender import Sender
from tailrace_client._transport import Transport, parse

CLOSE_SECONDS = 1.0
"""Default time (seconds) for which the closing of a writer waits until its lines are sent."""


class SenderSink:
    """The recorder of a JETS writer over a socket. Each line is a chunk."""

    def __init__(self, transport: Transport, limit: int) -> None:
        self._sender = Sender(transport, room=0, on_fork=self._forked)
        self._is_child = False
        self._limit = limit
        self._longest = transport.packet_max
        self._chunk = transport.chunk_bytes
        self._header = _Header()
        self._begin()

    def _begin(self) -> None:
        self._lines: list[bytes] = []
        self._waiting = self._unreleased = 0
        self.discarded: dict[str, int] = {}
        self._sender.begin(self, self._header)

    def _forked(self) -> None:
        self._is_child = True
        self._begin()

    @property
    def dropped(self) -> int:
        return sum(self.discarded.values())

    def begin(self, header: bytes) -> None:
        """Set the header line, which the sender sends first on every connection."""
        self._header.line = header

    def put(self, line: bytes) -> None:
        size = len(line)
        if size > self._longest or self._unreleased + size > self._limit:
            self.discard("oversize" if size > self._longest else "full")
            return
        first = not self._lines
        self._lines.append(line)
        self._unreleased += size
        self._waiting += size
        if first:
            self._waiting = size
            self._sender.started()
        elif self._waiting >= self._chunk:
            self._waiting = 0
            self._sender.filled()

    def take(self) -> list[Chunk]:
        lines, self._lines = self._lines, []
        return [Chunk(line, UNNUMBERED, 0, 0) for line in lines]

    def release(self, size: int) -> None:
        self._unreleased -= size

    def discard(self, reason: str, count: int = 1, /) -> None:
        self.discarded[reason] = self.discarded.get(reason, 0) + count

    def next_numbers(self) -> dict[int, int]:
        return {}

    def unbroken(self) -> bool:
        self._sender.flush(CLOSE_SECONDS)
        return self._sender.connections <= 1 and not self._is_child

    def flush(self, timeout: float) -> bool:
        return self._sender.flush(timeout) and not self.dropped

    def finish(self, timeout: float) -> bool:
        return self._sender.close(timeout) and not self.dropped

    def close(self) -> None:
        self._limit = 0


class _Header:
    """The packets of a JETS trace beside its events. There is only one, the header, because JETS has no sessions, and
    its readers send no answers."""

    asks = False
    turn = 0
    answered = -1

    def __init__(self) -> None:
        self.line = b""

    def announcement(self) -> bytes:
        return self.line

    def report(self, *_: object, elsewhere: bool = False) -> bytes:  # noqa: ARG002 - the protocol's
        return b""

    def reached(self, *_: object) -> bytes:
        return b""

    def goodbyes(self, *_: object) -> Iterator[bytes]:
        return iter(())

    def hear(self, *_: object) -> None:
        return None

    def count(self, data: bytes) -> int:
        return data.count(b"\n")


class FileSink:
    """Writes the lines to a binary file that the program has opened. A full disk raises no error in the program."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._is_raw = isinstance(file, io.RawIOBase)
        self._is_torn = False
        """Whether the file ends with the beginning of a line whose rest was refused."""
        self.dropped = 0

    def begin(self, header: bytes) -> None:
        self.put(header)

    def put(self, line: bytes) -> None:
        rest = b"\n" + line if self._is_torn else line
        size = len(rest)
        try:
            while rest and (taken := self._write(rest)):
                rest = rest[taken:]
        except OSError:
            pass
        self._is_torn = self._is_torn if len(rest) == size else bool(rest)
        self.dropped += bool(rest)

    def _write(self, line: bytes) -> int:
        """Return how many bytes the file has taken. Only an unbuffered file may take less than all."""
        taken = self._file.write(line)
        return taken or 0 if self._is_raw else len(line)

    def unbroken(self) -> bool:
        return True

    def flush(self, timeout: float) -> bool:  # noqa: ARG002 - every sink has it
        try:
            self._file.flush()
        except OSError:
            return False
        return not self.dropped

    def finish(self, timeout: float) -> bool:
        return self.flush(timeout)


class Record:
    """A record that has begun. Used as a `with` block, it is the parent of all records that begin within the block.
    At the end of the block, a record that has not ended yet ends at the latest written `clk`."""

    __slots__ = ("_ended", "_writer", "id")

    def __init__(self, writer: JetsWriter, id_: int) -> None:
        self._writer = writer
        self._ended = False
        self.id = id_

    def end(self, clk: int) -> None:
        """End the record. A second call has no effect."""
        if not self._ended:
            self._ended = True
            self._writer.end(self, clk)

    def __enter__(self) -> Record:
        self._writer.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.leave(self)


class JetsWriter:
    """A writer of one trace to a sink: `tcp://host:port`, `tls://host:port`, `unix:///path`, `file:///path` or a binary
    file. The writer empties the file of a `file:///path` first, and does not close a binary file."""

    def __init__(
        self,
        sink: str | BinaryIO,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        credentials: Credentials | None = None,
    ) -> None:
        """Raise ValueError for an invalid address. `credentials` apply to TCP and TLS; the default is the credentials in the
        environment."""
        self._sink: SenderSink | FileSink
        if isinstance(sink, str):
            if sink.startswith("udp:"):
                raise ValueError("datagrams do not keep the order that JETS needs: use tcp or file")
            self._sink = SenderSink(parse(sink, credentials, append=False), buffer_bytes)
        else:
            self._sink = FileSink(sink)
        self._entered: list[Record] = []
        self._records = self._annotations = self._events = 0
        self._clk = 0
        self._begun = self._ended = False

    @property
    def dropped(self) -> int:
        """The number of lines discarded so far."""
        return self._sink.dropped

    def header(self, **metadata: object) -> None:
        """Write the header with fields such as `hardware_model` and `clock_frequency_mhz`. Raise ValueError once the trace
        has begun. A trace that begins without this call has an empty header."""
        if self._begun:
            raise ValueError("the trace has begun: its header is written")
        self._begun = True
        self._sink.begin(_line({"type": "header", "version": "2.0", "metadata": metadata}))

    def record(
        self,
        clk: int,
        name: str,
        record_type: str,
        description: str = "",
        *,
        parent: Record | None = None,
        **data: object,
    ) -> Record:
        """Begin a record. By default, its parent is the record whose `with` block was entered last."""
        self._records += 1
        if parent is None and self._entered:
            parent = self._entered[-1]
        fields = {
            "clk": self._at(clk),
            "type": "record",
            "name": name,
            "record_type": record_type,
            "id": self._records,
            "parent_id": parent.id if parent else None,
            "description": description,
        }
        self._write(fields | ({"data": data} if data else {}))
        return Record(self, self._records)

    def event(
        self,
        clk: int,
        name: str,
        description: str = "",
        *,
        record: Record | None = None,
        **data: object,
    ) -> None:
        """Write an event of a record. By default, this is the record whose `with` block was entered last. Raise
        ValueError outside of every `with` block of a record."""
        fields = {
            "clk": self._at(clk),
            "type": "event",
            "name": name,
            "record_id": self._subject(record),
            "description": description,
        }
        self._events += 1
        self._write(fields | ({"data": data} if data else {}))

    def annotation(
        self, name: str, data: object, description: str = "", *, record: Record | None = None
    ) -> None:
        """Write an annotation of a record. By default, this is the record whose `with` block was entered last. Raise
        ValueError outside of every `with` block of a record."""
        fields = {
            "type": "annotation",
            "name": name,
            "record_id": self._subject(record),
            "description": description,
            "data": data,
        }
        self._annotations += 1
        self._write(fields)

    def footer(self, **summary: object) -> None:
        """Write the footer, which ends the trace and contains the totals. Raise ValueError if the trace has a footer
        already."""
        if self._ended:
            raise ValueError("the trace has ended: its footer is written")
        fields: dict[str, object] = {"type": "footer", "capture_end_clk": self._clk}
        if self._sink.unbroken():
            fields["total_records"] = self._records
            fields["total_annotations"] = self._annotations
            fields["total_events"] = self._events
        self._write({**fields, **summary})
        self._ended = True

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait at most `timeout` seconds until the kernel has accepted all lines. Return whether it has."""
        return self._sink.flush(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Write the footer if it is missing, send all lines and close, within about `timeout` seconds. Return whether
        the kernel has accepted all lines."""
        if not self._ended:
            self.footer()
        return self._sink.finish(timeout)

    def __enter__(self) -> JetsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The following methods are called by the class `Record`.

    def end(self, record: Record, clk: int) -> None:
        """Write the end of a record. Programs call `Record.end` instead."""
        self._write({"clk": self._at(clk), "type": "record_end", "record_id": record.id})

    def enter(self, record: Record) -> None:
        """Make a record the parent of all records that begin from now on."""
        self._entered.append(record)

    def leave(self, record: Record) -> None:
        """End the record. It is no longer the parent of records that begin later."""
        self._entered.remove(record)
        record.end(self._clk)

    def _subject(self, record: Record | None) -> int:
        """Return the id of the record that an event or annotation belongs to."""
        if record is None and not self._entered:
            raise ValueError("outside of every record: enter one, or pass record=")
        return (record or self._entered[-1]).id

    def _at(self, clk: int) -> int:
        self._clk = max(self._clk, clk)
        return clk

    def _write(self, fields: Mapping[str, object]) -> None:
        if self._ended:
            raise ValueError("the trace has ended: its footer is written")
        if not self._begun:
            self.header()
        self._sink.put(_line(fields))


def _line(fields: Mapping[str, object]) -> bytes:
    """Return one line of JSON. Numpy's scalars and arrays become numbers and lists. Values that JSON does not have (NaN,
    an object, a cycle) become strings."""
    try:
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False, default=_plain_or_text)
    except Exception:  # noqa: BLE001 - the value's own method may raise any
        seen = set[int]()
        plain = {name: _plain(item, seen) for name, item in fields.items()}
        text = json.dumps(plain, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _plain_or_text(item: Any) -> object:  # noqa: ANN401 - whatever JSON does not have
    plain = item.tolist() if callable(getattr(item, "tolist", None)) else None
    # Convert only once: the methods of a mock object return further mock objects, and to convert one after the other
    # took seconds.
    return plain if isinstance(plain, list | int | float | str) else str(item)


_LEVELS_MAX = 16
"""Maximum number of levels of nested mappings whose values are converted one by one."""


def _plain(item: object, seen: set[int], level: int = 0) -> object:
    """Return an item as JSON can represent it, or as text if JSON cannot. Convert the values of a mapping one by one.
    `seen` has the ids of the mappings that were converted already, because a mapping may contain itself."""
    if isinstance(item, Mapping) and level < _LEVELS_MAX and id(item) not in seen:
        seen.add(id(item))
        return {_key(name): _plain(inner, seen, level + 1) for name, inner in item.items()}
    try:
        return json.loads(json.dumps(item, allow_nan=False, default=_plain_or_text))
    except Exception:  # noqa: BLE001 - as above
        return _text(item)


def _key(name: object) -> str:
    """Return the text that JSON has for the key of a mapping, or another text if JSON has none."""
    try:
        (text,) = json.loads(json.dumps({name: None}, allow_nan=False))
    except Exception:  # noqa: BLE001 - as above
        return _text(name)
    return str(text)


def _text(item: object) -> str:
    """Return the `repr` of an item, or only the name of its type if that fails. Return an integer in hexadecimal
    digits, because Python refuses to write more than 4300 decimal ones."""
    try:
        return hex(item) if isinstance(item, int) else repr(item)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(item).__name__}>"
