"""Test that files of foreign types are left out as a whole, with a description of the type, and that no trace is taken
for a foreign file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile

import pytest
from hypothesis import example, given, strategies as st

from tailrace.decoding.foreign import FOREIGN as KNOWN, foreign, other_format
from tailrace.decoding.formats import FORMATS, OWN
from tailrace.importing.discover import Why, find
from tests.decoding.kernel_inputs import VECTORS
from tests.ingest.log import Log, heph_event, run
from tests.ingest.test_machine import assert_conserved, assert_replays

LINES = b'{"type":"header","version":"2.0","metadata":{}}\n{"clk":1,"type":"record_end","record_id":1}\n'
DFTRACER = b'[\n{"id":1,"name":"read","cat":"POSIX","pid":7,"tid":8,"ts":1,"dur":3,"ph":"X","args":{}}\n]\n'
RECORDS = json.loads(DFTRACER)
EPOCH = struct.pack(">IIH", 0x75D11D4D, 23, 5) + b"epoch" + bytes(8)


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        about = tarfile.TarInfo("a.jets")
        about.size = len(LINES)
        archive.addfile(about, io.BytesIO(LINES))
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.jets", LINES)
    return file.getvalue()


def old_heph(description, *, size=0):
    """Return an event in Heph's layout of early 2021: stream, number, start and end, without a substream."""
    size = size or 34 + len(description)
    head = struct.pack(">IIIIQQH", 0xC1FC1FB7, size, 0, 0, 1000, 2000, len(description))
    return head + description


FOREIGN = {
    "utf_16_or_32": LINES.decode().encode("utf-16"),
    "utf_16_or_32 of the other order": b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
    "utf_16_or_32 without a mark": LINES.decode().encode("utf-16-le"),
    "utf_16_or_32 of four bytes": LINES.decode().encode("utf-32"),
    "utf_16_or_32 of four bytes without a mark": LINES.decode().encode("utf-32-be"),
    "cr_lines": LINES.replace(b"\n", b"\r"),
    "cr_lines of DFTracer": DFTRACER.replace(b"\n", b"\r"),
    "cr_lines with a Ctrl-Z": LINES.replace(b"\n", b"\r") + b"\x1a",
    "cr_lines of records alone": DFTRACER.split(b"\n")[1] + b",\r" + DFTRACER.split(b"\n")[1],
    "cr_lines of ET3": b"\xef\xbb\xbfM 31 0 17\rM 21 0 17\rE 21 17\r",
    "trace_events": json.dumps({"traceEvents": RECORDS}).encode(),
    "trace_events behind other members": json.dumps(
        {"schemaVersion": 1, "devices": [{"id": 0, "name": "a }"}], "displayTimeUnit": "ms"}
        | {"otherData": {"version": "1.2"}, "record_shapes": True, "traceEvents": RECORDS}
    ).encode(),
    "trace_events in lines": b'{\n"traceEvents": [\n' + DFTRACER.replace(b"}\n", b"},\n") + b"]}",
    "jets_array": json.dumps(list(map(json.loads, LINES.splitlines()))).encode(),
    "jets_array of lines": b"[\n" + LINES.strip().replace(b"\n", b",\n") + b"\n]\n",
    "jets_array that is indented": json.dumps(
        list(map(json.loads, LINES.splitlines())), indent=1
    ).encode(),
    "indented_json": b"".join(
        json.dumps(json.loads(line), indent=2).encode() + b"\n" for line in LINES.splitlines()
    ),
    "indented_json of DFTracer": json.dumps(RECORDS[0], indent=2).encode(),
    "indented_json in an array": b"\xef\xbb\xbf" + json.dumps(RECORDS, indent="\t").encode(),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(range(256)) * 3,
    "xz": lzma.compress(LINES),
    "bzip2": bz2.compress(LINES),
    "lz4": b"\x04\x22\x4d\x18" + bytes(range(256)),
    "gzip": gzip.compress(LINES * 20),
    "tar": tar(),
    "zip": zipped(),
    "parquet": b"PAR1" + bytes(range(256)),
    "program": b"\x7fELF\2\1\1" + bytes(60) + bytes(range(256)),
    "http": b"POST /traces HTTP/1.1\r\nHost: here\r\n\r\n" + LINES,
    "http that answers": b"HTTP/1.1 400 Bad Request\r\n\r\n" + LINES,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
    "brotli": b"\x1b\x5f\x00\xf8" + bytes(range(1, 60)),
    "old_heph": EPOCH + old_heph(b"Creating worker threads") * 3,
    "old_heph without its epoch": old_heph(b"Creating worker threads") * 3,
}
"""Foreign contents by name. The first word of a name is the key in `foreign.FOREIGN`."""


