"""Read and write sizes, durations and counts as text for users: "16 MiB", "250 ms", "1 event".

A `Size` is a whole number of bytes, and a `Duration` is a number of seconds. Code uses both as numbers. The text of
each can be parsed again, and gives the same value."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Self

_SIZE_UNITS = {
    "TiB": Fraction(2**40),
    "GiB": Fraction(2**30),
    "MiB": Fraction(2**20),
    "KiB": Fraction(2**10),
    "TB": Fraction(10**12),
    "GB": Fraction(10**9),
    "MB": Fraction(10**6),
    "kB": Fraction(10**3),
    "B": Fraction(1),
}
_DURATION_UNITS = {
    "d": Fraction(86_400),
    "h": Fraction(3600),
    "min": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", re.ASCII)


def counted(number: int, noun: str, plural: str = "", *, grouped: bool = False) -> str:
    """Return a number with its noun: "1 event", "2 events". By default, the plural ends with an s. With `grouped`, write
    commas between groups of three digits."""
    return f"{number:{',' if grouped else ''}} {noun if number == 1 else plural or f'{noun}s'}"


class Size(int):
    """A number of bytes. `Size.parse("4 MiB") == 4194304`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the size for a text such as "16 MiB". Raise ValueError, with the allowed units, if the text is not a
        number with a unit, or not a whole number of bytes."""
        size = _value(text, _SIZE_UNITS, "a size", "16 MiB")
        if size.denominator != 1:
            raise ValueError(f"{text!r} is not a whole number of bytes")
        return cls(size)

    def __str__(self) -> str:
        binary = ("TiB", "GiB", "MiB", "KiB")
        return _spell(Fraction(int(self)), {unit: _SIZE_UNITS[unit] for unit in (*binary, "B")})


class Duration(float):
    """A number of seconds, with nanosecond precision. `Duration.parse("250 ms") == 0.25`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the duration for a text such as "250 ms". Raise ValueError, with the allowed units, if the text is not
        a number with a unit. Raise OverflowError if the number is too large for a float."""
        return cls(_value(text, _DURATION_UNITS, "a duration", "250 ms"))

    @property
    def ns(self) -> int:
        return round(self * 1e9)

    def __str__(self) -> str:
        return _spell(Fraction(self.ns, 10**9), _DURATION_UNITS)


def _value(text: str, units: dict[str, Fraction], what: str, example: str) -> Fraction:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        allowed = ", ".join(reversed(units))
        raise ValueError(
            f'{text!r} is not {what}: a number and one of {allowed}, as in "{example}"'
        )
    return Fraction(match[1]) * units[match[2]]


def _spell(value: Fraction, units: dict[str, Fraction]) -> str:
    """Return a value as text in the largest unit in which it is a whole number, or else in the smallest unit."""
    for unit, worth in units.items():
        if value and value % worth == 0:
            return f"{value // worth} {unit}"
    unit, worth = list(units.items())[-1]
    return f"{float(value / worth):.3f}".rstrip("0").rstrip(".") + f" {unit}"
