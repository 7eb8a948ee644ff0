"""Run dftracer-utils from PyPI. Its program `dftracer_index` reads finished files and writes an index beside them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks.peers.environment import INSTALL, version
from benchmarks.peers.peer import Peer
from benchmarks.places import CONFIGURATIONS, PEERS
from benchmarks.processes.apart import Done
from benchmarks.processes.usage import Usage, resident_peak

CONFIGURATION = "dftracer-utils.txt"
_SAMPLE_SECONDS = 0.02


def peer() -> Peer:
    """Return the description of dftracer-utils."""
    does = "an index of the finished file, without its rows; as many threads as cores"
    return Peer("dftracer-utils", version("dftracer-utils"), INSTALL, does, CONFIGURATION)


def index(directory: Path, target: Path) -> Done:
    """Index the traces in a directory.

    Write the index into another directory. The time includes the start of the program, some milliseconds.
    """
    command = [f"{PEERS}/dftracer_index", "--directory", str(directory), "--index-dir", str(target)]
    command += (CONFIGURATIONS / CONFIGURATION).read_text().split()
    peak, begun = 0, time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, resident_peak(process.pid))
        time.sleep(_SAMPLE_SECONDS)
    seconds = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"dftracer_index ended with {process.returncode}")
    return Done(None, seconds, Usage(used.ru_utime + used.ru_stime, peak, 0))
