"""Test that one thread at a time holds the lock, whatever exceptions signal handlers raise."""

from __future__ import annotations

import random
import signal
import threading
import time
from math import inf

import pytest

from tailrace_client._sender import SignalSafeLock


class Interrupt(Exception):  # noqa: N818 - no error
    """Raised by a signal handler of this test."""


def test_one_has_it_at_a_time_and_others_wait_for_no_longer_than_they_want():
    lock = SignalSafeLock()
    assert lock.run(lambda: lock.run(lambda: "inner")) is None
    assert lock.run(lambda: lock.run(lambda: "inner", time.monotonic() + 0.01)) is None
    inside, most = [], []

    def work():
        for _ in range(200):
            lock.run(enter, inf)

    def enter():
        inside.append(1)
        time.sleep(0)
        most.append(len(inside))
        inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 800
    assert set(most) == {1}


def test_what_is_raised_gives_it_back():
    lock = SignalSafeLock()
    with pytest.raises(ZeroDivisionError):
        lock.run(lambda: 1 / 0)
    assert lock.run(lambda: 1) == 1


def test_a_signal_handlers_exception_never_leaves_it_taken():
    def interrupted(*_):
        raise Interrupt

    lock = SignalSafeLock()
    chance = random.Random(1)
    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        for _ in range(500):
            with pytest.raises(Interrupt):  # noqa: PT012 - it comes in any of these
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 5e-4))
                while True:
                    lock.run(lambda: 1)
            assert lock.run(lambda: 1) == 1
    finally:
        signal.signal(signal.SIGALRM, before)
