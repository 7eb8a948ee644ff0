"""Pages of Markdown run as a reader would: their `sh` blocks in one shell, their `python` blocks in
between, and what they print compared with the `text` block that follows, where there is one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from typing import NamedTuple

from tests.program import PROXIES
from tests.system.collector import until

ROOT = Path(__file__).parents[2]

RUN = ("sh", "python")
SHOWN = ("text", "toml", "rust", "console")
"""Languages of blocks that are not run.

`console` needs a service manager or an engine. `text` after a block that is run is its expected output.
"""

ANYTHING = "…"
"""In a block of output: the part that differs from run to run.

On a line by itself, it stands for any number of lines.
"""

LONGEST_SECONDS = 600
"""Maximum time (seconds) of a block. Some download packages."""

DEFAULT_PORTS = (7701, 7702)
"""Ports at which a daemon without a configuration listens. If a daemon of somebody else listens there, it receives the
events of the page.
"""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str
    line: int
    output: str | None


def blocks(page: Path) -> list[Block]:
    """Return the commands of a page, each with the output that the page shows."""
    text = page.read_text()
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 2
        if language == "text" and found and not text[end : match.start()].strip():
            found[-1] = found[-1]._replace(output=body)
        elif language in RUN:
            found.append(Block(language, body, line, None))
        elif language not in SHOWN:
            raise ValueError(
                f"{page.name}:{line}: blocks in {language or 'no language'} are not known"
            )
        end = match.end()
    return found


def matches(shown: str, printed: str) -> bool:
    """Return whether an output is the expected one.

    Several spaces count as one, because columns are as wide as their content.
    """
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == ANYTHING:
            pattern += r"(?:.*\n)*"
            continue
        words = [
            ".*".join(re.escape(part) for part in word.split(ANYTHING)) for word in line.split()
        ]
        pattern += " *" + " +".join(words) + " *\n"
    return re.fullmatch(pattern, printed) is not None


def _is_free(port: int) -> bool:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # also after a connection was closed
        try:
            for each in (tcp, udp):
                each.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Shell:
    """The shell of a reader.

    `command` starts bash, here or elsewhere. Only one runs on a host at a time, however many tests run, because daemons
    of pages listen at their default addresses.
    """

    def __init__(self, command=("bash",), *, environ=None, cwd=ROOT):
        self._number = 0
        self._turn = (Path(tempfile.gettempdir()) / "tailrace-pages.lock").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        if command == ("bash",):
            until(
                lambda: all(map(_is_free, DEFAULT_PORTS)),
                f"free ports of 127.0.0.1: {DEFAULT_PORTS}",
            )
        self._process = subprocess.Popen(
            [*command, "--norc", "-u"],
            cwd=cwd,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """End the shell, and the processes that it has left."""
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        self._kill()
        self._process.wait()
        self._process.stdout.close()
        self._turn.close()

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def run(self, block: Block) -> tuple[int, str]:
        """Run a block. Return its exit code and its output."""
        text = block.text
        if block.language == "python":
            text = f"python - <<'END OF PROGRAM'\n{text}END OF PROGRAM\n"
        self._number += 1
        mark = f"--- end of block {self._number}: "
        # The exit code is that of the last command that failed, as with `set -e`, but the shell continues.
        script = f"code=0; trap 'code=$?' ERR\n{{\n{text}}} </dev/null\ntrap - ERR; echo \"{mark}$code\"\n"
        self._process.stdin.write(script.encode())
        self._process.stdin.flush()
        printed = []
        late = Timer(LONGEST_SECONDS, self._kill)
        late.start()
        for line in self._process.stdout:
            words = line.decode(errors="replace")
            if words.startswith(mark):
                late.cancel()
                return int(words.removeprefix(mark)), "".join(printed)
            printed.append(words)
        late.cancel()
        raise AssertionError(
            f"line {block.line}: the shell ended, or took too long:\n{''.join(printed)}"
        )

    def read(self, block: Block) -> str:
        """Run a block once, as a reader does.

        Return its output, which must be what the page shows. The page itself waits for commands that take time.
        """
        code, printed = self.run(block)
        if code or not (block.output is None or matches(block.output, printed)):
            raise AssertionError(
                f"line {block.line}, exit code {code}:\n{block.text}\nprinted:\n{printed}"
                f"\nand should have printed:\n{block.output}"
            )
        return printed


def wrappers(directory: Path) -> Path:
    """Return a directory for PATH with the commands `tailrace` and `python` of this environment."""
    directory.mkdir(parents=True)
    for name, arguments in (("tailrace", "-m tailrace"), ("python", "")):
        command = directory / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        command.chmod(0o755)
    return directory


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of a reader: the commands on PATH, an empty data directory, and ports that no other
    process has.
    """
    environ = {name: value for name, value in os.environ.items() if "TAILRACE" not in name}
    path = f"{wrappers(directory / 'bin')}:{os.environ['PATH']}"
    data = str(directory / "data")
    own = {"PATH": path, "XDG_DATA_HOME": data, "TAILRACE_ADMIN_LISTEN": "127.0.0.1:0"}
    return environ | PROXIES | own
