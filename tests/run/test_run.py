"""`tailrace run` and `tailrace verify`, as a person uses them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

import tailrace_client
from tailrace.run.certificate import (
    KIND,
    VERSION,
    Certificate,
    Machine,
    Program,
    TracingCost,
    total,
)
from tailrace.run.summary import cost_in_words, lines
from tests import program
from tests.decoding.test_conformance import VECTORS
from tests.ingest.log import heph_event, heph_goodbye
from tests.program import COMMAND, start
from tests.query.asking import ask
from tests.system.collector import until

EMIT = """
import tailrace_client as trace
trace.connect()
for cell in range(500):
    with trace.span("step", cell=cell):
        pass
trace.close()
print("emitted")
"""


def tailrace(directory, *arguments, environ=None):
    return program.run(
        [*program.COMMAND, *map(str, arguments)],
        cwd=directory, env=os.environ | (environ or {}), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def run(directory, program, *options, environ=None):
    """`tailrace run` around a Python program; what it did and its certificate."""
    options = ("--store", "store", *options)
    done = tailrace(
        directory, "run", *options, "--", sys.executable, "-c", program, environ=environ
    )
    path = directory / "store/certificate.json"
    return done, json.loads(path.read_bytes()) if path.exists() else None


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    directory = tmp_path_factory.mktemp("clean")
    return directory, *run(directory, EMIT, "--max-loss", 0)


def test_a_clean_program_gets_a_clean_certificate(clean):
    _, done, certificate = clean
    assert (done.returncode, done.stdout) == (0, "emitted\n"), done.stderr
    assert certificate["totals"] == {
        "expected": 500,
        "stored": 500,
        "missing": {},
        "unknown": False,
    }
    assert "500 expected, 500 stored, 0 missing" in done.stderr
    assert certificate["program"]["exit_status"] == 0
    stream = next(s for s in certificate["streams"] if s["stored"])
    assert (stream["source"], stream["format"], stream["stored"]) == ("heph_tcp", "heph", 500)


COSTLY = """
import os, tailrace_client as trace
for number in range(20_000):
    trace.event("x", number=number)
if os.fork() == 0:
    trace.event("y")
    trace.close(20)
    os._exit(0)
