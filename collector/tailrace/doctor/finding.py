"""What a check has found, and the words it is said in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tailrace.units import Size

Figures = Mapping[str, int | float | str]

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Severity(StrEnum):
    PROBLEM = "problem"
    """Something is lost, refused or does not start."""
    ADVICE = "advice"
    """It works; something could be lost, hidden or slow when more is asked of it."""
    GOOD = "good"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `figures` are what was measured or read, by name with the unit."""

    check: str
    """Which check it is of."""
    severity: Severity
    what: str
    """One sentence: what is."""
    why: str = ""
    """One sentence: why it matters; empty for what is good."""
    commands: list[str] = []
    """Lines for a shell that change it, or that show more of it; a `#` begins a remark."""
    figures: Figures = {}


def good(check: str, what: str, **figures: float | str) -> Finding:
    return Finding(check=check, severity=Severity.GOOD, what=what, figures=figures)


def sysctl(key: str, value: int) -> list[str]:
    """The commands that set a kernel parameter now, and for good."""
    file = f"/etc/sysctl.d/60-tailrace-{key.rpartition('.')[2]}.conf"
    return [
        f"sudo sysctl -w {key}={value}",
        f"echo '{key} = {value}' | sudo tee {file}",
    ]


def setting(section: str, key: str, value: str, *, source: bool = False) -> str:
    """The command that sets a key of the configuration; `section` is a source's name if `source`."""
    place = f"sources.{section}" if source else section
    name = f"TAILRACE_{place}_{key}".replace(".", "_").upper()
    option = "--store, or " if (section, key) == ("store", "path") else ""
    return f"export {name}={shlex.quote(value)}  # or {option}{key} in [{place}] of the file"


def size(count: int) -> str:
    """A number of bytes in a unit in which it is short: 4.2 MiB, 79 GiB."""
    for unit, worth in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= worth:
            return f"{count / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def whole_size(count: int) -> str:
    """At most so many bytes, as a configuration says it: whole MiB where it is one at all."""
    return str(Size(max(count // MIB, 1) * MIB))


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
