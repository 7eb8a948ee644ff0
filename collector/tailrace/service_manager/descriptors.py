"""Listening sockets that survive a restart of the process.

The service manager keeps the sockets (its descriptor store) or creates the sockets (socket units). The manager passes
the sockets to the next process of the service (sd_listen_fds(3)). While no process runs, incoming bytes wait in the
sockets. A socket is identified by its address, regardless of its name. A socket on a port chosen by the system is
identified by the name under which the service manager stores the socket.
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
"""Number of the first descriptor that the service manager passes to a service."""

NAME_MAX = 255

logger = logging.getLogger(__name__)


class Handed(NamedTuple):
    name: str
    sock: socket.socket


class Descriptors:
    """The sockets that the service manager passed to this process. `handed` are the sockets without a listener."""

    def __init__(self, notifier: Notifier, handed: list[Handed] | None = None) -> None:
        self._notifier = notifier
        self._handed = handed or []
        self._taken: set[str] = set()

    @classmethod
    def from_environment(cls, notifier: Notifier, environ: MutableMapping[str, str]) -> Self:
        """Return the sockets passed to this process, and remove the service manager's variables from the
        environment."""
        pid = environ.pop("LISTEN_PID", "")
        count = environ.pop("LISTEN_FDS", "")
        names = environ.pop("LISTEN_FDNAMES", "").split(":")
        handed: list[Handed] = []
        if pid == str(os.getpid()) and count.isdecimal():
            for index in range(int(count)):
                name = names[index] if index < len(names) else ""
                handed += _adopted(FIRST + index, name)
        return cls(notifier, handed)

    def slot(self, name: str, *, anywhere: bool = True) -> Slot:
        """Return the slot of a listener's socket. The slot's name is ASCII without colons.

        With `anywhere`, a socket with another name and the wanted address is accepted.
        """
        if len(name) > NAME_MAX:
            name = blake2s(name.encode(), digest_size=16).hexdigest()
        return Slot(self, name, anywhere=anywhere)

    def close(self) -> None:
        """Close the sockets without a listener. The service manager keeps its copies of the sockets."""
        for _, sock in self._handed:
            sock.close()
        self._handed.clear()

    def take(
        self, name: str, fits: Callable[[socket.socket], bool], *, anywhere: bool
    ) -> Handed | None:
        """Return a passed socket that `fits` accepts, or None."""
        found = next(
            (h for h in self._handed if (anywhere or h.name == name) and fits(h.sock)), None
        )
        if found is not None:
            logger.info("uses the socket %s that the service manager kept", found.name)
            self._handed.remove(found)
            self._taken.add(found.name)
        return found

    def close_rest(self) -> bool:
        """Close all sockets without a listener, in this process and in the service manager. Return whether a socket
        was closed."""
        names = {handed.name for handed in self._handed}
        for name in sorted(names):
            self._refuse(name)
        return bool(names)

    def store(self, name: str, sock: socket.socket) -> bool:
        """Pass a socket to the service manager, which replaces the socket of the same name. Return whether the
        message to the service manager was sent."""
        self._refuse(name)
        return self._notifier.store(name, sock)

    def remove(self, name: str) -> None:
        self._notifier.remove(name)

    def _refuse(self, name: str) -> None:
        """Close the sockets of this name that have no listener."""
        refused = [handed for handed in self._handed if handed.name == name]
        for handed in refused:
            logger.info("closes the socket %s of the service manager: no listener wants it", name)
            handed.sock.close()
            self._handed.remove(handed)
        # A socket unit and the descriptor store may have sockets of the same name.
        if refused and name not in self._taken:
            self._notifier.remove(name)


class Slot:
    """The place of one listener's socket in the service manager."""

    def __init__(self, descriptors: Descriptors, name: str, *, anywhere: bool) -> None:
        self.kept = False
        """Whether the service manager has the socket."""
        self._descriptors = descriptors
        self._name = name
        self._anywhere = anywhere

    def take(self, fits: Callable[[socket.socket], bool]) -> socket.socket | None:
        """Return the kept socket if `fits` accepts the socket, else None."""
        found = self._descriptors.take(self._name, fits, anywhere=self._anywhere)
        if found is None:
            return None
        self._name, self.kept = found.name, True
        return found.sock

    def keep(self, sock: socket.socket) -> None:
        """Pass a new socket to the service manager, if there is one."""
        self.kept = self._descriptors.store(self._name, sock)

    def forget(self) -> None:
        """Remove the socket from the service manager, because the listener is gone."""
        if self.kept:
            self._descriptors.remove(self._name)
            self.kept = False

    def make_way(self) -> bool:
        """Close the sockets without a listener, one of which may use the wanted address. Return whether a retry is
        useful."""
        return self._descriptors.close_rest()


NOWHERE = Descriptors(Notifier()).slot("")
"""The slot of a socket that is closed with its process."""


def _adopted(fd: int, name: str) -> list[Handed]:
    """Return a passed descriptor as a socket. Close a descriptor that is not a socket."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError as error:
        logger.warning("descriptor %d (%s) from the service manager: %s", fd, name, error)
        with suppress(OSError):
            os.close(fd)
        return []
    sock.set_inheritable(False)
    sock.settimeout(0)
    return [Handed(name, sock)]
