"""Test how the paths of ovni's files are read: stream, process, host and trace."""

from __future__ import annotations

import pytest

from tailrace.decoding.formats.ovni import FORMAT
from tailrace.decoding.formats.ovni.files import read_path

FILES = FORMAT.files
V3 = "/scratch/ovni/loom.node1.job/proc.70/thread.71/stream.obs"
V1 = "/scratch/ovni/loom.node1.job/proc.70/thread.71.obs"
both = pytest.mark.parametrize("path", [V3, V1, V3 + ".gz", V1 + ".gz"])


@both
def test_a_path_tells_whose_stream_it_is(path: str) -> None:
    assert read_path(path) == ("node1.job/70/71", "node1.job/70", "node1")
    assert FILES.stream(path)
    assert FILES.group(path) == "/scratch/ovni"
    assert FILES.copy(path) == "node1.job/70/71"


@pytest.mark.parametrize(
    "path",
    [
        "/scratch/ovni/loom.a/proc.1/thread.1/stream.json",
        "/scratch/ovni/loom.a/proc.1/thread.1.json",
        "/scratch/ovni/loom.a/proc.1/stream.obs",
        "/scratch/ovni/loom.a/proc.1/thread.1/stream.obs.tmp",
        "/scratch/ovni/cpu.prv",
        "/scratch/ovni/clock-offsets.txt",
    ],
)
def test_other_files_are_left_alone(path: str) -> None:
    assert not FILES.stream(path)


def test_a_stream_that_lies_elsewhere_is_one_of_which_no_more_is_known() -> None:
    path = "/runs/thread.5/stream.obs"
    assert FILES.stream(path)
    assert read_path(path) == ("", "", "")
    assert FILES.group(path) == "/runs/thread.5"
    assert FILES.copy(path) == path
    assert FILES.copy(path + ".gz") == path


def test_a_stream_under_a_temporary_directory_is_the_one_it_is_moved_to() -> None:
    assert FILES.copy(V3.replace("/scratch/ovni", "/dev/fast")) == FILES.copy(V3)
    assert FILES.copy(V3.replace("thread.71", "thread.72")) != FILES.copy(V3)
    assert FILES.copy(V3.replace("node1.job", "node2.job")) != FILES.copy(V3)


def test_a_loom_in_a_loom_is_the_innermost() -> None:
    path = "/a/loom.x/proc.1/thread.1/ovni/loom.y/proc.2/thread.3/stream.obs"
    assert read_path(path).stream == "y/2/3"
    assert FILES.group(path) == "/a/loom.x/proc.1/thread.1/ovni"


def test_names_that_are_not_unicode_are_shown_as_far_as_they_are() -> None:
    place = read_path(V3.replace("node1", "n\udcff"))
    assert place.stream == "n\ufffd.job/70/71"
    place.stream.encode()


def test_documents_are_the_threads_the_process_s_and_the_traces() -> None:
    assert FILES.documents(V3) == ("stream.json", "../../../clock-offsets.txt")
    assert FILES.documents(V1 + ".gz") == (
        "thread.71.json", "metadata.json", "../../clock-offsets.txt",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        (V3, b"ovni\1\0\0\0\0", True),
        ("/any/name", b"ovni\1\0\0\0\0", True),
        ("/any/name", b"ovni\0\0\0\1", True),
        (V3, b"", True),
        (V3, b"ov", True),
        (V3, b"OTF2", False),
        ("/any/name", b"", False),
        ("/any/name", b"ov", False),
        ("/any/name.json", b'{"version":3}', False),
    ],
)
def test_streams_are_recognised_by_their_magic(path: str, head: bytes, expected: bool) -> None:
    assert FILES.recognises(path, head) is expected
