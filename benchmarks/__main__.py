"""`python -m benchmarks [NAME…]`: run the named benchmarks, and write their results and the page
(benchmarks/README.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.contest import scratch
from benchmarks.machine import machine
from benchmarks.measuring import measure
from benchmarks.options import QUICK, Options
from benchmarks.places import BUILD, PUBLISHED
from benchmarks.processes.daemon import daemon
from benchmarks.registry import BENCHMARKS
from benchmarks.report import tables
from benchmarks.report.page import PAGE, RESULTS, write
from benchmarks.results import Results


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested benchmarks. The result of each replaces its earlier result."""
    asked = _parser().parse_args(arguments)
    options = _options(asked)
    directory = PUBLISHED if asked.publish else asked.directory
    with scratch() as home, daemon(home) as running:
        here = machine(running.status()["kernels"])
    kept = True
    for name in asked.names or BENCHMARKS:
        print(f"{name}:", flush=True)
        result = measure(BENCHMARKS[name], options, here)
        results = Results.load(directory / RESULTS)
        found = results.found | {name: result}
        results.found = {each: found[each] for each in BENCHMARKS if each in found}
        write(results, directory)
        print("\n".join(tables.of_figures(result)), flush=True)
        if judge := BENCHMARKS[name].judge:
            judgement = judge(result.cases)
            kept = kept and judgement.kept
            print(f"{name}: {judgement.text}", flush=True)
    print(f"{directory / PAGE} has all figures and ratios")
    if not kept:
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="all in a few minutes")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md")
    parser.add_argument("--directory", type=Path, default=BUILD, help="where results go otherwise")
    for field in msgspec.structs.fields(Options):
        if not isinstance(field.default, bool):
            several = isinstance(field.default, tuple)
            kind = type(field.default[0] if several else field.default)
            name = f"--{field.name.replace('_', '-')}"
            parser.add_argument(name, type=kind, nargs="+" if several else None)
    return parser


def _options(asked: argparse.Namespace) -> Options:
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(Options):
        value = getattr(asked, field.name, None)
        if value is not None and not isinstance(field.default, bool):
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return msgspec.structs.replace(QUICK if asked.quick else Options(), **given)


if __name__ == "__main__":
    main()