@pytest.mark.parametrize("format_", [None, "jets", "heph"])
@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind not in {"gzip", "brotli"}])
def test_a_foreign_file_is_left_out_with_its_cause(tmp_path, kind, format_):
    file = tmp_path / "a.jets"
    file.write_bytes(FOREIGN[kind])
    (left,) = find([file], format_).left_out
    assert left.why == Why.FOREIGN
    assert left.trace
    assert left.content == KNOWN[kind.partition(" ")[0]]


def test_what_is_compressed_twice_is_foreign(tmp_path):
    file = tmp_path / "a.jets.gz"
    file.write_bytes(gzip.compress(gzip.compress(LINES)))
    (left,) = find([file], None).left_out
    assert left.content == KNOWN["gzip"]


def test_brotli_is_known_by_the_name_alone(tmp_path):
    compressed, plain = tmp_path / "a.jets.br", tmp_path / "b.jets.br"
    compressed.write_bytes(b"\x1b\x5f\x00\xf8" + bytes(range(1, 60)))
    plain.write_bytes(LINES)
    found = find([compressed, plain], None)
    assert found.traces == {"jets": [str(plain)]}
    assert ["by Brotli (.br)" in left.content for left in found.left_out] == [True]


def test_no_vector_is_foreign():
    heads = {path: path.read_bytes()[:4096] for path in VECTORS.glob("*/*.in")}
    assert len(heads) > 100
    assert {
        str(path): words for path, head in heads.items() if (words := foreign("/a", head))
    } == {}


HEADS = [(OWN[path.parent.name], path.read_bytes()) for path in sorted(VECTORS.glob("*/*.in"))]


@given(st.sampled_from(HEADS), st.data())
def test_a_damaged_trace_is_of_no_other_format(head, data):
    format_, content = head
    begin = data.draw(st.integers(0, min(len(content), 5000)))
    damaged = bytearray(content[begin:])
    for at in data.draw(st.lists(st.integers(0, len(damaged)), max_size=4)):
        damaged[at : at + 1] = data.draw(st.binary(max_size=3))
    assert not other_format("/a", bytes(damaged[:4096]), format_)


def test_a_trace_is_of_its_format_for_all_others():
    names = set()
    for format_, content in HEADS:
        if format_.files.recognises("/a", content[:4096]):
            names.add(format_.name)
            found = {other_format("/a", content[:4096], own) for own in OWN.values()}
            assert found == {"", format_.name}
    assert names == OWN.keys()


TRACES = {
    "jets": LINES,
    "dftracer": b'[\n{"id":0,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{}}\n',
    "et3": (VECTORS / "et3/spec_simple.in").read_bytes(),
    "heph": EPOCH + struct.pack(">IIIIQQQH", 0xC1FC1FB7, 49, 0, 0, 1, 2, 0, 7) + b"custard",
    "ovni": b"ovni\1\0\0\0" + b"\0OHe" + bytes(8),
}


