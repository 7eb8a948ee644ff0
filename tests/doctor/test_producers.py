"""Producers' settings in an environment: those of PRODUCERS.md are good, others are told."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tailrace.config import environment
from tailrace.doctor import processes
from tests.doctor.hosts import host, only, tail

PRODUCERS = Path(__file__).parents[2] / "collector" / "PRODUCERS.md"

LIVE = {
    "DFTRACER_ENABLE": "1",
    "DFTRACER_INC_METADATA": "1",
    "DFTRACER_TRACE_COMPRESSION": "0",
    "DFTRACER_WRITE_BUFFER_SIZE": "1",
}


def check(environ, **sources):
    return list(processes.check_producers(host(environ=environ, sources=sources)))


def exports(finding):
    """Return what its commands would set."""
    words = shlex.split(" ".join(finding.commands))
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_an_environment_without_producers_is_good():
    assert only(check({"HOME": "/root"})).severity == "good"


def test_what_the_documentation_advises_is_good():
    blocks = re.findall(r"```sh\n(.*?)```", PRODUCERS.read_text(), re.DOTALL)
    settings = [dict(re.findall(r"export (DFTRACER_\w+)=(\S+)", block)) for block in blocks]
    assert len(settings) == 2
    for environ in settings:
        assert only(check(environ)).severity == "good", environ


@pytest.mark.parametrize(
    ("changed", "words", "fixed"),
    [
        ({"DFTRACER_WRITE_BUFFER_SIZE": None}, "up to 16,777,216 bytes", "WRITE_BUFFER_SIZE"),
        ({"DFTRACER_WRITE_BUFFER_SIZE": "1000000"}, "up to 1,000,000", "WRITE_BUFFER_SIZE"),
        ({"DFTRACER_TRACE_COMPRESSION": "1"}, "compresses every 1", "TRACE_COMPRESSION"),
        ({"DFTRACER_TRACE_COMPRESSION": None}, "compresses every 1", "TRACE_COMPRESSION"),
        ({"DFTRACER_INC_METADATA": None}, "omits the arguments", "INC_METADATA"),
        ({"DFTRACER_ENABLE_AGGREGATION": "1"}, "aggregates events", "ENABLE_AGGREGATION"),
        ({"DFTRACER_ENABLE": "0"}, "not enabled", "ENABLE"),
    ],
)
def test_what_hides_events_of_dftracer_and_what_its_commands_make_good(changed, words, fixed):
    environ = {name: value for name, value in (LIVE | changed).items() if value is not None}
    finding = only(check(environ))
    assert finding.severity.value == "advice"
    assert words in finding.what
    assert f"DFTRACER_{fixed}" in exports(finding)
    assert only(check(environ | exports(finding))).severity == "good"


def test_who_wants_compressed_traces_keeps_them():
    environ = LIVE | {"DFTRACER_TRACE_COMPRESSION": "1", "DFTRACER_WRITE_BUFFER_SIZE": "100000"}
    assert exports(only(check(environ))) == {"DFTRACER_WRITE_BUFFER_SIZE": "4096"}


def test_who_did_not_ask_for_compression_gets_every_event_at_once():
    environ = {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
    settings = exports(only(check(environ)))
    assert environ | settings == LIVE


def test_traces_that_no_source_watches_are_told_with_the_source_that_would():
    environ = LIVE | {"DFTRACER_LOG_FILE": "/scratch/runs/7/trace"}
    finding = only(check(environ))
    assert "/scratch/runs/7" in finding.what
    settings, problems = environment.read(exports(finding))
    assert problems == []
    assert {path[2]: setting.value for path, setting in settings.items()} == {
        "type": "tail",
        "format": "dftracer",
        "paths": ["/scratch/runs/7"],
    }


def test_a_source_of_the_format_is_given_one_more_path():
    environ = {"OVNI_TRACEDIR": "/b"}
    finding = only(check(environ, runs=tail("/a", format_="ovni")))
    assert exports(finding) == {"TAILRACE_SOURCES_RUNS_PATHS": "/a,/b"}


def test_only_a_source_of_the_same_format_watches():
    environ = LIVE | {"DFTRACER_LOG_FILE": "/scratch/trace"}
    watched = {"runs": tail("/scratch", format_="dftracer")}
    assert only(check(environ, **watched)).severity == "good"
    other = {"runs": tail("/scratch", format_="ovni")}
    assert only(check(environ, **other)).severity == "advice"


def test_both_directories_of_ovni_are_to_be_watched():
    environ = {"OVNI_TRACEDIR": "/final", "OVNI_TMPDIR": "/fast[1]"}
    found = check(environ, runs=tail("/final/*", format_="ovni"))
    assert "OVNI_TMPDIR leads to /fast[1]" in only(found).what
    assert "if it is killed" in only(found).why
    both = check(environ, runs=tail("/other", format_="ovni"))
    assert [exports(finding)["TAILRACE_SOURCES_RUNS_PATHS"] for finding in both] == [
        "/other,/final,/fast[[]1]"
    ] * 2
    assert (
        only(check(environ, runs=tail("/final", "/fast[[]1]", format_="ovni"))).severity == "good"
    )


def test_without_a_directory_ovni_writes_below_the_working_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"OVNI_TMPDIR": "/fast"}
    found = check(environ, runs=tail("/fast", format_="ovni"))
    assert f"{tmp_path}/ovni" in only(found).what
