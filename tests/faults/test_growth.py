"""Traces that grow while the daemon follows them and is killed at random moments.

However a trace came to be on disk, the views in the end say what they say of a single import of the
finished files: row for row, but for when things arrived and what the sessions are called.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tailrace.decoding.formats import FORMATS
from tests.query.asking import ask
from tests.system.collector import until
from tests.traffic.grow import Growth, Style, tree

VECTORS = Path(__file__).parents[1] / "vectors"

EVENTS = """
SELECT session, stream, substream, seq, kind, name, category, id, parent, start, "end", time,
  attributes, "offset"
FROM events
WHERE kind NOT IN ('session', 'name', 'gap', 'heal')
ORDER BY session, "offset", kind
"""
# Where the file stood when a hole in counters became a gap, and how many of the pieces that cannot be
# read came in one go, is a matter of arrival.
GAPS = """
SELECT session, stream, reason, first, last, "of", id, detail, sum("count") AS "count",
  sum(healed) AS healed, sum(remaining) AS remaining, sum((attributes ->> '$.bytes')::BIGINT) AS bytes
FROM all_gaps
GROUP BY ALL
ORDER BY ALL
"""
SESSIONS = """
SELECT session, clock, ticks_per_second, epoch, producer, totals, events, missing, unknown, clock_offset
FROM sessions
ORDER BY session
"""


def views(store):
    """What each session holds, however it is called and whichever came first."""
    sessions = {row[0]: [tuple(map(plain, row[1:]))] for row in ask(store, SESSIONS)}
    for sql in (EVENTS, GAPS):
        for session, *row in ask(store, sql):
            sessions[session].append(tuple(map(plain, row)))
    return Counter(tuple(content) for content in sessions.values())


def plain(value):
    """JSON without the order of its members."""
    if isinstance(value, str) and value.startswith("{"):
        return json.dumps(json.loads(value), sort_keys=True)
    return value


def written(incarnations):
    """The final bytes of every incarnation, and its documents, as trees: the nth of those that had
    one name is in the nth."""
    generations = []
    for incarnation in incarnations:
        name = incarnation.names[-1].removeprefix("trace/").removesuffix(".gz")
        earlier = sum(name in generation for generation in generations)
        if earlier == len(generations):
            generations.append({})
        generations[earlier][name] = incarnation.data
        for path, data in incarnation.documents.items():
            generations[earlier][path.removeprefix("trace/")] = data
    return generations


def imported(directory, format_, generations):
    """The views after clean imports."""
    store = directory / "imported"
    for number, generation in enumerate(generations):
        runs = directory / f"run{number}"
        for name, data in generation.items():
            (runs / name).parent.mkdir(parents=True, exist_ok=True)
            (runs / name).write_bytes(data)
        command = [
            sys.executable,
            "-m",
            "tailrace",
            "import",
            "--store",
            store,
            "--format",
            format_,
        ]
        subprocess.run([*command, runs], check=True, capture_output=True, timeout=120)
    return views(store)


IDLE_SECONDS = 0.1
INTERVALS = f'poll_interval = "10 ms"\nidle_interval = "{IDLE_SECONDS} s"\n'


class Life:
    """A daemon that follows a directory and is killed and started again."""

    def __init__(self, collector, seed):
        self.collector = collector
        self.random = random.Random(seed)
        self.kills = 0
        self.read_at = None
        self.looked_at = {}
        """Documents that have been looked at since they were written."""

    def pause(self):
        chance = self.random.random()
        if chance < 0.01 and self.read_at is None:
            self.collector.kill()
            self.kills += 1
            if self.random.random() < 0.5:
                return  # the trace grows on while nobody looks
            self.start()
        elif chance < 0.1:
            time.sleep(self.random.random() * 0.1)

    def start(self):
        if self.collector.process.poll() is not None:
            self.collector.start()
            self.read_at = None

    def source(self):
        return self.collector.status()["sources"]["runs"]

    def seen(self, incarnations):
        """Whether all that was written to streams so far is read, and documents, of which no figure
        tells, have been looked at since."""
        self.start()
        source = self.source()
        if source["received_bytes"] < size(source["format"], incarnations):
            self.read_at = None
            return False
        documents = incarnations[-1].documents
        if documents != self.looked_at:
            if self.read_at is None:
                self.read_at = time.monotonic()
            if time.monotonic() - self.read_at < 10 * IDLE_SECONDS:
                return False
            self.looked_at = documents
        self.read_at = None
        return True

    def caught_up(self):
        """Whether there is nothing on disk that is not read."""
        source = self.source()
        waiting = sum(source["waiting_files"].values()) - source["waiting_files"].get("empty", 0)
        return source["open"] and not waiting and not source["behind_bytes"]


def size(format_, incarnations):
    """Bytes of those that are streams; others may be documents that tell of them."""
    is_stream = FORMATS[format_].files.stream
    return sum(len(i.data) for i in incarnations if is_stream(f"/{i.names[-1]}"))


def remove_streams(format_, runs):
    """So their sessions end; documents stay, as they are looked at a last time then."""
    for path in [path for path in runs.rglob("*") if path.is_file()]:
        if FORMATS[format_].files.stream(str(path)):
            path.unlink()


def grow(collectors, tmp_path, format_, source, style, seed, *, second=None):
    """Let a trace grow under a daemon until all is read; its life, and what was written."""
    runs = tmp_path / "runs"
    config = f'[sources.runs]\ntype = "tail"\nformat = "{format_}"\npaths = ["{runs}"]\n'
    collector = collectors(sources=config + INTERVALS).start()
    life = Life(collector, seed)
    growth = Growth(source, runs, seed, style, second=second, seen=life.seen)
    growth.run(life.pause)
    life.start()
    expected = growth.expected()
    until(life.caught_up, f"{size(format_, expected)} bytes to be read")
    return life, expected


def ended(life, style, received):
    """What the table has when the sessions have ended with their files."""
    until(lambda: life.source()["open"] == 0, "the sessions to end with their files")
    life.collector.settle()
    status = life.source()
    assert (status["imbalance_bytes"], status["imbalance_events"]) == (0, 0)
    if style is not Style.EXECUTED_MEMBERS:  # there, bytes of torn members were received, too
        assert status["received_bytes"] == received
    life.collector.stop()
    return views(life.collector.store)


SUFFIXES = {"heph": ".trace", "jets": ".jets", "dftracer": ".pfw", "et3": ".trace"}


def traces(format_, real):
    """Every vector of a format as a file of a trace, and whole files of real producers, where there
    are any, whose names match."""
    if format_ == "ovni":
        found = {}
        for trace in sorted((VECTORS / "ovni/traces").iterdir()):
            if trace.is_dir():
                files = tree(trace / "ovni")
                found |= {f"{trace.name}/ovni/{name}": data for name, data in files.items()}
        return found
    vectors = sorted((VECTORS / format_).glob("*.in"))
    found = {f"{path.stem}{SUFFIXES[format_]}": path.read_bytes() for path in vectors}
    for path in sorted((VECTORS / format_).glob(f"traces/{real}.gz")):
        found[f"whole-{path.stem}"] = gzip.decompress(path.read_bytes())
    return found


def shorter(run):
    """A second run of ovni's producers, begun at another time and ended early."""
    again = dict(run)
    for name in (name for name in run if name.endswith(".obs")):
        data = bytearray(run[name][: len(run[name]) // 2 + 12])
        clock = int.from_bytes(data[12:20], "little")
        data[12:20] = (clock - 1).to_bytes(8, "little")
        again[name] = bytes(data)
    return again


def another(format_, run):
    """A second run of the same producers that says other things: each what the next one said."""
    streams = [name for name in run if FORMATS[format_].files.stream(f"/{name}")]
    said = [run[name] for name in streams]
    return run | dict(zip(streams, [*said[1:], said[0]], strict=True))


SECOND_RUN = {Style.TRUNCATED, Style.REUSED, Style.EXECUTED, Style.EXECUTED_MEMBERS}

STYLES = {
    "heph": (Style.RENAMED, Style.APPEND),
    "jets": (Style.TRUNCATED, Style.APPEND),
    "et3": (Style.APPEND, Style.TRUNCATED, Style.DELETED),
    "dftracer": (
        Style.EXECUTED_MEMBERS, Style.COMPRESSED, Style.APPEND, Style.MEMBERS, Style.RENAMED, Style.EXECUTED,
    ),
    "ovni": (Style.MOVED, Style.REUSED, Style.APPEND, Style.DELETED),
}  # fmt: skip
"""What happens to files of each format; first what is tried in every run of the tests."""

SHORT = [(format_, style) for format_, styles in STYLES.items() for style in styles[:1]]
SHORT += [("dftracer", Style.COMPRESSED), ("ovni", Style.REUSED)]
LONG = [(format_, style) for format_, styles in STYLES.items() for style in styles]


@pytest.mark.parametrize(("format_", "style"), SHORT, ids=str)
def test_a_trace_that_grew_is_one_that_was_imported(format_, style, collectors, tmp_path):
    check(format_, style, 1, collectors, tmp_path, real="*_kill9_*")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize(("format_", "style"), LONG, ids=str)
def test_so_it_is_however_it_grew(format_, style, seed, collectors, tmp_path):
    check(format_, style, seed, collectors, tmp_path, real="*")


def is_fair(style, name, data):
    """Whether it can be demanded of this file, in this style, that it be as it is when imported.

    Of a reused thread, what is no more than a header begins as it did before, and nobody can tell
    the next run's metadata from the last one's. Streams of which some were seen first before they
    were moved and others after it are of two runs, so they do not share names."""
    if style is Style.REUSED:
        return name.endswith(".obs") and len(data) > len(b"ovni....") and "layout" not in name
    shares_names = ("live-growth", "mark", "nosv")
    return style is not Style.MOVED or not any(word in name.split("/")[0] for word in shares_names)


def check(format_, style, seed, collectors, tmp_path, *, real):
    everything = traces(format_, real)
    run = {name: data for name, data in everything.items() if is_fair(style, name, data)}
    second = another(format_, run) if style in SECOND_RUN else None
    second = shorter(run) if style is Style.REUSED else second
    life, expected = grow(collectors, tmp_path, format_, run, style, seed, second=second)
    final = tree(tmp_path / "runs")
    remove_streams(format_, tmp_path / "runs")
    # Where a member is torn, it is what lies there in the end that says so.
    generations = [final] if style is Style.EXECUTED_MEMBERS else written(expected)
    clean = imported(tmp_path, format_, generations)  # while the daemon waits for more of its files
    grown = ended(life, style, size(format_, expected))
    assert list(differences(grown, clean)) == []


def differences(grown, clean):
    """The sessions that only one of them has, row by row where they come in pairs."""
    grown, clean = list((grown - clean).elements()), list((clean - grown).elements())
    if len(grown) != len(clean):
        yield f"{len(grown)} sessions that no import has, {len(clean)} that only an import has"
    for ours, theirs in zip(sorted(grown, key=len), sorted(clean, key=len), strict=False):
        for row in ours:
            if row not in theirs:
                yield f"only grown: {row}"
        for row in theirs:
            if row not in ours:
                yield f"only imported: {row}"
        if sorted(map(repr, ours)) == sorted(map(repr, theirs)):
            yield "the same rows in another order"