@pytest.mark.parametrize(
    "line",
    [
        DFTRACER[2:-3].replace(b"read", name)
        for name in (b"a\rB", b"1\rB", b"\r[", b"}\r{", b"a},\r{", b'}\r{\\"x\\":1}\r')
    ]
    + [
        DFTRACER[2:-3].replace(b"{}", b'{"a":[{"a":1},\r{"b":2}]}'),
        DFTRACER[2:-3].replace(b",", b",\r").replace(b"1", b"1\r"),
        b"[\r" + DFTRACER[2:-3] + b"\r",
    ],
)
def test_a_cr_inside_a_line_is_no_end_of_one(line):
    assert foreign("/a.pfw", line) == ""
    whole = line.replace(b"\r", b"")
    assert foreign("/a.pfw", b"\xef\xbb\xbf[\r" + whole + b",\r\r" + whole) == "cr_lines"


@given(
    st.sampled_from([*TRACES]),
    st.binary(max_size=12)
    | st.sampled_from([b"ustar\0" + b"00", b"ustar  \0", b"custard", *FOREIGN.values()]),
    st.sampled_from([0, 148, 257, 260]) | st.integers(0, 600),
    st.sampled_from(["/a", "/a.br", "/a.pfw.br"]),
)
@example("dftracer", b"ustar", 257, "/a")
@example("heph", b"ustar\0", 257, "/a")
@example("et3", b"", 0, "/a.br")
@example("dftracer", b"", 0, "/a.br")
def test_no_trace_is_foreign_whatever_its_values_are(format_, value, at, path):
    head = TRACES[format_]
    head = head + b" " * (at - len(head)) + value
    assert foreign(path, head) == ""


@pytest.mark.parametrize("count", [*range(40)])
def test_a_trace_behind_a_hole_is_not_foreign(count):
    for lines in (TRACES["et3"], LINES, b"N"):
        assert foreign("/a", bytes(count) + lines) == ""


@pytest.mark.parametrize("data", [EPOCH, EPOCH[:8], old_heph(b"x", size=20), bytes(600), b""])
def test_what_shows_nothing_is_not_foreign(data):
    assert foreign("/a", data) == ""


@pytest.mark.parametrize("behind", [1, 3, 50])
@pytest.mark.parametrize("damaged", [7, 40, 41])
def test_a_session_whose_first_event_is_damaged_is_no_old_heph(damaged, behind):
    """On a host that has run for days, a clock has a 1 in the bytes where old Heph has a length."""
    days = 5 * 86_400 * 10**9
    events = [heph_event(1, n, days + n * 1000) for n in range(1 + behind)]
    for bit in range(8):
        data = bytearray(b"".join(events))
        data[damaged] ^= 1 << bit
        log = Log()
        session = log.open("heph")
        log.data(session, bytes(data))
        log.close(session)
        ingest, rows = run(log.entries)
        assert "old_heph" not in ingest.tally("s").malformed_records
        assert sum(row["kind"] == "span" for row in rows) >= behind - 1


# Connections and datagrams


def gaps_of(rows):
    """Return the reason, the detail and the number of missing events of each gap row."""
    return [
        (row["name"], json.loads(row["attributes"])["detail"], row["missing"])
        for row in rows
        if row["kind"] == "gap"
    ]


def tailed(log, format_, kind):
    return log.open_file(format_, "/runs/a.br" if kind == "brotli" else "/runs/a")


def connected(log, format_, kind):
    return log.open(format_)


WAYS = [(tailed, name) for name in FORMATS] + [(connected, "heph"), (connected, "jets")]


