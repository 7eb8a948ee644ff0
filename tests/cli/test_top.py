"""`tailrace top` beside a real daemon: as JSON, as pages, and on the whole screen of a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import threading
from contextlib import contextmanager

import pytest

from tests import program, toml
from tests.cli.command import COMMAND, ENVIRONMENT, run, start
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until


@pytest.fixture
def collector(tmp_path):
    collector = Collector(tmp_path, more=toml.section("ledger", reorder_time="10 min")).start()
    yield collector
    collector.end()


def status_of(collector):
    return collector.status()["sources"]["tcp"]


@contextmanager
def connected(collector, numbers):
    """Send events. Missing ones are awaited until the connection ends: ten minutes (`reorder_time`) are
    longer than any test."""
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(b"".join(heph_event(1, number) for number in numbers))
        yield


def send(collector, numbers):
    with connected(collector, numbers):
        pass


def test_json_has_an_object_for_each_answer(collector):
    send(collector, [0, 1, 2, 5])
    until(lambda: status_of(collector)["rows"] >= 4, "the events")
    out = run("top", "--store", collector.store, "--json", "--count", "2", "--interval", "100 ms")
    first, second = map(json.loads, out.splitlines())
    assert first["pid"] == second["pid"] == collector.process.pid
    assert 0 < first["uptime_seconds"] < second["uptime_seconds"]
    tcp = next(source for source in second["sources"] if source["source"] == "tcp")
    assert (tcp["missing_events"], tcp["missing_is_known"]) == (2, True)
    assert tcp["rows"] == status_of(collector)["rows"]
    assert tcp["rows_per_second"] == 0


def test_rates_show_what_arrives_between_two_answers(collector):
    """The sum of rates times seconds is the number of events that arrived after the first question."""
    watching = start("top", "--store", collector.store, "--json", "--interval", "200 ms")
    try:
        rows, uptimes, shown = 0.0, [], []
        for number, line in enumerate(watching.stdout):
            shown.append(json.loads(line))
            uptimes.append(shown[-1]["uptime_seconds"])
            tcp = next(s for s in shown[-1]["sources"] if s["source"] == "tcp")
            if number == 0:
                before = tcp["rows"]
                send(collector, range(500))
                continue
            rows += tcp["rows_per_second"] * (uptimes[-1] - uptimes[-2])
            if tcp["rows"] - before >= 500:
                break
        assert rows == pytest.approx(tcp["rows"] - before)
    finally:
        watching.kill()
        watching.communicate()


def test_a_page_is_for_eyes(collector):
    with connected(collector, [0, 1, 5]):
        until(lambda: status_of(collector)["rows"] >= 3, "the events")
        text = run("top", "--store", collector.store, "--count", "1").decode()
    heading, figures, empty, names, *sources = text.splitlines()
    assert re.match(rf"ok: process {collector.process.pid}, up \S+ \S+, version ", heading)
    assert " rows committed" in figures
    assert empty == ""
    row = next(line for line in sources if line.startswith("tcp "))
    cells = dict(zip(re.split("  +", names), re.split("  +", row), strict=True))
    assert cells["format"] == "heph"
    assert (cells["missing"], cells["awaited"], cells["rows/s"]) == ("3", "3", "0")


def test_without_a_collector_it_fails_and_says_where_to_look(tmp_path):
    text = run("top", "--store", tmp_path, code=1)
    assert str(tmp_path) in text
    assert "no collector runs" in text
    assert "tailrace streams" in text


def test_after_a_kill_it_fails_and_says_so(collector):
    collector.kill()
    assert "was killed" in run("top", "--store", collector.store, code=1)


def test_a_collector_that_ends_ends_the_lines(collector):
    watching = start("top", "--store", collector.store, "--json", "--interval", "100 ms")
    try:
        assert watching.stdout.readline()
        collector.stop()
        _, err = watching.communicate(timeout=60)
    finally:
        watching.kill()
    assert watching.returncode == 1
    # It answers no more, and then it is gone.
    ended = (b"no collector runs", b"did not answer", b"has no admin endpoint")
    assert any(each in err for each in ended), err
    assert b"Traceback" not in err


class Terminal:
    """`tailrace top` on the whole screen of a terminal, and all that it has printed."""

    def __init__(self, store, size=(40, 200)):
        self._ours, theirs = pty.openpty()
        environment = ENVIRONMENT | {
            "LINES": str(size[0]),
            "COLUMNS": str(size[1]),
            "TERM": "xterm",
        }
        command = [*COMMAND, "top", "--store", str(store), "--interval", "100 ms"]
        self.process = program.start(
            command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.printed = ""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        try:
            while data := os.read(self._ours, 65536):
                self.printed += data.decode(errors="replace")
        except OSError:  # how Linux says that the other end is closed
            pass

    @property
    def screens(self):
        """The texts of the pages drawn so far, without what moves the cursor."""
        pages = self.printed.split("\x1b[H")[1:]
        return [re.sub("\x1b\\[[?0-9;]*[A-Za-z]", "", page).replace("\r\n", "\n") for page in pages]

    def end(self):
        self.process.kill()
        self.process.wait(timeout=60)
        self._reading.join(timeout=60)
        os.close(self._ours)


def test_the_screen_is_drawn_again_until_ctrl_c(collector):
    terminal = Terminal(collector.store)
    try:
        until(lambda: len(terminal.screens) >= 3, "three pages")
        send(collector, range(300))
        until(lambda: re.search(r"tcp .*█", terminal.screens[-2]), "a bar of the trend")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(timeout=60) == 130
    finally:
        terminal.end()
    assert terminal.printed.startswith("\x1b[?1049h")
    assert terminal.printed.endswith("\x1b[?1049l")
    assert "Traceback" not in terminal.printed


def test_the_screen_says_that_the_collector_is_gone_and_comes_back(collector):
    terminal = Terminal(collector.store)
    try:
        until(lambda: len(terminal.screens) >= 2, "two pages")
        collector.kill()
        until(lambda: "no answer, so these figures are old" in terminal.screens[-1], "the problem")
        page = terminal.screens[-1]
        assert re.search(r"^tcp +\S+ +\d+ +\d+ +\d+ +- +- ", page, re.MULTILINE), page
        collector.start()
        newest = f"process {collector.process.pid},"
        until(lambda: newest in terminal.screens[-1], "the new process")
        until(lambda: "no answer" not in terminal.screens[-1], "figures that are new")
    finally:
        terminal.end()


def test_a_low_terminal_says_how_much_it_hides(collector):
    terminal = Terminal(collector.store, size=(5, 200))
    try:
        until(lambda: len(terminal.screens) >= 2, "two pages")
    finally:
        terminal.end()
    lines = terminal.screens[0].splitlines()
    assert len(lines) == 5
    assert re.fullmatch(r"\d+ more lines?: enlarge the terminal", lines[-1])


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_screen_fits_the_terminal_with_whole_words(collector, width):
    terminal = Terminal(collector.store, size=(60, width))
    try:
        until(lambda: len(terminal.screens) >= 2, "two pages")
    finally:
        terminal.end()
    lines = terminal.screens[0].splitlines()
    assert max(map(len, lines)) <= width
    cut = [word for line in lines for word in line.split() if "…" in word]
    assert all(str(collector.store).endswith(word.lstrip("…").rstrip(",")) for word in cut), cut
    (names,) = [line.split() for line in lines if line.startswith("source ")]
    assert {"source", "rows", "rows/s", "missing", "behind"} <= set(names)


def test_wrong_usage_is_exit_2(tmp_path):
    assert "Usage" in run("top", "--store", tmp_path, "--count", "0", code=2)
    assert "0.1" in run("top", "--store", tmp_path, "--interval", "0.1", code=2)
