"""Traces that grow while the daemon follows them and is killed at random moments.

However a trace came to be on disk, the views in the end say what they say of a single import of the
finished files: row for row, but for when things arrived and what the sessions are called.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.decoding.formats import FORMATS
from tailrace.query.engine import Engine
from tests import program
from tests.faults.growing import PATIENT, Case, Life, Trace
from tests.traffic.grow import Style, may_join, tree

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
SELECT source, session, clock, ticks_per_second, epoch, producer, totals, events, missing, unknown, clock_offset
FROM sessions
ORDER BY session
"""


def views(store):
    """Return what each session holds, however it is called and whichever came first, by source."""
    sessions, sources = {}, {}
    with closing(Engine(str(store))) as engine:
        for source, session, *row in engine.rows(SESSIONS):
            sessions[session] = [tuple(map(plain, row))]
            sources[session] = source
        for sql in (EVENTS, GAPS):
            for session, *row in engine.rows(sql):
                sessions[session].append(tuple(map(plain, row)))
    found = defaultdict(Counter)
    for session, content in sessions.items():
        found[sources[session]][tuple(content)] += 1
    return found


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
    """The sessions after clean imports. Each generation has a store of its own: in one store, a file that an earlier
    generation had under another name would be a copy."""
    sessions = Counter()
    for number, generation in enumerate(generations):
        runs, store = directory / f"{number}", directory / f"store-{number}"
        for name, data in generation.items():
            (runs / name).parent.mkdir(parents=True, exist_ok=True)
            (runs / name).write_bytes(data)
        command = [*program.COMMAND, "import", "--store", store, "--format", format_]
        environ = os.environ | PATIENT
        program.run([*command, runs], env=environ, check=True, capture_output=True, timeout=120)
        (found,) = views(store).values()
        sessions += found
    return sessions


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
"""The things that happen to files of each format; first what is tried in every run of the tests."""

SHORT = [Case(format_, style) for format_, styles in STYLES.items() for style in styles[:1]]
SHORT += [Case("dftracer", Style.COMPRESSED), Case("ovni", Style.REUSED)]
LONG = [Case(format_, style) for format_, styles in STYLES.items() for style in styles]


def test_traces_that_grew_are_those_that_were_imported(collectors, tmp_path):
    """All below one daemon, which costs the time of one; what fails is of one in the long form. Each case has
    one in three of its format's vectors: what they say is decoded elsewhere, and how they grow is drawn."""
    check(SHORT, 1, collectors, tmp_path, real="*_kill9_*", share=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("case", LONG, ids=str)
def test_so_it_is_however_it_grew(case, seed, collectors, tmp_path):
    check([case], seed, collectors, tmp_path, real="*")


WITHIN_OTHERS = {
    "ids_missing_then_exec", "split_and_blank", "split_before_nothing", "v220_kill9_gz",
}  # fmt: skip
"""Vectors of DFTracer that an import takes for copies, because other vectors or traces have all their lines."""


def is_fair(style, name, data):
    """Whether it can be demanded of this file, in this style, that it be as it is when imported.

    In a reused thread, what is no more than a header begins as it did before, and nobody can tell
    the next run's metadata from the last one's. Streams of which some were seen first before they
    were moved and others after it are of two runs, so they do not share names. A session that is
    announced again goes on behind the chunk that says so: its offsets tell how it came."""
    if name.partition(".")[0] in WITHIN_OTHERS:
        return False
    if data.count(b"tailrace.session") > 1 or (".pfw" in name and may_join(data)):
        return False
    if style is Style.REUSED:
        return name.endswith(".obs") and len(data) > len(b"ovni....") and "layout" not in name
    shares_names = ("live-growth", "mark", "nosv")
    return style is not Style.MOVED or not any(word in name.split("/")[0] for word in shares_names)


def check(cases, seed, collectors, tmp_path, *, real, share=1):
    growing = [
        trace(case, tmp_path, seed, real, slice(number % share, None, share))
        for number, case in enumerate(cases)
    ]
    life = Life(collectors, seed, growing)
    life.grow()
    for each in life.traces:
        each.remove_streams()
    # Imported while the daemon waits for more of the files, as it does for a while.
    clean = {each.name: clean_import(each, tmp_path) for each in life.traces}
    grown = views(life.end())
    assert [*differences(grown, clean)] == []


def trace(case, tmp_path, seed, real, chosen):
    """`chosen` is which of the vectors there are; whole files of real producers are all there."""
    everything = traces(case.format, real)
    vectors = [name for name in everything if not name.startswith("whole-")]
    if case.format == "ovni":  # the files of a trace belong together
        vectors = sorted({name.partition("/")[0] for name in vectors})
    left_out = {*vectors} - {*vectors[chosen]}
    run = {
        name: data
        for name, data in everything.items()
        if name.partition("/")[0] not in left_out and is_fair(case.style, name, data)
    }
    second = another(case.format, run) if case.style in SECOND_RUN else None
    second = shorter(run) if case.style is Style.REUSED else second
    return Trace(case, tmp_path / str(case), seed, run, second)


def clean_import(trace, tmp_path):
    """Where a member is torn, it is what lies there in the end that says so."""
    torn = trace.case.style is Style.EXECUTED_MEMBERS
    generations = [trace.final] if torn else written(trace.growth.expected())
    return imported(tmp_path / f"imported-{trace.name}", trace.case.format, generations)


def differences(grown, clean):
    """Return for each source the sessions that only one of them has, row by row where they come in pairs."""
    for source in sorted(grown.keys() | clean.keys()):
        ours, theirs = grown.get(source, Counter()), clean.get(source, Counter())
        for line in of_sessions([*(ours - theirs).elements()], [*(theirs - ours).elements()]):
            yield f"{source}: {line}"


def of_sessions(grown, clean):
    if len(grown) != len(clean):
        yield f"{len(grown)} sessions that no import has, {len(clean)} that only an import has"
        yield from (f"only grown: a session of {len(each)} rows: {[*each][:4]}" for each in grown)
        yield from (
            f"only imported: a session of {len(each)} rows: {[*each][:4]}" for each in clean
        )
    for ours, theirs in zip(sorted(grown, key=len), sorted(clean, key=len), strict=False):
        for row in ours:
            if row not in theirs:
                yield f"only grown: {row}"
        for row in theirs:
            if row not in ours:
                yield f"only imported: {row}"
        if sorted(map(repr, ours)) == sorted(map(repr, theirs)):
            yield "the same rows in another order"
