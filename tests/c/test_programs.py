"""Test that random programs behave under `tailrace run` as without tracing, and that each emitted event is stored or named.
PROGRAMS=200 makes more of them."""

from __future__ import annotations

import json
import os
import random
import re

import pytest

from tests.c.building import HERE, build
from tests.program import COMMAND, run

STEPS = 6


class Script:
    """The commands of a program (play.c), and the number of events that it emits."""

    def __init__(self, seed, directory):
        self._random = random.Random(seed)
        self._directory = directory
        self.lines = []
        self.emitted = 0
        self.ends = True
        """Whether the client says the end of each session."""
        if self._random.random() < 0.8:
            self.lines.append("connect -")
        for _ in range(STEPS):
            self._random.choice(
                [self._many, self._threads, self._short, self._shared, self._fork, self._again,
                 self._interrupted, self._taken, self._flushed]
            )()  # fmt: skip
        if "connect -" not in self.lines:
            self.lines.append("connect -")
        self._random.choice([lambda: None, self._exit, self._exit, self._killed])()

    def _count(self, most):
        return self._random.randint(1, most)

    def _many(self):
        count = self._count(3000)
        self.lines.append(f"many {count}")
        self.emitted += count

    def _threads(self):
        threads, count = self._count(150), self._count(100)
        self.lines.append(f"threads {threads} {count}")
        self.emitted += threads * count

    def _short(self):
        threads = self._count(50)
        self.lines.append(f"short {threads}")
        self.emitted += threads

    def _shared(self):
        threads, count = self._count(8), self._count(500)
        self.lines.append(f"shared {threads} {count} {self._count(5)}")
        self.emitted += threads * count

    def _fork(self):
        """Let a child emit, end its session or not, and emit again. Before the first connect the child has no session,
        and its events are not reported."""
        if "connect -" not in self.lines:
            return
        first, second = self._count(1000), self._count(100)
        commands = [
            "connect -",
            f"many {first}",
            *self._random.choice([[], ["close"]]),
            f"many {second}",
        ]
        self.lines.append(f"fork {';'.join(commands)}")
        self.emitted += first + second

    def _again(self):
        self.lines += ["close", *self._random.choice([[], ["many 7"]]), "connect -"]
        self.emitted += 7 * (self.lines[-2] == "many 7")

    def _interrupted(self):
        self.lines.append("interrupted 2000")
        self.emitted += 2000

    def _taken(self):
        self.lines += [
            f"take {self._random.choice(['files', 'sockets'])} {self._directory}",
            "harm",
        ]

    def _flushed(self):
        if "connect -" not in self.lines:  # there is nothing to flush
            return
        self.lines.append("flush 20000")

    def _exit(self):
        self.lines.append("exit")

    def _killed(self):
        self.lines += ["many 1", "flush 20000", "kill"]
        self.emitted += 1
        self.ends = False


def handled(said):
    """Return how often its signal handler emitted."""
    return int([0, *re.findall(r"^handled (\d+)$", said, re.MULTILINE)][-1])


def known(said):
    """Return its output without the lines that differ each time."""
    return re.sub(r"^(handled|connect) .*$", "", said, flags=re.MULTILINE)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PROGRAMS", "12"))))
def test_a_program_behaves_as_ever_and_what_it_loses_is_named(tmp_path, seed):
    script = Script(seed, tmp_path)
    (tmp_path / "script").write_text("\n".join([*script.lines, ""]))
    plain = ["sh", "-c", f"cat {tmp_path}/script | {build(HERE / 'play.c')}"]
    as_ever = run(plain, capture_output=True, text=True, timeout=60, check=False)
    traced = run(
        [*COMMAND, "run", "--store", str(tmp_path / "store"), "--", *plain],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    status = as_ever.returncode if as_ever.returncode >= 0 else 128 - as_ever.returncode
    said = as_ever.stdout.replace("flush -1", "flush 0")  # without an address, nothing is delivered
    assert (traced.returncode, known(traced.stdout)) == (status, known(said))
    totals = json.loads((tmp_path / "store/certificate.json").read_text())["totals"]
    emitted = script.emitted + handled(traced.stdout)
    named = totals["stored"] + sum(totals["missing"].values())
    if script.ends:
        assert (named, totals["unknown"]) == (emitted, False)
    else:  # events before connect, which have no number, are in the unknown part
        assert (named <= emitted, totals["unknown"]) == (True, True)
