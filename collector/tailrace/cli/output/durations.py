"""Spell durations for people: four digits and the unit that suits them."""

from __future__ import annotations

_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))

_LONG = 1000
"""From here on four digits would need an exponent."""


def spell(duration: int | None, unit: str) -> str | None:
    """Return a duration of nanoseconds as "1.234 ms", and a number of ticks unchanged."""
    if duration is None:
        return None
    if unit != "ns":
        return str(duration)
    for word, worth in _UNITS:
        value = duration / worth
        if abs(value) >= 1:
            return f"{value:.0f} {word}" if abs(value) >= _LONG else f"{value:.4g} {word}"
    return f"{duration} ns"
