"""A file for a collector to follow, or a named pipe."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence

from tailrace_client._streams import STREAM_CHUNK_BYTES, STREAM_PACKET_MAX

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN}


class File:
    """A file. With `append` it keeps its content; otherwise it is emptied, as JETS requires. A forked
    child writes to `path.PID`, since a reader would take two processes in one file for one producer."""

    packet_max = STREAM_PACKET_MAX
    chunk_bytes = STREAM_CHUNK_BYTES
    datagrams = False
    prompt = False
    answers = False
    refusal = ""

    def __init__(self, path: str, *, append: bool) -> None:
        self._path = path
        self._append = append
        self._fresh = True
        self._descriptor = -1

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def open(self) -> None:
        # Without blocking, a pipe that nobody reads is an error, and a full pipe has no room.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        if self._fresh and not self._append:
            flags |= os.O_TRUNC
        self._descriptor = os.open(self._path, flags, 0o666)
        self._fresh = False

    def send(self, pieces: Sequence[bytes], /) -> int:
        if not pieces:
            return 0
        try:
            return os.writev(self._descriptor, pieces)
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
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def forked(self) -> File:
        self.close()
        return File(f"{self._path}.{os.getpid()}", append=self._append)
