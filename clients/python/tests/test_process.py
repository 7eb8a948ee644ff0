"""Test the emitter of a process, and processes that begin, fork and end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tailrace_client
from clients.python.tests.collectors import Answering, TcpCollector, UdpCollector, until
from clients.python.tests.reader import Event, events, received
from tailrace_client import _wire
from tailrace_client._chunk import Chunk


@pytest.fixture
def collector():
    with UdpCollector() as opened:
        yield opened


@pytest.fixture
def answering(tmp_path):
    with Answering("unix", tmp_path / "socket") as collector:
        yield collector


@pytest.fixture
def process():
    tailrace_client._process._missed()  # discard the count of other tests' events
    yield tailrace_client
    tailrace_client.close()


PATIENT = str(Path(__file__).with_name("patient"))


def run(program, *arguments, code=0, patient=True, **environ):
    """Run a program with the client to its end. With `patient`, its exit waits a minute for the collector instead of a
    second."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments],
        env={"PYTHONPATH": ":".join([PATIENT] * patient + sys.path), **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def ended(collector):
    """Return, for each session, how many events are stored, and whether its last goodbye (the packet that ends a
    session) counts exactly these events."""
    return sorted(
        (
            sum(map(len, session.stored.values())),
            [said["streams"] for said in session.goodbyes[-1:]]
            == [{str(s): max(n) + 1 for s, n in session.stored.items()}],
        )
        for session in collector.sessions.values()
    )


def test_without_an_address_everything_is_off(process, monkeypatch):
    monkeypatch.delenv("TAILRACE_ADDRESS", raising=False)
    threads = set(threading.enumerate())
    assert not process.connect().enabled
    with process.span("x", a=1) as span, process.substream(3):
        span.set(b=2)
    process.event("x")
    process.counter("x", 1)
    process.write("x", 0, 1, a=1)
    process.use_stream(1)
    assert not process.flush()
    assert not process.close()
    assert process.span("x") is process.span("y")
    assert set(threading.enumerate()) <= threads


def test_every_function_acts_on_the_emitter_of_the_process(process, collector):
    clock = iter(range(100))
    process.connect(collector.address, clock=lambda: next(clock), process="me", acknowledge=False)
    process.use_stream(5)
    with process.span("span", a=1), process.substream(3):
        process.event("event")
        process.counter("counter", 2, b=3)
    process.write("write", 7, 9, name=1, start=2)
    process.use_stream(None)
    process.event("own")
    assert process.flush()
    assert process.close()
    session, *found, goodbye = received(collector)
    assert json.loads(session.option)["process"] == "me"
    assert [(p.stream, p.substream, p.start, p.end, p.description) for p in found] == [
        (5, 3, 1, 1, "event"),
        (5, 3, 2, 2, "counter"),
        (5, 0, 0, 3, "span"),
        (5, 0, 7, 9, "write"),
        (1, 0, 4, 4, "own"),
    ]
    assert [name for name, _, _ in found[3].attributes] == ["name", "start"]
    assert json.loads(goodbye.option)["streams"] == {"1": 1, "5": 4}
    process.event("off")
    assert received(collector) == []


def test_the_environment_says_where_unless_the_program_does(process, collector, monkeypatch):
    monkeypatch.setenv("TAILRACE_ADDRESS", collector.address)
    process.connect(acknowledge=False)
    process.event("x")
    process.close()
    assert len(received(collector)) == 4
    with UdpCollector() as other:
        process.connect(other.address, acknowledge=False)
        process.event("z")
        process.close()
        assert len(received(other)) == 4
    assert received(collector) == []


def test_a_second_connect_closes_the_first_connection(process, collector):
    process.connect(collector.address, acknowledge=False)
    process.event("x")
    process.connect(collector.address)
    assert received(collector)[-1].name == "tailrace.goodbye"


def test_a_bad_address_in_the_program_is_an_error_and_in_the_environment_a_warning(
    process, monkeypatch
):
    with pytest.raises(ValueError, match="is not an address"):
        process.connect("localhost:7701")
    monkeypatch.setenv("TAILRACE_ADDRESS", "localhost:7701")
    with pytest.warns(RuntimeWarning, match="TAILRACE_ADDRESS: 'localhost:7701' is not an address"):
        assert not process.connect().enabled


def test_a_bad_address_in_the_environment_delivers_nothing():
    program = """
import warnings
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    import tailrace_client as t
    t.event("x")
    assert not t.flush()
    assert not t.close()
print(*[w.message for w in given], sep="|")
"""
    assert run(program, TAILRACE_ADDRESS="localhost:7701").count("is not an address") == 1


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_where_nobody_listens_nothing_is_delivered_and_that_is_said_once(process, scheme):
    kind = socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    emitter = process.connect(f"{scheme}://127.0.0.1:{port}")
    for _ in range(10):
        process.event("x")
    with pytest.warns(RuntimeWarning, match="not delivered: Connection refused"):
        assert not process.flush(1.5)
    assert emitter.last_error == "Connection refused"
    assert not process.flush(0.5)
    assert not process.close(0.5)
    assert emitter.discarded["closed"] == 10
    assert not process.flush()
    assert not process.close()
    process.connect(f"{scheme}://127.0.0.1:{port}")
    assert process.close()


def test_datagrams_to_somebody_who_comes_late_and_never_answers_are_sent_again(process):
    with UdpCollector() as before:
        port = before.socket.getsockname()[1]
    emitter = process.connect(f"udp://127.0.0.1:{port}")
    for _ in range(10):
        process.event("x")
    with pytest.warns(RuntimeWarning):
        assert not process.flush(0.5)
    found = set()

    def all_are_there():
        found.update(p.counter for p in received(collector) if isinstance(p, Event))
        return found == set(range(10))

    with UdpCollector(port) as collector:
        until(all_are_there)
        assert not process.close(0.1)
    assert emitter.discarded["closed"] == 10


EMITS = {
    "event": "t.event('x')",
    "span": "\nwith t.span('x'): pass",
    "counter": "t.counter('x', 1)",
    "write": "import time; now = time.monotonic_ns(); t.write('x', now, now)",
    "traced": "t.traced(lambda: None)()",
    "log": "import logging, tailrace_client.logs as l; l.Handler().handle(logging.makeLogRecord({}))",
    "stream": "t.use_stream(1); t.event('x')",
}


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("emits", EMITS.values(), ids=EMITS)
def test_with_an_address_in_the_environment_the_first_event_connects(answering, emits, pure):
    program = f"import tailrace_client as t; {emits}"
    run(program, TAILRACE_ADDRESS=answering.address, TAILRACE_PURE=pure)
    assert ended(answering) == [(1, True)]


def test_with_an_address_in_the_environment_and_no_event_nobody_connects():
    program = """
import threading, tailrace_client as t
with t.substream(1): pass
assert t.flush()
assert threading.active_count() == 1
assert t.close()
"""
    with TcpCollector() as collector:
        run(program, TAILRACE_ADDRESS=collector.address)
        assert collector.sessions == []


def test_a_program_that_says_where_is_not_overruled_by_the_environment(answering):
    with TcpCollector() as other:
        program = "import sys, tailrace_client as t; t.connect(sys.argv[1]); t.event('x')"
        run(program, answering.address, TAILRACE_ADDRESS=other.address)
        assert other.sessions == []
    assert ended(answering) == [(1, True)]


def test_without_an_address_in_the_environment_the_import_makes_nothing():
    program = """
import threading, tailrace_client as t
from tailrace_client import _process, _sender
t.event("x")
assert t.span("x") is t.span("y")
assert _process.current is None
assert not _sender._open
assert threading.active_count() == 1
assert not t.flush() and not t.close()
"""
    run(program)


ENDS = {
    "returns": "",
    "exits": "sys.exit(3)",
    "raises": "raise SystemExit",
    "in a thread that goes on": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "in the middle of many": "\nfor _ in range(10_000): t.event('more')",
    "with a span open": "span = t.span('open'); span.__enter__()",
    "closed by itself": "t.close(20); t.event('late')",
    "closed twice": "t.close(20); t.close()",
    "connected twice": "t.connect(); t.event('again')",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_process_that_ends_has_delivered_everything_and_said_goodbye(answering, end):
    program = f"import sys, threading, tailrace_client as t; t.connect(); t.event('x'); {end}"
    run(program, code=3 if "sys.exit(3)" in end else 0, TAILRACE_ADDRESS=answering.address)
    assert all(goodbye for _, goodbye in ended(answering))
    stored = [count for count, _ in ended(answering)]
    assert stored == {"more": [10_001], "again": [1, 1], "late": [0, 1]}.get(
        end.split("'")[-2] if "'" in end else "", [1]
    )


def test_an_emitter_that_nobody_closes_is_flushed_at_the_end_too(answering):
    program = "import sys, tailrace_client as t; e = t.Emitter(sys.argv[1]); e.event('bye')"
    run(program, answering.address)
    assert ended(answering) == [(1, True)]


def test_a_first_event_at_the_very_end_is_sent_without_a_thread(answering):
    """From Python 3.12 on, no thread can be started while the interpreter ends."""
    program = """
import atexit, _thread
import tailrace_client as t
def last():
    def start(*_): raise RuntimeError("can't create new thread at interpreter shutdown")
    _thread.start_new_thread = start
    t.event("x")
t.connect()
atexit.register(last)
"""
    run(program, TAILRACE_ADDRESS=answering.address)
    assert ended(answering) == [(1, True)]


LATE = {
    "exit functions": """
import atexit
atexit.register(lambda: t.event("late"))
atexit.register(lambda: t.event("late"))
import tailrace_client as t
t.event("x")
""",
    "the first event": """
import atexit
atexit.register(lambda: (t.event("late"), t.event("late"), t.event("late")))
import tailrace_client as t
""",
    "destructors": """
import tailrace_client as t
class Destroyed:
    def __del__(self): t.event("late")
one, other = Destroyed(), Destroyed()
t.event("x")
""",
}


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("program", LATE.values(), ids=LATE)
def test_events_behind_the_clients_own_exit_arrive(answering, program, pure):
    """Exit functions that were registered before the import run after the client's."""
    run(program, TAILRACE_ADDRESS=answering.address, TAILRACE_PURE=pure)
    assert ended(answering) == [(3, True)]


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("scheme", ["unix", "tcp", "udp"])
def test_the_last_goodbye_counts_all_events_behind_the_clients_own_exit(tmp_path, scheme, pure):
    """The collector answers so late that the time for its answers is over after a few events."""
    program = """
import atexit
atexit.register(lambda: [t.event("late") for _ in range(300)])
import tailrace_client as t
t.event("x")
"""
    place = [tmp_path / "socket"] * (scheme == "unix")
    with Answering(scheme, *place, every=0.3) as collector:
        run(program, patient=False, TAILRACE_ADDRESS=collector.address, TAILRACE_PURE=pure)
        until(lambda: ended(collector) == [(301, True)])


def test_many_events_behind_the_clients_own_exit_wait_no_longer_than_the_exit_says():
    """No process listens, so each of these events would wait for a second."""
    with TcpCollector() as closed:
        address = closed.address
    program = """
import atexit
atexit.register(lambda: [t.event("late") for _ in range(1000)])
import tailrace_client as t
"""
    run(program, patient=False, TAILRACE_ADDRESS=address)


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("scheme", ["unix", "tcp", "udp"])
def test_a_child_that_ends_at_once_without_an_exit_is_known(tmp_path, scheme, pure):
    """The workers of billiard, which Celery uses, end in this way."""
    program = """
import os, tailrace_client as t
t.event("parent")
for _ in range(5):
    child = os.fork()
    if not child:
        t.event("child")
        os._exit(0)
    os.waitpid(child, 0)
"""
    with Answering(scheme, *[tmp_path / "socket"] * (scheme == "unix")) as collector:
        run(program, TAILRACE_ADDRESS=collector.address, TAILRACE_PURE=pure)
        until(lambda: ended(collector) == [(1, False)] * 5 + [(1, True)])


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_process_whose_events_are_all_discarded_says_so(answering, pure):
    """Otherwise, a run of several processes would look complete, because the other processes have events."""
    program = """
import tailrace_client as t
class Unprintable:
    def __str__(self): raise ValueError
for _ in range(3): t.event("x", value=Unprintable())
"""
    run(program, TAILRACE_ADDRESS=answering.address, TAILRACE_PURE=pure)
    (session,) = answering.sessions.values()
    (goodbye,) = session.goodbyes
    assert (goodbye["streams"], goodbye["discarded"]["encoding"]) == ({"1": 3}, 3)


SUB_INTERPRETER = """
import sys, tailrace_client as t
try:
    import _xxsubinterpreters as interpreters
    another = interpreters.create(isolated=False)
except ImportError:
    import _interpreters as interpreters
    another = interpreters.create("legacy")
t.event("here")
flushes = sys.argv[1]
run = getattr(interpreters, "run_string")
run(another, f"import tailrace_client as t; t.event('there'); {flushes}")
interpreters.destroy(another)
t.event("here again")
"""


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("flushes", ["", "assert t.flush(20)"])
def test_a_sub_interpreter_can_be_ended_and_its_events_are_sent(answering, flushes, pure):
    run(SUB_INTERPRETER, flushes, TAILRACE_ADDRESS=answering.address, TAILRACE_PURE=pure)
    assert ended(answering) == [(1, True), (2, True)]


def test_a_process_does_not_wait_longer_at_its_end_than_it_says():
    """No process listens. The process ends after the second for which an exit waits; the test itself would fail after
    120 seconds."""
    with TcpCollector() as closed:
        address = closed.address
    program = "import tailrace_client as t; t.connect(); t.event('bye')"
    run(program, patient=False, TAILRACE_ADDRESS=address)


@pytest.mark.parametrize(
    "how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"]
)
def test_what_was_flushed_before_a_sudden_end_is_there(answering, how):
    program = (
        f"import os, tailrace_client as t; t.connect(); t.event('x'); assert t.flush(20); {how}"
    )
    code = {"9": -9, "5": -15}.get(how[-2], 0)
    run(program, code=code, TAILRACE_ADDRESS=answering.address)
    assert ended(answering) == [(1, False)]


def test_a_forked_child_is_a_producer_of_its_own(answering):
    program = """
import os, tailrace_client as t
t.connect()
t.event("of both?")
child = os.fork()
for _ in range(1 if child else 5): t.event("x")
t.close(20)
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    run(program, TAILRACE_ADDRESS=answering.address)
    assert ended(answering) == [(2, True), (5, True)]
    pids = {said["pid"] for s in answering.sessions.values() for said in s.announcements}
    assert len(pids) == 2


def test_a_forked_child_that_emits_nothing_says_nothing(answering):
    program = """
import os, tailrace_client as t
t.connect()
t.event("x")
t.flush(20)
if os.fork() == 0:
    os._exit(not t.close(20))
assert os.wait()[1] == 0
"""
    run(program, TAILRACE_ADDRESS=answering.address)
    assert ended(answering) == [(1, True)]


def test_a_forked_child_writes_a_file_of_its_own(tmp_path):
    program = """
import os, tailrace_client as t
t.connect()
t.event("parent")
t.flush(20)
if os.fork() == 0:
    t.event("child")
    t.close(20)
    os._exit(0)
os.wait()
"""
    run(program, TAILRACE_ADDRESS=f"file://{tmp_path}/trace")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "trace"
    assert names[1].removeprefix("trace.").isdigit()
    found = [[e.description for e in events((tmp_path / name).read_bytes())] for name in names]
    assert found == [["parent"], ["child"]]


@pytest.mark.parametrize("pure", ["", "1"])
def test_late_events_of_a_forked_child_are_stated_in_its_own_file(tmp_path, pure):
    program = """
import os, sys, tailrace_client as t
t.connect()
t.event("parent")
t.flush(20)
if os.fork() == 0:
    t.event("child")
    t.close(20)
    t.event("late")
    sys.exit()
os.wait()
t.event("parent")
"""
    run(program, TAILRACE_ADDRESS=f"file://{tmp_path}/trace", TAILRACE_PURE=pure)
    parent, child = sorted(path for path in tmp_path.iterdir())
    assert [e.description for e in events(parent.read_bytes())] == ["parent", "parent"]
    assert [e.description for e in events(child.read_bytes())] == ["child"]
    assert b"closed" not in parent.read_bytes()
    assert b"closed" in child.read_bytes()


def test_a_process_that_forks_while_its_threads_emit_never_hangs(answering):
    program = """
import os, threading, tailrace_client as t
t.connect()
stop = threading.Event()
def work():
    while not stop.wait(0.001):
        for _ in range(20): t.event("thread")
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(8):
    if os.fork() == 0:
        t.event("child")
        os._exit(not t.close(20))
    assert os.wait()[1] == 0
stop.set()
for thread in threads: thread.join()
"""
    run(program, TAILRACE_ADDRESS=answering.address)
    until(lambda: ended(answering)[:8] == [(1, True)] * 8)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["Process", "Pool", "Executor"])
def test_a_multiprocessing_worker_that_ends_has_delivered_everything(
    answering, tmp_path, method, kind
):
    """The program does nothing for this. A pool must be closed in order, as always."""
    program = f"""
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import tailrace_client as t

t.connect()

def work(number):
    t.event("x", number=number)

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    if {kind!r} == "Process":
        workers = [context.Process(target=work, args=(n,)) for n in range(4)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        assert not any(worker.exitcode for worker in workers)
    elif {kind!r} == "Pool":
        pool = context.Pool(2)
        pool.map(work, range(4))
        pool.close()
        pool.join()
    else:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(work, range(4)))
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    run(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')" if method == "fork" else
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(path)!r}]))",
        TAILRACE_ADDRESS=answering.address)  # fmt: skip
    assert sum(count for count, _ in ended(answering)) == 4
    assert all(goodbye for _, goodbye in ended(answering))


