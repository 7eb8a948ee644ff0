"""Do work in a process of its own. It is prepared first, and measured from a start sign on.

`run("module:function", argument, …)` starts a new process, which imports the module and calls the function with the
arguments. The function prepares the work, and returns it as a callable without arguments. The process waits for the
start sign, does the work, and reports its cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.places import ROOT
from benchmarks.processes.usage import Usage, Watch

READY = "ready"


class Done(NamedTuple):
    """The result of the work, its duration, and what the process used meanwhile."""

    value: Any
    seconds: float
    usage: Usage


def run(
    function: str,
    *arguments: object,
    python: Path = Path(sys.executable),
    descriptors: tuple[int, ...] = (),
    beside: Callable[[], object] | None = None,
) -> Done:
    """Do some work in a new process. Meanwhile, call `beside` in this process."""
    command = [str(python), "-m", "benchmarks.processes.apart", function, json.dumps(arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, pass_fds=descriptors
    ) as process:  # fmt: skip
        if not (process.stdin and process.stdout):
            raise RuntimeError(f"{function} has no pipes")
        if process.stdout.readline().strip() != READY:
            raise RuntimeError(f"{function} could not be prepared")
        with Watch(process.pid) as watch:
            process.stdin.write("go\n")
            process.stdin.flush()
            if beside:
                beside()
            said = process.stdout.readline()
        process.stdin.close()
    if not said:
        raise RuntimeError(f"{function} ended with {process.returncode}")
    value, seconds, cpu = json.loads(said)
    return Done(value, seconds, watch.usage._replace(cpu=cpu))


def main() -> None:
    """Do the work that `run` in another process has requested."""
    module, _, name = sys.argv[1].partition(":")
    work = getattr(import_module(module), name)(*json.loads(sys.argv[2]))
    print(READY, flush=True)
    sys.stdin.readline()
    begun, cpu = time.monotonic(), time.process_time()
    value = work()
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    print(json.dumps([value, seconds, cpu]), flush=True)
    sys.stdin.readline()  # Stay alive until the other process has read the memory of this one.


if __name__ == "__main__":
    main()
