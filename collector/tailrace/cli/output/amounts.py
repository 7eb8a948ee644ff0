"""Spell amounts that change while people look: three digits and the unit that suits them."""

from __future__ import annotations

_BYTES = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000

_SECONDS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def spell_bytes(amount: float) -> str:
    """Return bytes as "1.23 MB"."""
    power = 0
    while round(amount) >= _STEP and power < len(_BYTES) - 1:
        amount /= _STEP
        power += 1
    return f"{amount:.0f} B" if not power else f"{_digits(amount)} {_BYTES[power]}"


def spell_seconds(amount: float) -> str:
    """Return a duration as "1.23 s", at least a microsecond."""
    for unit, worth in _SECONDS:
        if amount >= worth:
            return f"{_digits(amount / worth)} {unit}"
    return f"{amount * 1e6:.0f} us"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
