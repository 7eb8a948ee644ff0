"""`python -m benchmarks.emitting CASE KIND EVENTS`: measure one case in this process, and print its cost."""

from __future__ import annotations

import json
import sys

from benchmarks.emitting.blocks import cost_of
from benchmarks.emitting.cases import CASES


def main(case: str, kind: str, events: str) -> None:
    """Measure the case that the command line names.

    Print nanoseconds for each call: CPU of the calling thread, CPU of the process, and the duration of slow calls.
    """
    with CASES[case]() as calls:
        emit = calls.span if kind == "span" else calls.event
        if emit is None:
            raise ValueError(f"{case} has no {kind}")
        cost = cost_of(emit, calls.flush, int(events))
    print(json.dumps(cost))


if __name__ == "__main__":
    main(*sys.argv[1:])
