"""Act as a program that emits numbered events: `python -m benchmarks.soak.producers KIND LIFE TARGET JOURNAL RATE`.

The program emits RATE events a second until its standard input ends, and then ends in order. Before it passes an event
to a client or a file, it appends one byte to JOURNAL with one `write`, which survives SIGKILL. So the size of the
journal is the number of events that the program has emitted; they are numbered from 0.

TARGET is the address of a collector or, for files, a directory of the program's own. LIFE is the name of the program in
the table: the name of its events, of its session or of its directory. For the C client, the variable `SOAK_PLAY` names
the program `tests/c/play.c`, which emits an event for each line that it reads.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Protocol

TICK_SECONDS = 0.05
CLOSING_SECONDS = 60.0
"""Time (seconds) for which a client may wait at its end until the collector has acknowledged everything."""

PLAY = "SOAK_PLAY"
HOST = "soak"


class Emitter(Protocol):
    """A client or a writer of a file."""

    def emit(self, number: int) -> None:
        """Emit the event with a number."""

    def flush(self) -> None:
        """Pass on what was emitted, at the end of each tick."""

    def end(self) -> None:
        """End in order."""


class Client:
    """The Python client."""

    def __init__(self, life: str, target: str, *, acknowledge: bool) -> None:
        import tailrace_client

        self._client = tailrace_client
        self._life = life
        tailrace_client.connect(target, process=life, acknowledge=acknowledge)

    def emit(self, number: int) -> None:
        self._client.event(self._life, n=number)

    def flush(self) -> None:
        return None

    def end(self) -> None:
        self._client.close(CLOSING_SECONDS)


class CClient:
    """The C client, in a process of its own."""

    def __init__(self, life: str, target: str) -> None:
        self._event = f"event {life.encode().hex()} {b'n'.hex()}:u:"
        self._play = subprocess.Popen([os.environ[PLAY]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)  # fmt: skip
        self._tell(f"connect {target} process={life} linger=5000")

    def _tell(self, line: str) -> None:
        if self._play.stdin is not None:
            self._play.stdin.write(line.encode() + b"\n")

    def emit(self, number: int) -> None:
        self._tell(f"{self._event}{number}")

    def flush(self) -> None:
        return None

    def end(self) -> None:
        self._tell("close")
        self._play.communicate()


class Jets:
    """The Python client's writer of JETS. Each event is a record with its end."""

    def __init__(self, life: str, target: str) -> None:
        from tailrace_client import JetsWriter

        self._life = life
        self._writer = JetsWriter(target)
        self._writer.header(tool=life)

    def emit(self, number: int) -> None:
        self._writer.record(number, self._life, "Step").end(number + 1)

    def flush(self) -> None:
        return None

    def end(self) -> None:
        self._writer.close(CLOSING_SECONDS)


class RealDFTracer:
    """A program under the real DFTracer, which writes each record at once."""

    def __init__(self, life: str, target: str) -> None:
        os.environ |= {
            "DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1", "DFTRACER_INIT": "FUNCTION",
            "DFTRACER_TRACE_COMPRESSION": "0", "DFTRACER_WRITE_BUFFER_SIZE": "1",
            "DFTRACER_LOG_FILE": f"{target}/trace", "DFTRACER_DATA_DIR": target,
        }  # fmt: skip
        os.chdir(target)  # DFTracer leaves a log in its directory.
        from dftracer.python import dft_fn, dftracer

        self._life, self._function = life, dft_fn
        self._log = dftracer.initialize_log(logfile=None, data_dir=None, process_id=-1)

    def emit(self, number: int) -> None:
        with self._function(cat="soak", name=self._life, step=number):
            pass

    def flush(self) -> None:
        return None

    def end(self) -> None:
        self._log.finalize()


class File:
    """A file that grows by one `write` a tick: `begin`, then the bytes of each event, then `finish` of their number."""

    def __init__(
        self, path: str, begin: bytes, event: Callable[[int], bytes], finish: Callable[[int], bytes],
        *, compressed: bool = False,
    ) -> None:  # fmt: skip
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._event, self._finish = event, finish
        self._compressed = compressed
        self._emitted = 0
        self._held = begin
        self.flush()

    def emit(self, number: int) -> None:
        self._held += self._event(number)
        self._emitted = number + 1

    def flush(self) -> None:
        data, self._held = self._held, b""
        if self._compressed and data:
            member = zlib.compressobj(wbits=31)
            data = member.compress(data) + member.flush()
        while data:
            data = data[os.write(self._file, data) :]

    def end(self) -> None:
        self._held += self._finish(self._emitted)
        self.flush()


