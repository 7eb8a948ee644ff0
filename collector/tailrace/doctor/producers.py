"""Check producers' settings in this environment that delay or hide events.

PRODUCERS.md lists these settings and what each costs. A producer may be started in another environment
than this one.
"""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.doctor.finding import Finding, Severity, good
from tailrace.doctor.host import Host
from tailrace.doctor.tails import reaches, tails

CHECK = "producers"

DFTRACER_BUFFER = 16 * 2**20
"""Bytes that DFTracer keeps in memory unless DFTRACER_WRITE_BUFFER_SIZE sets another size."""
LIVE_BUFFER = 64 * 2**10
"""A buffer of this size hides at most about 300 events."""

_ON = {"1", "true", "on", "yes"}


def check(host: Host) -> Iterator[Finding]:
    environ = host.environ
    dftracer = any(name.startswith("DFTRACER_") for name in environ)
    ovni = any(name.startswith("OVNI_") for name in environ)
    found = [*_dftracer(host)] if dftracer else []
    if ovni:
        found += _ovni(host)
    yield from found
    if not found:
        yield good(CHECK, "No producer's setting in this environment hides events.")


def _dftracer(host: Host) -> Iterator[Finding]:
    environ = host.environ
    if not _on(environ, "DFTRACER_ENABLE"):
        yield _advice(
            "DFTracer is configured in this environment, but not enabled.",
            "Programs started from here are not traced.",
            "export DFTRACER_ENABLE=1",
        )
        return
    compressed = _on(environ, "DFTRACER_TRACE_COMPRESSION", default=True)
    buffer = _number(environ.get("DFTRACER_WRITE_BUFFER_SIZE", ""), DFTRACER_BUFFER)
    if buffer > LIVE_BUFFER:
        commands = ["export DFTRACER_WRITE_BUFFER_SIZE=4096"]
        if "DFTRACER_TRACE_COMPRESSION" not in environ or not compressed:
            commands = [
                "export DFTRACER_TRACE_COMPRESSION=0",
                "export DFTRACER_WRITE_BUFFER_SIZE=1",
            ]
        yield _advice(
            f"DFTracer keeps up to {buffer:,} bytes of events in the traced program.",
            "They become visible when the buffer is full or the program ends, and are lost if it is killed.",
            *commands,
        )
    elif compressed and buffer < 4096:
        yield _advice(
            f"DFTracer compresses every {buffer:,} bytes separately.",
            "Such pieces take more room than no compression, and slow the traced program.",
            "export DFTRACER_TRACE_COMPRESSION=0",
        )
    if not _on(environ, "DFTRACER_INC_METADATA"):
        yield _advice(
            "DFTracer omits the arguments of events.",
            "The trace has no file names, sizes or offsets.",
            "export DFTRACER_INC_METADATA=1",
        )
    if _on(environ, "DFTRACER_ENABLE_AGGREGATION"):
        yield _advice(
            "DFTracer aggregates events before it writes them.",
            "Their ids are then no counter, so nobody can tell what is missing.",
            "export DFTRACER_ENABLE_AGGREGATION=0",
        )
    if log := environ.get("DFTRACER_LOG_FILE"):  # a prefix of file names
        yield from _unwatched(host, "dftracer", {"DFTRACER_LOG_FILE": str(Path(log).parent)})


def _ovni(host: Host) -> Iterator[Finding]:
    places = {"OVNI_TRACEDIR": host.environ.get("OVNI_TRACEDIR") or "ovni"}
    if temporary := host.environ.get("OVNI_TMPDIR"):
        places["OVNI_TMPDIR"] = temporary
    yield from _unwatched(host, "ovni", places)


def _unwatched(host: Host, format_: str, places: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each variable whose directory no source of this format watches.

    All findings have the same command, which adds all these directories."""
    sources = {name: c for name, c in tails(host).items() if c.format == format_}
    patterns = [pattern for config in sources.values() for pattern in config.paths]
    absolute = {variable: str(Path(place).absolute()) for variable, place in places.items()}
    missed = {
        variable: path
        for variable, path in absolute.items()
        if not any(reaches(pattern, path) for pattern in patterns)
    }
    name, paths = next(((n, c.paths) for n, c in sources.items()), (format_, []))
    prefix = f"TAILRACE_SOURCES_{name.upper()}"
    made = f"{prefix}_TYPE=tail {prefix}_FORMAT={format_} " if not sources else ""
    value = shlex.quote(",".join([*paths, *map(glob.escape, missed.values())]))
    for variable, path in missed.items():
        yield _advice(
            f"{variable} leads to {path}, which no source of the format {format_} watches.",
            "A thread's events stay there until it ends, and for good if it is killed."
            if variable == "OVNI_TMPDIR"
            else "Traces of programs started from here are not collected.",
            f"export {made}{prefix}_PATHS={value}",
        )


def _advice(what: str, why: str, *commands: str) -> Finding:
    return Finding(
        check=CHECK, severity=Severity.ADVICE, what=what, why=why, commands=list(commands)
    )


def _on(environ: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    value = environ.get(name, "").strip().lower()
    return value in _ON if value else default


def _number(text: str, default: int) -> int:
    return int(text) if text.strip().isdecimal() else default
