"""Measure the cost of an event and of a span to the program that emits them. Each case runs in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tailrace_client
from benchmarks.contest import Contender, beside, contest, ours, reference, scratch
from benchmarks.emitting.cases import PURE
from benchmarks.options import Options
from benchmarks.peers.environment import INSTALL, PYTHON, version
from benchmarks.peers.peer import Peer
from benchmarks.places import ROOT
from benchmarks.processes.daemon import Daemon, daemon
from benchmarks.results import Case, Role, Run
from benchmarks.suite.benchmark import Benchmark

MOST = 20_000
"""Maximum number of calls before a flush. So many events fit in the client's buffer, so that none is discarded."""
OWN_PYTHON = Path(sys.executable)
COMPILER = "a C compiler, and then `make dev`"


class Variant(NamedTuple):
    """A way to use our client. `transport` is empty if tracing is off."""

    name: str
    pure: bool
    transport: str


VARIANTS = (
    Variant("compiled, TCP", pure=False, transport="tcp"),
    Variant("compiled, UDP", pure=False, transport="udp"),
    Variant("compiled, off", pure=False, transport=""),
    Variant("pure Python, TCP", pure=True, transport="tcp"),
    Variant("pure Python, UDP", pure=True, transport="udp"),
    Variant("pure Python, off", pure=True, transport=""),
)
_LOGGING = Peer("logging, file", platform.python_version(), "", "a line to /dev/null")
_QUEUED = Peer("logging, queue", platform.python_version(), "", "a line to a queue, whose thread writes it to /dev/null")  # fmt: skip


def cases(options: Options) -> list[Case]:
    """Measure all cases beside a running daemon, to which our client sends."""
    with scratch() as home, daemon(home) as running:
        events = min(options.events // 10, MOST)
        return [
            case
            for kind, label in (("event", "an event"), ("span", "a span"))
            for case in _apart(contest(label, _sides(kind, running, events, options), options.runs))
        ]


def _apart(case: Case) -> list[Case]:
    """Return one case for the compiled client and one for the client in Python.

    Both have the same runs of the other libraries beside them.
    """
    others = [side for side in case.sides if side.role is not Role.OURS]
    return [
        Case(label=f"{case.label}, {made}", sides=[*mine, *others])
        for made in ("compiled", "pure Python")
        if (mine := [side for side in case.sides if side.name.startswith(made)])
    ]


def _sides(kind: str, running: Daemon, events: int, options: Options) -> list[Contender]:
    peers = [
        (Peer("VizTracer", version("viztracer"), INSTALL, "keeps it, sends nothing"), "viztracer", PYTHON)
    ]  # fmt: skip
    if kind == "span":
        does = "a span to a batch, which is exported to nobody"
        sdk = Peer("OpenTelemetry SDK", version("opentelemetry-sdk"), INSTALL, does)
        peers.insert(0, (sdk, "opentelemetry", PYTHON))
    else:
        peers += [(_LOGGING, "logging_file", OWN_PYTHON), (_QUEUED, "logging_queue", OWN_PYTHON)]
    return [
        *(beside(peer, _measured(case, kind, events, python)) for peer, case, python in peers),
        *(
            _ours(variant, kind, running, events)
            for variant in VARIANTS
            if options.varieties or variant.transport == "tcp"
        ),
        reference(
            "the least", "an attribute kept and the clock read, by the interpreter's compiled functions",
            _measured("least", kind, events, OWN_PYTHON),
        ),
    ]  # fmt: skip


def _ours(variant: Variant, kind: str, running: Daemon, events: int) -> Contender:
    address = ""
    if variant.transport:
        source = "heph" if variant.transport == "tcp" else "udp"
        address = "{}://{}:{}".format(variant.transport, *running.address(source))
    environ = {"TAILRACE_ADDRESS": address, PURE: "1" if variant.pure else ""}
    does = "packed where it is emitted, sent to the daemon" if address else "tracing is off"
    made = ours(does, _measured("ours", kind, events, OWN_PYTHON, environ), name=variant.name)
    if not variant.pure and not tailrace_client.compiled:
        made.side.absent = COMPILER
    return made


def _measured(case: str, kind: str, events: int, python: Path, environ: dict[str, str] | None = None) -> Callable[[], Run]:  # fmt: skip
    def run() -> Run:
        command = [str(python), "-m", "benchmarks.emitting", case, kind, str(events)]
        output = subprocess.run(command, env=os.environ | (environ or {}), cwd=ROOT, check=True, capture_output=True).stdout  # fmt: skip
        caller, process, stall = (nanoseconds / 1e9 for nanoseconds in json.loads(output))
        return {"caller": caller, "process": process, "stall": stall}

    return run


BENCHMARKS = {
    "emitting": Benchmark(
        "Cost of emitting for the program",
        "An event and a span with one attribute, by the Python client and by what people use instead. Calls are timed in blocks of 0.3 ms between two "
        "readings of a yardstick, and the fiftieth of the blocks with the best readings counts, since the speed of a virtual machine changes within "
        "seconds. The CPU of the process is that of all threads, of whole runs.",
        cases,
    ),
}
