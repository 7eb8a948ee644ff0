"""Define the flag by which one part of the daemon wakes the loops of another part."""

from __future__ import annotations

from collections.abc import Callable


class Flag:
    """A truth value on which loops can wait. Only the thread that runs the loops sets or clears it."""

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: dict[Callable[[], None], None] = {}

    def set(self) -> None:
        self.is_set = True
        for listener in tuple(self._listeners):
            listener()

    def clear(self) -> None:
        self.is_set = False

    def put(self, is_set: bool) -> None:
        """Set or clear the flag. Do nothing if it already has this value."""
        if is_set != self.is_set:
            self.set() if is_set else self.clear()

    def pulse(self) -> None:
        """Wake all loops that wait for the flag at this moment, and leave the flag cleared."""
        self.set()
        self.clear()

    def add(self, listener: Callable[[], None]) -> None:
        """Register a function that is called each time the flag is set, and at once if it is set now."""
        self._listeners[listener] = None
        if self.is_set:
            listener()

    def remove(self, listener: Callable[[], None]) -> None:
        del self._listeners[listener]
