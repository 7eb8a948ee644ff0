"""Put defects back that were mended once. A simulator that does not find them tests nothing.

    python -m tests.simulation.defects NAME

puts a defect into a copy of the code, and plays seeds until one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[2]
LEDGER, INGEST = "collector/tailrace/ledger", "collector/tailrace/ingest"
CLIENT = "clients/python/src/tailrace_client"


class Defect(NamedTuple):
    file: str
    mended: str
    """A piece of the mended code, which occurs there exactly once."""
    broken: str


DEFECTS = {
    "healed-number-takes-a-newer-numbers-mark": Defect(
        f"{LEDGER}/counters.py",
        "        if seq >= stream.next - self.window:\n            self._put(stream.recent",
        "        if True:\n            self._put(stream.recent",
    ),
    "older-answer-takes-back-holes": Defect(
        f"{CLIENT}/_link.py",
        "        self._questions.answered()\n",
        "        before = self.__dict__.setdefault('_standing', {})\n"
        "        for stream, below in answer.below.items():\n"
        "            before[stream] = max(below, before.get(stream, 0))\n"
        "        answer = answer._replace(below=dict(before))\n"
        "        self._questions.answered()\n",
    ),
    "restart-is-told-by-the-nearest-time": Defect(
        f"{INGEST}/lives.py",
        "[_clock(earlier, later, end or 0, now)]",
        "[Timing.UNKNOWN]",
    ),
    "goodbye-lost-with-its-connection": Defect(
        f"{CLIENT}/_settlement.py",
        "        return not self._queue.idle or self._queue.unsettled or unanswered\n",
        "        return not self._queue.idle or self._queue.unsettled\n",
    ),
    "announcement-alone-takes-over-the-run": Defect(
        f"{INGEST}/succession.py",
        "        return Standing.OPEN if self._unordered and not current.state.id else Standing.FITS\n",
        "        return Standing.FITS\n",
    ),
    "small-buffer-forgets-what-is-lost": Defect(
        f"{CLIENT}/_queue.py",
        "        return min([self.handed(), self.forgotten.begin, *(item.begin for item in self._kept)])\n",
        "        return min([self.handed(), *(item.begin for item in self._kept)])\n",
    ),
    "copy-of-a-forgotten-event-is-the-next-runs": Defect(
        f"{INGEST}/lives.py",
        '        if how and (how != "far" or latest is not None):\n',
        '        if how in ("same", "near"):\n',
    ),
    "doubled-lines-are-stored-twice": Defect(
        f"{INGEST}/session.py",
        "        self._copies = Copies(self.limits, state.copies) if datagrams and not numbered else None\n",
        "        self._copies = None\n",
    ),
    "who-comes-back-lacks-all-before": Defect(
        f"{INGEST}/returning.py",
        "        earlier = None if state.id else departures.find(",
        "        earlier = None if state.name else departures.find(",
    ),
    "holes-are-named-for-ten-seconds": Defect(
        f"{INGEST}/announced.py",
        "asked = {name: _asked(followed[name], oldest_asked) for",
        "asked = {name: _asked(followed[name], now - 10 * 10**9) for",
    ),
}


class Found(NamedTuple):
    """The first seed that finds a defect, the failure, and the CPU seconds of all seeds up to it."""

    seed: int
    kind: str
    seconds: float


@contextmanager
def put_back(defect: Defect) -> Iterator[dict[str, str]]:
    """Put a defect back into a copy of the code. Yield the environment in which Python imports the copy."""
    with tempfile.TemporaryDirectory() as place:
        for part in ("collector", "clients/python/src"):
            shutil.copytree(ROOT / part, Path(place, part), ignore=shutil.ignore_patterns("*.so", "__pycache__"))  # fmt: skip
        path = Path(place, defect.file)
        path.write_text(path.read_text().replace(defect.mended, defect.broken))
        paths = [place + "/collector", place + "/clients/python/src", str(ROOT)]
        yield os.environ | {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def hunt(defect: Defect, seeds: Iterable[int]) -> Found | None:
    """Put a defect back into a copy of the code. Play seeds until one fails, and return what was found."""
    with put_back(defect) as environ:
        program = [sys.executable, "-m", "tests.simulation.hunting", *map(str, seeds)]
        said = subprocess.check_output(program, env=environ, stderr=subprocess.DEVNULL, text=True)
    return msgspec.json.decode(said, type=Found) if said else None


if __name__ == "__main__":
    for each in sys.argv[1:] or DEFECTS:
        sys.stdout.write(f"{each}: {hunt(DEFECTS[each], range(300))}\n")
