"""As many compressed files as may be followed, whose members are not over: the process stays within its bound."""

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


def unfinished(pid, first=0):
    """A member whose writer goes on."""
    line = '{{"id":{0},"name":"read","cat":"POSIX","pid":{1},"tid":1,"ts":{2},"dur":1,"ph":"X","args":{{"x":{3}}}}}\n'
    text = "".join(line.format(n, pid, n, n * 7919 % 10007) for n in range(first, first + EVENTS))
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
    head = "" if first else "[\n"
    return deflate.compress((head + text).encode()) + deflate.flush(zlib.Z_SYNC_FLUSH)


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
    traces = tmp_path / "traces"
    traces.mkdir()
    for number in range(FILES):
        (traces / f"trace-{number}-app.pfw.gz").write_bytes(unfinished(number))
    source = SOURCE.format(directory=tmp_path, files=FILES)
    collector = Collector(tmp_path, sources=source, more=LIMITS, executable=True)
    try:
        collector.start()
        check(collector, FILES * EVENTS)
        collector.kill()
        collector.start()
        check(collector, FILES * EVENTS)
    finally:
        collector.kill()
