"""Format findings as text for people and as one JSON object for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tailrace import __version__
from tailrace.doctor.finding import Finding, Severity, plural
from tailrace.terminal import printable

INDENT = "  "

Style = Callable[[str, Severity], str]
"""Marks the word of a severity, on a terminal by a colour."""


def plain(text: str, severity: Severity) -> str:  # noqa: ARG001 - a Style
    return text


def text(findings: list[Finding], *, width: int, style: Style = plain) -> Iterator[str]:
    """Yield lines: problems, then advice, each with commands, then one line for each good finding.

    Commands are not wrapped, so that they can be copied."""
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


def summary(findings: list[Finding]) -> str:
    problems, advice = count(findings, Severity.PROBLEM), count(findings, Severity.ADVICE)
    if not problems and not advice:
        return "Nothing to change"
    first = plural(problems, "problem") if problems else "No problem"
    return f"{first}, {plural(advice, 'piece')} of advice" if advice else first


def count(findings: list[Finding], severity: Severity) -> int:
    return sum(finding.severity == severity for finding in findings)


def as_json(findings: list[Finding], *, config: str, store: str, spool: str) -> bytes:
    """Return one JSON object.

    Its members are `tailrace` (the version), `config` (the file, or empty), `store`, `spool`, the numbers
    of `problems` and `advice`, and `findings`, each with `check`, `severity` (problem, advice or good),
    `what`, `why`, `commands` and `figures`, whose names end in their units."""
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


def _finding(finding: Finding, width: int, style: Style) -> Iterator[str]:
    word = f"{finding.severity:<7}"
    first, *rest = _wrapped(f"{finding.check}: {finding.what}", width - len(word) - len(INDENT))
    yield f"{style(word, finding.severity)}{INDENT}{first}"
    margin = " " * len(word) + INDENT
    for line in [*rest, *_wrapped(finding.why, width - len(margin))]:
        yield f"{margin}{line}"
    for command in finding.commands:
        yield f"{margin}{INDENT}{printable(command)}"


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap text into lines. A path that is longer than a line is not cut."""
    return textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
