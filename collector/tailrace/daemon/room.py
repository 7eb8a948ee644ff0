"""The queue of those who wait until there is room for more: first come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio


class RoomQueue:
    """A queue of tasks that wait for room. The first task takes its bytes before the next task looks for room.

    If each task looked whenever there is room, a thousand connections would leave no time for anything else."""

    def __init__(self, closed: Callable[[], bool]) -> None:
        """Let nobody go on while `closed` says that there is no room."""
        self._closed = closed
        self._waiting: deque[_Waiting] = deque()

    def wake(self) -> None:
        """Let the first one look again."""
        if self._waiting:
            self._waiting[0].awake.set()

    async def wait(self) -> None:
        """Return once there is room, without a pause if there is."""
        if not self._waiting and not self._closed():
            return
        me = _Waiting()
        self._waiting.append(me)
        try:
            while self._closed() or self._waiting[0] is not me:
                me.awake = trio.Event()
                await me.awake.wait()
        finally:
            self._waiting.remove(me)
            self.wake()


class _Waiting:
    """One that waits."""

    def __init__(self) -> None:
        self.awake = trio.Event()
