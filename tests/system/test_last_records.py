"""The last record of a followed file without its end: read at rest and at a stop, or named until it is whole."""

from __future__ import annotations

import gzip
import json

import pytest

from tests import toml
from tests.decoding import dftracer_lines
from tests.decoding.ovni_bytes import HEADER, ends, starts
from tests.forms import in_turn
from tests.ingest.log import heph_event
from tests.system.collector import until

JETS = [
    '{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}\n{"type":"footer"}',
    '{"clk":0,"type":"record","id":1,"name":"r","record_type":"T","description":"","parent_id":null}',
    *(
        f'{{"clk":{n},"type":"event","name":"e{n}","record_id":1,"description":""}}'
        for n in range(1, 9)
    ),
]
"""Lines behind a footer: nothing is missing behind the last of them."""
DFTRACER = ["[", *(dftracer_lines.event(n, ph='"X"', args='"ret":0') for n in range(9))]
"""Lines of a release that writes neither `start` nor `end`: nothing is missing behind the last of them."""
LINES = {"jets": JETS, "dftracer": DFTRACER}
NAMES = {"jets": "a.jets", "dftracer": "a.pfw"}
kinds = pytest.mark.parametrize(("format_", "packed"), in_turn([*NAMES], ["", ".gz"]))


def following(format_, directory, rest_time):
    return toml.source(
        "files",
        "tail",
        format_,
        paths=[directory],
        poll_interval="20 ms",
        idle_interval="50 ms",
        rest_time=rest_time,
    )


class Written:
    """A file, in lines or pieces, packed or not."""

    def __init__(self, path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, data):
        if self.path.suffix == ".gz":
            data = gzip.compress(data)
        with self.path.open("ab") as file:
            file.write(data)


def events(collector):
    rows = collector.rows(["kind", "name", "offset"])
    return sum(row["kind"] in {"instant", "span"} for row in rows)


def found(collector, command):
    done = collector.cli(command, "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def received(collector):
    return collector.status()["sources"]["files"]["received_bytes"]


def refuses(collector):
    """Whether an answer that must be complete is refused."""
    done = collector.cli("query", "--complete-only", "SELECT count(*) FROM events")
    assert done.returncode in {0, 3}, done.stderr
    return done.returncode == 3


@pytest.fixture
def start(collectors, tmp_path):
    def begin(format_, rest_time):
        return collectors(sources=following(format_, tmp_path / "files", rest_time)).start()

    return begin


@kinds
def test_a_last_line_without_its_newline_is_stored_at_rest_and_once(
    start, tmp_path, format_, packed
):
    lines = [line.encode() for line in LINES[format_]]
    first = 1 if format_ == "jets" else 0
    file = Written(tmp_path / "files" / (NAMES[format_] + packed))
    collector = start(format_, "200 ms")
    file.append(b"\n".join(lines[:3]))
    until(lambda: events(collector) == 2 - first, "the last line")
    collector.settle()
    assert found(collector, "gaps") == []
    assert not refuses(collector)
    file.append(b"\n" + lines[3] + b"\n" + lines[4])
    until(lambda: events(collector) == 4 - first, "the next last line")
    file.append(b"\n")
    file.append(lines[5] + b"\n" + lines[6][:20])
    until(lambda: found(collector, "gaps"), "the gap of a torn line", pause=0.5)
    (gap,) = found(collector, "gaps")
    assert (gap["reason"], gap["count"], gap["attributes"]["pending"]) == (
        "truncated", None, 20,
    )  # fmt: skip
    assert refuses(collector)
    file.append(lines[6][20:] + b"\n" + lines[7])
    until(lambda: events(collector) == 7 - first, "the rest of the torn line")
    until(lambda: not found(collector, "gaps"), "the end of the gap", pause=0.5)
    assert not refuses(collector)


@kinds
def test_a_last_line_without_its_newline_is_stored_at_a_stop_and_once(
    start, tmp_path, format_, packed
):
    lines = [line.encode() for line in LINES[format_]]
    first = 1 if format_ == "jets" else 0
    file = Written(tmp_path / "files" / (NAMES[format_] + packed))
    collector = start(format_, "1 h")
    read = 0
    for data, stored, refused in (
        (b"\n".join(lines[:4]), 3, False),
        (b"\n" + lines[4], 4, False),
        (b"\n" + lines[5] + b"\n" + lines[6][:30], 5, True),
        (lines[6][30:], 6, False),
        (b"\n", 6, False),
    ):
        file.append(data)
        read += len(data)
        until(
            lambda read=read: collector.status()["sources"]["files"]["received_bytes"] >= read,
            "the bytes",
        )
        collector.stop()
        assert events(collector) == stored - first
        assert refuses(collector) == refused
        collector.start()


TORN = {
    "heph": ("a.heph", heph_event(1, 0), heph_event(1, 1)),
    "ovni": ("loom.h.1/proc.1/thread.1/stream.obs", HEADER + starts(5), ends(9)),
    "et3": ("a.trace", b"M 1 2 3\nN 4 5 6 7 0 8\n", b"E 1 3\n"),
}


@pytest.mark.parametrize(("format_", "rests"), in_turn([*TORN], [True, False]))
def test_a_torn_record_is_named_until_its_rest_comes(start, tmp_path, format_, rests):
    name, before, last = TORN[format_]
    file = Written(tmp_path / "files" / name)
    collector = start(format_, "200 ms" if rests else "1 h")
    file.append(before + last[:-1])
    size = len(before + last)
    if rests:
        until(lambda: found(collector, "gaps"), "the gap of a torn record", pause=0.5)
    else:
        until(lambda: received(collector) == size - 1, "the bytes before the last")
    collector.settle()
    collector.stop()
    assert refuses(collector)
    pending = [gap["attributes"]["pending"] for gap in found(collector, "gaps")]
    assert pending
    assert all(each >= len(last) - 1 for each in pending)
    collector.start()
    file.append(last[-1:])
    until(lambda: received(collector) >= size, "the last byte")
    collector.settle()
    if format_ != "et3":  # whose lines wait until its form is known
        until(lambda: not rests or not found(collector, "gaps"), "the end of the gap", pause=0.5)


@kinds
def test_a_killed_collector_reads_on_in_its_files_and_misses_nothing(
    start, tmp_path, format_, packed
):
    """It is killed within a line and within a file, and the file grows while no collector runs."""
    lines = list(LINES[format_])
    if format_ == "jets":  # from its header to its footer
        header, footer = lines.pop(0).split("\n")
        lines = [header, *lines, footer]
    data = "\n".join(lines).encode() + b"\n"
    file = Written(tmp_path / "files" / (NAMES[format_] + packed))
    collector = start(format_, "1 h")
    for at in range(0, len(data), 150):
        file.append(data[at : at + 50])
        until(lambda at=at: received(collector) >= at + len(data[at : at + 50]), "the bytes")
        collector.kill()
        file.append(data[at + 50 : at + 150])
        assert refuses(collector)
        assert [gap["reason"] for gap in found(collector, "gaps")] == ["awaited"]
        collector.start()
    until(lambda: received(collector) == len(data), "the last bytes")
    collector.settle()
    assert found(collector, "gaps") == []
    collector.stop()
    assert found(collector, "gaps") == []
    assert not refuses(collector)
    assert events(collector) == {"jets": 8, "dftracer": 9}[format_]
