"""Time a person who has nothing but wheels and the page *First steps*, up to the person's own first trace.

    python -m tests.packaging.first_trace dist

The home directory is empty, and PATH has a shell, a few tools and a Python, but no compiler. The person copies each
command of the page up to the end of its section *Your first trace*. A command that fails, or that prints anything else
than the page shows, ends the script. The times are those of the commands, without reading and typing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.deploy.fresh_root import downloads
from tests.docs.pages import ROOT, Shell, blocks

PAGE = ROOT / "docs/start.md"
LAST = "## A collector that keeps running"
"""The heading behind the first trace."""
TOOLS = ("bash", "cat", "sh")


class Step(NamedTuple):
    """A block of commands of the page, and the time (seconds) that it took."""

    command: str
    seconds: float


def chosen(dist: Path) -> list[Path]:
    """Return the wheels that the page names: of the collector for this Python, or else for any, and of the client."""
    collector = [*dist.glob(f"tailrace-*-cp3{sys.version_info[1]}-*.whl")]
    collector = collector or [*dist.glob("tailrace-*-none-any.whl")]
    client = [*dist.glob("tailrace_client-*.whl")]
    if len(collector) != 1 or len(client) != 1:
        sys.exit(f"{dist}: needs one wheel of the collector and one of the client: make dist")
    return [*collector, *client]


def walk(wheels: list[Path], home: Path) -> Iterator[Step]:
    """Copy the page's commands, in an empty home directory with these wheels in a directory of their own."""
    tools, here = home / "path", home / "downloads"
    for directory in (tools, here):
        directory.mkdir(parents=True)
    for name in TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    name = f"python3.{sys.version_info[1]}"
    (tools / "python3").symlink_to(Path(sysconfig.get_config_var("BINDIR"), name))
    for wheel in wheels:
        shutil.copy(wheel, here)
    text = PAGE.read_text()
    end = text.count("\n", 0, text.index(LAST))
    environ = {"HOME": str(home), "PATH": str(tools), "LC_ALL": "C.UTF-8"} | downloads()
    with Shell([str(shutil.which("bash"))], environ=environ, cwd=here) as shell:
        for block in blocks(PAGE):
            if block.line < end:
                began = time.monotonic()
                shell.read(block)
                yield Step(block.text.splitlines()[0], time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the way from wheels to a first trace.")
    parser.add_argument("dist", type=Path, help="directory with the wheels of `make dist`")
    wheels = chosen(parser.parse_args().dist)
    sys.stdout.writelines(f"{wheel.name}\n" for wheel in wheels)
    total = 0.0
    with tempfile.TemporaryDirectory() as home:
        for step in walk(wheels, Path(home)):
            total += step.seconds
            sys.stdout.write(f"{step.seconds:6.1f} s  {step.command}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{total:6.1f} s  in all\n")


if __name__ == "__main__":
    main()
