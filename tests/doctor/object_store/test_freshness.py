"""Reads and listings: servers that answer from copies that are behind."""

from __future__ import annotations

import re

READ, LISTING = "read after write", "listing after write"


def test_a_server_that_keeps_its_promises_is_looked_at_often(examined):
    found = examined()
    assert found[READ].figures == {"looks": 60, "stale": 0, "failed": 0}
    assert found[LISTING].figures == {"looks": 41, "stale": 0, "failed": 0}
    assert found[READ].severity == found[LISTING].severity == "good"


def test_stale_reads_are_a_problem_and_how_stale_they_are_is_said(examined):
    found = examined(read_behind=0.1)
    assert found[READ].severity == "problem"
    assert re.search(r"for up to 0\.[1-9] s", found[READ].what)
    assert found[READ].figures["stale"] > 30
    assert found[LISTING].severity == "good"


def test_reads_that_stay_stale_are_named_so(examined):
    found = examined(read_behind=60)[READ]
    assert "times a new key was not found, after 0 s, too" in found.what


def test_stale_listings_are_a_problem(examined):
    found = examined(list_behind=0.1)
    assert found[LISTING].severity == "problem"
    assert (
        "a new key was not listed" in found[LISTING].what or "still listed" in found[LISTING].what
    )
    assert found[LISTING].figures["stale"] > 20
    assert found[READ].severity == "good"


def test_a_listing_from_a_key_on_that_lacks_keys_is_a_problem(examined):
    found = examined(cut=1)
    assert found[LISTING].severity == "problem"
    assert "Once keys were missing" in found[LISTING].what
    assert found[READ].severity == "good"


def test_keys_that_are_not_deleted_are_a_problem_and_remain(examined):
    found = examined(keeps=True)
    assert "20 times a deleted key could still be read" in found[READ].what
    assert "20 times a deleted key was still listed" in found[LISTING].what
    left = found["endpoint clean-up"]
    assert left.severity == "problem"
    assert left.figures == {"remaining": 71}
    assert "it is still listed" in left.what
    (command,) = left.commands
    assert command.startswith("aws s3 rm --recursive s3://bucket/some/prefix/doctor-")