os.wait()
trace.close(20)
"""


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_certificate_states_what_tracing_took_of_the_program_or_that_this_is_unknown(
    tmp_path, pure
):
    done, certificate = run(tmp_path, COSTLY, environ={"TAILRACE_PURE": pure})
    tracing = certificate["tracing"]
    assert tracing["processes"] == 2
    if pure or not tailrace_client.compiled:
        assert tracing["stating"] == tracing["tracing"] == tracing["program"] == 0
        assert (
            "recording and sending events took an unknown part of the program's CPU time"
            in done.stderr
        )
        return
    assert (tracing["stating"], tracing["events"]) == (1, 20_000)
    assert (
        0 < tracing["sampled"] <= 20
    )  # the client leaves out events that another thread interrupted
    assert 0 < tracing["tracing"] < tracing["program"]
    assert re.search(
        r"recording and sending events took [\d.]+ % of the CPU time of 1 of 2 processes, and an unknown part of the others',"
        r" without the calls from Python \(estimated: \d+ of 20000 events timed\)",
        done.stderr,
    )


def test_a_cost_that_cannot_be_is_unknown():
    found = TracingCost()
    usual = {"events": 9, "sampled": 3, "emitting": 50, "sending": 10, "program": 240}
    for odd in (
        {"sampled": 0},
        {"sampled": 10},
        {"emitting": -1},
        {"sending": -1},
        {"emitting": 231},
        {"program": 0},
        {"events": "9"},
    ):
        found.add(json.dumps(usual | odd))
    for text in (None, "", "[]", "{}", "5"):
        found.add(text)
    assert (found.processes, found.stating) == (12, 0)
    found.add(json.dumps(usual | {"more": 1}))
    assert (found.processes, found.stating, found.tracing, found.program) == (13, 1, 60, 240)
    assert cost_in_words(found).startswith(
        "recording and sending events took 25 % of the CPU time of 1 of 13 processes"
    )


@pytest.mark.parametrize(
    ("tracing", "shown"),
    [(1, "less than 0.01"), (1_234, "0.12"), (20_400, "2"), (995_000, "100"), (1_000_000, "100")],
)
def test_the_part_of_the_cpu_time_is_a_plain_number(tracing, shown):
    cost = TracingCost(
        processes=1, stating=1, events=9, sampled=3, tracing=tracing, program=1_000_000
    )
    assert f"took {shown} % of the program's CPU time" in cost_in_words(cost)


ASKS = """
import os, sys, tailrace_client as trace
trace.event("x")
trace.close(20)
print(os.environ.get("TAILRACE_STORE_PATH"))
"""


@pytest.mark.parametrize("before", [{}, {"TAILRACE_STORE_PATH": "/elsewhere"}])
@pytest.mark.parametrize(
    "launched",
    [
        {},
        {
            "SLURM_PROCID": "0",
            "SLURM_STEP_ID": "0",
            "SLURM_NTASKS": "1",
            "SLURM_LOCALID": "0",
            "SLURM_JOB_ID": "7",
        },
    ],
)
def test_the_program_learns_where_its_events_are_and_so_does_the_person(tmp_path, launched, before):
    done = tailrace(
        tmp_path,
        "run",
        "--store",
        "a store",
        "--",
        sys.executable,
        "-c",
        ASKS,
        environ=before | launched,
    )
    assert done.returncode == 0, done.stderr
    store = done.stdout.strip()
    assert (Path(store) / "events/_delta_log").is_dir()
    assert Path(store).is_relative_to(tmp_path / "a store")
    (look,) = re.findall("look at it: (tailrace .*)", done.stderr)
    with start(
        [*COMMAND, *shlex.split(look)[1:]], stdout=subprocess.PIPE, text=True, cwd="/"
    ) as page:
        said = page.stdout.readline()
        page.terminate()
    assert "http://127.0.0.1:" in said


def test_a_program_that_sends_its_events_elsewhere_keeps_its_store(tmp_path):
    for given in ({"TAILRACE_STORE_PATH": "/elsewhere"}, {}):
        environ = {"TAILRACE_ADDRESS": f"file://{tmp_path}/t"} | given
        done, _ = run(tmp_path, ASKS, environ=environ)
        assert done.stdout == f"{given.get('TAILRACE_STORE_PATH')}\n"


def test_a_program_that_only_emits_is_traced(tmp_path):
    program = "import tailrace_client as t\nfor n in range(300): t.event('x', n=n)"
    done, certificate = run(tmp_path, program, "--max-loss", 0)
    assert done.returncode == 0, done.stderr
    assert certificate["totals"]["expected"] == certificate["totals"]["stored"] == 300


def test_the_example_is_whole(tmp_path):
    example = Path(__file__).parents[2] / "examples/simulator.py"
    done = tailrace(
        tmp_path, "run", "--store", "store", "--max-loss", 0, "--", sys.executable, example
    )
    assert done.returncode == 0, done.stderr
    certificate = json.loads((tmp_path / "store/certificate.json").read_bytes())
    by_stream = {s["stream"]: s["stored"] for s in certificate["streams"] if s["stored"]}
    assert set(by_stream) == {"1", "2"}
    assert sum(by_stream.values()) == certificate["totals"]["expected"] > 500
    assert tailrace(tmp_path, "verify", "store/certificate.json").returncode == 0


def test_a_certificate_holds(clean):
    directory, _, _ = clean
    done = tailrace(directory, "verify", "store/certificate.json")
    assert done.returncode == 0, done.stdout
    assert "500 of 500 events stored" in done.stdout
    assert "not signed, so it does not prove who made it" in done.stdout


@pytest.mark.parametrize(
    ("there", "put"),
    [
        ('"kind":', '"approved": true, "kind":'),
        ('"kind":', '"k\\u0069nd": "tailrace run certificate", "kind":'),
        ('"stored": 500', '"stored": 499, "stored": 500'),
        ('"exit_status":', '"note": "by hand", "exit_status":'),
        ('"digest":', '"digest": "0", "digest":'),
    ],
)
def test_a_certificate_with_a_member_that_no_digest_covers_is_refused(clean, tmp_path, there, put):
    """Its digest matches, and another reader may show what it says."""
    directory, _, _ = clean
    text = (directory / "store/certificate.json").read_text()
    assert there in text
    changed = tmp_path / "changed.json"
    changed.write_text(text.replace(there, put))
    done = tailrace(directory, "verify", changed)
    assert (done.returncode, done.stdout) == (1, "")
    assert "changed.json: is not a run certificate" in done.stderr


def test_as_json_too(clean, tmp_path):
    directory, _, certificate = clean
    done = tailrace(directory, "verify", "--json", "store/certificate.json")
    said = {
        "certificate": "store/certificate.json", "holds": True, "differences": [],
        "totals": certificate["totals"], "streams": len(certificate["streams"]), "signed_by": None,
    }  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)) == (0, said)
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(certificate | {"sha256": "0" * 64}))
    done = tailrace(directory, "verify", "--json", changed)
    found = json.loads(done.stdout)
    assert (done.returncode, found["holds"]) == (1, False)
    assert found["differences"] == [
        "its own digest does not match: the certificate was changed after it was made"
    ]


def test_a_certificate_of_a_table_that_went_on_still_holds(clean, tmp_path):
    directory, _, _ = clean
    kept = tmp_path / "certificate.json"
    kept.write_bytes((directory / "store/certificate.json").read_bytes())
    run(directory, EMIT, "--certificate", tmp_path / "second.json")
    for path in (kept, tmp_path / "second.json"):
        done = tailrace(directory, "verify", path)
        assert done.returncode == 0, done.stdout


def test_an_earlier_certificate_is_kept(tmp_path):
    """Whether its name was chosen or given, and whatever has it."""
    made = []
    for options in ((), (), ("--certificate", "other.v1.json"), ("--certificate", "other.v1.json")):
        done, _ = run(tmp_path, "pass", "--json", *options)
        assert done.returncode == 0, done.stderr
        path = tmp_path / json.loads(done.stderr)["certificate"]
        made.append((path, path.read_bytes()))
    assert [str(path.relative_to(tmp_path)) for path, _ in made] == [
        "store/certificate.json", "store/certificate-2.json", "other.v1.json", "other.v1-2.json",
    ]  # fmt: skip
    for path, content in made:
        assert path.read_bytes() == content
        assert tailrace(tmp_path, "verify", path).returncode == 0
    done, _ = run(tmp_path, "pass", "--certificate", "other.v1.json")
    assert "other.v1.json is an earlier certificate and is kept" in done.stderr
    assert "run certificate other.v1-3.json: " in done.stderr


def test_as_json_what_is_said_is_one_object(tmp_path):
    done, certificate = run(tmp_path, LOSSY, "--json")
    said = json.loads(done.stderr)
    assert said == {
        "arguments": [sys.executable, "-c", LOSSY], "exit_status": 0, "traced": True, "failures": [], "refused": {}, "no_room": {}, "empty": [],
        "certificate": "store/certificate.json", "sha256": certificate["sha256"],
        "store": str(tmp_path / "store"), "totals": certificate["totals"], "tracing": None,
        "streams": [s for s in certificate["streams"] if s["missing"]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("totals", "stored"), 499),
        (("streams", -1, "stored"), 499),
        (("streams", -1, "digest"), "0" * 64),
        (("program", "exit_status"), 1),
        (("machine", "host"), "elsewhere"),
        (("sha256",), "0" * 64),
    ],
)
def test_a_changed_certificate_does_not(clean, tmp_path, place, value):
    directory, _, certificate = clean
    changed = json.loads(json.dumps(certificate))
    part = changed
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    done = tailrace(directory, "verify", path)
    assert done.returncode == 1
    assert "does not hold" in done.stdout


@pytest.mark.parametrize(("program", "status"), [("", 4), ("raise SystemExit(3)", 3)])
def test_a_program_that_was_not_traced_is_within_no_budget(tmp_path, program, status):
    """But when it has failed, that is what is said."""
    done, certificate = run(tmp_path, program, "--max-loss", 1000)
    assert done.returncode == status
    assert certificate["totals"]["expected"] == 0
    assert "no event arrived" in done.stderr
    assert run(tmp_path, program)[0].returncode == certificate["program"]["exit_status"]


LOSSY = f"""
import os, socket, sys, time
sys.path[:0] = {sys.path!r}
from tests.ingest.log import heph_event, heph_goodbye
host, _, port = os.environ["TAILRACE_HEPH_UDP"].rpartition(":")
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for count in range(20):
    if count not in {{7, 8}}:
        sock.sendto(heph_event(3, count), (host, int(port)))
