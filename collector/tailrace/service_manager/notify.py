"""What the service tells its manager: states, signs of life, and sockets to keep (sd_notify(3)).

Without a manager all of it does nothing. A message that the manager does not take within a second is
lost; the next one is tried again.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Self

SEND_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Notifier:
    """`address` is that of the manager's socket, with `@` for the abstract namespace, or empty.

    `watchdog_seconds` is how long the manager waits for the next `alive`; None for ever."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._refused = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Self:
        """As the manager wants it, whose variables are taken out: they are not for our children."""
        address = environ.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        if address and address[0] not in "/@":
            logger.warning("NOTIFY_SOCKET=%s: no kind of socket that is known here", address)
            address = ""
        seconds = None
        with suppress(ValueError):
            if address and pid in {"", str(os.getpid())} and int(microseconds) > 0:
                seconds = int(microseconds) / 1e6
        return cls(address, seconds)

    @property
    def present(self) -> bool:
        """Whether there is a manager that listens."""
        return bool(self._address)

    def ready(self) -> None:
        """Everything listens; after `reloading`, the new configuration is in use."""
        self._send("READY=1")

    def reloading(self, monotonic: float) -> None:
        """A new configuration is being read, since a time in seconds; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={round(monotonic * 1e6)}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, line: str) -> None:
        """What is going on, in a line."""
        self._send(f"STATUS={line.splitlines()[0] if line else ''}")

    def alive(self) -> None:
        """Something got done: the watchdog's time begins anew."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """A start or stop that takes long goes on, for so long at least."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def store(self, name: str, sock: socket.socket) -> bool:
        """Let the manager keep a socket for the next life of the service; whether it took the message."""
        # Without FDPOLL=0 it would let go of a socket at its first error.
        return self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", sock.fileno())

    def remove(self, name: str) -> None:
        """Have the manager close what it keeps by this name: on return its address is free, unless the
        manager takes longer than a second."""
        if self._send(f"FDSTOREREMOVE=1\nFDNAME={name}"):
            self._wait()

    def _wait(self) -> None:
        """Return when the manager has read all so far: then it closes its end of a pipe."""
        reading, writing = os.pipe()
        try:
            self._send("BARRIER=1", writing)
            os.close(writing)
            waiting = select.poll()
            waiting.register(reading, 0)
            waiting.poll(round(SEND_SECONDS * 1000))
        finally:
            os.close(reading)

    def _send(self, message: str, *descriptors: int) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(SEND_SECONDS)
                sock.connect(self._address)
                socket.send_fds(sock, [message.encode()], descriptors)
        except OSError as error:
            if not self._refused:
                logger.warning(
                    "cannot tell the service manager %s: %s", message.partition("\n")[0], error
                )
            self._refused = True
            return False
        self._refused = False
        return True