WORK = {
    "after its close": ("t.event('in'); t.close(10); t.event('x')", [({}, 1), ({"closed": 1}, 0)]),
    "by a thread": (
        "threading.Thread(target=lambda: (t.event('in'), waits(), t.event('in'))).start()",
        [({}, 2)],
    ),
}


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_multiprocessing_worker_emits_behind_its_goodbye_is_known(
    answering, tmp_path, method, work, pure
):
    """A worker waits for its threads after its exit functions have run, and then ends by `os._exit`."""
    statement, expected = WORK[work]
    path = tmp_path / "program.py"
    path.write_text(f"""
import multiprocessing, threading, time
from multiprocessing import util
import tailrace_client as t

def waits():
    while not ended: time.sleep(0.001)

ended = []

def work():
    util.Finalize(None, ended.append, (True,), exitpriority=-200)
    {statement}

if __name__ == "__main__":
    worker = multiprocessing.get_context({method!r}).Process(target=work)
    worker.start()
    worker.join()
    assert not worker.exitcode
""")
    run(
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(path)!r}]))",
        TAILRACE_ADDRESS=answering.address,
        TAILRACE_PURE=pure,
    )
    assert stated(answering) == expected


def test_an_event_of_a_process_that_has_just_begun_is_received(collector):
    program = "import tailrace_client as t; t.connect(acknowledge=False); t.event('x'); t.close()"
    run(program, TAILRACE_ADDRESS=collector.address)
    found = [packet for packet in received(collector) if isinstance(packet, Event)]
    assert [event.description for event in found] == ["x"]


