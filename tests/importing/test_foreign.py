"""Files of foreign kinds are left out whole, with words for what they are, and no trace is taken for one of them."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import tarfile
import zipfile

import pytest
from hypothesis import example, given, strategies as st

from tailrace.importing.discover import Why, find
from tailrace.importing.foreign import foreign
from tests.decoding.kernel_inputs import VECTORS

LINES = b'{"type":"header","version":"2.0","metadata":{}}\n{"clk":1,"type":"record_end","record_id":1}\n'
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
    """An event of early 2021: stream, number, start and end, and no substream."""
    size = size or 34 + len(description)
    head = struct.pack(">IIIIQQH", 0xC1FC1FB7, size, 0, 0, 1000, 2000, len(description))
    return head + description


FOREIGN = {
    "UTF-16": LINES.decode().encode("utf-16"),
    "UTF-16 of the other order": b"\xfe\xff" + LINES.decode().encode("utf-16-be"),
    "UTF-16 without a mark": LINES.decode().encode("utf-16-le"),
    "UTF-32": LINES.decode().encode("utf-32"),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(40),
    "xz": lzma.compress(LINES),
    "bzip2": bz2.compress(LINES),
    "tar": tar(),
    "zip": zipped(),
    "Heph": EPOCH + old_heph(b"Creating worker threads") * 3,
    "Heph without its epoch": old_heph(b"Creating worker threads") * 3,
}


@pytest.mark.parametrize("format_", [None, "jets", "heph"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_left_out_with_its_cause(tmp_path, kind, format_):
    file = tmp_path / "a.jets"
    file.write_bytes(FOREIGN[kind])
    (left,) = find([file], format_).left_out
    assert left.why == Why.FOREIGN
    assert left.trace
    assert kind.partition(" ")[0].removesuffix("-32") in left.content


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


TRACES = {
    "jets": LINES,
    "dftracer": b'[\n{"id":0,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{}}\n',
    "et3": (VECTORS / "et3/spec_simple.in").read_bytes(),
    "heph": EPOCH + struct.pack(">IIIIQQQH", 0xC1FC1FB7, 49, 0, 0, 1, 2, 0, 7) + b"custard",
    "ovni": b"ovni\1\0\0\0" + b"\0OHe" + bytes(8),
}


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
