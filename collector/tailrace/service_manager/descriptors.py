"""Keep listening sockets open across a restart of the process, so that arriving data waits in them.

The service manager creates the sockets (socket units), or keeps sockets that an earlier process passed to it
(descriptor store), and passes them to the next process (sd_listen_fds(3)). A listener finds its socket by address
or, if the operating system chose the port, by name.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from hashlib import blake2s
from typing import NamedTuple, Self

from tailrace.service_manager.notify import Notifier

FIRST = 3
"""Lowest descriptor number of the sockets that the service manager passes to a process."""

NAME_MAX = 255

logger = logging.getLogger(__name__)


class Handed(NamedTuple):
    name: str
    sock: socket.socket


class Descriptors:
    """The sockets that the service manager passed to this process. `handed` are those that no listener has taken."""

    def __init__(self, notifier: Notifier, handed: list[Handed] | None = None) -> None:
        self._notifier = notifier
        self._handed = handed or []
        self._taken: set[str] = set()

    @classmethod
    def from_environment(cls, notifier: Notifier, environ: MutableMapping[str, str]) -> Self:
        """Return the sockets that the service manager passed. Remove the variables that announce them."""
        pid = environ.pop("LISTEN_PID", "")
        count = environ.pop("LISTEN_FDS", "")
        names = environ.pop("LISTEN_FDNAMES", "").split(":")
        handed: list[Handed] = []
        if pid == str(os.getpid()) and count.isdecimal():
            for fd in range(FIRST, FIRST + int(count)):
                name = names[fd - FIRST] if fd - FIRST < len(names) else ""
                try:
                    sock = socket.socket(fileno=fd)
                except OSError as error:
                    logger.warning(
                        "descriptor %d (%s) from the service manager: %s", fd, name, error
                    )
                    with suppress(OSError):
                        os.close(fd)
                    continue
                sock.set_inheritable(False)
                sock.settimeout(0)
                handed.append(Handed(name, sock))
        return cls(notifier, handed)

    def slot(self, name: str, *, anywhere: bool = True) -> Slot:
        """Return the slot for the socket of one listener, which the service manager keeps open under `name` (ASCII text
        without colons). With `anywhere`, the listener may also take a kept socket with another name, if its address
        fits."""
        if len(name) > NAME_MAX:
            name = blake2s(name.encode(), digest_size=16).hexdigest()
        return Slot(self, name, anywhere=anywhere)

    def close(self) -> None:
        """Close this process's copies of the sockets without a listener. The service manager keeps its own copies."""
        for _, sock in self._handed:
            sock.close()
        self._handed.clear()

    def take(
        self, name: str, fits: Callable[[socket.socket], bool], *, anywhere: bool
    ) -> Handed | None:
        """Return and remove a socket that no listener has taken and for which `fits` returns true; None if there is
        none."""
        for found in self._handed:
            if (anywhere or found.name == name) and fits(found.sock):
                logger.info("uses the socket %s that the service manager kept", found.name)
                self._handed.remove(found)
                self._taken.add(found.name)
                return found
        return None

    def close_rest(self) -> bool:
        """Close all sockets that no listener has taken, also in the service manager. Return whether there were any."""
        names = {handed.name for handed in self._handed}
        for name in sorted(names):
            self._refuse(name)
        return bool(names)

    def store(self, name: str, sock: socket.socket) -> bool:
        """Pass a socket to the service manager, in place of earlier sockets with this name. Return whether the message
        was sent."""
        self._refuse(name)
        return self._notifier.store(name, sock)

    def remove(self, name: str) -> None:
        self._notifier.remove(name)

    def _refuse(self, name: str) -> None:
        """Close the sockets with this name that no listener has taken, also in the service manager."""
        refused = [handed for handed in self._handed if handed.name == name]
        for handed in refused:
            logger.info("closes the socket %s of the service manager: no listener wants it", name)
            handed.sock.close()
            self._handed.remove(handed)
        # Keep the name in the service manager if a listener uses another socket with this name: a socket unit and the
        # descriptor store may each have passed one.
        if refused and name not in self._taken:
            self._notifier.remove(name)


class Slot:
    """The entry for the socket of one listener in the service manager, which keeps the socket open across restarts."""

    def __init__(self, descriptors: Descriptors, name: str, *, anywhere: bool) -> None:
        self.kept = False
        """Whether the service manager keeps the socket now."""
        self._descriptors = descriptors
        self._name = name
        self._anywhere = anywhere

    def take(self, fits: Callable[[socket.socket], bool]) -> socket.socket | None:
        """Return the kept socket of this listener for which `fits` returns true, or None."""
        found = self._descriptors.take(self._name, fits, anywhere=self._anywhere)
        if found is None:
            return None
        self._name, self.kept = found.name, True
        return found.sock

    def keep(self, sock: socket.socket) -> None:
        """Pass a new socket to the service manager, if there is one, so that the socket survives a restart."""
        self.kept = self._descriptors.store(self._name, sock)

    def forget(self) -> None:
        """Let the service manager close the socket, because its listener no longer exists."""
        if self.kept:
            self._descriptors.remove(self._name)
            self.kept = False

    def make_way(self) -> bool:
        """Close the kept sockets without a listener, which may occupy a wanted address. Return whether there were
        any."""
        return self._descriptors.close_rest()


NOWHERE = Descriptors(Notifier()).slot("")
"""The slot for a socket that no service manager keeps open."""
