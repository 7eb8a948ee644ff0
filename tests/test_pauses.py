"""Pauses that end together."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tailrace.pauses import pause


def test_whoever_looks_as_often_or_half_as_often_wakes_at_the_same_moments():
    woken: list[float] = []

    async def look(seconds: float, begins_after: float) -> None:
        await trio.sleep(begins_after)
        first = trio.current_time()
        await pause(seconds)
        assert 0 < trio.current_time() - first <= seconds
        woken.append(trio.current_time())
        for _ in range(5):
            before = trio.current_time()
            await pause(seconds)
            woken.append(trio.current_time())
            assert woken[-1] == before + seconds

    async def all_look() -> None:
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(look, 0.5, n / 37)
                nursery.start_soon(look, 1.0, n / 41)

    trio.run(all_look, clock=MockClock(autojump_threshold=0))
    assert len(woken) == 120
    assert len(set(woken)) <= 13