@pytest.mark.parametrize("step", [64, 600, 10**6])
@pytest.mark.parametrize(
    ("way", "format_", "kind"),
    [(*way, kind) for way in WAYS for kind in FOREIGN if way[0] is tailed or kind != "brotli"],
)
def test_a_foreign_stream_is_one_gap_of_unknown_size(way, format_, kind, step):
    content, what = FOREIGN[kind] * 3, kind.partition(" ")[0]
    log = Log()
    session = way(log, format_, kind)
    for at in range(0, len(content), step):
        log.data(session, content[at : at + step])
    log.close(session)
    ingest, rows = run(log.entries)
    found, tally = gaps_of(rows), ingest.tally("s")
    epoch = len(EPOCH) if kind == "old_heph" and format_ == "heph" else 0
    assert found[0] == ("malformed", what, None)
    assert set(found[1:]) <= {("malformed", what, 0)}
    assert (tally.unknown_gaps, ingest.account("s").missing) == (1, 0)
    assert (tally.malformed, tally.decoded) == (len(content) - epoch, epoch)
    assert set(tally.malformed_records) == {what}
    assert {row["kind"] for row in rows} == {"gap", "session"}
    assert_conserved(ingest)
    assert_replays(log.entries, *range(1, min(len(log.entries), 12)))


@pytest.mark.parametrize("loss", ["hole", "bad_member"])
def test_foreign_bytes_have_the_same_places_after_a_restart(loss):
    content = FOREIGN["http"] * 3
    log = Log()
    session = log.open_file("jets")
    log.loss(session, detail=loss, size=1000)
    for at in range(0, len(content), 30):
        log.data(session, content[at : at + 30])
    log.close(session)
    assert_replays(log.entries, *range(1, len(log.entries)))


@pytest.mark.parametrize("format_", ["heph", "jets"])
@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind != "brotli"])
def test_a_foreign_datagram_says_nothing_of_the_others(format_, kind):
    content, what = FOREIGN[kind], kind.partition(" ")[0]
    good = {"heph": heph_event(1, 0), "jets": LINES}[format_]
    log = Log()
    session = log.open(format_, transport="udp")
    log.datagrams(session, [content, content[:-1]])
    log.datagrams(session, [good, content])
    ingest, rows = run(log.entries)
    gaps = gaps_of(rows)
    assert {reason for reason, _, _ in gaps} == {"malformed"}
    assert {missing for _, _, missing in gaps} <= {None, 0}
    assert ingest.account("s").missing == 0
    assert [row["kind"] for row in rows if row["kind"] in {"span", "end"}]
    assert set(ingest.tally("s").malformed_records) == {what}
    assert_conserved(ingest)


@pytest.mark.parametrize("size", range(1, 40))
def test_a_short_beginning_of_a_trace_is_awaited(size):
    for format_, lines in TRACES.items():
        log = Log()
        session = log.open_file(format_, "/runs/a.br")
        log.data(session, lines[:size])
        log.data(session, lines[size:] + lines)
        log.close(session)
        ingest, _ = run(log.entries)
        assert not set(ingest.tally("s").malformed_records) & set(KNOWN), format_


# NULs


@pytest.mark.parametrize("size", [4, 300, 4096, 300_000])
@pytest.mark.parametrize("step", [100, 10**6])
@pytest.mark.parametrize("format_", [*FORMATS])
def test_nuls_behind_a_trace_are_a_gap_of_unknown_size(format_, step, size):
    """After a crash, a file system leaves NULs in blocks that were never written."""
    lines, nuls = TRACES[format_], bytes(size)
    if format_ == "jets":
        # There is no gap for the end of a record that never began.
        lines = lines.partition(b"\n")[0] + b'\n{"type":"footer"}\n'
    log = Log()
    session = log.open_file(format_, record_max=2**16)
    log.data(session, lines)
    for at in range(0, size, step):
        log.data(session, nuls[at : at + step])
    log.close(session)
    ingest, rows = run(log.entries)
    found = [missing for _, _, missing in gaps_of(rows)]
    assert (found[0], set(found[1:]) <= {0}) == (None, True)
    assert ingest.account("s").missing == 0
    assert ingest.tally("s").unknown_gaps == 1
    assert ingest.tally("s").malformed == size
    assert_conserved(ingest)
