"""Test that the largest number of compressed files with unfinished members keeps the process within its memory bound."""

from __future__ import annotations

import zlib

from tests.system.collector import Collector, until
from tests.system.test_memory import MIB, peak

FILES = 1000
EVENTS = 330
"""Events in a file: more content than a member's window."""

SOURCE = """
[sources.files]
type = "tail"
format = "dftracer"
paths = ["{directory}/traces"]
files_max = {files}
record_max = "64 KiB"
pending_max = "1 MiB"
"""

LIMITS = """
[store]
commit_bytes = "4 MiB"

[ledger]
session_state_max = "1 MiB"
source_state_max = "4 MiB"
state_max = "4 MiB"
"""


class Writer:
    """A writer of a file with one member that never ends."""

    def __init__(self, directory, number):
        self._path = directory / f"trace-{number}-app.pfw.gz"
        self._number = number
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        self._events = 0

    def write(self):
        line = '{{"id":{0},"name":"read","cat":"POSIX","pid":{1},"tid":1,"ts":{2},"dur":1,"ph":"X","args":{{"x":{3}}}}}\n'
        text = "" if self._events else "[\n"
        for n in range(self._events, self._events + EVENTS):
            text += line.format(n, self._number, n, n * 7919 % 10007)
        self._events += EVENTS
        data = self._deflate.compress(text.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        with self._path.open("ab") as file:
            file.write(data)


def check(collector, events):
    until(
        lambda: collector.status()["sources"]["files"]["seen_events"] == events,
        "all events", seconds=180,
    )  # fmt: skip
    memory = collector.status()["memory"]
    took = peak(collector)
    assert took <= memory["bound_bytes"], f"{took / MIB:.0f} MiB"
    assert collector.status()["sources"]["files"]["missing_events"] == 0


def test_members_that_are_not_over_keep_the_process_within_its_bound(tmp_path):
    """The bound also holds after a kill, when the next process has inflated all files again."""
    traces = tmp_path / "traces"
    traces.mkdir()
    writers = [Writer(traces, number) for number in range(FILES)]
    for writer in writers:
        writer.write()
    source = SOURCE.format(directory=tmp_path, files=FILES)
    collector = Collector(tmp_path, sources=source, more=LIMITS, executable=True)
    try:
        collector.start()
        check(collector, FILES * EVENTS)
        collector.kill()
        collector.start()
        for writer in writers:
            writer.write()
        check(collector, 2 * FILES * EVENTS)
    finally:
        collector.kill()
