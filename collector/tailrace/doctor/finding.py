"""Define what a check finds, and write the findings as text or JSON."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tailrace import __version__
from tailrace.terminal import printable

HostFigures = Mapping[str, int | float | str]

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Severity(StrEnum):
    PROBLEM = "problem"
    """Events are lost or refused, or the collector does not start."""
    ADVICE = "advice"
    """The collector works, but under higher load events could be lost, hidden or late."""
    GOOD = "good"


class HostFinding(msgspec.Struct, frozen=True):
    """One result of a check. `figures` holds values that were measured or read; the name of each ends in its unit."""

    check: str
    severity: Severity
    what: str
    """One sentence that describes the state of the host or the configuration."""
    why: str = ""
    """One sentence about the consequences of the described state; empty if that state is good."""
    commands: list[str] = []
    """Shell commands that improve the state or show details of it. A line that begins with `#` is a remark."""
    figures: HostFigures = {}


def good(check: str, what: str, **figures: float | str) -> HostFinding:
    return HostFinding(check, Severity.GOOD, what, figures=figures)


def advice(check: str, what: str, why: str, *commands: str, **figures: float | str) -> HostFinding:
    return HostFinding(check, Severity.ADVICE, what, why, list(commands), figures)


def problem(check: str, what: str, why: str, *commands: str, **figures: float | str) -> HostFinding:
    return HostFinding(check, Severity.PROBLEM, what, why, list(commands), figures)


def sysctl(key: str, value: int) -> list[str]:
    """Return the shell commands that set a kernel parameter now and permanently."""
    file = f"/etc/sysctl.d/60-tailrace-{key.rpartition('.')[2]}.conf"
    return [f"sudo sysctl -w {key}={value}", f"echo '{key} = {value}' | sudo tee {file}"]


def setting(section: str, key: str, value: str, *, source: bool = False) -> str:
    """Return the shell command that sets a configuration key. With `source`, `section` is the name of a source."""
    place = f"sources.{section}" if source else section
    name = f"TAILRACE_{place}_{key}".replace(".", "_").upper()
    option = "--store, or " if (section, key) == ("store", "path") else ""
    return f"export {name}={shlex.quote(value)}  # or {option}{key} in [{place}] of the file"


def size(count: int) -> str:
    """Return a number of bytes as a short text with a unit, such as 4.2 MiB."""
    for unit, worth in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= worth:
            return f"{count / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


INDENT = "  "

Style = Callable[[str, Severity], str]
"""A function that returns the word for a severity with highlighting, such as a colour on a terminal."""


def text(findings: list[HostFinding], *, width: int, style: Style | None = None) -> Iterator[str]:
    """Yield the lines of the report, of at most `width` characters, except commands, which users must copy."""
    for severity in Severity:
        of_this = [finding for finding in findings if finding.severity == severity]
        if of_this and severity == Severity.GOOD:
            yield ""
        for finding in of_this:
            if severity != Severity.GOOD:
                yield ""
            yield from _finding(finding, width, style)
    yield ""
    yield f"{summary(findings)}."


def summary(findings: list[HostFinding]) -> str:
    problems, advice = count(findings, Severity.PROBLEM), count(findings, Severity.ADVICE)
    if not problems and not advice:
        return "Nothing to change"
    first = plural(problems, "problem") if problems else "No problem"
    return f"{first}, {plural(advice, 'piece')} of advice" if advice else first


def count(findings: list[HostFinding], severity: Severity) -> int:
    return sum(finding.severity == severity for finding in findings)


def as_json(findings: list[HostFinding], *, config: str, store: str, spool: str) -> bytes:
    """Return the report as one JSON object, with the numbers of problems and advice, and all findings."""
    report: dict[str, Any] = {
        "tailrace": __version__,
        "config": config,
        "store": store,
        "spool": spool,
        "problems": count(findings, Severity.PROBLEM),
        "advice": count(findings, Severity.ADVICE),
        "findings": findings,
    }
    return msgspec.json.format(msgspec.json.encode(report))


def _finding(finding: HostFinding, width: int, style: Style | None) -> Iterator[str]:
    word = f"{finding.severity:<7}"
    margin = " " * len(word) + INDENT
    first, *rest = _wrapped(f"{finding.check}: {finding.what}", width - len(margin))
    yield f"{style(word, finding.severity) if style else word}{INDENT}{first}"
    for line in [*rest, *_wrapped(finding.why, width - len(margin))]:
        yield f"{margin}{line}"
    for command in finding.commands:
        yield f"{margin}{INDENT}{printable(command)}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
