"""Log lines: what they have, and what nobody can make of them."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from tailrace import log
from tailrace.config.schema import LogConfig
from tailrace.daemon.context import Health
from tailrace.figures import Condition

logger = logging.getLogger("tailrace.test")

HOSTILE = "a\nb\r\x1b[2J\x1b]0;owned\x07\x00\x7f\x9b31m\u2028\u202e\udcff2026-01-01T00:00:00.000+00:00 error    forged"


@pytest.fixture
def written(monkeypatch):
    """A function that configures the log and returns what is written from then on."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # not pytest's own, which `configure` would close

    def configure(format_):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        log.configure(LogConfig(format=format_))
        return lambda: stream.buffer.getvalue().decode("utf-8")

    yield configure
    root.handlers = handlers
    root.setLevel(level)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def fail():
    try:
        int(HOSTILE)
    except ValueError:
        logger.exception("failed on %s", HOSTILE)


def test_a_json_line_has_the_fields_of_the_reference(written):
    read = written("json")
    logger.warning("peer %s", "x", extra={"source": "udp"})
    Health().degrade(Condition.STORE, "no space")
    fail()
    first, second, third = lines(read())
    assert list(first) == ["time", "level", "logger", "message", "source"]
    assert (first["level"], first["message"], first["source"]) == ("warning", "peer x", "udp")
    assert second["condition"] == "store"
    assert "ValueError" in third["exception"]
    assert {*first, *second, *third} <= {*log.FIELDS}


@pytest.mark.parametrize("format_", ["console", "json"])
def test_hostile_names_stay_on_their_line_and_off_the_terminal(written, format_):
    read = written(format_)
    logger.warning("file %s", HOSTILE)
    (line,) = read().splitlines()
    assert line.isprintable()
    assert "x1b[2J" in line
    assert "forged" in line


def test_an_exception_with_a_hostile_text_begins_no_line(written):
    read = written("console")
    fail()
    first, *rest = read().splitlines()
    assert "failed on a" in first
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_a_storm_is_bounded_and_told(written, monkeypatch):
    read = written("json")
    for n in range(10_000):
        logger.warning("storm %d", n)
        if n % 1000 == 0:
            logger.warning("another place")
    found = lines(read())
    assert len(found) == log.LINES_A_MINUTE + 10
    monkeypatch.setattr(log, "MINUTE", 0.0)  # a minute later
    storm(1)
    assert lines(read())[-1].get("suppressed") is None, "this place has not been left out"


def storm(count):
    for n in range(count):
        logger.warning("storm %d", n)


def test_when_it_goes_on_it_says_how_many_were_left_out(written, monkeypatch):
    read = written("json")
    storm(1000)
    monkeypatch.setattr(log, "MINUTE", 0.0)
    storm(2)
    *_, last, after = lines(read())
    assert last["suppressed"] == 1000 - log.LINES_A_MINUTE
    assert "suppressed" not in after
    read = written("console")
    monkeypatch.setattr(log, "MINUTE", 60.0)
    storm(100)
    monkeypatch.setattr(log, "MINUTE", 0.0)
    storm(1)
    assert read().endswith(f"storm 0 ({100 - log.LINES_A_MINUTE} more like this before it)\n")


def test_a_clock_that_is_set_back_silences_nothing(written):
    read = written("json")

    def say(message, step=0):
        record = logger.makeRecord("tailrace", logging.INFO, __file__, 1, message, (), None)
        record.created += step
        logger.handle(record)

    for _ in range(1000):
        say("now")
    say("earlier", -3600)
    messages = [line["message"] for line in lines(read())]
    assert messages == ["now"] * log.LINES_A_MINUTE + ["earlier"]


def test_a_condition_is_one_line_and_one_at_its_end(written):
    read = written("console")
    health = Health()
    for size in range(1000):
        health.degrade(Condition.SPOOL, f"the spool holds {size} bytes")
    health.clear(Condition.SPOOL)
    health.clear(Condition.SPOOL)
    begun, ended = read().splitlines()
    assert "the spool holds 0 bytes" in begun
    assert "all right again" in ended
    assert health.conditions == {}
