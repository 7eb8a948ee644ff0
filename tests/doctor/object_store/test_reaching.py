"""Endpoints that do not answer, and clocks that are wrong."""

from __future__ import annotations

import socket

import pytest

from tailrace.clock import SystemClock
from tailrace.doctor import endpoint
from tailrace.doctor.object_store import examine
from tests.doctor.hosts import StoppedClock
from tests.doctor.object_store.lying import LyingS3

CHECK = "endpoint clock"


def test_an_endpoint_that_nobody_listens_on_is_a_problem(examined):
    server = LyingS3()
    server._server.server_close()
    found = examined(server)
    assert {*found} == {"endpoint"}
    assert found["endpoint"].severity == "problem"
    assert found["endpoint"].what.endswith("does not answer: connection refused.")


def test_a_name_without_an_address_is_a_problem(examined):
    server = LyingS3()
    server._server.server_close()
    server.url = "http://name.invalid"
    found = examined(server)["endpoint"]
    assert found.what == "http://name.invalid does not answer: name or service not known."


@pytest.mark.parametrize("prefix", ["a//b", "a/../b"])
def test_a_prefix_that_the_library_refuses_is_a_problem(examined, prefix):
    found = examined(url=f"s3://bucket/{prefix}")
    assert {*found} == {"endpoint"}
    assert f"cannot use s3://bucket/{prefix}" in found["endpoint"].what


def test_an_endpoint_that_says_nothing_is_given_up(examined, monkeypatch):
    monkeypatch.setattr(endpoint, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = LyingS3()
        server._server.server_close()
        server.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found = examined(server)["endpoint"]
    assert found.what == f"{server.url} does not answer: nothing within 0.2 s."


def test_a_proxy_is_named_without_its_password(monkeypatch):
    proxy = {"HTTP_PROXY": "http://user:5ecr3t@127.0.0.1:1", "NO_PROXY": ""}
    for name, value in proxy.items():
        monkeypatch.setenv(name, value)
    options = {"aws_skip_signature": "true", "allow_http": "true", "endpoint": "http://192.0.2.1"}
    (found,) = examine("s3://bucket", options, proxy, SystemClock())
    assert "does not answer" in found.what
    assert "HTTP_PROXY" in found.commands[-1]
    assert "5ecr3t" not in found.what + "".join(found.commands)


def test_whatever_is_no_s3_server_is_a_problem(examined):
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = LyingS3()
        server._server.server_close()
        server.url = f"http://127.0.0.1:{other.getsockname()[1]}"
        other.close()
        assert examined(server)["endpoint"].severity == "problem"


def test_clocks_that_agree_are_said_to(examined):
    found = examined()[CHECK]
    assert found.severity == "good"
    assert abs(found.figures["ahead_s"]) < 5


@pytest.mark.parametrize(
    ("ahead", "severity", "said"),
    [(60, "advice", "60 s ahead of ours"), (-60, "advice", "60 s behind ours"), (-3600, "problem", "3,600 s behind ours")],
)  # fmt: skip
def test_a_clock_that_is_wrong_is_named(examined, ahead, severity, said):
    clock = SystemClock()
    with LyingS3(ahead=ahead) as server:
        found = examined(server, clock=clock)[CHECK]
    assert found.severity == severity
    assert abs(found.figures["ahead_s"] - ahead) < 5
    assert said.split(" s ")[1] in found.what


def test_our_own_clock_may_be_the_wrong_one(examined):
    found = examined(clock=StoppedClock(wall_ns=10**18, step=0.001))[CHECK]
    assert found.severity == "problem"
    assert "ahead of ours" in found.what