if os.fork() == 0:  # keep the socket until the end: when the collector reads, it asks the kernel for the socket's user
    os.closerange(0, 3)
    while os.path.isdir("store") and not os.path.exists("store/certificate.json"):
        time.sleep(0.05)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lossy")
    return directory, *run(directory, LOSSY, "--max-loss", 0)


def test_a_lost_datagram_exceeds_the_budget_and_is_named(lossy):
    _, done, certificate = lossy
    assert done.returncode == 4, done.stderr
    assert certificate["totals"]["missing"] == {"network": 2}
    stream = next(s for s in certificate["streams"] if s["missing"])
    assert (stream["stream"], stream["expected"], stream["stored"]) == ("3", 20, 18)
    assert stream["gaps"] == ["network 7 to 8: 2 events"]
    assert "stream 3: 2 missing (network 2)" in done.stderr
    assert "network 7 to 8" in done.stderr


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_client_that_took_no_leave_may_have_had_more_to_send(tmp_path, transport):
    emit = EMIT.replace("trace.close()", "trace.flush(10); import os; os._exit(0)")
    emit = emit.replace(
        "connect()", f"connect('{transport}://' + os.environ['TAILRACE_HEPH_{transport.upper()}'])"
    )
    done, certificate = run(tmp_path, "import os\n" + emit, "--max-loss", 1000)
    assert done.returncode == 4, done.stderr
    totals = certificate["totals"]
    assert (totals["expected"], totals["stored"], totals["unknown"]) == (500, 500, True)
    (gap,) = (gap for stream in certificate["streams"] for gap in stream["gaps"])
    assert gap == "truncated: an unknown number of events (no_goodbye)"


