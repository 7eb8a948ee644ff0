"""A simulator of known speed and a real collector: what its clock does is on /status and in the metrics."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.metrics.scrape import Scrape
from tests.system.collector import until

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEED = 50
"""Simulated seconds a second of wall time, of the example: 500 jobs take some ten seconds."""

PACED = f"""
import time
import simulator

class Paced(simulator.Simulator):
    def after(self, delay, action):
        def in_time():
            time.sleep(max(0, self.begun + self.now / simulator.SECOND / {SPEED} - time.monotonic()))
            action()
        super().after(delay, in_time)

    begun = time.monotonic()

simulator.Simulator = Paced
simulator.main()
"""
CLK_PER_SECOND, MEGAHERTZ = 20_000, 500


def line(**fields):
    return json.dumps(fields).encode() + b"\n"


def design(address, over):
    """A design at 500 MHz of which 20 000 cycles are simulated a second."""
    with socket.create_connection(address) as sock:
        metadata = {"clock_frequency_mhz": MEGAHERTZ}
        sock.sendall(line(type="header", version="2.0", metadata=metadata))
        begun = time.monotonic()
        while not over.wait(0.1):
            clk = round((time.monotonic() - begun) * CLK_PER_SECOND)
            sock.sendall(line(clk=clk, type="event", name="e", record_id=1, description=""))


def series(collector):
    """Return for each source with a session the values of its session's metrics."""
    scrape = Scrape(collector.metrics())
    scrape.check_families(collector.status()["sources"])
    told = {}
    for name, samples in scrape.families.items():
        if name.startswith("tailrace_session_"):
            for sample in samples:
                told.setdefault(sample.labels["source"], {})[name] = sample.value
    return told


def test_the_speed_of_a_simulator_and_of_a_design_is_told(collector):
    over = threading.Event()
    host, port = collector.address("tcp")
    environ = os.environ | {
        "TAILRACE_ADDRESS": f"tcp://{host}:{port}",
        "PYTHONPATH": f"{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}",
    }
    simulator = subprocess.Popen([sys.executable, "-c", PACED], env=environ)
    thread = threading.Thread(target=design, args=(collector.address("jets"), over))
    thread.start()
    try:

        def told():
            sources = collector.status()["sources"]
            known = [s for source in ("tcp", "jets") for s in sources[source]["sessions"].values()]
            return len(known) == 2 and all(session["slowdown_ratio"] for session in known)

        until(told, "a pace of both")
        values = series(collector)
        sessions = collector.status()["sources"]
    finally:
        over.set()
        thread.join()
        simulator.wait(timeout=180)
    # Wide limits: the machine may be busy.
    simulated, designed = values["tcp"], values["jets"]
    assert SPEED / 4 < 1 / simulated["tailrace_session_slowdown_ratio"] < SPEED * 4
    assert 1 / 4 < simulated["tailrace_session_ticks_per_wall_second"] / (SPEED * 1e9) < 4
    assert 1 / 4 < designed["tailrace_session_ticks_per_wall_second"] / CLK_PER_SECOND < 4
    slowdown = MEGAHERTZ * 1e6 / CLK_PER_SECOND
    assert 1 / 4 < designed["tailrace_session_slowdown_ratio"] / slowdown < 4
    for source, told in values.items():
        assert sessions[source]["followed_sessions"] == {"advancing": 1, "stalled": 0, "silent": 0}
        came, went_on = (
            told[f"tailrace_session_{at}_timestamp_seconds"] for at in ("last_event", "advanced")
        )
        assert came >= went_on > 0
    # Nothing is told any more of what is over.
    until(lambda: series(collector) == {}, "the sessions to be over")


@pytest.mark.slow
def test_a_simulation_that_stands_is_told_from_one_that_is_silent(collector):
    over = threading.Event()

    def stand(address):
        with socket.create_connection(address) as sock:
            sock.sendall(line(type="header", version="2.0", metadata={}))
            while not over.wait(1):
                sock.sendall(line(clk=7, type="event", name="e", record_id=1, description=""))

    thread = threading.Thread(target=stand, args=(collector.address("jets"),))
    thread.start()
    try:
        with socket.create_connection(collector.address("jets")) as silent:
            silent.sendall(line(type="header", version="2.0", metadata={}))
            silent.sendall(line(clk=7, type="event", name="e", record_id=1, description=""))

            def told():
                followed = collector.status()["sources"]["jets"]["followed_sessions"]
                return followed == {"advancing": 0, "stalled": 1, "silent": 1}

            until(told, "both to be told apart", seconds=120, pause=1)
            stalled, mute = (
                next(s for s in sessions if s["progress"] == progress)
                for sessions in [collector.status()["sources"]["jets"]["sessions"].values()]
                for progress in ("stalled", "silent")
            )
            assert stalled["ticks_per_wall_second"] == 0
            assert stalled["slowdown_ratio"] is mute["ticks_per_wall_second"] is None
            assert stalled["last_event_timestamp_seconds"] > stalled["advanced_timestamp_seconds"]
    finally:
        over.set()
        thread.join()
