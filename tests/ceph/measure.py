"""Measure what a table in Ceph costs: set-up, commits by their size, requests, bytes, and several writers at once.

    python -m tests.ceph.measure

prints one line for each figure. The rows are those of Heph events as the ingest makes them.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from statistics import median, quantiles

from deltalake import DeltaTable

from benchmarks.inputs import stored
from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.rows.batch import Batch
from tailrace.store import upkeep
from tailrace.store.table import Table
from tests.ceph.cluster import RunningCeph

COMMITS = 30
SECONDS = 20
WRITERS = (1, 2, 4)
ACCESS = re.compile(r'"(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP')


def open_table(url, collector):
    return Table.open(
        url, options={}, collector=collector, config=StoreConfig(), clock=SystemClock(), refills=lambda _: False
    )  # fmt: skip


def batches(rows):
    producer = stored._producer(0, rows)
    number = 0
    while True:
        batch = Batch()
        stored._add(producer, batch, number, later=False)
        number += 1
        yield batch


def landing(table, batch, position):
    """Return how long a commit takes to land (seconds)."""
    rows, begun = table.prepare(batch), time.monotonic()
    table.land(rows, position)
    return time.monotonic() - begun


def by_size(ceph, url, rows):
    """Commit some batches with the given number of rows."""
    made = batches(rows)
    table = open_table(url, "one")
    table.land(table.prepare(next(made)), 1)
    before, cpu = requests(ceph), resource.getrusage(resource.RUSAGE_SELF)
    seconds = [landing(table, next(made), number + 2) for number in range(COMMITS)]
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    asked = requests(ceph) - before
    files = DeltaTable(f"{url}/events").get_add_actions(flatten=True)
    size = sum(files["size_bytes"].to_pylist()) / sum(files["num_records"].to_pylist())
    say(
        f"{COMMITS} commits of {rows:,} rows",
        f"p50 {median(seconds) * 1000:.0f} ms, p99 {quantiles(seconds, n=100)[-1] * 1000:.0f} ms",
        f"CPU {used / COMMITS / rows * 1e6:.2f} s a million rows",
        f"{size:.1f} bytes a row",
        f"requests a commit { ({name: round(n / COMMITS, 1) for name, n in sorted(asked.items())}) }",
    )
    begun, before = time.monotonic(), requests(ceph)
    report = upkeep.run(url, StoreConfig(path=url), clock=SystemClock(), everything=True)
    files = DeltaTable(f"{url}/events").get_add_actions(flatten=True)
    size = sum(files["size_bytes"].to_pylist()) / sum(files["num_records"].to_pylist())
    say(
        f"upkeep of {report.merged_files} files into {report.made_files}",
        f"{time.monotonic() - begun:.1f} s",
        f"{size:.1f} bytes a row",
        f"requests {dict(requests(ceph) - before)}",
    )


def requests(ceph):
    """Return the number of requests that the gateway has answered, by method."""
    log = (ceph.directory / "client.rgw.log").read_text(errors="replace")
    return Counter(
        "LIST" if method == "GET" and "list-type" in path else method
        for method, path in ACCESS.findall(log)
    )


def at_once(ceph, url, writers, rows):
    """Let writers commit as fast as they can, each as a collector of its own."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ceph.measure", url, f"writer{number}", str(rows)],
            env=os.environ, stdout=subprocess.PIPE, text=True,
        )
        for number in range(writers)
    ]  # fmt: skip
    seconds = [value for each in started for value in json.loads(each.communicate()[0])]
    say(
        f"{writers} writers, commits of {rows:,} rows",
        f"{len(seconds) / SECONDS:.1f} commits a second together",
        f"p50 {median(seconds) * 1000:.0f} ms, p99 {quantiles(seconds, n=100)[-1] * 1000:.0f} ms",
    )


def write(url, collector, rows):
    """Act as one of several writers."""
    made = batches(rows)
    table = open_table(url, collector)
    end = time.monotonic() + SECONDS
    seconds = []
    while time.monotonic() < end:
        seconds.append(landing(table, next(made), len(seconds) + 1))
    sys.stdout.write(json.dumps(seconds))


def say(*facts):
    sys.stdout.write("; ".join(facts) + "\n")
    sys.stdout.flush()


def main():
    with RunningCeph() as ceph:
        os.environ.update(ceph.options)
        say(f"set up in {ceph.seconds:.0f} s", ceph.health(), f"load {os.getloadavg()[0]:.1f}")
        bucket = ceph.bucket("measured")
        for rows in (10_000, 100_000, 500_000):
            by_size(ceph, f"{bucket}/{rows}", rows)
        for writers in WRITERS:
            at_once(ceph, f"{bucket}/writers{writers}", writers, 10_000)
        say(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
