"""Run all checks of this host, in the order in which the report lists their findings."""

from __future__ import annotations

from tailrace.doctor import machine, network, processes
from tailrace.doctor.finding import HostFinding, good, problem
from tailrace.doctor.machine import Host, check_clock, wall_minus_monotonic

LOOKS = (
    network.check_addresses,
    machine.check_directories,
    machine.check_durability,
    processes.check_tails,
    network.check_buffers,
    network.check_drops,
    processes.check_limits,
    processes.check_producers,
    processes.check_unit,
)

MEASUREMENTS = {machine.SPEED: machine.check_speed, network.RATE: network.check_rate}
"""Checks that measure speeds, by name. They keep the disk or a core busy for a second or two."""


def examine(host: Host, *, quick: bool) -> list[HostFinding]:
    """Return the findings of all checks of this host, without measurements if a collector runs or `quick` is set."""
    clock_before = wall_minus_monotonic(host)
    host = host.with_daemon()
    findings = [finding for look in LOOKS for finding in look(host)]
    if host.daemon is not None:
        reason = f"so as not to disturb the collector, process {host.daemon.pid}"
    else:
        reason = "because of --quick" if quick else ""
    for name, measure in MEASUREMENTS.items():
        if reason:
            findings.append(good(name, f"Not measured, {reason}."))
        else:
            findings += measure(host)
    findings += check_clock(host, clock_before)
    return findings


def endpoint_not_asked_for() -> HostFinding:
    return good("endpoint", "Not tested, because that writes keys there: give its URL as --store.")


def endpoint_without_obstore() -> HostFinding:
    return problem(
        "endpoint",
        "Testing an object store needs the package obstore.",
        "The endpoint was not tested, so it is unknown whether a store is safe there.",
        "python -m pip install 'tailrace[object-store]'",
    )
