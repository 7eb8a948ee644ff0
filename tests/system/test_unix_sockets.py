"""The file of a unix socket is removed or replaced while the collector listens there."""

from __future__ import annotations

import signal
import socket
import stat

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

SOURCE = """
[sources.local]
type = "unix"
format = "heph"
listen = "{path}"
mode = "0622"
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "socket"


@pytest.fixture
def collector(collectors, path):
    return collectors(sources=SOURCE.format(path=path)).start()


def conditions(collector):
    return collector.status()["conditions"]


def send(path, number):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(heph_event(1, number))


def seen(collector, events):
    until(lambda: collector.status()["sources"]["local"]["seen_events"] == events, "the events")


def test_a_removed_file_is_made_again_with_its_mode_and_no_event_is_lost(collector, path):
    with socket.socket(socket.AF_UNIX) as early:
        early.connect(str(path))
        for number in range(3):
            send(path, number)
            path.unlink()
            until(path.exists, "the socket")
            assert stat.S_IMODE(path.stat().st_mode) == 0o622
        send(path, 3)
        early.sendall(heph_event(1, 4))
        seen(collector, 5)
    until(lambda: collector.log().count("made again") == 3, "the log")
    assert "socket" not in conditions(collector)
    collector.stop()
    assert not path.exists()


def test_a_file_in_its_place_is_a_condition_until_it_is_gone(collector, path):
    path.unlink()
    path.write_text("somebody's")
    until(lambda: "socket" in conditions(collector), "the condition")
    said = conditions(collector)["socket"]
    assert str(path) in said
    assert "no socket" in said
    assert 'tailrace_condition{condition="socket"} 1.0' in collector.get("/metrics")[1]
    assert path.read_text() == "somebody's"
    path.unlink()
    until(lambda: "socket" not in conditions(collector), "the end of the condition")
    send(path, 0)
    seen(collector, 1)


def test_a_missing_directory_is_a_condition(collectors, tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    collector = collectors(sources=SOURCE.format(path=place / "socket")).start()
    place.rename(tmp_path / "elsewhere")
    until(lambda: "socket" in conditions(collector), "the condition")
    place.mkdir()
    until((place / "socket").exists, "the socket")
    until(lambda: "socket" not in conditions(collector), "the end of the condition")


def test_another_processs_socket_is_left_alone(collector, path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        until(lambda: "socket" in conditions(collector), "the condition")
        collector.process.send_signal(signal.SIGHUP)
        collector.logged("reload")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            accepted, _ = other.accept()
            accepted.close()
        assert collector.running
    until(lambda: "socket" not in conditions(collector), "the end of the condition")
    send(path, 0)
    seen(collector, 1)


def test_a_reload_makes_it_again_as_well(collector, path):
    path.unlink()
    collector.config.write_text(collector.config.read_text() + toml.section("log", level="debug"))
    collector.process.send_signal(signal.SIGHUP)
    until(path.exists, "the socket")
    collector.logged("reload: done")
    for number in range(3):
        send(path, number)
    seen(collector, 3)
