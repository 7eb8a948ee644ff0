"""Define `tailrace check`, which reports every mistake in a configuration file. If there is none, it reports the paths,
sources and memory that result from the configuration."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from tailrace.cli.commands import ExitCode, examples
from tailrace.cli.options import json_option
from tailrace.config.check import too_few
from tailrace.config.load import Loaded, examine, spool_path, store_path
from tailrace.config.schema import Config, TailConfig
from tailrace.configuration import transports
from tailrace.decoding.formats import FORMATS, REFUSED
from tailrace.filesystem import free_room, is_local
from tailrace.security import guard


@click.command(epilog=examples("tailrace check tailrace.toml"))
@click.argument("file", type=click.Path(path_type=Path))
@json_option("Print one JSON object with the same facts.")
def check_command(file: Path, *, as_json: bool) -> None:
    """Find every mistake in the configuration FILE, in Tailrace's environment variables, and in the files of
    certificates and tokens that FILE names.

    Prints one line for each problem, `file:line: key: what is wrong; what is allowed`, and exits with 2. Without
    problems, prints what the configuration amounts to, and warns if the installed systemd unit or a limit of the system
    keeps it from working."""
    loaded, problems = examine(file, environ=os.environ, flags={}, formats=transports)
    if loaded is not None and (unusable := guard.problems(loaded)):
        loaded, problems = None, unusable
    summary = _summary(loaded) if loaded else {}
    if as_json:
        # The origin of a problem is the path of a file, "environment", or empty for a command line option.
        found = [{**problem.where._asdict(), "message": problem.message} for problem in problems]
        document = {"file": str(file), "ok": loaded is not None, "problems": found, **summary}
        click.echo(json.dumps(document, indent=2))
    else:
        lines = [*map(str, problems), *(f"warning: {each}" for each in REFUSED)]
        click.echo("\n".join(_text(file, summary) if loaded else lines))
    if loaded is None:
        raise SystemExit(ExitCode.USAGE)


def _summary(loaded: Loaded) -> dict[str, Any]:
    from tailrace.daemon import memory

    config = loaded.config
    return {
        "sha256": loaded.sha256,
        "store": store_path(config),
        "spool": spool_path(config),
        "memory": {part.name: part.bytes for part in memory.bounds(config)},
        "warnings": [*_warnings(config)],
        "admin": config.admin.listen,
        "sources": {
            name: {
                "type": str(source.__struct_config__.tag),
                "format": source.format,
                "places": source.paths if isinstance(source, TailConfig) else [source.listen],
            }
            for name, source in config.sources.items()
        },
    }


def _text(file: Path, summary: dict[str, Any]) -> Iterator[str]:
    yield f"{file}: ok"
    for key in ("store", "spool", "admin"):
        yield f"  {key}: {summary[key]}"
    for name, source in summary["sources"].items():
        yield f"  {name}: {source['format']} over {source['type']} {' '.join(source['places'])}"
    sizes = summary["memory"]
    shares = ", ".join(f"{name} {_mib(size)}" for name, size in sizes.items())
    yield f"  memory: at most {_mib(sum(sizes.values()))} MiB ({shares})"
    yield from (f"  warning: {warning}" for warning in summary["warnings"])


def _warnings(config: Config) -> Iterator[str]:
    """Yield warnings about a configuration without mistakes: for example, clients cannot reach a source, or two sources
    read the same files."""
    from tailrace.doctor import processes
    from tailrace.sources.tail.search import parse

    yield from map(str, REFUSED)
    for blocked in processes.blocked(config):
        yield f"{blocked}; see IPAddressAllow="
    lacks = set()
    for place in filter(is_local, (store_path(config), spool_path(config))):
        with suppress(OSError):  # ignore the error here, because the start of the daemon reports it
            lacks.add(free_room(Path(place)).lack)
    yield from sorted(filter(None, lacks))
    yield from _overlapping(config)
    for name, source in _tails(config):
        for pattern in source.paths:
            root = parse(pattern).root
            if not os.path.lexists(root):
                yield f"sources.{name}: {root} does not exist; files that appear there later are followed"
    spool = config.spool
    if spool.max_size < spool.segment_size:
        yield (
            f"spool.max_size ({spool.max_size}) is less than spool.segment_size ({spool.segment_size}): each segment"
            " file will be limited to an eighth of spool.max_size"
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if short := too_few(config, hard):
        yield f"{short}; see LimitNOFILE= or `ulimit -Hn`"


def _overlapping(config: Config) -> Iterator[str]:
    for (one, first), (other, second) in combinations(_tails(config), 2):
        pairs = [(p, q) for p in first.paths for q in second.paths if _meet(p, q)]
        if not pairs:
            continue
        both = f"sources.{one} and sources.{other} both lead to files of {pairs[0][0]}"
        if first.format == second.format:
            yield f"{both}: one source follows each file, and the other waits for it"
        elif any(p == q for p, q in pairs) and any(
            # The format does not prescribe file names, so that its source follows files of any name.
            FORMATS[each.format].files.stream("/any name")
            for each in (first, second)
        ):
            yield (
                f"{both} in different formats: each reads the files that its format's names cover, so a file of one format"
                " may be stored as unreadable bytes of the other"
            )


def _meet(pattern: str, other: str) -> bool:
    """Return whether two path patterns can match the same file. They can if the patterns are equal, or if one pattern
    is a directory that contains the other pattern's directory."""
    from tailrace.sources.tail.search import parse

    one, two = parse(pattern), parse(other)
    return one == two or any(
        not outer.parts and f"{inner.root}/".startswith(f"{outer.root.rstrip('/')}/")
        for outer, inner in ((one, two), (two, one))
    )


def _tails(config: Config) -> list[tuple[str, TailConfig]]:
    return [(name, each) for name, each in config.sources.items() if isinstance(each, TailConfig)]


def _mib(size: int) -> int:
    return -(-size // 2**20)