def test_a_budget_that_is_kept_is_none_exceeded(tmp_path):
    done, _ = run(tmp_path, LOSSY, "--max-loss", 2)
    assert done.returncode == 0, done.stderr


def test_without_a_budget_loss_is_said_and_no_failure(tmp_path):
    done, certificate = run(tmp_path, LOSSY)
    assert done.returncode == 0
    assert certificate["totals"]["missing"] == {"network": 2}


@pytest.mark.parametrize("change", ["a span's name", "a gap's count", "a row more", "a row less"])
def test_a_changed_table_does_not_verify(lossy, tmp_path, change):
    directory, _, _ = lossy
    copy = tmp_path / "store"
    shutil.copytree(directory / "store", copy)
    table = DeltaTable(str(copy / "events"))
    schema = table.to_pyarrow_table().schema
    rows = table.to_pyarrow_table().to_pylist()
    span = next(row for row in rows if row["kind"] == "span")
    gap = next(row for row in rows if row["kind"] == "gap")
    if change == "a span's name":
        span["name"] = "other"
    elif change == "a gap's count":
        gap["attributes"] = gap["attributes"].replace("2", "1")
    elif change == "a row more":
        rows.append(dict(span))
    else:
        rows.remove(span)
    write_deltalake(table, pyarrow.Table.from_pylist(rows, schema=schema), mode="overwrite")
    done = tailrace(directory, "verify", "--store", copy, "store/certificate.json")
    assert done.returncode == 1, done.stdout
    assert "stream 3" in done.stdout


def test_the_programs_exit_status_is_ours(tmp_path):
    done, certificate = run(tmp_path, "raise SystemExit(7)")
    assert done.returncode == 7
    assert certificate["program"]["exit_status"] == 7


def test_a_program_that_is_not_there_is_a_clear_error(tmp_path):
    before = [*tmp_path.iterdir()]
    done = tailrace(tmp_path, "run", "--store", "store", "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr == "no-such-program: No such file or directory\n"
    assert [*tmp_path.iterdir()] == before, "nothing is left of it"


def test_a_signal_reaches_the_program(tmp_path):
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(60)\n"
    )
    command = [*COMMAND, "run", "--store", "store", "--", sys.executable, "-c"]
    process = start([*command, program], cwd=tmp_path, stderr=subprocess.PIPE)
    until((tmp_path / "ready").exists, "the program to start")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 5


def test_files_are_followed_to_their_end(tmp_path):
    packets = b"".join(heph_event(1, count) for count in range(5))
    program = f"open('out.heph', 'wb').write({packets!r})"
    done, certificate = run(tmp_path, program, "--source", "heph=out.heph", "--max-loss", 0)
    assert done.returncode == 0, done.stderr
    assert certificate["totals"]["stored"] == 5
    assert "files_1_heph" in {stream["source"] for stream in certificate["streams"]}


COPY = "import shutil, sys; [shutil.copy(file, 'runs') for file in sys.argv[1:]]"


