"""Summarise a run for the user, as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailrace.sources.source import Refusal
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.run.certificate import Certificate, StreamEvidence, TracingCost
    from tailrace.run.program import RunDone

PATHS_SHOWN = 10


def lines(done: Certificate, path: Path | None, refused: Mapping[str, int] = {}) -> Iterator[str]:
    """Yield text lines for the user about a run. `path` is the certificate's file, or None if it could not be
    written. `refused` is the number of connections and datagrams of other users that were refused, by cause."""
    totals = done.totals
    yield f"run certificate {path or 'that could not be written'}: sha256 {done.sha256}"
    yield f"  program: exit {done.program.exit_status}; store: {done.store}"
    yield f"  events: {totals.expected} expected, {totals.stored} stored, {missing_in_words(totals.missing, totals.unknown)}"
    if done.tracing:
        yield f"  {cost_in_words(done.tracing)}"
    if done.streams:
        yield f"  look at it: tailrace view --store {shlex.quote(done.store)}"
    elif not (done.no_room or done.empty):
        yield "  no event arrived: does the program use one of the variables that `tailrace run --help` names?"
    if done.no_room:
        yield f"  refused, because a limit was reached: connections and datagrams ({_by_cause(done.no_room)})"
    if done.empty:
        yield f"  {counted(len(done.empty), 'trace file')} without content, so it is unknown which events their processes kept in memory:"
        yield from (f"    {path}" for path in done.empty[:PATHS_SHOWN])
        if len(done.empty) > PATHS_SHOWN:
            yield f"    and {len(done.empty) - PATHS_SHOWN} more; the certificate has all"
    if refused:
        yield f"  refused, and not in the certificate: connections and datagrams of other or unknown users ({_by_cause(refused)})"
    if Refusal.USER_UNKNOWN in refused or Refusal.NO_TOKEN in refused:
        yield "  if the program sent them: let it keep the socket open while the collector reads, or send TAILRACE_TOKEN first, as a client does"
    for stream in lacking(done.streams):
        name = f"{stream.source} session {stream.session} stream {stream.stream or '-'}"
        yield f"  {name}: {missing_in_words(stream.missing, stream.unknown)}"
        for gap in stream.gaps:
            yield f"    {gap}"


def cost_in_words(tracing: TracingCost) -> str:
    """Return a sentence that states which share of the program's CPU time was spent on recording and sending events."""
    if not tracing.stating:
        return "recording and sending events took an unknown part of the program's CPU time: no client states it"
    of = "the program's CPU time"
    if tracing.stating < tracing.processes:
        of = f"the CPU time of {tracing.stating} of {counted(tracing.processes, 'process', 'processes')}, and an unknown part of the others'"
    part = 100 * tracing.tracing / tracing.program
    shown = "less than 0.01" if part < 0.01 else f"{part:.0f}" if part >= 10 else f"{part:.2g}"
    return f"recording and sending events took {shown} % of {of}, without the calls from Python (estimated: {tracing.sampled} of {counted(tracing.events, 'event')} timed)"


def document(
    done: RunDone, arguments: Sequence[str], path: Path | None, failures: Sequence[str]
) -> bytes:
    """Return the summary of a run as one line of JSON. The run certificate states which events are missing, and is
    written when the last rank of the node has ended. For a rank that ends earlier, `traced` and all values from the
    certificate are null."""
    certificate = done.certificate
    found: dict[str, object] = {
        "arguments": arguments,
        "exit_status": done.status,
        "traced": None if done.others else bool(certificate and certificate.streams),
        "failures": failures,
        "refused": done.refused,
        "no_room": certificate.no_room if certificate else None,
        "empty": certificate.empty if certificate else None,
        "certificate": str(path) if path else None,
        "sha256": certificate.sha256 if certificate else None,
        "store": certificate.store if certificate else None,
        "totals": certificate.totals if certificate else None,
        "tracing": certificate.tracing if certificate else None,
        "streams": list(lacking(certificate.streams)) if certificate else None,
    }
    return msgspec.json.encode(found) + b"\n"


def lacking(streams: Iterable[StreamEvidence]) -> Iterator[StreamEvidence]:
    """Return the streams with missing events. The number of a stream's missing events may be unknown."""
    return (stream for stream in streams if stream.unknown or stream.missing)


def missing_in_words(missing: dict[str, int], unknown: bool) -> str:
    """Return a phrase with the number of missing events, the reasons, and whether an unknown number more is missing."""
    reasons = _by_cause(missing)
    text = f"{sum(missing.values())} missing" + (f" ({reasons})" if reasons else "")
    return text + (" and an unknown number more" if unknown else "")


def _by_cause(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(counts.items()) if count)
