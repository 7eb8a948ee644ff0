"""A collector is alone in a store or not, across processes that enter it, wait and die."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from tailrace.errors import StoreError
from tailrace.store.presence import START, WRITERS, Entrance

ENTER = """
import sys
from pathlib import Path
from tailrace.store.presence import Entrance
with Entrance(Path(sys.argv[1])) as entrance:
    print("alone" if entrance.alone else "with others", flush=True)
    sys.stdin.readline()
    entrance.admit()
    print("admitted", flush=True)
    sys.stdin.readline()
"""


class Collector:
    """A process that enters a store, admits others when told to, and leaves when told to or killed."""

    def __init__(self, store):
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTER, str(store)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hear(self):
        return self._process.stdout.readline().strip()

    def tell(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def admit(self):
        self.tell()
        assert self.hear() == "admitted"

    def kill(self):
        self._process.kill()
        self._process.wait()

    def end(self):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def enter(tmp_path):
    made = []

    def make():
        made.append(Collector(tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.end()


@contextmanager
def entered(store):
    with Entrance(store) as entrance:
        yield entrance


def test_the_first_is_alone_and_the_next_is_not(enter):
    first = enter()
    assert first.hear() == "alone"
    first.admit()
    second = enter()
    assert second.hear() == "with others"


def test_a_start_waits_until_the_one_before_admits_it(enter):
    first = enter()
    assert first.hear() == "alone"
    second = enter()
    first.admit()
    assert second.hear() == "with others"
    second.admit()
    assert enter().hear() == "with others"


def test_a_start_that_is_killed_while_it_repairs_leaves_the_repair_to_the_next(enter):
    first = enter()
    assert first.hear() == "alone"
    second = enter()
    first.kill()
    assert second.hear() == "alone"


def test_whoever_comes_after_all_are_killed_is_alone(enter):
    both, heard = [], []
    for _ in range(2):
        both.append(enter())
        heard.append(both[-1].hear())
        both[-1].admit()
    assert heard == ["alone", "with others"]
    both[0].kill()
    third = enter()
    assert third.hear() == "with others"
    third.admit()
    both[1].kill()
    third.kill()
    assert enter().hear() == "alone"


def test_leaving_without_admitting_frees_both_locks(tmp_path):
    for _ in range(2):
        with entered(tmp_path) as entrance:
            assert entrance.alone
    with entered(tmp_path) as entrance:
        entrance.admit()
        assert not entrance.alone
        with entered(tmp_path) as other:
            assert not other.alone


@pytest.mark.parametrize("name", [START, WRITERS])
def test_what_is_no_file_is_refused_in_words_and_locks_nothing(tmp_path, name):
    (tmp_path / name).mkdir()
    for _ in range(2):
        with pytest.raises(StoreError, match="it is not a file; remove it"), entered(tmp_path):
            pass
    (tmp_path / name).rmdir()
    with entered(tmp_path) as entrance:
        assert entrance.alone
