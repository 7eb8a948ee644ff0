"""Notify the service manager: states, signs of life, and sockets to keep (sd_notify(3)).

Without a manager, all calls do nothing. A message that the manager does not accept within a second is
lost, and the next message is tried again.
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
    """A connection to the manager. `address` is its socket (`@`: abstract namespace), or empty.

    `watchdog_seconds` is how long the manager waits for the next `alive`; None means for ever."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._refused = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Self:
        """Build a notifier from the manager's variables, and remove them, since they are not meant for
        our children."""
        address = environ.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        if address and address[0] not in "/@":
            logger.warning("NOTIFY_SOCKET=%s: unknown kind of socket", address)
            address = ""
        seconds = None
        with suppress(ValueError):
            if address and pid in {"", str(os.getpid())} and int(microseconds) > 0:
                seconds = int(microseconds) / 1e6
        return cls(address, seconds)

    @property
    def present(self) -> bool:
        """Return whether a manager listens."""
        return bool(self._address)

    def ready(self) -> None:
        """Tell that every listener is up or, after `reloading`, that the new configuration is in use."""
        self._send("READY=1")

    def reloading(self, monotonic: float) -> None:
        """Tell that a new configuration is being read since `monotonic` (seconds), until `ready`."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={round(monotonic * 1e6)}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, line: str) -> None:
        """Tell what is going on, in one line."""
        self._send(f"STATUS={line.splitlines()[0] if line else ''}")

    def alive(self) -> None:
        """Tell that work got done, which restarts the watchdog's timer."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Tell that a long start or stop goes on, and ask for at least this much more time."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def store(self, name: str, sock: socket.socket) -> bool:
        """Let the manager keep a socket for the next process. Return whether the message was sent."""
        # Without FDPOLL=0 the manager would drop a socket at its first error.
        return self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", sock.fileno())

    def remove(self, name: str) -> None:
        """Have the manager close the sockets that it keeps by this name. On return their address is free,
        unless the manager takes longer than a second."""
        if self._send(f"FDSTOREREMOVE=1\nFDNAME={name}"):
            self._wait()

    def _wait(self) -> None:
        """Return when the manager has read all messages so far: then it closes its end of a pipe."""
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
