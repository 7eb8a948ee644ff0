"""Two collectors on one table in an object store, killed at random behind a network that drops, delays and cuts answers.

The form of `tests/ceph/test_two_killed.py` for hosts without Ceph, with our own server.
"""

from __future__ import annotations

import pytest

from tests.ceph.exactly_once import check_rows
from tests.ceph.killing import write_and_kill
from tests.store.s3_server import RunningS3

pytestmark = pytest.mark.slow

SECONDS = 12


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    with RunningS3() as server:
        yield write_and_kill(
            "s3://bucket/two", server.options, tmp_path_factory.mktemp, SECONDS, seed=1
        )


def test_each_event_is_stored_once_or_named_as_missing(written):
    assert written.kills >= 3
    check_rows(written.rows, written.lives)
