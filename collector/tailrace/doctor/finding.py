"""The finding of a check, and helpers for its text."""

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
    """It works, but events could be lost, hidden or late under more load."""
    GOOD = "good"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check. `figures` are measured or read values, by name with the unit."""

    check: str
    """The name of the check."""
    severity: Severity
    what: str
    """One sentence: what is the case."""
    why: str = ""
    """One sentence: why it matters; empty if all is good."""
    commands: list[str] = []
    """Shell lines that change it or show more of it; `#` begins a remark."""
    figures: Figures = {}


def good(check: str, what: str, **figures: float | str) -> Finding:
    return Finding(check=check, severity=Severity.GOOD, what=what, figures=figures)


def sysctl(key: str, value: int) -> list[str]:
    """Return the commands that set a kernel parameter now and permanently."""
    file = f"/etc/sysctl.d/60-tailrace-{key.rpartition('.')[2]}.conf"
    return [
        f"sudo sysctl -w {key}={value}",
        f"echo '{key} = {value}' | sudo tee {file}",
    ]


def setting(section: str, key: str, value: str, *, source: bool = False) -> str:
    """Return the command that sets a key. With `source`, `section` is a source's name."""
    place = f"sources.{section}" if source else section
    name = f"TAILRACE_{place}_{key}".replace(".", "_").upper()
    option = "--store, or " if (section, key) == ("store", "path") else ""
    return f"export {name}={shlex.quote(value)}  # or {option}{key} in [{place}] of the file"


def size(count: int) -> str:
    """Return a number of bytes in a unit that keeps it short: 4.2 MiB, 79 GiB."""
    for unit, worth in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= worth:
            return f"{count / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def whole_size(count: int) -> str:
    """Return at most this many bytes in the configuration's spelling: whole MiB, at least one."""
    return str(Size(max(count // MIB, 1) * MIB))


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
