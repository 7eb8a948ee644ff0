"""Test each kernel against the Python decoder: their records and states must be equal for each input. Also test the
limits of blocks.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tailrace import kernels
from tailrace.decoding.formats import FORMATS
from tailrace.model.record import Kind
from tailrace.rows.block import Texts, Words
from tests.decoding.blockwise import records
from tests.decoding.dftracer_lines import HOST, event as dftracer_event, metadata, start, text
from tests.decoding.jets_lines import HEADER as JETS_HEADER
from tests.decoding.kernel_inputs import MAKERS, VECTORS, compare
from tests.decoding.ovni_bytes import HEADER as OVNI_HEADER, event as ovni_event, starts
from tests.decoding.pair import LIMIT, PYTHON, Pair, rows
from tests.decoding.test_heph import attribute, event as heph_event

pytestmark = pytest.mark.skipif(
    not kernels.active(), reason="kernels are off, or not built: make clean dev"
)
ROOT = Path(__file__).parents[2]
every_format = pytest.mark.parametrize("format_", MAKERS)

REAL = {
    "dftracer": ("v200_py_brackets", "v220_kill9_partial_line", "v220_preload_threads"),
    "et3": (
        "spec_simple", "agent_simple", "agent_simple_reordered", "agent_simple_with_deaths", "agent_threads",
        "agent_threads_reordered", "agent_threads_with_deaths",
    ),
    "heph": ("busy", "busy_lossy", "contended", "restart_concat", "runtime"),
    "jets": ("tracegen_default_lossy", "tracegen_tiny"),
    "ovni": ("traces/nosv-l2", "traces/truncated-kill9"),
}  # fmt: skip
"""Vectors from real producers with more than a few records, and traces with a file for each thread."""
BEGINNINGS = {
    "dftracer": text(metadata("HH", "vm", HOST), metadata("CM", "time_metric", "US"), start()),
    "et3": b"W 0 0 7\n",
    "heph": b"",
    "jets": JETS_HEADER,
    "ovni": OVNI_HEADER + starts(0),
}
"""Bytes after which the kernel reads each usual record, by format."""
OVNI = "/runs/ovni/loom.node.1/proc.7/thread.7/stream.obs"
BLOCK_ROWS = {"dftracer": 8192, "et3": 16384, "heph": 8192, "jets": 8192, "ovni": 16384}


def usual(format_, count):
    """Return this number of usual records."""
    make = {
        "dftracer": lambda n: text(dftracer_event(n + 2, name=f"name {n % 50}", tid=n % 999)),
        "et3": lambda n: (b"E %d 7\n" if n % 2 else b"M %d 0 7\n") % (n // 2 % 50),
        "heph": lambda n: heph_event(b"d%d" % (n % 50), attribute("n", "u64", n), stream=n % 999),
        "jets": lambda n: b'{"clk":5,"type":"event","name":"n%d","record_id":%d,"description":"d"}\n' % (n % 50, n),
        "ovni": lambda n: ovni_event("VS@", n),
    }[format_]  # fmt: skip
    return [make(number) for number in range(count)]


def begun(format_):
    """Return a pair of decoders that have read a beginning, so that the kernel reads usual records next."""
    pair = Pair(
        format_,
        **{"ovni": {"path": OVNI}, "et3": {"path": "", "dialect": "agent"}}.get(format_, {}),
    )
    pair.feed(BEGINNINGS[format_])
    return pair


def real(format_, case):
    file = VECTORS / format_ / f"{case}.in"
    if file.exists():
        return file, None
    files = (VECTORS / format_ / case).rglob("stream.obs")
    longest = max(files, key=lambda path: (path.stat().st_size, path))
    return longest, OVNI


@pytest.mark.parametrize(
    ("format_", "case"), [(format_, case) for format_, cases in REAL.items() for case in cases]
)
def test_nearly_all_real_records_take_the_kernel(format_, case):
    file, path = real(format_, case)
    pair = Pair(format_, path=f"/run/{case}" if format_ == "et3" else path)
    units = pair.feed(file.read_bytes())
    found = [r for r in records(units) if r.kind not in {Kind.NAME, Kind.SESSION}]
    assert rows(units) >= 0.95 * len(found)


@every_format
def test_vectors_are_read_the_same(format_):
    """The vectors are read in pieces. After each piece, each decoder continues from the state of the other."""
    for file in sorted((VECTORS / format_).glob("*.in")):
        data, pair = file.read_bytes(), Pair(format_)
        for at in range(0, len(data), 333):
            pair.feed(data[at : at + 333])
            pair.exchange()
        pair.end()


@every_format
def test_records_that_chunks_cut_take_the_kernel(format_):
    """This holds wherever a record is cut, with and without a restart between the two parts."""
    found = usual(format_, 60)
    data, longest = b"".join(found), max(map(len, found))
    middle = len(data) // 2
    for restarted in (False, True):
        for at in range(middle, middle + longest, 1 + longest // 40):
            pair = begun(format_)
            units = pair.feed(data[:at])
            if restarted:
                pair.exchange()
            units += pair.feed(data[at:])
            assert rows(units) >= len(found) - (format_ == "ovni")  # Python completes an event
            pair.end()


@every_format
def test_more_rows_than_a_block_takes_are_several_blocks(format_):
    most = BLOCK_ROWS[format_]
    units = begun(format_).feed(b"".join(usual(format_, 2 * most + 100)))
    assert [unit.rows for unit in units] == [most, most, 100]


@every_format
def test_a_block_holds_no_more_than_its_rows(format_):
    (block,) = begun(format_).feed(b"".join(usual(format_, 10)))
    assert block.rows == 10
    for column in block:
        match column:
            case Words(codes=codes):
                assert len(codes) == 40
            case Texts(ends=ends):
                texts = [each for each in block.column(column) if each is not None]
                assert (len(ends), len(column.data)) == (44, len("".join(texts)))
            case tuple():
                assert len(column.values) == 80
            case _:
                continue
        assert column.valid is None or len(column.valid) == 2


@every_format
def test_threads_may_share_the_kernel(format_):
    """The kernel releases the interpreter's lock. If another thread calls the decoder meanwhile, Python reads the other
    thread's records.
    """
    data = BEGINNINGS[format_] + b"".join(usual(format_, 3000))
    expected = PYTHON[format_](LIMIT, None).feed(data)
    differing = []

    def read():
        for _ in range(15):
            found = records(FORMATS[format_].decoder(LIMIT, None).blocks(data))
            differing.extend([found] if found != expected else [])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


@every_format
@pytest.mark.parametrize("count", [500, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_damaged_input_is_read_the_same(format_, count):
    inputs, found, from_blocks = compare(format_, count, seed=20261123)
    assert inputs == count
    assert from_blocks > found / 12


def sanitizer():
    """Return the library of the sanitizer, which must be loaded first, or None if there is none."""
    if shutil.which("gcc") is None:
        return None
    said = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    path = Path(said.stdout.strip())
    return path if path.is_absolute() else None


@pytest.mark.slow
@pytest.mark.skipif(sanitizer() is None, reason="no address sanitizer: apt install gcc")
def test_sanitizers_find_nothing():
    command = ["make", "sanitize", "INPUTS=20000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("none differs") == len(MAKERS)
