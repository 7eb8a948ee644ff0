"""Backpressure for datagrams: UDP itself never says when the network has too much."""

from __future__ import annotations

_FIRST = 256 * 1024
_LEAST = 64 * 1024


class Window:
    """Bytes that may be unsettled while answers keep coming. Each answer makes the window larger, or
    smaller if events were lost."""

    def __init__(self, most: int, silence: float) -> None:
        """Limit the window to `most` bytes. Without an answer for `silence` seconds there is no window."""
        self._most = most
        self._silence = silence
        self._size = _FIRST
        self._heard_at = -1e9

    def is_full(self, in_flight: int, now: float) -> bool:
        """Return whether more has to wait for an answer."""
        return in_flight > self._size and now - self._heard_at < self._silence

    def answered(self, *, lost: bool, now: float) -> None:
        """Take note of an answer."""
        if now - self._heard_at > self._silence:
            self._size = _FIRST
        elif lost:
            self._size = max(_LEAST, self._size // 2)
        else:
            self._size = min(self._most, self._size + self._size // 4)
        self._heard_at = now
