"""`tailrace verdict`: what trace files lack, without a store."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests import program
from tests.cli.command import ENVIRONMENT
from tests.decoding import dftracer_lines, ovni_bytes
from tests.program import COMMAND

VECTORS = Path(__file__).parents[1] / "vectors"
LINES = [dftracer_lines.event(number, dur=number) for number in range(2, 40)]


def trace(*lines):
    host = dftracer_lines.metadata("HH", "node", dftracer_lines.HOST)
    return dftracer_lines.text(host, dftracer_lines.start(), *lines, dftracer_lines.end(40))


@pytest.fixture
def runs(tmp_path):
    """A directory for traces; temporary stores are made beside it, and must be gone at the end."""
    made = tmp_path / "runs"
    made.mkdir()
    (tmp_path / "stores").mkdir()
    yield made
    assert not list((tmp_path / "stores").iterdir())


def verdict(*arguments, code=0):
    """Return what the command prints. No variable of Tailrace may matter."""
    stores = next(path for path in arguments if isinstance(path, Path)).parents
    stores = next(parent / "stores" for parent in stores if (parent / "stores").exists())
    own = {
        "TMPDIR": str(stores),
        "TAILRACE_CONFIG": "there is none",
        "TAILRACE_STORE": "ftp://nowhere",
    }
    done = program.run([*COMMAND, "verdict", *map(str, arguments)], env=ENVIRONMENT | own,
                       capture_output=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


def test_a_whole_trace_is_complete_and_its_figures_are_values(runs):
    (runs / "a.log").write_bytes(trace(*LINES))
    first, heading, read = verdict(runs / "a.log").splitlines()
    assert first == f"{runs / 'a.log'}: complete, 38 events"
    assert heading.split() == ["name", "count", "p50", "p95", "max"]
    assert read.split() == ["read", "38", "20", "us", "38", "us", "39", "us"]


def test_what_is_missing_has_a_number_a_reason_and_bounds(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES[:10], *LINES[11:]))
    found = json.loads(verdict("--json", runs, code=3))
    (only,) = found["traces"]
    assert (only["verdict"], only["missing"], only["unknown"]) == ("incomplete", {"network": 1}, [])
    assert only["text"] == "1 missing here, because numbers or totals have holes (1)"
    (read,) = found["names"]
    assert (read["name"], read["seen"]) == ("read", 37)
    assert read["bounds"]["count"] == [37, 38]
    assert read["bounds"]["p50"] == [20_000, 21_000]


def test_a_number_that_comes_twice_is_the_reason(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES, LINES[7]))
    (only,) = json.loads(verdict("--json", runs, code=3))["traces"]
    why = "numbers come twice or out of order, so holes in them prove nothing"
    assert only["text"] == f"cannot be told, because {why}"


def test_a_name_with_times_of_two_units_has_two_rows_with_their_units(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES))
    (runs / "b.jets").write_text(
        '{"type":"header","version":"2.0","metadata":{}}\n'
        '{"clk":2,"type":"record","name":"read","record_type":"x","id":1,"parent_id":null,"description":"","data":{}}\n'
        '{"clk":3,"type":"record_end","record_id":1}\n{"type":"footer"}\n'
    )
    heading, *rows = (line.split() for line in verdict(runs).splitlines()[2:])
    assert heading == ["name", "unit", "count", "p50", "p95", "max"]
    assert [row[:3] for row in rows] == [["read", "ns", "38"], ["read", "ticks", "1"]]


def test_what_cannot_be_told_is_not_complete(runs):
    (runs / "torn.pfw").write_bytes(b"\n".join(trace(*LINES).split(b"\n")[:-2]) + b"\n")
    (runs / "notes.txt").write_text("what I did today\n")
    (runs / "empty.pfw").write_bytes(b"")
    (runs / "cut.pfw.gz").write_bytes(gzip.compress(trace(*LINES))[:12])
    (runs / "wide.pfw").write_text("[", encoding="utf-16")
    names = ("torn.pfw", "notes.txt", "empty.pfw", "cut.pfw.gz", "wide.pfw")
    said = verdict(*(runs / name for name in names), code=3)
    torn, *others = said.splitlines()[:5]
    assert torn.startswith(f"{runs / 'torn.pfw'}: cannot be told, because the end is missing")
    assert sorted(others) == [
        f"{runs / 'cut.pfw.gz'}: cannot be told, because it is compressed data that ends before the first byte of content",
        f"{runs / 'empty.pfw'}: cannot be told, because it is empty",
        f"{runs / 'notes.txt'}: cannot be told, because it is not a trace of any known format",
        f"{runs / 'wide.pfw'}: cannot be told, because it is text in UTF-16 or UTF-32; write it in UTF-8, for example with iconv",
    ]


def test_a_trace_that_would_not_show_each_loss_is_not_complete(runs):
    """Releases of DFTracer up to 2.0.2 number other records, too, and an aggregate takes the numbers of its calls. A
    record of JETS may have no end, so only a footer that counts ends shows that none is lost."""
    for name in ("v200_py_brackets", "v203_agg_phC", "v220_service_counters", "v210_py_brackets"):
        shutil.copy(VECTORS / f"dftracer/traces/{name}.pfw.gz", runs)
    header = '{"type":"header","version":"2.0","metadata":{}}'
    record = '{"clk":2,"type":"record","name":"add","record_type":"x","id":1,"parent_id":null,"description":"","data":{}}'
    end = '{"clk":3,"type":"record_end","record_id":1}\n'
    totals = '"total_records":1,"total_events":0,"total_annotations":0'
    for name, ended, words in (
        ("none", end, ""), ("one", end, ',"total_records":1'), ("all", end, f",{totals}"),
        ("open", "", f",{totals}"), ("open_counted", "", f',{totals},"total_record_ends":0'),
    ):  # fmt: skip
        (runs / f"{name}.jets").write_text(
            f'{header}\n{record}\n{ended}{{"type":"footer"{words}}}\n'
        )
    found = json.loads(verdict("--json", runs))["traces"]
    assert {Path(each["path"]).name for each in found if each["verdict"] == "complete"} == {
        "all.jets", "open_counted.jets", "v210_py_brackets.pfw.gz",
    }  # fmt: skip
    assert {each["verdict"] for each in found} == {"complete", "no_known_loss"}
    assert len(found) == 9


def test_no_trace_at_all_is_not_complete(runs):
    assert verdict(runs, code=3) == "cannot be told, because there is no trace\n"
    verdict(runs / "nowhere", code=2)


@pytest.mark.parametrize(
    "content", [b"\xff" * 300, bytes(4096), b"\x28\xb5\x2f\xfd" + bytes(range(256))]
)
def test_a_destroyed_trace_in_a_directory_has_a_line(runs, content):
    """A file with the name of a trace was meant to be one."""
    (runs / "a.pfw").write_bytes(trace(*LINES))
    (runs / "b.pfw").write_bytes(content)
    (runs / "notes.txt").write_text("what I did today\n")
    lines = verdict(runs, code=3).splitlines()[:2]
    assert [line.split(": ")[0] for line in lines] == [str(runs / "a.pfw"), str(runs / "b.pfw")]
    assert ": cannot be told, because " in lines[1]


def test_what_cannot_be_opened_has_a_line(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES))
    os.mkfifo(runs / "pipe.pfw")
    (runs / "dangling.pfw").symlink_to(runs / "gone")
    (runs / "inside").symlink_to(runs)
    elsewhere = runs.parent / "elsewhere"
    elsewhere.mkdir()
    (runs / "linked").symlink_to(elsewhere)
    found = json.loads(verdict("--json", runs, code=3))["traces"]
    assert {Path(each["path"]).name: each["unknown"] for each in found} == {
        "a.pfw": [],
        "dangling.pfw": ["it does not exist, although a link or a document names it"],
        "linked": ["it is a link out of the directory"],
        "pipe.pfw": ["it is a pipe, a socket or a device"],
    }


def test_a_torn_line_about_the_trace_is_no_missing_event(runs):
    """Headers, footers and names are no events, but a part of an event may follow them in the line."""
    header = '{"type":"header","version":"2.0","metadata":{}}\n'
    record = '{"clk":2,"type":"record","name":"add","record_type":"x","id":1,"parent_id":null,"description":"","data":{}}'
    footer = '{"type":"footer","total_records":1,"total_events":0,"total_annotations":0}\n'
    host, start, *events, end = trace(*LINES).splitlines(keepends=True)
    traces = {
        "footer.jets": f"{header}{record}\n{footer[:40]}",
        "header.jets": f"{header[:30]}\n{record}\n{footer}",
        "no_version.jets": f'{{"type":"header"}}\n{record}\n{footer}',
        "glued.jets": f"{header[:30]}{record}\n{footer}",
        "torn.jets": f"{header}{footer[:-1]}{record[:40]}",
        "end.pfw": b"".join([b"[\n", host, start, *events, end[:60]]),
        "start.pfw": b"".join([b"[\n", host, start[:60], b"\n", *events, end]),
        "host.pfw": b"".join([b"[\n", host[:40], b"\n", start, *events, end]),
    }
    for pid, (name, text) in enumerate(traces.items()):
        whole = text if isinstance(text, bytes) else text.encode()
        (runs / name).write_bytes(whole.replace(b'"pid":7', b'"pid":7%d' % pid))
    found = json.loads(verdict("--json", runs, code=3))["traces"]
    sure = {Path(each["path"]).name for each in found if not (each["missing"] or each["unknown"])}
    assert sure == {"no_version.jets"}
    lost = {Path(each["path"]).name: each["missing"] for each in found}
    assert lost == {name: {} for name in traces} | {
        "glued.jets": {"malformed": 1},
        "torn.jets": {"truncated": 1},
    }


def test_a_missing_name_is_no_missing_event(runs):
    shutil.copy(VECTORS / "et3" / "agent_simple.in", runs / "a.et3")
    (only,) = json.loads(verdict("--json", runs / "a.et3", code=3))["traces"]
    assert (only["verdict"], only["missing"]) == ("incomplete", {})
    assert (only["missing_names"], only["text"]) == (42, "42 names are missing")


def test_a_copy_has_a_line_with_the_verdict_on_the_other_file(runs):
    whole = trace(*LINES)
    (runs / "a.pfw").write_bytes(whole)
    (runs / "b.pfw").write_bytes(whole)
    first, other = verdict(runs / "a.pfw", runs / "b.pfw").splitlines()[:2]
    assert first == f"{runs / 'a.pfw'}: complete, 38 events"
    assert other == f"{runs / 'b.pfw'}: its content is in {runs / 'a.pfw'}: complete, 38 events"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_leaves_no_temporary_store(runs, number):
    stores = runs.parent / "stores"
    (runs / "a.pfw").write_bytes(trace(*(dftracer_lines.event(n) for n in range(2, 100_000))))
    before = signal.signal(number, signal.SIG_DFL)  # nohup lets children ignore SIGHUP
    try:
        started = subprocess.Popen(
            [*COMMAND, "verdict", str(runs)],
            env=ENVIRONMENT | {"TMPDIR": str(stores)},
            stdout=subprocess.DEVNULL,
        )
    finally:
        signal.signal(number, before)
    with started as process:
        while not any(stores.glob("*/store")):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(number)
        assert process.wait(60) == 128 + number


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="root reads every file")
def test_a_file_that_may_not_be_read_has_a_line_beside_the_others(runs):
    (runs / "a.pfw").write_bytes(trace(*LINES))
    (runs / "b.pfw").write_bytes(trace(*LINES[1:]))
    (runs / "b.pfw").chmod(0)
    bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    command = [*(bound if os.geteuid() == 0 else []), *COMMAND, "verdict", str(runs)]
    own = {"TMPDIR": str(runs.parent / "stores")}
    done = program.run(command, env=ENVIRONMENT | own, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr.decode()
    assert done.stdout.decode().splitlines()[:2] == [
        f"{runs / 'a.pfw'}: complete, 38 events",
        f"{runs / 'b.pfw'}: cannot be told, because the operating system refuses to read it",
    ]


@pytest.mark.parametrize("content", [None, bytes(4096)])
def test_a_lost_thread_of_a_run_has_a_line(runs, content):
    header = b"ovni" + struct.pack("<I", 1)
    for thread in (1, 2):
        place = runs / "ovni" / "loom.node" / "proc.1" / f"thread.{thread}"
        place.mkdir(parents=True)
        (place / "stream.json").write_text("{}")
        events = struct.pack("<B3sQ", 0, b"OHx", 10) + struct.pack("<B3sQ", 0, b"OHe", 20)
        whole = header + events
        if thread == 1 or content is not None:
            (place / "stream.obs").write_bytes(whole if thread == 1 else content)
    lines = verdict(runs, code=3).splitlines()
    (lost,) = [line for line in lines if "thread.2" in line]
    assert lost.startswith(f"{place / 'stream.obs'}: cannot be told, because ")


def test_a_stream_of_ovni_outside_of_its_directories_has_a_line_of_its_own(runs):
    files = [runs / "a.obs", runs / "b.what"]
    for clock, file in enumerate(files, 10):
        file.write_bytes(ovni_bytes.HEADER + ovni_bytes.starts(clock) + ovni_bytes.ends(20))
    found = json.loads(verdict("--json", runs))["traces"]
    assert {each["path"]: each["verdict"] for each in found} == dict.fromkeys(
        map(str, files), "no_known_loss"
    )


@pytest.mark.parametrize(
    ("vector", "code", "text"),
    [
        ("heph/busy", 0, "nothing known to be missing, "),
        ("heph/busy_lossy", 3, "83 missing here, because "),
        ("jets/tracegen_tiny", 0, "complete, 36 events"),
        ("jets/tracegen_default_lossy", 3, "25 missing here, because "),
        ("et3/spec_threads_lossy", 3, "numbers or totals have holes (15)"),
    ],
)
def test_formats_are_recognised_by_content(runs, vector, code, text):
    shutil.copy(VECTORS / f"{vector}.in", runs / "what")
    said = json.loads(verdict("--json", runs / "what", code=code))
    assert text in said["traces"][0]["text"]
    assert said["traces"][0]["format"] == vector.split("/")[0]
