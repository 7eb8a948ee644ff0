"""Files whose source is removed, renamed, narrowed or added again: read once, and named while no source follows them."""

from __future__ import annotations

import gzip
import json

import pytest

from tests import toml
from tests.system.collector import until
from tests.system.test_reload import reload, write

HEADER = """\
{"type":"header","version":"2.0","metadata":{"clock_frequency_mhz":1000}}
{"clk":0,"type":"record","id":1,"name":"r","record_type":"T","description":"","parent_id":null}
"""


def following(name, pattern, format_="jets", **keys):
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    head = toml.source(name, "tail", format_, paths=[pattern])
    return f'{head}poll_interval = "20 ms"\nidle_interval = "50 ms"\n{more}'


def line(number):
    event = {
        "type": "event",
        "clk": number,
        "name": f"e{number}",
        "record_id": 1,
        "description": "",
    }
    return json.dumps(event) + "\n"


class Traced:
    """A file that a program writes, and how often each of its events is stored."""

    def __init__(self, path):
        self.path = path
        self.written = 0
        path.write_text(HEADER)

    def write(self, count):
        with self.path.open("a") as file:
            file.writelines(line(n) for n in range(self.written, self.written + count))
        self.written += count

    def end(self, collector):
        with self.path.open("a") as file:
            file.write('{"type":"footer"}\n')
        until(lambda: not gaps(settled(collector)), "the end of the file")

    def stored(self, collector):
        rows = collector.rows(["kind", "name"], kind="instant")
        return sorted(int(row["name"][1:]) for row in rows)

    def is_stored(self, collector):
        """Wait until all is stored, and demand that nothing is stored twice."""
        until(lambda: len(self.stored(collector)) >= self.written, "the events")
        assert self.stored(collector) == list(range(self.written))


@pytest.fixture
def traced(tmp_path):
    return Traced(tmp_path / "a.jets")


def gaps(collector):
    done = collector.cli("gaps", "--json")
    return [json.loads(each) for each in done.stdout.splitlines()]


def closes(collector):
    return [
        r
        for r in collector.rows(["source", "kind", "name"], kind="session")
        if r["name"] == "close"
    ]


def settled(collector):
    collector.settle()
    return collector


OTHER = following("other", "/nowhere/*.jets")


@pytest.mark.parametrize("name", ["files", "renamed"])
def test_a_file_whose_source_comes_again_goes_on_where_it_stopped(
    collector_of, tmp_path, traced, name
):
    pattern = tmp_path / "*.jets"
    collector = collector_of(sources=following("files", pattern))
    traced.write(1000)
    traced.is_stored(collector)
    reload(collector, OTHER)
    traced.write(500)
    until(lambda: gaps(collector), "the gap of a file that nobody follows")
    (gap,) = gaps(collector)
    assert (gap["reason"], gap["detail"], gap["count"]) == ("truncated", "unfollowed", None)
    assert collector.cli("query", "--complete-only", "SELECT count(*) FROM events").returncode == 3
    reload(collector, following(name, pattern))
    traced.is_stored(collector)
    until(lambda: not gaps(collector), "the end of the gap")
    assert closes(settled(collector)) == []
    traced.end(collector)
    collector.stop()
    assert gaps(collector) == []


def test_under_traffic_nothing_is_stored_twice_however_often_the_source_goes(
    collector_of, tmp_path, traced
):
    pattern = tmp_path / "*.jets"
    collector = collector_of(sources=following("files", pattern))
    for turn in range(4):
        traced.write(500)
        if turn % 2:
            settled(collector)
        reload(collector, OTHER)
        traced.write(500)
        reload(collector, following(f"files{turn}", pattern))
    traced.is_stored(collector)
    assert closes(settled(collector)) == []
    until(lambda: not gaps(collector), "the end of the gaps")


def test_a_restart_with_another_configuration_is_no_other_reading(collector_of, tmp_path, traced):
    pattern = tmp_path / "*.jets"
    collector = collector_of(sources=following("files", pattern))
    traced.write(100)
    traced.is_stored(collector)
    for sources in (OTHER, following("renamed", pattern), OTHER, following("files", pattern)):
        collector.stop()
        write(collector, sources)
        traced.write(100)
        collector.start()
        if sources == OTHER:
            until(lambda: gaps(settled(collector)), "the gap of a file that nobody follows")
        else:
            traced.is_stored(collector)
            until(lambda: not gaps(collector), "the end of the gap")
    traced.end(collector)
    collector.stop()
    assert gaps(collector) == []


def test_of_two_sources_that_lead_to_a_file_one_follows_it_and_the_other_takes_over(
    collector_of, tmp_path, traced
):
    one, two = following("one", tmp_path / "*.jets"), following("two", tmp_path / "a.*")
    collector = collector_of(sources=one + two)
    traced.write(100)
    traced.is_stored(collector)

    def waiting():
        return [s["waiting_files"].get("source", 0) for s in collector.status()["sources"].values()]

    until(lambda: sorted(waiting()) == [0, 1], "one to wait for the other")
    for sources in (two, one + two, one, one + two):
        reload(collector, sources)
        traced.write(100)
        traced.is_stored(collector)
    until(lambda: not gaps(settled(collector)), "the end of the gaps")
    assert closes(collector) == []


def test_a_pattern_that_leads_elsewhere_ends_no_session(collector_of, tmp_path, traced):
    wide, narrow = following("files", tmp_path / "*.jets"), following("files", tmp_path / "b*.jets")
    elsewhere = following("files", tmp_path / "sub/*.jets")
    (tmp_path / "sub").mkdir()
    collector = collector_of(sources=wide)
    traced.write(100)
    traced.is_stored(collector)
    for sources in (narrow, elsewhere):
        reload(collector, sources)
        until(lambda: gaps(settled(collector)), "the file to be let go")
        assert closes(collector) == []
        reload(collector, wide)
        traced.write(100)
        traced.is_stored(collector)


@pytest.mark.parametrize("change", ["truncated", "replaced", "compressed", "moved", "deleted"])
def test_what_befell_a_file_meanwhile_is_seen_when_its_source_comes_again(
    collector_of, tmp_path, traced, change
):
    pattern = tmp_path / "*"
    collector = collector_of(sources=following("files", pattern))
    traced.write(100)
    traced.is_stored(collector)
    reload(collector, OTHER)
    whole = traced.path.read_bytes()
    new = (HEADER + "".join(line(n) for n in range(100, 110))).encode()
    if change == "truncated":
        traced.path.write_bytes(new)
    elif change == "replaced":
        (tmp_path / "new").write_bytes(new)
        (tmp_path / "new").replace(traced.path)
    elif change == "compressed":
        packed = gzip.compress(whole + b"".join(line(n).encode() for n in range(100, 110)))
        traced.path.with_suffix(".jets.gz").write_bytes(packed)
        traced.path.unlink()
    elif change == "moved":
        traced.path = traced.path.rename(tmp_path / "moved.jets")
        traced.write(10)
    else:
        traced.path.unlink()
        (tmp_path / "b.jets").write_bytes(new)
    traced.written = 110
    reload(collector, following("again", pattern))
    traced.is_stored(collector)
    ends = {"compressed": [], "moved": []}.get(change)
    if ends is None and change != "deleted":  # nobody looks for a file of which nothing is left
        until(lambda: closes(settled(collector)), "the end of the session")
    elif ends is not None:
        assert closes(settled(collector)) == ends
        until(lambda: not gaps(collector), "the end of the gap")