def test_a_forked_child_of_a_busy_parent_leaves_the_parents_connection_alone():
    program = """
import os, tailrace_client as t
t.connect()
for n in range(300):
    t.event("parent")
    if n % 100 == 50 and os.fork() == 0:
        os._exit(0)
"""
    with TcpCollector() as collector:
        run(program, TAILRACE_ADDRESS=collector.address)
        until(lambda: collector.ended == len(collector.sessions))
        assert len(collector.sessions) == 1
        found = events(bytes(collector.sessions[0]))
    assert [event.counter for event in found] == list(range(300))


@pytest.mark.parametrize("of_program", ["", "worker_id = None"])
def test_a_module_that_has_the_name_of_uwsgi_changes_nothing(answering, tmp_path, of_program):
    (tmp_path / "uwsgi.py").write_text(of_program)
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import uwsgi, tailrace_client as t
t.event("x")
assert t.flush(20)
t.event("x")
assert t.close(20)
assert not hasattr(uwsgi, "post_fork_hook")
"""
    run(program, str(tmp_path), TAILRACE_ADDRESS=answering.address)
    assert ended(answering) == [(2, True)]


# Events outside of a session


KINDS = (
    "t.event('x'); t.counter('x', 1); t.write('x', 1, 2)\n"
    "with t.span('x'): pass\n"
    "call(1); list(steps()); asyncio.run(wait()); logging.getLogger('x').error('x')\n"
)
KINDS_COUNT = 8
BEGIN = (
    "import asyncio, logging, os, sys, tailrace_client as t\n"
    "from tailrace_client.logs import Handler\n"
    "logging.getLogger('x').addHandler(Handler())\n"
    "@t.traced\ndef call(n): return n\n"
    "@t.traced\ndef steps(): yield 1\n"
    "@t.traced\nasync def wait(): pass\n"
    "class Fails:\n    def __str__(self): raise ValueError\n"
)


def stated(collector):
    """Return, for each session with a goodbye (the packet that ends a session), the discarded events that the goodbye
    states, and the number of stored events. The sessions are in the order in which they began."""
    return [
        (session.goodbyes[-1].get("discarded", {}), sum(map(len, session.stored.values())))
        for session in collector.sessions.values()
        if session.goodbyes
    ]


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (f"{KINDS}t.connect(sys.argv[1]); t.event('in')", [({"unconnected": KINDS_COUNT}, 1)]),
        (f"{KINDS}t.connect(sys.argv[1])", [({"unconnected": KINDS_COUNT}, 0)]),
        (
            f"t.connect(sys.argv[1]); t.event('in'); t.close(10)\n{KINDS}t.connect(sys.argv[1]); t.event('in')",
            [({}, 1), ({"unconnected": KINDS_COUNT}, 1)],
        ),
        (
            f"t.connect(sys.argv[1]); t.event('in'); t.close(10)\n{KINDS}",
            [({}, 1), ({"closed": KINDS_COUNT}, 0)],
        ),
        (
            "e = t.connect(sys.argv[1]); t.event('in'); e.close(10)\nt.event('x'); e.event('x')",
            [({}, 1), ({"closed": 2}, 0)],
        ),
        (
            "e = t.connect(sys.argv[1]); t.event('in'); s = t.span('x').__enter__(); t.close(10)\n"
            "s.__exit__(None, None, None); t.connect(sys.argv[1])",
            [({}, 1), ({"unconnected": 1}, 0)],
        ),
        (
            "t.connect(sys.argv[1]); t.event('in'); s = [t.span('x').__enter__(), t.span('x', y=Fails()).__enter__()]\n"
            "t.connect(sys.argv[1]); t.event('in'); t.flush(10); [each.__exit__(None, None, None) for each in s]",
            [({}, 1), ({}, 1), ({"closed": 2}, 0)],
        ),
        (
            "t.connect(sys.argv[1]); t.event('in')\n@t.traced\ndef again(): t.connect(sys.argv[1])\nagain()\n"
            "t.event('in'); t.connect(sys.argv[1]); t.event('in')",
            [({}, 1), ({}, 1), ({"unconnected": 1}, 1)],
        ),
        (
            "t.connect(sys.argv[1]); t.event('in'); e = t.Emitter(sys.argv[1]); e.event('in'); e.close(10); e.event('x')",
            [({}, 1), ({}, 1), ({"closed": 1}, 0)],
        ),
        ("t.event('x'); t.connect(); t.event('x'); t.connect(sys.argv[1]); t.event('in')", [({}, 1)]),
        (
            "t.connect(sys.argv[1])\nif not os.fork(): t.event('in'); t.close(10); t.event('x'); sys.exit()\n"
            "os.wait(); t.event('in')",
            [({}, 1), ({"closed": 1}, 0), ({}, 1)],
        ),
        (
            "t.event('x')\nif not os.fork(): t.connect(sys.argv[1]); t.event('in'); sys.exit()\n"
            "os.wait(); t.connect(sys.argv[1]); t.event('in')",
            [({}, 1), ({"unconnected": 1}, 1)],
        ),
    ],
    ids=["before", "before nothing", "between", "after", "after its own close", "a span", "spans of an earlier session",
         "a call of an earlier session", "an emitter of its own", "unwanted", "child", "fork"],
)  # fmt: skip
def test_events_outside_of_a_session_are_stated(answering, program, expected, pure):
    run(BEGIN + program, answering.address, TAILRACE_PURE=pure)
    assert stated(answering) == expected


@pytest.mark.parametrize("pure", ["", "1"])
def test_nothing_is_delivered_that_came_after_the_last_session(answering, pure):
    program = """
