"""Make the disk fail under any program: `preload.c`, built once a run, and its switches.

    def test_something(failing_disk):
        process = subprocess.Popen(command, env=os.environ | failing_disk.environment("/spool/"))
        failing_disk.sync_fails()     # from now on fsync, fdatasync and syncfs give EIO ...
        failing_disk.sync_waits()     # ... or do not return,
        failing_disk.no_room()        # ... and write, pwrite, pwritev and fallocate give ENOSPC
        failing_disk.works()

`environment` names the files meant by a part of their paths. Only libc's functions are caught,
which is what Python and Rust's standard library call; a static program is not reached.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("preload.c")


def why_not() -> str | None:
    """Return why the library cannot be built here, and what to do about it; None if it can be built."""
    return (
        None
        if shutil.which("cc")
        else "there is no C compiler: run `apt-get install gcc libc6-dev`"
    )


def build(directory: Path, source: Path = SOURCE) -> Path:
    """Compile the library into a directory."""
    library = directory / f"{source.stem}.so"
    command = [
        "cc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        library,
        source,
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{source}: {done.stderr}")
    return library


class FailingDisk:
    """The switches of one test: files in `directory`. If they exist, the library acts."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._library = library
        self._sync = directory / "sync_fails"
        self._wait = directory / "sync_waits"
        self._space = directory / "no_room"

    def environment(self, path_part: str) -> dict[str, str]:
        """Return environment variables for a program. Its files with `path_part` in their path fail."""
        return {
            "LD_PRELOAD": str(self._library),
            "TAILRACE_FAULT_PATH": path_part,
            "TAILRACE_FAULT_SYNC": str(self._sync),
            "TAILRACE_FAULT_WAIT": str(self._wait),
            "TAILRACE_FAULT_SPACE": str(self._space),
        }

    def sync_fails(self) -> None:
        self._sync.touch()

    def sync_waits(self) -> None:
        self._wait.touch()

    def no_room(self) -> None:
        self._space.touch()

    def works(self) -> None:
        self._sync.unlink(missing_ok=True)
        self._wait.unlink(missing_ok=True)
        self._space.unlink(missing_ok=True)
