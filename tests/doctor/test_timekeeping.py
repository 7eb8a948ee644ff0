"""Clocks that step, are kept right, are not, or do not say."""

from __future__ import annotations

import pytest

from tailrace.doctor import machine
from tailrace.doctor.machine import adjtimex, check_clock, wall_minus_monotonic
from tests.doctor.hosts import StoppedClock, host, only, put

SYNCHRONISED, UNSYNCHRONISED = 0x2001, 0x41


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Return a function that checks the clock, with an answer of the kernel and a step meanwhile."""

    def checked(kernel, *, step_ns=0):
        monkeypatch.setattr(machine, "adjtimex", lambda: kernel)
        clock = StoppedClock()
        asked = host(root=tmp_path, clock=clock)
        before = wall_minus_monotonic(asked)
        clock.wall += step_ns
        return list(check_clock(asked, before))

    return checked


@pytest.mark.parametrize(
    ("kernel", "severity", "words"),
    [
        ((SYNCHRONISED, 2500), "good", "kept right to 2 ms"),
        ((SYNCHRONISED, 16_000_000), "advice", "wrong by 16.0 s"),
        ((UNSYNCHRONISED, 16_000_000), "advice", "does not know"),
        (None, "advice", "Nothing here shows"),
    ],
)
def test_what_the_kernel_knows_of_the_clock(check, kernel, severity, words):
    finding = only(check(kernel))
    assert finding.severity.value == severity
    assert words in finding.what


def test_timesyncd_is_believed_where_the_kernel_does_not_know(tmp_path, check):
    put(tmp_path, run__systemd__timesync__synchronized="")
    assert only(check(None)).severity == "good"
    assert only(check((UNSYNCHRONISED, 0))).severity == "good"


@pytest.mark.parametrize(("step_ns", "steps"), [(10**9, 1), (-(10**9), 1), (10**6, 0)])
def test_a_clock_that_is_set_meanwhile_is_a_problem(check, step_ns, steps):
    found = check((SYNCHRONISED, 100), step_ns=step_ns)
    assert [f.figures for f in found if f.severity == "problem"] == [{"step_ns": step_ns}] * steps


def test_this_kernel_answers_and_is_only_asked():
    answer = adjtimex()
    if answer is None:
        pytest.skip("it does not")
    status, error_us = answer
    assert 0 <= status < 2**16
    assert error_us >= 0
