"""Notify the service manager (sd_notify(3)), if there is one. A message that it does not accept in time is lost."""

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
    """The connection to the service manager. `address` is the path of its socket (a leading `@` means the abstract
    namespace); empty without a service manager. The service manager expects a watchdog signal every `watchdog_seconds`,
    if that is set."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._refused = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Self:
        """Return a notifier for the service manager's environment variables. Remove them, because child processes
        must not inherit them."""
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
        return bool(self._address)

    def ready(self) -> None:
        """Report that all listeners are open or, after `reloading`, that the new configuration is in use."""
        self._send("READY=1")

    def reloading(self, monotonic: float) -> None:
        """Report that a reload began at `monotonic` (seconds of the monotonic clock). `ready` reports its end."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={round(monotonic * 1e6)}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, line: str) -> None:
        self._send(f"STATUS={line.splitlines()[0] if line else ''}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Report that a start or stop is still going on, and request `seconds` more time for it."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def store(self, name: str, sock: socket.socket) -> bool:
        """Ask the service manager to keep a socket for the next process. Return whether the message was sent."""
        # Without FDPOLL=0, the service manager would close a kept socket when an error occurs on it.
        return self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", sock.fileno())

    def remove(self, name: str) -> None:
        """Ask the service manager to close the sockets of a name, and wait up to `SEND_SECONDS` for it."""
        if self._send(f"FDSTOREREMOVE=1\nFDNAME={name}"):
            self._wait()

    def _wait(self) -> None:
        """Wait, at most `SEND_SECONDS`, until the service manager closes a pipe to show that it has read all
        messages."""
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
                first = message.partition("\n")[0]
                logger.warning("cannot tell the service manager %s: %s", first, error)
            self._refused = True
            return False
        self._refused = False
        return True
