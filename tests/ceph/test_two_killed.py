"""Two collectors on one table in Ceph, killed at random behind a network that drops, delays and cuts answers.

The table is written for a minute, or for as many seconds as the variable CEPH_SECONDS says: docs/scale-out.md has the
figures of ten minutes. The seed is CEPH_SEED, or drawn, and printed.
"""

from __future__ import annotations

import os
import random
import sys

import pytest

from tests import program
from tests.ceph.cluster import INSTALL, RunningCeph, missing
from tests.ceph.exactly_once import check_answers, check_rows, check_upkeeps
from tests.ceph.killing import COLUMNS, write_and_kill
from tests.ceph.table_log import TableLog
from tests.engines import apart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"Ceph is not installed: {INSTALL}"),
]

SECONDS = float(os.environ.get("CEPH_SECONDS", "60"))


@pytest.fixture(scope="module")
def ceph():
    with RunningCeph() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def written(ceph, tmp_path_factory):
    seed = int(os.environ.get("CEPH_SEED") or random.SystemRandom().getrandbits(20))
    say(f"CEPH_SEED={seed} CEPH_SECONDS={SECONDS:.0f}")
    url = f"{ceph.bucket('killed')}/two"
    found = write_and_kill(url, ceph.options, tmp_path_factory.mktemp, SECONDS, seed=seed)
    say(found.said())
    return found


@pytest.fixture(scope="module")
def asked(ceph, written):
    """A function that runs a command on the store, without a proxy, and returns what it printed."""

    def run(command, *arguments):
        where = [written.url] if command == "verify" else ["--store", written.url]
        done = program.run(
            [*program.COMMAND, command, *where, *arguments],
            capture_output=True, text=True, timeout=300, check=False, env=os.environ | ceph.options,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_each_event_is_stored_once_or_named_as_missing(written, asked):
    missing = check_rows(written.rows, written.lives)
    check_answers(asked, missing, written.rows)
    say(f"{sum(missing.values())} events of Heph are missing")


def test_one_upkeep_at_a_time_merged_while_both_wrote(written):
    check_upkeeps(written.versions, len(written.lives))


@pytest.mark.skipif(
    not apart.PYTHON.exists(), reason="no distributed engine is installed: make engines"
)
@pytest.mark.parametrize("engine", apart.NAMES)
def test_a_distributed_engine_has_the_same_rows(engine, written, ceph, tmp_path):
    expected = apart.rows_of_query(written.url, ceph.options)
    [(rows, pids)] = apart.read_apart(engine, [f"{written.url}/events"], ceph.options, tmp_path)
    assert apart.as_rows(rows) == expected
    assert len(pids) >= 2
    say(f"{engine}: {rows.num_rows} rows by processes {sorted(pids)}")


def test_a_last_upkeep_changes_no_row(written, ceph, asked):
    asked("verify")
    asked("upkeep", "--all")
    log = TableLog(written.url, ceph.options)
    assert sorted(map(repr, log.rows(COLUMNS))) == sorted(map(repr, written.rows))


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
