"""Act as a program that has its own collector fenced, sees that the collector is gone, and continues to its end."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tailrace.store.durable import NO_HOOKS
from tests.ingest.log import heph_event


def transaction(log):
    """Return the collector's name and position, once it has committed."""
    for path in sorted(log.glob("*.json"), reverse=True):
        for line in path.read_text().splitlines():
            if found := json.loads(line).get("txn"):
                return found
    return None


def main():
    host, _, port = os.environ["TAILRACE_HEPH_TCP"].rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(heph_event(3, 0))
        while (mine := transaction(Path("store/events/_delta_log"))) is None:
            time.sleep(0.02)
        table = DeltaTable("store/events")
        ahead = Transaction(mine["appId"], mine["version"] + 10**9)
        write_deltalake(
            table, table.to_pyarrow_table().slice(0, 1), mode="append",
            post_commithook_properties=NO_HOOKS,
            commit_properties=CommitProperties(app_transactions=[ahead]),
        )  # fmt: skip
        sock.sendall(heph_event(3, 1))
        sock.settimeout(60)
        while sock.recv(1):
            pass
    print("to the end")  # noqa: T201 - what the test looks for
    sys.exit(int(sys.argv[1]))


if __name__ == "__main__":
    main()
