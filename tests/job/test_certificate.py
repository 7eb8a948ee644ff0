"""The certificate of a job of several nodes: who was killed, who never came, and what each left."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from tailrace.query.completeness import completeness
from tailrace.query.engine import Engine
from tailrace.run.certificate import stream_evidence, total
from tests import program
from tests.query.tables import make, row, session
from tests.run.jobs import Job
from tests.run.test_run import tailrace


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """Five ranks on two nodes, of a job of six: rank 1 is killed, and the collector of ranks 3 and 4 with them."""
    directory = tmp_path_factory.mktemp("job")
    nodes = {name: directory / name for name in ("n1", "n2")}
    jobs = {}
    for name, path in nodes.items():
        path.mkdir()
        jobs[name] = Job(path, 6, "--store", directory / "stores", SLURMD_NODENAME=name)
    try:
        jobs["n1"].start(0, 1, 2)
        jobs["n2"].start(3, 4)
        jobs["n1"].kill(1)
        jobs["n1"].end(0, 2)
        jobs["n1"].over(directory / "stores/n1")
        collector = int((directory / "stores/n2/lock").read_text())
        os.kill(collector, signal.SIGKILL)
        jobs["n2"].kill(3, 4)
    finally:
        for job in jobs.values():
            job.close()
    done = tailrace(directory, "merge", "stores", "--into", "all", "--json")
    assert done.returncode == 3, done.stderr
    return directory, json.loads(done.stdout)


def test_each_rank_is_named_with_what_it_left(merged):
    _, said = merged
    found = {r["rank"]: (r["node"], r["state"], r["stored"], r["unknown"]) for r in said["ranks"]}
    assert found == {
        0: ("n1", "ended", 10, False), 1: ("n1", "killed", 10, True), 2: ("n1", "ended", 10, False),
        3: ("n2", "unknown", 10, True), 4: ("n2", "unknown", 10, True), 5: (None, "never came", 0, False),
    }  # fmt: skip
    assert (said["sizes"], said["totals"]["stored"]) == ({"17.0": 6}, 50)
    assert [each["recovered"] for each in said["stores"]] == [False, True]
    assert [(n["node"], n["collectors_ended"]) for n in said["nodes"]] == [("n1", 1), ("n2", 0)]


def test_it_is_said_in_words_too_and_the_same_again_changes_nothing(merged):
    directory, said = merged
    done = tailrace(directory, "merge", "stores", "--into", "all")
    assert done.returncode == 3
    assert done.stdout.count(": 0 rows added") == 2
    for words in (
        f"job certificate all/job.json: sha256 {said['sha256']}", "job 17.0: 6 ranks: 2 ended, 1 killed, 2 unknown, 1 never came",
        "rank 1 on n1 was killed: 10 events stored, 0 missing and an unknown number more, the last at ",
        "rank 5 never came: it was not started, or not traced", "node n2: its collector was killed",
    ):  # fmt: skip
        assert words in done.stdout
    assert not (directory / "all/job-2.json").exists()


def test_it_holds_until_something_changes(merged, tmp_path):
    directory, _ = merged
    done = tailrace(directory, "verify", "all/job.json", "--json")
    assert (done.returncode, json.loads(done.stdout)["holds"]) == (0, True), done.stdout
    certificate = json.loads((directory / "all/job.json").read_bytes())
    text = (directory / "all/job.json").read_text()
    for there, put in {
        '"kind":': '"approved": true, "kind":',
        '"rank": 0': '"rank": 9, "rank": 0',
    }.items():
        (tmp_path / "added.json").write_text(text.replace(there, put))
        done = tailrace(directory, "verify", tmp_path / "added.json")
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not a job certificate" in done.stderr
    ranks = certificate["ranks"]
    for name, change in {
        "rank 1 of job 17.0: state": {
            "ranks": [*ranks[:1], ranks[1] | {"state": "ended"}, *ranks[2:]]
        },
        "rank 5 of job 17.0: is in the store but not in the certificate": {"ranks": ranks[:5]},
        "its totals differ": {"totals": certificate["totals"] | {"stored": 51}},
        "its sizes differ": {"sizes": {}},
        "is in the table but not in the certificate": {"streams": certificate["streams"][1:]},
        "its own digest does not match": {"sha256": "0" * 64},
    }.items():
        (tmp_path / "changed.json").write_text(json.dumps(certificate | change))
        done = tailrace(directory, "verify", tmp_path / "changed.json")
        assert (done.returncode, name in done.stdout) == (1, True), (name, done.stdout)


def test_a_log_of_ranks_that_was_changed_does_not_verify(merged, tmp_path):
    directory, _ = merged
    shutil.copytree(directory / "all", tmp_path / "all")
    (log,) = (
        p for p in (tmp_path / "all/ranks").glob("*/ranks.jsonl") if b'"rank":1' in p.read_bytes()
    )
    log.write_bytes(log.read_bytes().replace(b'"exit_status":null', b'"exit_status":0'))
    done = tailrace(directory, "verify", "--store", tmp_path / "all", "all/job.json")
    assert (done.returncode, "rank 1 of job 17.0: state" in done.stdout) == (1, True), done.stdout


def test_ranks_over_time_are_shown_and_drawn(merged, tmp_path):
    directory, _ = merged
    done = tailrace(
        directory,
        "ranks",
        "--store",
        "all",
        "--columns",
        7,
        "--json",
        "--svg",
        tmp_path / "map.svg",
    )
    found = json.loads(done.stdout)
    lanes = {lane["rank"]: lane for lane in found["ranks"]}
    assert {rank: sum(lane["events"]) for rank, lane in lanes.items()} == {
        0: 10,
        1: 10,
        2: 10,
        3: 10,
        4: 10,
        5: 0,
    }
    assert {rank for rank, lane in lanes.items() if any(lane["unknown"])} == {1, 3, 4}
    assert lanes[5]["state"] == "never came"
    drawn = (tmp_path / "map.svg").read_text()
    assert drawn.count('class="bad"') == 4
    assert drawn.count('class="l"') == 3
    lines = tailrace(
        directory, "ranks", "--store", "all", "--job", "17", "--rank", 1
    ).stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith(" 10, an unknown number missing, killed")
    assert lines[0].count("x") == 1


def test_other_commands_take_the_jobs_certificate_for_its_store(merged):
    directory, _ = merged
    done = tailrace(directory, "diff", "all/job.json", "all/job.json", "--json")
    assert (done.returncode, json.loads(done.stdout)["count_a"]) == (0, 50), done.stderr
    assert program.COMMAND


def test_a_stream_of_which_only_the_missing_end_is_known_is_certified_too(tmp_path):
    """The collector of a file without events was killed: the view `gaps` has a gap that is no row of the table."""
    engine = Engine(make(tmp_path / "store", [session("open", ends="7"), row(stream="1")]), {})
    assert completeness(engine).unknown == 1
    streams = stream_evidence(engine, {"a"})
    assert [(each.stream, each.unknown, each.rows) for each in streams] == [
        ("", False, 1), ("1", False, 1), ("7", True, 0),
    ]  # fmt: skip
    assert total(streams).unknown