def ovni(life: str, target: str) -> Emitter:
    """Return the writer of a thread's stream of ovni. Each event sets a mark to its number."""
    from struct import pack

    from tailrace.demo.binary import OVNI_HEADER, ovni_event

    number_of = int(life.rpartition("-")[2])
    thread = f"{target}/loom.{HOST}.1/proc.{number_of}/thread.{number_of}"
    about = {
        "version": 3,
        "ovni": {
            "lib": {"version": "1.14.0", "commit": "soak"}, "part": "thread", "tid": number_of,
            "pid": number_of, "loom": f"{HOST}.1", "app_id": 1, "require": {"ovni": "1.1.0"},
            "mark": {"1": {"title": "Step", "chan_type": "single"}},
        },
    }  # fmt: skip
    Path(thread).mkdir(parents=True)
    document = Path(thread, "stream.json")
    document.write_text(json.dumps(about))

    def finish(_: int) -> bytes:
        about["ovni"] |= {"finished": 1}  # type: ignore[operator]
        document.write_text(json.dumps(about))
        return ovni_event("OHe", time.monotonic_ns()).data

    def event(number: int) -> bytes:
        return ovni_event("OM=", time.monotonic_ns(), pack("<qi", number, 1)).data

    begin = OVNI_HEADER + ovni_event("OHx", time.monotonic_ns(), pack("<iiQ", 0, -1, 0)).data
    return File(f"{thread}/stream.obs", begin, event, finish)


def dftracer(life: str, target: str, *, compressed: bool = False) -> Emitter:
    """Return the writer of a file in DFTracer's form. Each event is a call."""
    pid = 100_000 + int(life.rpartition("-")[2])
    host = md5(HOST.encode(), usedforsecurity=False).hexdigest()[:16]

    def record(id_: int, name: str, **args: object) -> bytes:
        line: dict[str, object] = {"id": id_, "name": name, "cat": "soak", "type": 6, "pid": pid, "tid": pid}  # fmt: skip
        line |= {"ts": time.monotonic_ns() // 1000, "dur": 5, "ph": 1, "args": {"hhash": host} | args}  # fmt: skip
        if name in {"start", "end"}:
            line["cat"] = "dftracer"
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    named = {
        "name": "HH", "cat": "dftracer", "type": 1, "pid": pid, "tid": pid, "ph": 4,
        "args": {"hhash": host, "name": HOST, "value": host},
    }  # fmt: skip
    begin = json.dumps(named, separators=(",", ":")).encode() + b"\n" + record(1, "start", version=20003)  # fmt: skip
    return File(
        f"{target}/trace.pfw{'.gz' * compressed}", begin,
        lambda number: record(number + 2, life, step=number),
        lambda emitted: record(emitted + 2, "end", num_events=emitted + 1, cfg={"aggregation_enable": 0}),
        compressed=compressed,
    )  # fmt: skip


def et3(life: str, target: str) -> Emitter:
    """Return the writer of a trace as the agents of ET3 write it. Each event allocates an object."""
    thread = 2**24 + int(life.rpartition("-")[2])
    Path(target).mkdir(parents=True, exist_ok=True)
    for name in ("methods.list", "fields.list", "classs.list"):
        Path(target, name).write_text("Soak,1\n")
    return File(
        f"{target}/trace", f"M 1 0 {thread}\n".encode(),
        lambda number: f"N {number + 1} 16 1 1 0 {thread}\n".encode(),
        lambda _: f"E 1 {thread}\n".encode(),
    )  # fmt: skip


KINDS: dict[str, Callable[[str, str], Emitter]] = {
    "heph_tcp": lambda life, target: Client(life, target, acknowledge=True),
    "heph_udp": lambda life, target: Client(life, target, acknowledge=True),
    "heph_datagrams": lambda life, target: Client(life, target, acknowledge=False),
    "heph_c": CClient,
    "jets": Jets,
    "ovni": ovni,
    "dftracer": dftracer,
    "dftracer_gz": lambda life, target: dftracer(life, target, compressed=True),
    "dftracer_real": RealDFTracer,
    "et3": et3,
}
"""The kinds of programs. A name begins with the format of the events."""


def main(kind: str, life: str, target: str, journal: str, rate: str) -> None:
    noted = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    emitter = KINDS[kind](life, target)
    number, begun = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
        # After a pause (SIGSTOP), go on at the same rate and make up for nothing.
        due = (time.monotonic() - begun) * float(rate)
        if due > number + float(rate):
            begun = time.monotonic() - number / float(rate)
            continue
        while number < due:
            os.write(noted, b".")
            emitter.emit(number)
            number += 1
        emitter.flush()
    emitter.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
