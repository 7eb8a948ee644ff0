"""A discrete-event simulator with a clock of its own, observed: `tailrace run -- python examples/simulator.py`.

Two machines take jobs from a queue. Each job is a span on the stream of its machine; a queue that
grows too long is an event. Without a collector all of it is off, and next to free.
"""

from __future__ import annotations

import heapq
import random

import tailrace_client as trace

JOBS = 500
MACHINES = (1, 2)


def main() -> None:
    trace.connect()
    rng = random.Random(1)
    free = [(0.0, machine) for machine in MACHINES]
    longest_wait = 0.0
    arrival = 0.0
    for job in range(JOBS):
        arrival += rng.expovariate(1.0)
        since, machine = heapq.heappop(free)
        begun = max(arrival, since)
        trace.use_stream(machine)
        with trace.span("job", job=job, waited=begun - arrival):
            finished = begun + rng.expovariate(0.6)
        if begun - arrival > longest_wait:
            longest_wait = begun - arrival
            trace.event("longest wait so far", seconds=longest_wait)
        heapq.heappush(free, (finished, machine))
    trace.close()


if __name__ == "__main__":
    main()
