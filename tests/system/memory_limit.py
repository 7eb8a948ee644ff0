"""Create a control group with a memory limit for a daemon, if this user may do so."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group for one test. `size` is the limit in bytes."""

    def __init__(self):
        top, self._file = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
        self.path = top / f"tailrace-test-{uuid4().hex[:12]}"
        try:
            self.path.mkdir()
            (self.path / self._file).read_text()
        except OSError as error:
            with suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"no control group for memory can be made here: {error}")

    def set(self, size):
        (self.path / self._file).write_text(str(size))

    def enter(self):
        """Move this process into the group, and with it all processes that it starts: for `preexec_fn`."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        self.path.rmdir()