@pytest.mark.parametrize("parent", [True, False])
def test_names_that_no_file_has_are_missing_from_the_certificate(tmp_path, parent):
    """A forked child uses names that its parent's file defines."""
    traces = VECTORS / "dftracer/traces"
    child, whole = traces / "v220_fork_undefined_hash.pfw.gz", traces / "v220_fork_parent.pfw.gz"
    (tmp_path / "runs").mkdir()
    files = [child, *[whole] * parent]
    done = tailrace(
        tmp_path, "run", "--store", "store", "--max-loss", 0, "--source", "dftracer=runs",
        "--", sys.executable, "-c", COPY, *files,
    )  # fmt: skip
    totals = json.loads((tmp_path / "store/certificate.json").read_bytes())["totals"]
    [(missing,)] = ask(tmp_path / "store", "SELECT sum(missing)::BIGINT FROM streams")
    assert (missing == 0) == parent
    assert totals["missing"] == ({} if parent else {"unresolved": missing})
    assert totals["expected"] == totals["stored"] + missing
    assert done.returncode == (0 if parent else 4), done.stderr


def test_a_source_of_another_shape_is_a_clear_error(tmp_path):
    done, _ = run(tmp_path, "pass", "--source", "out.heph")
    assert done.returncode == 2
    assert "--source out.heph: must be FORMAT=PATH" in done.stderr


def test_what_tracers_are_told_stays_when_it_is_set(tmp_path):
    program = "import os, json; json.dump(dict(os.environ), open('seen', 'w'))"
    run(tmp_path, program, environ={"DFTRACER_WRITE_BUFFER_SIZE": "4096"})
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["DFTRACER_WRITE_BUFFER_SIZE"] == "4096"
    assert seen["DFTRACER_TRACE_COMPRESSION"] == "0"
    assert seen["OVNI_TRACEDIR"] == str(tmp_path / "store/traces/ovni")
    assert seen["TAILRACE_ADDRESS"].startswith("tcp://127.0.0.1:")


def test_tracers_find_the_directories_that_they_are_told_of(tmp_path):
    """DFTracer makes none: what it cannot write is gone, and nobody would know."""
    line = '{"id":1,"name":"read","cat":"POSIX","ph":1,"ts":1,"dur":2,"pid":1,"tid":1}'
    program = (
        "import os\n"
        f"open(os.environ['DFTRACER_LOG_FILE'] + '-app.pfw', 'w').write({line!r} + chr(10))\n"
        "assert os.listdir(os.environ['OVNI_TRACEDIR']) == []"
    )
    done, certificate = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert certificate["totals"]["stored"] == 1


class TestSignature:
    @pytest.fixture
    def key(self, tmp_path):
        reason = "needs the package cryptography: pip install cryptography"
        ed25519 = pytest.importorskip(
            "cryptography.hazmat.primitives.asymmetric.ed25519", reason=reason
        )
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        private = ed25519.Ed25519PrivateKey.generate()
        path = tmp_path / "key.pem"
        path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return path, private.public_key().public_bytes_raw().hex()

    def test_it_holds_for_its_key_only(self, tmp_path, key):
        path, public = key
        done, certificate = run(tmp_path, "pass", "--sign", path)
        assert done.returncode == 0, done.stderr
        assert certificate["signature"]["public_key"] == public
        good = tailrace(tmp_path, "verify", "--key", public, "store/certificate.json")
        assert good.returncode == 0, good.stdout
        other = tailrace(tmp_path, "verify", "--key", "ab" * 32, "store/certificate.json")
        assert other.returncode == 1
        certificate["signature"]["value"] = "00" * 64
        (tmp_path / "forged.json").write_text(json.dumps(certificate))
        forged = tailrace(tmp_path, "verify", "forged.json")
        assert (forged.returncode, "signature does not match" in forged.stdout) == (1, True)


CROWD = """
import os, socket
host, _, port = os.environ["TAILRACE_HEPH_TCP"].rpartition(":")
token = os.environ["TAILRACE_TOKEN"].encode()
socks = []
for stream in range(280):
    sock = socket.create_connection((host, int(port)))
    sock.settimeout(20)
    try:
        sock.sendall(b"tailrace-token " + token + b"\\n" + EVENT)
        if stream >= 256:
            sock.recv(1)
    except OSError:
        pass
    socks.append(sock)
"""


@pytest.mark.parametrize(("no_room", "asks"), [({}, True), ({"memory": 3}, False)])
def test_a_program_whose_connections_found_no_room_is_not_asked_whether_it_traces(no_room, asks):
    certificate = Certificate(
        kind=KIND,
        version=VERSION,
        program=Program(arguments=["x"], exit_status=0, started=1, ended=2),
        machine=Machine(host="h", system="Linux", release="1", architecture="x", processors=2),
        versions={},
        store="store",
        max_loss=0,
        totals=total([], no_room),
        streams=[],
        no_room=no_room,
    )
    said = "\n".join(lines(certificate, None))
    assert ("does the program use one of the variables" in said) == asks
    assert ("refused, because a limit was reached" in said) != asks


