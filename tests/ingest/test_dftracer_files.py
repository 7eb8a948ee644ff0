"""DFTracer's files after people have cut, split, merged or filtered them. No row changes its process, nothing that is
there counts as lost, and a gap names what is not there."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder, DFTracerState
from tailrace.decoding.formats.dftracer.processes import PROCESSES_MAX
from tailrace.ingest.machine import Ingest
from tests.decoding import dftracer_lines
from tests.decoding.test_dftracer import TRACES
from tests.ingest.log import Log, run

EVENTS = ("span", "counter")
NAMES = (
    "v220_preload_threads",
    "v220_py_plain",
    "v220_fork_parent",
    "v210_py_brackets",
    "v203_agg_phC",
)
"""Whole traces of releases that count events, one of them with aggregates."""
TIMES = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def trace(name, pid=None):
    """The lines of a trace, of another process if a PID is given."""
    data = gzip.decompress((TRACES / f"{name}.pfw.gz").read_bytes())
    if pid is not None:
        data = re.sub(rb'"pid":\d+', b'"pid":%d' % pid, data)
    return [line + b"\n" for line in data.splitlines() if line not in (b"[", b"]")]


def stored(*files, piece=4999):
    """The rows of files that are imported one after the other."""
    log = Log()
    for number, lines in enumerate(files):
        session, data = log.open_file("dftracer", f"/runs/{number}.pfw"), b"".join(lines)
        for at in range(0, len(data), piece):
            log.data(session, data[at : at + piece])
        log.close(session, "end of file")
    return run(log.entries)


def events(rows):
    """The events by what their producer wrote."""
    return Counter(
        (
            r["kind"],
            r["stream"],
            r["name"],
            r["start"],
            r["end"],
            json.loads(r["attributes"]).get("id"),
        )
        for r in rows
        if r["kind"] in EVENTS
    )


def losses(rows):
    """The gaps that no heal has taken back, by session and reason: how many events are missing, None if unknown."""
    found = {}
    for row in rows:
        key = row["session"], row["name"], json.loads(row["attributes"] or "{}").get("detail")
        if row["kind"] == "gap":
            found.setdefault(key, []).append(row["missing"])
        elif row["kind"] == "heal" and row["missing"] is None:
            del found[key]
    return {key: None if None in counts else sum(counts) for key, counts in found.items()}


def counted(rows):
    return [loss for loss in losses(rows).values() if loss is not None]


def pids(rows):
    """By session, the processes of its events."""
    found = {}
    for row in rows:
        if row["kind"] in EVENTS:
            found.setdefault(row["session"], set()).add(row["stream"].partition("/")[0])
    return found


def interleaved(draw, *traces):
    """Traces in one file, each in its own order, in runs of any length."""
    rest, found = [list(lines) for lines in traces], []
    while any(rest):
        lines = draw(st.sampled_from([lines for lines in rest if lines]))
        size = draw(st.sampled_from([1, 1, 2, 7, 50, 1000]))
        found += lines[:size]
        del lines[:size]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_trace_lacks_nothing(name):
    ingest, rows = stored(trace(name))
    assert not losses(rows)
    assert ingest.account("s").missing == 0


@TIMES
@given(st.data(), st.sampled_from(NAMES))
def test_a_cut_trace_has_gaps_of_unknown_size_where_it_was_cut(data, name):
    lines = trace(name)
    begin = data.draw(st.integers(0, len(lines) - 1))
    stop = data.draw(st.integers(begin + 1, len(lines)))
    numbered = [line for line in lines[begin:stop] if line.startswith(b'{"id"')]
    starts = any(b'"name":"start"' in line for line in numbered)
    ends = any(b'"name":"end"' in line for line in numbered)
    ingest, rows = stored(lines[begin:stop])
    assert events(rows) <= events(stored(lines)[1])
    assert not counted(rows)
    assert ingest.account("s").missing == 0
    shown = any(b'"ph":1' in line or b'"ph":"M"' in line for line in lines[begin:stop])
    if numbered and shown:  # else nothing shows a release that counts events
        expected = {"late_join": starts, "truncated": ends}
        assert {reason for _, reason, _ in losses(rows)} == {
            r for r, had in expected.items() if not had
        }


@TIMES
@given(st.data(), st.lists(st.sampled_from(NAMES), min_size=2, max_size=4))
def test_processes_in_one_file_have_sessions_of_their_own(data, names):
    traces = [trace(name, pid) for pid, name in enumerate(names, 100)]
    ingest, rows = stored(interleaved(data.draw, *traces))
    apart = [stored(lines)[1] for lines in traces]
    assert events(rows) == sum(map(events, apart), Counter())
    assert all(len(mine) == 1 for mine in pids(rows).values())
    assert len(pids(rows)) == len([each for each in apart if events(each)])
    assert not losses(rows)
    assert ingest.account("s").missing == 0


@TIMES
@given(st.data())
def test_a_loss_among_several_processes_is_that_of_its_own(data):
    """A checkpoint in between changes nothing."""
    traces = [trace("v220_py_plain", pid) for pid in (100, 101, 102)]
    lines = interleaved(data.draw, *traces)
    plain = [
        n for n, line in enumerate(lines) if line.startswith(b'{"id"') and b'"dftracer"' not in line
    ]
    gone = data.draw(st.sampled_from(plain))
    owner = re.search(rb'"pid":(\d+)', lines[gone])[1].decode()
    left = lines[:gone] + lines[gone + 1 :]
    _, rows = stored(left)
    (((session, reason, _), count),) = losses(rows).items()
    assert (pids(rows)[session], reason, count) == ({owner}, "network", 1)
    log = Log()
    file = log.open_file("dftracer", "/runs/0.pfw")
    cut = data.draw(st.integers(0, len(left)))
    log.data(file, b"".join(left[:cut]))
    ingest, before = run(log.entries)
    done = len(log.entries)
    log.data(file, b"".join(left[cut:]))
    log.close(file, "end of file")
    _, after = run(log.entries[done:], Ingest.restore(ingest.snapshot()))
    assert losses(before + after) == losses(rows)
    assert events(before + after) == events(rows)


def test_too_many_processes_are_taken_for_one_of_which_nothing_is_claimed():
    lines = [
        dftracer_lines.event(1, name="start", cat="dftracer", pid=pid)
        for pid in range(PROCESSES_MAX + 3)
    ]
    lines += [dftracer_lines.event(9, name="end", cat="dftracer", pid=PROCESSES_MAX + 2)]
    _, rows = stored([dftracer_lines.text(*lines)])
    assert len({row["session"] for row in rows}) == PROCESSES_MAX + 3
    assert not counted(rows)


def begun(pid, host):
    args = f'"hhash":"{host}"' if host else None
    return dftracer_lines.event(1, name="start", cat="dftracer", pid=pid, args=args)


def restored(decoder):
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(decoder.state), type=DFTracerState)
    return DFTracerDecoder(1 << 16, state)


def decoded(lines, cut=None):
    """The records of lines, where a decoder takes up the state of another one after the first `cut` lines."""
    decoder, records = DFTracerDecoder(1 << 16), []
    for number, line in enumerate(lines):
        if number == cut:
            decoder = restored(decoder)
        records += decoder.feed(dftracer_lines.text(line))
    return records + decoder.end()


SHOWS_PID = '{"id":3,"name":"read","pid":%d,'


@pytest.mark.parametrize("last", [dftracer_lines.event(2, pid=5, args=None), SHOWS_PID % 5])
def test_a_restart_between_processes_of_one_pid_changes_no_record(last):
    lines = [begun(5, "a"), begun(5, "b"), begun(5, "a").replace("start", "s"), begun(7, "c"), last]
    whole = decoded(lines)
    assert [r.detail.process for r in whole if r.name == "process"][:4] == [1, 0, 2, 0]
    for cut in range(len(lines) + 1):
        assert decoded(lines, cut) == whole


@pytest.mark.parametrize("host", ["", "a"])
def test_a_restart_beyond_the_last_process_changes_no_record(host):
    """And what lies beyond needs no room."""
    lines = [begun(pid, host) for pid in range(2 * PROCESSES_MAX)]
    lines += [dftracer_lines.event(2, pid=3, args=None), SHOWS_PID % PROCESSES_MAX]
    whole = decoded(lines)
    assert decoded(lines, len(lines) - 1) == decoded(lines, len(lines) - 2) == whole
    decoder = DFTracerDecoder(1 << 16)
    records = decoder.feed(dftracer_lines.text(*lines, "{}"))
    assert [r.detail.process for r in records if r.name == "process"][-2:] == [3, PROCESSES_MAX]
    assert len(decoder.state.processes.processes) == PROCESSES_MAX + 1
    assert restored(decoder).state == decoder.state


def steps(decoder, data):
    """How many functions a decoder calls for some bytes."""
    calls = Counter()
    sys.setprofile(lambda _frame, event, _: calls.update([event]))
    try:
        decoder.feed(data)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def test_a_repeated_bracket_costs_the_same_with_any_number_of_processes():
    costs = []
    for count in (2, PROCESSES_MAX):
        decoder = DFTracerDecoder(1 << 16)
        ends = [dftracer_lines.event(1, name="end", cat="dftracer", pid=n) for n in range(count)]
        decoder.feed(dftracer_lines.text(*(begun(pid, "") for pid in range(count)), *ends, "]"))
        costs.append(steps(decoder, b"]\n" * 100))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("pids", [('"007"', "7"), ("7", '"007"'), ('"-0"', "0")])
def test_leading_zeros_of_a_pid_make_no_other_process(pids):
    lines = [begun(pids[0], ""), *(dftracer_lines.event(n, pid=pids[1], args=None) for n in (2, 3))]
    data = dftracer_lines.text(*lines)
    for feed in (DFTracerDecoder(1 << 16).feed, lambda data: decoded(data.decode().splitlines())):
        assert not [r for r in feed(data) if r.name == "process"]
