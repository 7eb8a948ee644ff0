"""Trace a job of several processes, then read the trace back:

    tailrace run --store /tmp/job -- python examples/multiprocessing_job.py

Every worker is a producer under its process's name. A worker says goodbye when it ends, so that the
collector knows how much it emitted. The parent waits for all goodbyes. Then it asks the table which
worker did what. `tailrace run` names collector and table by TAILRACE_ADDRESS and TAILRACE_STORE_PATH,
and certifies what is missing when the program has ended. Alone, the program uses the collector of
`tailrace serve &`, which knows at any time what is missing.
"""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import tailrace
import tailrace_client as trace

WORKERS = 3
PIECES = 24
ADDRESS = os.environ.get("TAILRACE_ADDRESS", "tcp://127.0.0.1:7701")


def begin(job: str) -> None:
    """Connect a worker to the collector."""
    trace.connect(ADDRESS, process=job)


@trace.traced
def factors(number: int) -> list[int]:
    """Return the prime factors of a number, by trial division: some take long."""
    found = []
    candidate = 2
    while candidate * candidate <= number:
        while number % candidate == 0:
            found.append(candidate)
            number //= candidate
        candidate += 1
    return [*found, number] if number > 1 else found


def piece(number: int) -> int:
    with trace.span("piece", number=number) as span:
        found = factors(number)
        span.set(factors=found)
    return len(found)


def ended(store: tailrace.Store, job: str) -> list[str]:
    """Wait until all workers have said goodbye, and return their sessions."""
    sql = "SELECT session FROM sessions WHERE closed IS NOT NULL AND producer ->> '$.process' = ?"
    for _ in range(100):
        sessions = [row["session"] for row in store.sql(sql, [job])]
        if len(sessions) == WORKERS:
            return sessions
        time.sleep(0.1)
        store.refresh()
    sys.exit(f"the table does not have all workers: is it that of the collector at {ADDRESS}?")


def main() -> None:
    job = f"job {os.getpid()}"
    rng = random.Random(1)
    numbers = [rng.randrange(10**10, 10**11) for _ in range(PIECES)]
    with ProcessPoolExecutor(WORKERS, initializer=begin, initargs=(job,)) as pool:
        print(f"{sum(pool.map(piece, numbers))} prime factors")

    try:
        opened = tailrace.open()
    except tailrace.StoreError as error:
        sys.exit(f"no collector at {ADDRESS}: {error}. Start one with `tailrace serve &`")
    with opened as results:
        workers = ended(results, job)
        pieces = results.spans(session=workers, name="piece")
        print(f"{pieces.count()} pieces of work; {pieces.completeness.text}")
        print(
            results.sql(
                """
                SELECT producer ->> '$.pid' AS worker, count(*) AS pieces, sum(duration) // 1000 AS us
                FROM spans JOIN sessions USING (source, session)
                WHERE spans.name = 'piece' AND producer ->> '$.process' = ?
                GROUP BY worker ORDER BY worker
                """,
                [job],
            )
        )


if __name__ == "__main__":
    main()
