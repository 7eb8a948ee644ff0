"""One collector a node: the first rank starts it, the others join it, the last one ends it, whoever is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tailrace.query.engine import Engine
from tests import program
from tests.run.jobs import Job


@pytest.fixture
def job(tmp_path):
    made = []

    def make(*arguments, **options):
        made.append(Job(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_last_rank_gets_the_nodes_certificate(job):
    ranks_ = job(3, "--store", "store", "--max-loss", 0)
    ranks_.start(0, 1, 2)
    first, second, last = (ranks_.end(number)[0] for number in (0, 1, 2))
    node = ranks_.over("store/n1")
    assert (first, second) == ((0, ""), (0, ""))
    assert last.status == 0
    assert "30 expected, 30 stored, 0 missing" in last.said
    assert (node.events, node.statuses, node.collectors) == (
        {0: 10, 1: 10, 2: 10}, {0: 0, 1: 0, 2: 0}, 1,
    )  # fmt: skip
    done = program.run(
        [*program.COMMAND, "verify", node.path / "certificate.json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_collector_of_a_node_loads_no_numpy(job):
    """As every collector: only roll-ups compute with numpy, and they run in other processes."""
    ranks_ = job(1)
    ranks_.start(0)
    children = psutil.Process(ranks_.ranks[0].pid).children(recursive=True)
    (collector,) = (each for each in children if "tailrace.run" in each.cmdline())
    loaded = {Path(each.path).name.partition(".")[0] for each in collector.memory_maps()}
    assert "libarrow" in loaded
    assert not any("numpy" in each.path for each in collector.memory_maps())


def test_a_program_that_is_not_there_is_no_killed_rank(job):
    ranks_ = job(1, "--store", "store")
    ranks_.options.append("no-such-program")
    ranks_.directory.joinpath("here/0").touch()
    ranks_.start(0)
    (last,) = ranks_.end(0)
    assert (last.status, "no-such-program: No such file" in last.said) == (127, True), last.said
    assert ranks_.over("store/n1").statuses == {0: 127}


def test_a_key_that_cannot_be_used_leaves_the_certificate_unsigned(job):
    ranks_ = job(1, "--sign", "missing.pem")
    ranks_.start(0)
    (last,) = ranks_.end(0)
    assert (
        last.status,
        "collector: the certificate is not signed: missing.pem: " in last.said,
    ) == (
        0,
        True,
    ), last.said
    assert ranks_.over().certificate()["totals"]["stored"] == 10


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_first_rank_that_is_killed_ends_nothing_for_others(job, number):
    ranks_ = job(2)
    ranks_.start(0)
    ranks_.start(1)
    ranks_.kill(0, number=number)
    ranks_.wait(0)
    (last,) = ranks_.end(1)
    node = ranks_.over()
    assert node.statuses == {0: None if number == signal.SIGKILL else 143, 1: 0}
    assert node.events == {0: 10, 1: 10}
    assert "an unknown number more" in last.said
    totals = node.certificate()["totals"]
    assert (totals["stored"], totals["unknown"]) == (20, True)


def test_a_node_of_which_all_ranks_are_killed_ends_and_has_what_came(job):
    ranks_ = job(2)
    ranks_.start(0, 1)
    ranks_.kill(0, 1)
    node = ranks_.over()
    assert (node.statuses, node.events) == ({0: None, 1: None}, {0: 10, 1: 10})
    assert node.certificate()["totals"]["unknown"]


def test_the_loss_of_a_node_is_its_last_ranks(job):
    ranks_ = job(2, "--max-loss", 0)
    ranks_.start(0, 1)
    ranks_.kill(0)
    (last,) = ranks_.end(1)
    assert last.status == 4, last.said


def test_a_collector_that_is_killed_ends_no_program(job):
    ranks_ = job(2)
    ranks_.start(0, 1)
    lock = ranks_.directory / "tailrace-job-17.0/n1/lock"
    os.kill(int(lock.read_text()), signal.SIGKILL)
    for status, said in ranks_.end(0, 1):
        assert (status, "tracing failed, so that there is no certificate" in said) == (0, True), (
            said
        )


def test_a_rank_that_comes_late_goes_on_with_the_store(job):
    """All others have left, and the launcher does not say how many there are on the node."""
    ranks_ = job(2, "--store", "store")
    ranks_.start(0)
    ranks_.end(0)
    ranks_.over("store/n1")
    ranks_.start(1)
    ranks_.end(1)
    node = ranks_.over("store/n1")
    assert (node.statuses, node.events, node.collectors) == ({0: 0, 1: 0}, {0: 10, 1: 10}, 2)


def test_ranks_of_a_launcher_that_names_no_launch_meet_too(job):
    """Though each is of a session of its own, as under Hydra, and behind a script."""
    ranks_ = job(2, "--store", "store", SLURM_JOB_ID="", SLURM_STEP_ID="", PMIX_HOSTNAME="n1")
    hydra = 'PMI_RANK=$SLURM_PROCID "$@"; exit $?'
    ranks_.options = ["sh", "-c", hydra, "sh", *ranks_.options]
    ranks_.start(0, 1)
    assert [ended.status for ended in ranks_.end(0, 1)] == [0, 0]
    node = ranks_.over("store/n1")
    assert (node.statuses, node.events, node.collectors) == ({0: 0, 1: 0}, {0: 10, 1: 10}, 1)


def test_without_a_collector_all_programs_run(job, tmp_path):
    (tmp_path / "store").write_text("x")
    ranks_ = job(3, "--store", "store")
    ranks_.start(0, 1, 2)
    for status, said in ranks_.end(0, 1, 2):
        assert (status, "the program is not traced: " in said) == (0, True), said


OVNI = Path(__file__).parents[1] / "vectors/ovni/every_event.in"

FILES = f"""
import os, pathlib, sys
sys.path[:0] = {sys.path!r}
from tests.ingest.log import heph_event
number, process = int(os.environ["SLURM_PROCID"]), os.getpid()
pathlib.Path(f"mine-{{number}}").write_bytes(heph_event(1, number))
trace = pathlib.Path(os.environ["DFTRACER_LOG_FILE"] + f"-{{process}}-app.pfw")
event = '{{"id":0,"name":"read","cat":"POSIX","pid":%d,"tid":1,"ts":5,"dur":1,"ph":"X","args":{{}}}}'
trace.write_text("[\\n" + event % process + "\\n")
trace.with_name(f"trace-{{process}}-fork.pfw").touch()
thread = pathlib.Path(os.environ["OVNI_TRACEDIR"], f"loom.n1/proc.{{process}}/thread.1/stream.obs")
thread.parent.mkdir(parents=True)
thread.write_bytes(pathlib.Path({str(OVNI)!r}).read_bytes())
pathlib.Path("here", str(number)).touch()
"""


def test_files_of_tracers_have_their_ranks(job):
    """The others that ranks name are followed, too, but nobody knows whose they are."""
    ranks_ = job(2, "--source", "heph=", python=FILES)
    for number in (0, 1):
        ranks_.options[-2] = f"heph=mine-{number}"
        ranks_.start(number)
    for number in (0, 1):
        assert ranks_.wait(number).status == 0
    node = ranks_.over()
    asked = "SELECT format, rank, node FROM sessions ORDER BY format, rank"
    assert list(Engine(str(node.path)).rows(asked)) == [
        ("dftracer", 0, "n1"), ("dftracer", 1, "n1"), ("heph", None, "n1"), ("heph", None, "n1"),
        ("ovni", 0, "n1"), ("ovni", 1, "n1"),
    ]  # fmt: skip
    assert len(node.certificate()["empty"]) == node.lines[-1].empty == 2
