"""The demonstration as a process, from its first line to its last."""

from __future__ import annotations

import fcntl
import html
import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import trio

from tailrace.clock import SystemClock
from tailrace.demo.producers import EVENTS, PRODUCERS
from tailrace.demo.tour import PICTURE_WIDTH, Tour, loss_pictures
from tests import program

SECONDS = 120


def demo(store, *arguments, **options):
    return program.start(
        [*program.COMMAND, "demo", "--store", store, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def read_until(printed, words):
    """Return what is printed, up to the line with these words."""
    lines = []
    for line in printed:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it ended before {words!r}:\n{''.join(lines)}")


def gone(pid):
    """Whether a process ends in time."""
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def opened(path):
    """The address that the browser was started with."""
    deadline = time.monotonic() + SECONDS
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return path.read_text().strip()


def daemon_of(store):
    return int((store / "lock").read_text())


def bars(picture):
    assert len(picture) == PICTURE_WIDTH
    return PICTURE_WIDTH - picture.count(" ")


def test_it_finds_exactly_what_it_left_out_and_stays_until_ctrl_c(tmp_path):
    """As JSON its verdict is one object, and the tour is beside it."""
    store = tmp_path / "store"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    # Settings of other collectors are not for this collector.
    odd = {"TAILRACE_LOG_LEVEL": "loudest", "BROWSER": str(browser)}
    environ = os.environ | program.PROXIES | odd
    with demo(
        store, "--keep", "--verbose", "--json", env=environ, start_new_session=True
    ) as process:
        output = read_until(process.stderr, "events a second go to heph_tcp")
        assert Path(f"/proc/{daemon_of(store)}").exists()
        (address,) = re.findall("the page is at (.*)", output)
        page = Path(opened(tmp_path / "opened").removeprefix("file://"))
        assert address in html.unescape(page.read_text())
        with urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - our own http address
            assert b"Tailrace" in answer.read()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        verdict, rest = process.communicate(timeout=SECONDS)
    assert (process.returncode, json.loads(verdict)) == (0, {"good": True, "store": str(store)})
    assert "1. Start a collector" in output
    found = re.findall(r"^(\w+) +[\d,]+ +(\d+) +(\d+)  (network|-)", output, re.MULTILINE)
    lost = dict(found_row[:2] for found_row in found)["heph_udp"]
    assert int(lost) > 100
    assert found == [
        ("heph_udp", lost, lost, "network"),
        ("heph_tcp", "0", "0", "-"),
        ("jets_tcp", "7", "7", "network"),
        ("ovni_tail", "0", "0", "-"),
        ("dftracer_tail", "15", "15", "network"),
        ("et3_tail", "9", "9", "network"),
    ]
    assert re.search(r"^\$ tailrace query .*FROM spans", output, re.MULTILINE)
    assert f'tailrace_ledger_missing_events{{source="heph_udp"}} {float(lost)}' in output
    ledger = rest[rest.index("final ledger") :]
    assert f"{EVENTS} expected, {EVENTS - int(lost)} seen" in ledger
    assert gone(daemon_of(store))
    pictures = loss_pictures(str(store))
    assert pictures.keys() == {source for source, left_out, *_ in found if left_out != "0"}
    assert pictures["jets_tcp"] == "(at an unknown time)", "only a total shows this loss"
    assert 7 <= bars(pictures["et3_tail"]) <= 9 < bars(pictures["heph_udp"])
    assert "█" in pictures["heph_udp"]
    with pytest.raises(URLError, match="refused"):
        urlopen(address, timeout=SECONDS)  # noqa: S310 - our own http address


def test_it_ends_by_itself_and_fails_when_the_table_does_not_say_what_it_did(tmp_path):
    (honest,) = (producer for producer in PRODUCERS if producer.source == "jets_tcp")
    liar = honest._replace(traffic=lambda *given: honest.traffic(*given)._replace(lost={"": 6}))
    lines = []
    tour = Tour(tmp_path, tmp_path / "store", lines.append, SystemClock(), producers=[liar])
    assert not trio.run(tour.run)
    assert "  DIFFERENT: stream jets_tcp: 6 left out, 7 found" in lines
    assert "The table DIFFERS from the traffic: see the lines above." in lines
    assert len(lines) < 24, "by default everything fits one screen"
    assert all(
        len(line) <= 80 for line in "\n".join(lines).splitlines() if str(tmp_path) not in line
    )


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_it_takes_the_collector_with_it_when_told_to_end(tmp_path, number):
    store = tmp_path / "store"
    with demo(store) as process:
        read_until(process.stdout, "Send the traces")
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert gone(daemon_of(store))


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["output", "errors"])
def test_a_signal_ends_it_and_the_collector_while_nobody_reads_its_lines(tmp_path, arguments):
    store = tmp_path / "store"
    reading, writing = os.pipe()
    os.write(writing, bytes(fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096) - 500))
    printed = {"stderr" if arguments else "stdout": writing}
    with program.start(
        [*program.COMMAND, "demo", "--store", store, *arguments],
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | printed,
    ) as process:
        deadline = time.monotonic() + SECONDS
        while "pipe_write" not in Path(f"/proc/{process.pid}/wchan").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.close(writing)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
        os.close(reading)  # which ends it, if the signal has not
    assert process.returncode == 130
    assert gone(daemon_of(store))


def test_lines_that_cannot_be_written_end_it_before_the_collector_starts(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = program.run(
            [*program.COMMAND, "demo", "--store", tmp_path / "store"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    said = "tailrace: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert not (tmp_path / "store").exists()


def test_it_says_why_when_the_collector_does_not_start(tmp_path):
    (tmp_path / "file").touch()
    with demo(tmp_path / "file" / "store") as process:
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert errors.startswith("tailrace: the collector did not become ready:\n")
    assert str(tmp_path / "file") in errors


def test_it_refuses_a_store_that_has_something_in_it(tmp_path):
    (tmp_path / "something").touch()
    with demo(tmp_path) as process:
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "is not empty" in errors


class InterruptedDaemon:
    """A collector that starts, and whose first stop Ctrl-C interrupts."""

    command = ("serve",)
    admin = "127.0.0.1:1"
    pid = 1
    output = ""
    stops = 0

    async def start(self):
        pass

    async def stop(self):
        self.stops += 1
        if self.stops == 1:
            raise KeyboardInterrupt
        return 0


def test_ctrl_c_during_the_stop_leaves_no_collector_behind(tmp_path, monkeypatch):
    async def nothing(_):
        return True

    for step in ("_send", "_settle", "_compare"):
        monkeypatch.setattr(Tour, step, nothing)
    tour = Tour(tmp_path, tmp_path / "store", [].append, SystemClock(), producers=[])
    tour._daemon = daemon = InterruptedDaemon()
    with pytest.raises(KeyboardInterrupt):
        trio.run(tour.run)
    assert daemon.stops == 2
