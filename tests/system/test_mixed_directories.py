"""A directory as people have it: traces of several formats, and files that are no traces. Each source reads its own
format, and counts nothing of another format as missing."""

from __future__ import annotations

import shutil

import pytest

from tailrace.decoding.formats import OWN
from tailrace.importing.discover import Why, find
from tests import toml
from tests.query.asking import ask_all
from tests.system.collector import until
from tests.system.test_import import VECTORS, do, jets

TRACES = {
    "heph": {"hep.trace": "heph/runtime.in", "run.heph": "heph/types.in"},
    "jets": {"out.jets": "jets/tracegen_tiny.in", "out.trace": "jets/clocks.in"},
    "dftracer": {
        "trace-1-app.pfw": "dftracer/v200_py_brackets.in",
        "odd.jets": "dftracer/v220dev_default_agg.in",
    },
    "et3": {"trace": "et3/spec_simple.in", "agent.out": "et3/agent_simple.in"},
}
UNKNOWN = bytes(range(128, 256)) * 20
"""Content that no format claims. It may be a damaged trace."""


@pytest.fixture
def traces(tmp_path):
    """Make a directory with traces of all formats. Return the names of its files by format."""
    runs = tmp_path / "runs"
    ovni = VECTORS / "ovni/traces/two-looms-offsets/ovni"
    shutil.copytree(ovni, runs / "ovni", ignore=shutil.ignore_patterns("*.json", "*.txt"))
    own = {"ovni": {"stream.obs"}}
    for format_, files in TRACES.items():
        own[format_] = set(files)
        for name, vector in files.items():
            shutil.copy(VECTORS / vector, runs / name)
    return own


def figures(store, format_):
    """Return the names of the files that the sources of a format have read, and how many events are counted as missing."""
    files, gaps = ask_all(
        store,
        [
            "SELECT format, parse_filename(peer) FROM sessions",
            """SELECT format, count FROM gaps WHERE "of" IS NULL AND count > 0""",
        ],
    )
    missing = sum(count for of, count in gaps if of == format_)
    return {name for of, name in files if of == format_}, missing


def test_each_source_follows_the_files_of_its_format(collectors, traces, tmp_path):
    (tmp_path / "runs/noise.jets").write_bytes(UNKNOWN)
    paths = {"paths": [tmp_path / "runs"], "idle_interval": "50 ms"}
    collector = collectors(
        sources="".join(toml.source(format_, "tail", format_, **paths) for format_ in OWN)
    ).start()
    own = {"heph": 3, "jets": 3, "dftracer": 2, "et3": 2, "ovni": 4}

    def followed():
        return {name: each["open"] for name, each in collector.status()["sources"].items()}

    until(lambda: followed() == own, "all files to be read")
    waiting = {name: each["waiting_files"] for name, each in collector.status()["sources"].items()}
    assert waiting["jets"] == {"other_format": 2 + 2 + 2 + 4}
    assert waiting["heph"] == {"other_format": 2 + 2 + 2 + 4}
    assert waiting["et3"] == {"other_format": 2}  # two names that end in .trace
    log = collector.stop()
    assert "hep.trace' has the content of heph, and is not followed" in log
    for format_ in OWN:
        noise = {"noise.jets"} if format_ in {"heph", "jets"} else set()
        assert figures(collector.store, format_) == (traces[format_] | noise, 0)


@pytest.mark.parametrize("format_", OWN)
def test_an_import_in_one_format_leaves_the_others_out(traces, tmp_path, format_):
    store = tmp_path / "store"
    said = do(store, "--format", format_, tmp_path / "runs")
    assert figures(store, format_) == (traces[format_], 0)
    assert f"their contents are not of {format_}" in said or format_ in {"ovni", "dftracer"}


def test_a_file_that_was_given_beside_its_directory_is_imported_and_not_left_out(traces, tmp_path):
    named = tmp_path / "runs/hep.trace"
    found = find([tmp_path / "runs", named], "jets")
    assert str(named) in found.traces["jets"]
    assert {each.why for each in found.left_out} == {Why.OTHER_FORMAT}
    assert str(named) not in {each.path for each in found.left_out}


def test_a_file_that_was_named_is_read_as_configured(collectors, traces, tmp_path):
    named = tmp_path / "runs/hep.trace"
    collector = collectors(
        sources=toml.source("runs", "tail", "jets", paths=[named, f"{tmp_path}/runs/*.jets"])
    ).start()
    until(lambda: collector.status()["sources"]["runs"]["open"] == 2, "two files to be read")
    assert collector.status()["sources"]["runs"]["waiting_files"] == {"other_format": 1}
    collector.stop()
    assert figures(collector.store, "jets")[0] == {"hep.trace", "out.jets"}


def test_a_file_is_judged_anew_when_its_content_changes(collectors, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    file = runs / "a"
    shutil.copy(VECTORS / "heph/runtime.in", file)
    paths = {"paths": [runs], "idle_interval": "50 ms"}
    collector = collectors(sources=toml.source("runs", "tail", "jets", **paths)).start()

    def status():
        return collector.status()["sources"]["runs"]

    until(lambda: status()["waiting_files"] == {"other_format": 1}, "the file to be left out")
    assert status()["behind_bytes"] == 0
    file.write_bytes(jets(5))
    until(lambda: status()["seen_events"] == 5, "the new content")
    collector.stop()
    assert figures(collector.store, "jets") == ({"a"}, 0)