print(t.flush(), t.close(), t.connect(sys.argv[1]).enabled)
t.event("in")
print(t.close(10), t.flush(), t.flush(), t.close())
t.event("late")
print(t.flush(), t.close(), t.flush())
"""
    said = run(BEGIN + program, answering.address, TAILRACE_PURE=pure)
    assert said.split() == ["False", "False", "True", *["True"] * 4, *["False"] * 3]
    assert stated(answering) == [({}, 1), ({"closed": 1}, 0)]


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_thread_that_emits_while_sessions_end_and_begin_loses_nothing_silently(answering, pure):
    program = """
import sys, threading, time, tailrace_client as t
sys.setswitchinterval(0.000001)
done, emitted = threading.Event(), []
def emit():
    while not done.is_set():
        with t.span("x"):
            emitted.append(None)
            time.sleep(0)
        time.sleep(0.0001)
thread = threading.Thread(target=emit)
thread.start()
for _ in range(20):
    t.connect(sys.argv[1])
    t.event("in")
    t.close(10)
done.set()
thread.join()
t.connect(sys.argv[1])
print(20 + len(emitted))
"""
    emitted = int(run(program, answering.address, TAILRACE_PURE=pure))
    found = stated(answering)
    assert len(found) == 21
    assert sum(stored + sum(discarded.values()) for discarded, stored in found) == emitted


@pytest.mark.parametrize("shared", ["", "t.use_stream(7)", "t.use_stream(7); other()"])
def test_a_signal_handler_that_closes_amid_an_event_loses_nothing_silently(answering, shared):
    """A trace function takes the place of the signal handler: it closes the emitter before one line of the event's
    call, and each run chooses the next line."""
    program = f"""
