"""Run all checks, in the order in which their findings are reported."""

from __future__ import annotations

from tailrace.doctor import (
    addresses,
    buffers,
    directories,
    drops,
    file_systems,
    limits,
    producers,
    rate,
    speed,
    tails,
    timekeeping,
    unit,
)
from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host

LOOKS = (addresses, directories, file_systems, tails, buffers, drops, limits, producers, unit)
"""Modules whose `check` only looks."""

MEASUREMENTS = (speed, rate)
"""Modules whose `check` keeps the disk or a core busy for a second or two."""


def examine(host: Host, *, quick: bool) -> list[Finding]:
    """Return every finding. Skip the measurements if a collector runs or `quick` is set."""
    clock_before = timekeeping.wall_minus_monotonic(host)
    host = host.with_daemon()
    findings = [finding for module in LOOKS for finding in module.check(host)]
    if host.daemon is not None:
        reason = f"so as not to disturb the collector, process {host.daemon.pid}"
    else:
        reason = "because of --quick" if quick else ""
    for module in MEASUREMENTS:
        if reason:
            findings.append(good(module.CHECK, f"Not measured, {reason}."))
        else:
            findings += module.check(host)
    findings += timekeeping.check(host, clock_before)
    return findings


def endpoint_not_asked_for() -> Finding:
    """Return the finding about a configured object store that nobody asked to test."""
    return good("endpoint", "Not tested, because that writes keys there: give its URL as --store.")


def endpoint_without_obstore() -> Finding:
    """Return the finding about an object store that is to be tested on a host without the package obstore."""
    return Finding(
        check="endpoint",
        severity=Severity.PROBLEM,
        what="Testing an object store needs the package obstore.",
        why="Nothing is known of this endpoint: none of its promises was tested.",
        commands=["python -m pip install 'tailrace[object-store]'"],
    )
