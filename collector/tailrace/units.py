"""Sizes and durations as people write them: "16 MiB", "250 ms".

A `Size` is a whole number of bytes, a `Duration` a number of seconds; both are plain
numbers to all code that uses them and print in the spelling they are parsed from.
"""

from __future__ import annotations

import re

_SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


class Size(int):
    """Bytes. `Size.parse("4 MiB") == 4194304`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Size:
        """Raise ValueError, naming the units allowed, for anything but a number and a unit."""
        number, unit = _split(text, _SIZE_UNITS, "a size", "16 MiB")
        return cls(number * _SIZE_UNITS[unit])

    def __str__(self) -> str:
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if self and self % _SIZE_UNITS[unit] == 0:
                return f"{self // _SIZE_UNITS[unit]} {unit}"
        return f"{int(self)} B"


class Duration(float):
    """Seconds. `Duration.parse("250 ms") == 0.25`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Raise ValueError, naming the units allowed, for anything but a number and a unit."""
        number, unit = _split(text, _DURATION_UNITS, "a duration", "250 ms")
        return cls(number * _DURATION_UNITS[unit])

    @property
    def ns(self) -> int:
        return round(self * 1e9)

    def __str__(self) -> str:
        for unit in ("d", "h", "min", "s", "ms"):
            count = self / _DURATION_UNITS[unit]
            if count >= 1 and abs(count - round(count)) < 1e-9:
                return f"{round(count)} {unit}"
        return f"{float(self) * 1e6:g} us"


def _split(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f'{text!r} is not {what}: a number and one of {", ".join(units)}, as in "{example}"')
    return float(match[1]), match[2]