import sys, threading, tailrace_client as t
def other():
    thread = threading.Thread(target=lambda: (t.use_stream(7), t.event("in")))
    thread.start()
    thread.join()
def closing_at(line):
    seen = 0
    def trace(frame, kind, _):
        nonlocal seen
        if "tailrace_client" not in frame.f_code.co_filename:
            return None
        if kind == "line":
            seen += 1
            if seen == line:
                t.close(10)
        return trace
    sys.settrace(trace)
    try:
        t.event("x", n=line)
    finally:
        sys.settrace(None)
    return seen >= line
line = emitted = 0
closed = True
while closed:
    line += 1
    t.connect(sys.argv[1])
    {shared or "pass"}
    t.event("x", n=0)
    t.flush(10)
    closed = closing_at(line)
    emitted += 2 + {int("other" in shared)}
print(line, emitted)
"""
    lines, emitted = map(int, run(program, answering.address, TAILRACE_PURE="1").split())
    said = [session.goodbyes[-1] for session in answering.sessions.values() if session.goodbyes]
    assert lines > 10
    # If a goodbye (the packet that ends a session) counts a number without an event, the event is known to be missing.
    numbered = sum(sum(goodbye["streams"].values()) for goodbye in said)
    assert numbered + sum(sum(g.get("discarded", {}).values()) for g in said) == emitted


def behind_the_first(function, added):
    """Return a function that calls `function`, and after its first call also `added`."""
    rest = [added]

    def both(*arguments):
        answer = function(*arguments)
        while rest:
            rest.pop()()
        return answer

    return both


def test_an_event_that_is_gathered_behind_the_answered_goodbye_is_delivered(answering, process):
    emitter = tailrace_client.Emitter(answering.address)
    emitter.event("in")
    sender, before = emitter._sender, process._process.miss()

    def emit_and_gather():
        """Emit an event and move it to the queue, as a flush in another thread would."""
        emitter.event("late")
        sender._lock.run(sender._gathered)
        sender._link.fresh = False

    sender._end_all = behind_the_first(sender._end_all, emit_and_gather)
    assert emitter.close(10)
    assert stated(answering) == [({}, 2)]
    assert answering.only.goodbyes[-1]["streams"] == {"1": 2}
    assert emitter.discarded["closed"] == 0
    assert process._process.miss() - before - 1 == 0


def test_an_event_behind_the_last_goodbye_of_a_collector_is_counted(answering, process):
    emitter = tailrace_client.Emitter(answering.address)
    emitter.event("in")
    sender, before = emitter._sender, process._process.miss()
    sender._end_all = behind_the_first(
        sender._end_all, lambda: (answering.kill(), emitter.event("late"))
    )
    assert not emitter.close(0.5)
    assert stated(answering) == [({}, 1)]
    assert emitter.discarded["closed"] == 1
    assert process._process.miss() - before - 1 == 1


def test_an_event_that_is_gathered_behind_all_goodbyes_is_counted(answering, process):
    """Another thread began to record the event before the recorder was closed."""
    emitter = tailrace_client.Emitter(answering.address)
    emitter.event("in")
    sender, before = emitter._sender, process._process.miss()
    late = Chunk(_wire.event(1, 1, 0, 0, 0, _wire.body("late", {})), 1, 1, 2)
    sender._end_thread = behind_the_first(
        sender._end_thread, lambda: sender._link.queue.put([late])
    )
    assert emitter.close(10)
    assert emitter.discarded["closed"] == 1
    assert process._process.miss() - before - 1 == 1


def test_a_flush_beside_a_close_that_discards_is_false():
    emitter = tailrace_client.Emitter("tcp://127.0.0.1:9")
    emitter.event("in")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(emitter.flush(60)))
    thread.start()
    until(lambda: emitter._sender._has_thread)
    assert not emitter.close(0.3)
    thread.join()
    assert emitter.discarded["closed"] == 1
    assert answers == [False]


@pytest.mark.parametrize("pure", ["", "1"])
def test_threads_that_emit_while_an_emitter_of_its_own_closes_are_counted_once(answering, pure):
    program = """
