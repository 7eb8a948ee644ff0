"""A file for a collector to follow, or a named pipe."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence

from tailrace_client._descriptors import Mark, TakenError, above_standard
from tailrace_client._streams import STREAM_CHUNK_BYTES, STREAM_PACKET_MAX

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN}
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Without blocking, a pipe without a reader is an error, and a full pipe has no room. `O_NOFOLLOW` refuses a link, because
in a directory that other users can write to it could lead to any file."""


class File:
    """A file. With `append` it keeps its content; otherwise it is emptied, as JETS requires. A forked
    child writes to `path.PID`, since a reader would take two processes in one file for one producer."""

    packet_max = STREAM_PACKET_MAX
    chunk_bytes = STREAM_CHUNK_BYTES
    datagrams = False
    prompt = False
    is_near = False
    answers = False
    refusal = ""

    def __init__(self, path: str, *, append: bool) -> None:
        self._path = path
        self._append = append
        self._fresh = True
        self._mark: Mark | None = None

    @property
    def is_open(self) -> bool:
        return self._mark is not None

    def open(self) -> None:
        emptied = os.O_TRUNC if self._fresh and not self._append else 0
        self._mark = self._opened(os.O_CREAT | emptied)
        self._fresh = False

    def send(self, pieces: Sequence[bytes], /) -> int:
        if not pieces:
            return 0
        try:
            return os.writev(self._own(), pieces)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return 0
            self.close()
            raise

    def receive(self) -> bytes:
        return b""

    def wait(self, seconds: float, /, *, to_send: bool) -> None:  # noqa: ARG002 - a disk does not notify
        time.sleep(max(0.0, min(seconds, 0.05)))

    def finish(self, seconds: float, /) -> None:  # noqa: ARG002 - the kernel has all bytes
        self.close()

    def close(self) -> None:
        if self._mark is not None and self._mark.holds():
            os.close(self._mark.number)
        self._mark = None

    def forked(self) -> File:
        self.close()
        return File(f"{self._path}.{os.getpid()}", append=self._append)

    def _opened(self, more: int) -> Mark:
        return Mark.of(above_standard(os.open(self._path, _FLAGS | more, 0o600)))

    def _own(self) -> int:
        """Return the file's descriptor, for one use. If the program has closed it, go on at the end of the
        same file; raise TakenError if another one is there now, or a pipe."""
        mark = self._mark
        if mark is None or not mark.holds():
            again = self._mark = self._opened(0)
            if mark is None or again.found != mark.found or not stat.S_ISREG(again.found.kind):
                raise TakenError
            return again.number
        return mark.number
