"""Examine S3 servers that break guarantees on purpose."""

from __future__ import annotations

import pytest

from tailrace.clock import SystemClock
from tailrace.doctor import object_store
from tailrace.doctor.object_store import examine
from tests.doctor.object_store.lying import LyingS3

URL = "s3://bucket/some/prefix"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Do not wait long for guarantees that are broken for good."""
    monkeypatch.setattr(object_store, "PATIENCE", 0.4)


@pytest.fixture
def examined():
    """Return a function that examines a server with the given lies.

    It returns the findings by check. No check has two findings.
    """

    def run(server=None, *, url=URL, clock=None, **lies):
        if server is not None:
            return by_check(server, url, clock)
        with LyingS3(**lies) as made:
            return by_check(made, url, clock)

    return run


def by_check(server, url, clock):
    findings = list(examine(url, server.options, {}, clock or SystemClock()))
    found = {finding.check: finding for finding in findings}
    assert len(found) == len(findings)
    return found
