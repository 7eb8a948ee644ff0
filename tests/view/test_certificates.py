"""The certificate of a run stands for the run's store, and in a comparison for the run's sessions."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests import program
from tests.cli.command import COMMAND, ENVIRONMENT

EMITS = """
import sys, time, tailrace_client
tailrace_client.connect()
for number in range(int(sys.argv[1])):
    with tailrace_client.span("step"):
        time.sleep(0.001)
tailrace_client.close()
"""


def traced(store, certificate, events):
    arguments = [*COMMAND, "run", "--store", store, "--certificate", certificate, "--", sys.executable, "-c", EMITS, str(events)]  # fmt: skip
    done = program.run(list(map(str, arguments)), env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(certificate.read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The certificates of two runs in one store: of 5 steps and of 7."""
    directory = tmp_path_factory.mktemp("runs")
    paths = directory / "a.json", directory / "b.json"
    for path, events in zip(paths, (5, 7), strict=True):
        traced(directory / "store", path, events)
    return paths


def test_a_comparison_takes_the_sessions_of_the_runs(runs, viewer_of):
    viewer = viewer_of(*runs)
    store = viewer.get("store")
    assert store["stores"] == [str(each) for each in runs]
    named = [{each["session"] for each in json.loads(path.read_text())["streams"]} for path in runs]
    assert [set(each) for each in store["certified"]] == named
    assert named[0].isdisjoint(named[1])
    (step,) = [
        each
        for each in viewer.get("compare", b_store=1, figure="count")["differences"]
        if each["group"] == ["step"]
    ]
    assert (step["a"], step["b"]) == ("5", "7")


def test_a_session_that_is_named_counts_more(runs, viewer_of):
    viewer = viewer_of(*runs)
    (other,) = viewer.get("store")["certified"][1]
    (step,) = [
        each
        for each in viewer.get("compare", a_session=other, b_store=1, figure="count")["differences"]
        if each["group"] == ["step"]
    ]
    assert (step["a"], step["b"]) == ("7", "7")


def test_a_file_that_is_no_certificate_is_refused(tmp_path, viewer_of):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(AssertionError, match="is not a run certificate"):
        viewer_of(path)