import sys, threading, time, tailrace_client as t
sys.setswitchinterval(0.000001)
t.connect(sys.argv[1])
t.event("in")
emitted = []
for _ in range(8):
    emitter, done = t.Emitter(sys.argv[1]), threading.Event()
    def emit():
        while not done.is_set():
            emitter.event("x")
            emitted.append(None)
            time.sleep(0)
    threads = [threading.Thread(target=emit) for _ in range(4)]
    [each.start() for each in threads]
    time.sleep(0.02)
    emitter.close(10)
    time.sleep(0.002)
    done.set()
    [each.join() for each in threads]
print(1 + len(emitted))
"""
    emitted = int(run(program, answering.address, TAILRACE_PURE=pure))
    found = stated(answering)
    assert sum(stored + sum(discarded.values()) for discarded, stored in found) == emitted


def test_the_count_of_earlier_events_is_reported_before_the_end(answering, process, monkeypatch):
    monkeypatch.delenv("TAILRACE_ADDRESS", raising=False)
    process.event("x")
    emitter = process.connect(answering.address)
    process.event("in")
    assert process.flush(10)
    (session,) = answering.sessions.values()
    (report,) = session.reports
    assert report["discarded"] == {"unconnected": emitter.discarded["unconnected"]}
    assert emitter.discarded["unconnected"] == 1
