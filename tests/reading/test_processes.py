"""Programs that fork after they have opened a store, and programs that close every descriptor."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.reading.stores import make_large

ROWS = 70_000
"""More than an answer has at hand when it begins, as rows and as a batch."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "store"
    make_large(path, files=1, rows=ROWS)
    return path


BEGINNING = """
import json, multiprocessing, os, signal, sys, threading
import tailrace

signal.alarm(300)
path = sys.argv[1]
count = lambda store: store.sql("SELECT count(*) AS n FROM events").arrow()["n"][0].as_py()

def refusal(ask):
    "Return how an error begins; None if there is none."
    try:
        ask()
    except tailrace.StoreError as error:
        return str(error).split(":")[0]

def in_child(do):
    "Return what `do` returns in a forked child, which then exits as any program does, and its exit code."
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, json.dumps(do()).encode())
        os.close(1)
        sys.exit(3)
    os.close(writing)
    said = b"".join(iter(lambda: os.read(reading, 65536), b""))
    return [json.loads(said), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
"""
FORKED = (
    "this process was forked after its parent had opened a store, so it cannot use the database"
)
CLOSED = (
    "the program has closed the descriptors with which this process reads tables (os.closerange?)"
)


def run(program, *arguments):
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_a_handle_refuses_in_a_forked_child_and_goes_on_in_its_parent(store):
    program = """
store = tailrace.open(path)
before = count(store)
half = iter(store.events())
next(half)
batches = store.events().batches()
asks = [
    lambda: count(store), lambda: store.spans().count(), lambda: list(half), lambda: batches.read_all(),
    lambda: store.version, store.refresh, lambda: store.completeness, lambda: str(store.gaps()),
    lambda: tailrace.open(path), lambda: tailrace.open(path, limits=tailrace.Limits(seconds=9)),
]
def child():
    said = [refusal(ask) for ask in asks]
    half.close()
    store.close()
    return said
children = in_child(child), in_child(lambda: None)
print(json.dumps([children, before == count(store), len(list(half)) + 1 == before == batches.read_all().num_rows]))
"""
    refused = [[FORKED] * 10, 3], [None, 3]
    assert run(program, store) == [[*refused], True, True]


def test_a_child_that_was_forked_before_opens_a_store_of_its_own(store):
    program = """
first = in_child(lambda: count(tailrace.open(path)))
store = tailrace.open(path)
print(json.dumps([first, count(store)]))
"""
    (child, code), parent = run(program, store)
    assert (child, code) == (parent, 3)


@pytest.mark.parametrize(("method", "refused"), [("fork", True), ("spawn", False)])
def test_workers_of_multiprocessing(store, tmp_path, method, refused):
    (tmp_path / "pool.py").write_text("""
import json, multiprocessing, sys, tailrace

def work(path):
    try:
        with tailrace.open(path) as store:
            return store.events().count()
    except tailrace.StoreError as error:
        return str(error).split(":")[0]

if __name__ == "__main__":
    store = tailrace.open(sys.argv[1])
    before = store.events().count()
    with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        said = pool.map(work, [sys.argv[1]] * 4)
    print(json.dumps([said, before, store.events().count()]))
""")
    pool = [sys.executable, tmp_path / "pool.py", store, method]
    ended = subprocess.run(pool, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    said, before, after = json.loads(ended.stdout)
    assert said == [FORKED if refused else before] * 4
    assert before == after


def test_forks_while_threads_ask(store):
    program = """
store = tailrace.open(path)
before, stop, wrong = count(store), threading.Event(), []
def work():
    while not stop.is_set():
        if count(store) != before: wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
children = [in_child(lambda: refusal(lambda: count(store))) for _ in range(8)]
stop.set()
for thread in threads: thread.join()
print(json.dumps([children, wrong]))
"""
    assert run(program, store) == [[[FORKED, 3]] * 8, []]


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "os._exit(0)"])
def test_a_childs_end_does_not_take_the_parents_process_and_answer(store, leaves):
    program = f"""
import glob, tempfile
store = tailrace.open(path, limits=tailrace.Limits(seconds=40))
half = iter(store.events(columns=["seq"]))
batches = store.events(columns=["seq", "attributes"]).batches()
first = [next(half), batches.read_next_batch().num_rows]
child = lambda: [refusal(lambda: list(half)), refusal(batches.read_next_batch)]
if (pid := os.fork()) == 0:
    said = child()
    half.close()
    {leaves} if said == [{FORKED!r}] * 2 else os.abort()
status = os.waitpid(pid, 0)[1]
rest = sum(batch.num_rows for batch in batches)
print(json.dumps([status, len(list(half)) + 1, first[1] + rest]))
"""
    assert run(program, store) == [0, ROWS, ROWS]


TAKE = """
os.closerange(3, 256)
mine = [open(f"{sys.argv[2]}/own.{n}", "w+b", buffering=0) for n in range(24)]
"""
HARMED = """
def harmed():
    for file in mine:
        file.write(b"MINE")
        file.seek(0)
    return [file.fileno() for file in mine if file.read() != b"MINE"]
"""


def test_after_every_descriptor_was_closed_a_store_refuses(store, tmp_path):
    program = f"""
store = tailrace.open(path)
count(store)
half = iter(store.events())
next(half)
{TAKE}
{HARMED}
asks = lambda: count(store), store.refresh, lambda: list(half), lambda: tailrace.open(path), lambda: store.version
said = [refusal(ask) for ask in asks]
store.close()
print(json.dumps([said, harmed()]))
"""
    assert run(program, store, tmp_path) == [[CLOSED] * 5, []]


def test_descriptors_that_were_closed_before_the_first_store_do_not_matter(store, tmp_path):
    program = f"{TAKE}{HARMED}\nprint(json.dumps([count(tailrace.open(path)) > 0, harmed()]))"
    assert run(program, store, tmp_path) == [True, []]


def test_pipes_to_a_statements_process_that_the_program_closed_are_left_alone(store, tmp_path):
    program = f"""
store = tailrace.open(path, limits=tailrace.Limits(seconds=40))
before = set(os.listdir("/proc/self/fd"))
half = iter(store.events(columns=["seq", "attributes"]))
next(half)
new = [f"/proc/self/fd/{{n}}" for n in set(os.listdir("/proc/self/fd")) - before]
pipes = [os.path.basename(n) for n in new if os.path.lexists(n) and os.readlink(n).startswith("pipe:")]
for number in map(int, pipes): os.close(number)
mine = [open(f"{{sys.argv[2]}}/own.{{n}}", "w+b", buffering=0) for n in range(24)]
{HARMED}
try: list(half)
except tailrace.QueryError as error: said = str(error)
print(json.dumps([len(pipes) > 1, said, harmed(), count(store)]))
"""
    said = "the program has closed the pipe to the statement's process: ask again"
    assert run(program, store, tmp_path) == [True, said, [], ROWS]
