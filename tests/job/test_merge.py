"""`tailrace merge`: rows as they are, each once, however often a merge is repeated, killed or overlaps another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections import Counter
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.job import merging
from tailrace.query.engine import Engine
from tailrace.store.presence import START, WRITERS, DirectoryLock, Entrance, is_held
from tailrace.store.verify import verify
from tests import program, toml
from tests.ingest.log import heph_event
from tests.query.tables import DAY, commit, commit_many, gap, make, row, rows_in, session
from tests.system.collector import until


def rows_of(*stores):
    """All rows of tables, each as often as it is there."""
    found = Counter()
    for store in stores:
        found.update(tuple(sorted(each.items())) for each in rows_in(store))
    return found


def merge(*arguments, code=0, **options):
    done = program.run(
        [*program.COMMAND, "merge", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout or done.stderr


def node(directory, name, session_, events=5):
    rows = [
        session("tailrace.session", session=session_, rank=int(session_), node=name, job="17"),
        *(
            row(session=session_, name="x", seq=n, start=n, end=n + 1, time=n)
            for n in range(events)
        ),
        row(
            session=session_,
            name="tomorrow",
            day=DAY + timedelta(days=1),
            attributes={"odd": "\u00e4\0"},
        ),
        row(session=session_, name="twice", seq=9),
        row(session=session_, name="twice", seq=9),
        gap(3, 5, session=session_),
    ]
    make(directory / name, rows)
    return directory / name


@pytest.fixture
def nodes(tmp_path):
    (tmp_path / "nodes").mkdir()
    return [node(tmp_path / "nodes", f"n{number}", str(number)) for number in range(3)]


def test_rows_are_as_they_were_and_each_is_there_once(nodes, tmp_path):
    into = tmp_path / "all"
    said = [merge(tmp_path / "nodes", "--into", into, code=3) for _ in range(2)]
    assert rows_of(into) == rows_of(*nodes)
    assert [said[0].count("10 rows added"), said[1].count("0 rows added")] == [3, 3]
    found = verify(str(into), {})
    assert (found.damage, found.unverifiable) == ([], 0)


def test_files_of_many_rows_are_merged_too(nodes, tmp_path):
    """Rows of few kinds then come before all others, and the order of a session's rows is by their offsets."""
    commit_many(nodes[0], 20_000, session="0", name="many")
    commit(
        nodes[0], [gap(7, 90, session="0"), session("close", session="0", closed="eof", offset=1)]
    )
    DeltaTable(str(nodes[0] / "events")).optimize.compact()
    into = tmp_path / "all"
    merge(*nodes, "--into", into, code=3)
    assert rows_of(into) == rows_of(*nodes)
    missing = "SELECT sum(remaining) FROM gaps WHERE session = '0'"
    assert list(Engine(str(into)).rows(missing)) == [(10,)]
    assert verify(str(into), {}).damage == []


def test_a_store_that_has_grown_adds_what_is_new(nodes, tmp_path):
    into = tmp_path / "all"
    merge(*nodes, "--into", into, code=3)
    commit(nodes[1], [row(session="1", name="twice", seq=9), row(session="more", name="x")])
    found = json.loads(merge("--json", *nodes, "--into", into, code=3))
    assert [each["rows"] for each in found["stores"]] == [0, 2, 0]
    assert rows_of(into) == rows_of(*nodes)


def test_what_another_merge_has_is_not_added_twice(nodes, tmp_path):
    half, into = tmp_path / "half", tmp_path / "all"
    merge(*nodes[:2], "--into", half, code=3)
    merge(half, *nodes, "--into", into, code=3)
    assert rows_of(into) == rows_of(*nodes)


def test_a_merge_that_is_killed_goes_on(tmp_path):
    nodes = [node(tmp_path, f"n{number}", str(number), events=200) for number in range(12)]
    into = tmp_path / "all"
    for kills in range(3):
        process = subprocess.Popen(
            [*program.COMMAND, "merge", *map(str, nodes), "--into", str(into)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        for _ in range(2 * kills + 1):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not rows_of(into) - rows_of(*nodes)
    merge(*nodes, "--into", into, code=3)
    assert rows_of(into) == rows_of(*nodes)


def test_what_cannot_be_merged_is_a_clear_error(nodes, tmp_path):
    into = tmp_path / "all"
    assert "there is no store in it" in merge(nodes[0] / "events", "--into", into, code=1)
    assert "cannot be merged into itself" in merge(nodes[0], "--into", nodes[0], code=1)
    with DirectoryLock(nodes[0]):
        assert "a collector still runs on it" in merge(*nodes, "--into", into, code=1)
    into.mkdir(exist_ok=True)
    with DirectoryLock(into):
        assert "is in use by process" in merge(*nodes, "--into", into, code=1)
    assert not (into / "events").exists()


@pytest.mark.parametrize("url", ["s3://bucket/job", "file:///tmp/job"])
def test_a_url_is_refused_and_no_directory_is_made_of_it(nodes, tmp_path, url):
    for arguments in ((nodes[0], "--into", url), (url, "--into", tmp_path / "all")):
        said = merge(*arguments, code=2, cwd=tmp_path)
        assert f"{url} is a URL, and a merge takes directories only" in said
    assert {path.name for path in tmp_path.iterdir()} == {"nodes"}


def test_every_collector_of_a_store_comes_to_rest_first(collectors, tmp_path):
    """One is killed with events that the table lacks; the other one runs, and then stops."""
    store, into = tmp_path / "store", tmp_path / "all"
    more = toml.section("store", commit_interval="10 min")
    main = collectors(store=store).start()
    second = collectors(store=store, name="second", more=more).start()
    for number, collector in enumerate((main, second)):
        with socket.create_connection(collector.address("tcp")) as sock:
            sock.sendall(b"".join(heph_event(number, seq) for seq in range(5)))
        until(lambda one=collector: one.status()["sources"]["tcp"]["seen_events"] == 5, "events")
    assert "a collector still runs on it" in merge(store, "--into", into, code=1)
    main.stop()
    assert "collector second still runs on it" in merge(store, "--into", into, code=1)
    second.kill()
    assert "after its collector was killed" in merge(store, "--into", into, code=0)
    spans = Counter(row["stream"] for row in rows_in(into, kind="span"))
    assert spans == {"0": 5, "1": 5}
    assert "0 rows added\n" in merge(store, "--into", into, code=0)


def test_collectors_that_start_wait_for_a_merge_that_found_nobody(tmp_path):
    """They may have to repair the table, which nobody may write meanwhile."""
    into = tmp_path / "all"
    node(tmp_path, "a", "1")
    steps = merging.merge([tmp_path / "a"], into, StoreConfig(), SystemClock())
    next(steps)
    assert is_held(into, START)
    assert list(steps) == []
    assert not is_held(into, START)
    assert not is_held(into, WRITERS)


def test_they_do_not_wait_for_a_merge_beside_a_collector(tmp_path):
    into = tmp_path / "all"
    into.mkdir()
    node(tmp_path, "a", "1")
    with Entrance(into) as collector:
        collector.admit()
        steps = merging.merge([tmp_path / "a"], into, StoreConfig(), SystemClock())
        next(steps)
        assert not is_held(into, START)
        steps.close()
