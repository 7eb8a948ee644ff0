"""Append numbered entries to a spool as fast as possible, as the daemon would, in a process of its own.

One thread appends. Another one syncs, and prints one line each time:

    durable N       entries below number N are on disk, and the process would acknowledge them
    full TEXT       there is no room; it tries again
    failed TEXT     a sync failed; then `refused` if an append raises the same error, and the process ends
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tailrace.clock import SystemClock
from tailrace.config.schema import SpoolConfig
from tailrace.errors import FullError, SyncError
from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.spool import Spool
from tailrace.units import Size

CONFIG = SpoolConfig(segment_size=Size(2**20), max_size=Size(2**30))
BUFFERED_MAX = 2**20


def payload(number: int) -> bytes:
    return number.to_bytes(8, "little") + bytes([number % 251]) * (number * 7919 % 3000)


class NumberedWriter:
    """The process, as a test sees it."""

    def __init__(
        self, directory: Path, first: int, environment: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, directory, str(first)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self._deadline = threading.Timer(60, self._process.kill)
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self._deadline.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def follow(self, word: str, count: int = 1) -> None:
        """Read lines until `count` more of them begin with a word. Fail if the process ends before."""
        for line in self._read():
            count -= line.startswith(word)
            if not count:
                return
        raise AssertionError(f"the process ended, or took too long, before it said {word!r}")

    def kill(self) -> None:
        """Kill the process (kill -9) if it still runs, and read what it printed before."""
        self._process.kill()
        self.end()

    def end(self) -> int:
        """Read until the process ends by itself. Return its exit code."""
        for _ in self._read():
            pass
        self._process.stdout.close()
        self._deadline.cancel()
        return self._process.wait()

    @property
    def durable(self) -> int:
        """The number that the process last printed as the first one that is not durable; 0 if none."""
        return max(
            (int(line.split()[1]) for line in self.lines if line.startswith("durable")), default=0
        )

    def _read(self) -> Iterator[str]:
        if not self._process.stdout.closed:
            for line in self._process.stdout:
                if line.endswith("\n"):  # Otherwise the kill has cut the line off.
                    self.lines.append(line.rstrip("\n"))
                    yield self.lines[-1]


class NumberedReader:
    """Checks, life after life, that a spool holds the numbers in order, each once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._position = 0
        self.next = 0

    def check(self, durable: int) -> None:
        """Check that everything is there that was printed as durable, and that the numbers have no hole."""
        spool = Spool.open(self._directory, CONFIG, SystemClock())
        try:
            while self._position < spool.durable:
                for entry in spool.read(self._position, 2**20):
                    self._take(entry)
            spool.release(self._position)
        finally:
            spool.close()
        assert self._position == spool.end
        assert self.next >= durable
        assert spool.recovery.damage == []

    def _take(self, entry: Entry) -> None:
        assert entry.payload == payload(self.next)
        self._position = entry.end
        self.next += 1


def main(directory: Path, first: int) -> int:
    spool = Spool.open(directory, CONFIG, SystemClock())
    ends: list[int] = []
    syncing = threading.Thread(target=sync_and_say, args=(spool, first, ends))
    syncing.start()
    try:
        while True:
            spool.append(EntryKind.DATA, 1, payload(first + len(ends)))
            ends.append(spool.end)
            while spool.buffered > BUFFERED_MAX:
                time.sleep(0.0002)
                if not syncing.is_alive():
                    spool.append(EntryKind.DATA, 1, b"must be refused")
    except SyncError:
        syncing.join()
        say("refused")
        return 1


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sync_and_say(spool: Spool, first: int, ends: list[int]) -> None:
    durable = spool.durable
    while True:
        # Otherwise it would print this a hundred times before the first entry.
        if spool.end == durable:
            time.sleep(0.0002)
            continue
        try:
            durable = spool.sync()
            say(f"durable {first + bisect_right(ends, durable)}")
        except FullError as error:
            say(f"full {error}")
            time.sleep(0.01)
        except SyncError as error:
            say(f"failed {error}")
            return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
