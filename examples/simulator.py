"""Trace a discrete-event simulator in simulated time:

    tailrace run --store /tmp/simulator -- python examples/simulator.py

A clerk serves each job that arrives, then one of two machines does; some jobs come back. Each station
is a stream: its services are spans, its queue is a counter, and times are simulated nanoseconds.
Without a collector, tracing is off and costs almost nothing.

Afterwards, ask for the longest waits:

    tailrace query --store /tmp/simulator "
        SELECT stream, name, duration / 1e9 AS seconds, attributes ->> '$.waited' AS waited
        FROM spans WHERE name = 'service' ORDER BY waited::DOUBLE DESC LIMIT 10"
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count

import tailrace_client as trace

JOBS = 500
SECOND = 10**9


class Simulator:
    """Calls scheduled actions in the order of their simulated times."""

    def __init__(self) -> None:
        self.now = 0
        self._scheduled: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Schedule `action` in `delay` simulated seconds."""
        at = self.now + round(delay * SECOND)
        heapq.heappush(self._scheduled, (at, next(self._order), action))

    def run(self) -> None:
        while self._scheduled:
            self.now, _, action = heapq.heappop(self._scheduled)
            action()


class Station:
    """A queue in front of some servers; `onward` takes the served jobs."""

    def __init__(
        self,
        simulator: Simulator,
        stream: int,
        name: str,
        *,
        servers: int,
        service: Callable[[], float],
        onward: Callable[[int], None],
    ) -> None:
        self._simulator = simulator
        self._stream = stream
        self._name = name
        self._free = servers
        self._service = service
        self._onward = onward
        self._queue: deque[tuple[int, int]] = deque()

    def arrive(self, job: int) -> None:
        self._queue.append((job, self._simulator.now))
        self._serve()

    def _serve(self) -> None:
        trace.use_stream(self._stream)
        trace.counter("queue length", len(self._queue), station=self._name)
        if self._free and self._queue:
            self._free -= 1
            job, arrived = self._queue.popleft()
            begun = self._simulator.now
            self._simulator.after(self._service(), lambda: self._done(job, arrived, begun))

    def _done(self, job: int, arrived: int, begun: int) -> None:
        trace.use_stream(self._stream)
        trace.write(
            "service",
            begun,
            self._simulator.now,
            station=self._name,
            job=job,
            waited=(begun - arrived) / SECOND,
        )
        self._free += 1
        self._serve()
        self._onward(job)


def main() -> None:
    simulator = Simulator()
    trace.connect(clock=lambda: simulator.now, process="jobs")
    rng = random.Random(1)

    def inspect(job: int) -> None:
        if rng.random() < 0.1:
            trace.event("rework", job=job)
            clerk.arrive(job)

    machines = Station(
        simulator, 2, "machines", servers=2, service=lambda: rng.expovariate(0.6), onward=inspect
    )
    clerk = Station(simulator, 1, "clerk", servers=1, service=lambda: 0.7, onward=machines.arrive)
    arrival = 0.0
    for job in range(JOBS):
        arrival += rng.expovariate(1.0)
        simulator.after(arrival, lambda job=job: clerk.arrive(job))  # type: ignore[misc]
    simulator.run()
    trace.close()


if __name__ == "__main__":
    main()