NO_CONTENT = (
    EMIT
    + """
import gzip, os
open(os.environ["DFTRACER_LOG_FILE"] + "-1-fork.pfw", "w").close()
open(os.environ["DFTRACER_LOG_FILE"] + "-2.pfw.gz", "wb").write(gzip.compress(b"x")[:10])
for thread, name in enumerate(["stream.obs", "stream.json"], 1):
    directory = os.environ["OVNI_TRACEDIR"] + f"/loom.1/proc.1/thread.{thread}"
    os.makedirs(directory)
    open(f"{directory}/{name}", "w").close()
open(os.environ["DFTRACER_LOG_FILE"] + ".log", "w").close()
"""
)


def test_traces_without_content_make_the_loss_unknown(tmp_path):
    """Two tracers kept events in memory, and their processes were killed."""
    done, certificate = run(tmp_path, NO_CONTENT, "--max-loss", 1000)
    traces = tmp_path / "store/traces"
    assert certificate["empty"] == [
        f"{traces}/dftracer/trace-1-fork.pfw",
        f"{traces}/dftracer/trace-2.pfw.gz",
        f"{traces}/ovni/loom.1/proc.1/thread.1/stream.obs",
        f"{traces}/ovni/loom.1/proc.1/thread.2/stream.obs",
    ]
    assert (certificate["totals"]["stored"], certificate["totals"]["unknown"]) == (500, True)
    assert done.returncode == 4
    assert "4 trace files without content" in done.stderr
    assert all(path in done.stderr for path in certificate["empty"])
    verified = tailrace(tmp_path, "verify", "store/certificate.json", "--store", "store")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_those_of_an_earlier_run_do_not(tmp_path):
    earlier = tmp_path / "traces/trace-1-app.pfw"
    earlier.parent.mkdir()
    earlier.touch()
    os.utime(earlier, (1, 1))
    log_file = str(tmp_path / "traces/trace")
    done, certificate = run(
        tmp_path, EMIT, "--max-loss", 0, environ={"DFTRACER_LOG_FILE": log_file}
    )
    assert (done.returncode, certificate["totals"]["unknown"]) == (0, False), done.stderr


def test_a_file_that_the_user_names_may_be_older(tmp_path):
    mine = tmp_path / "mine.jsonl"
    mine.touch()
    os.utime(mine, (1, 1))
    _, certificate = run(tmp_path, EMIT, "--source", "jets=mine.jsonl")
    assert certificate["empty"] == [str(mine)]


def test_what_cannot_be_searched_costs_no_certificate(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done, certificate = run(tmp_path, EMIT, "--source", "jets=pipe")
    assert certificate["totals"]["stored"] == 500
    assert done.returncode == 0


def test_a_directory_of_another_user_beside_the_traces_costs_no_certificate(tmp_path):
    (tmp_path / "traces/private").mkdir(parents=True)
    (tmp_path / "traces/private").chmod(0)
    # Root may read all directories, unless it gives this privilege up.
    ordinary = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] * (os.getuid() == 0)
    done = program.run(
        [*ordinary, *program.COMMAND, "run", "--store", "store", "--", sys.executable, "-c", EMIT],
        cwd=tmp_path, env=os.environ | {"DFTRACER_LOG_FILE": str(tmp_path / "traces/trace")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    certificate = json.loads((tmp_path / "store/certificate.json").read_bytes())
    assert (certificate["totals"]["stored"], certificate["totals"]["unknown"]) == (500, False)


def test_connections_that_find_no_room_make_the_loss_unknown(tmp_path):
    crowd = CROWD.replace("EVENT", repr(heph_event(1, 0) + heph_goodbye({"1": 1})))
    done, certificate = run(tmp_path, crowd, "--json", "--max-loss", 1000)
    said = json.loads(done.stderr)
    assert (said["totals"]["stored"], said["totals"]["unknown"]) == (256, True)
    assert said["no_room"] == certificate["no_room"]
    assert said["no_room"] == {"too many connections from one address": 280 - 256}
    assert done.returncode == 4
    verified = tailrace(tmp_path, "verify", "store/certificate.json", "--store", "store")
    assert verified.returncode == 0, verified.stdout + verified.stderr
