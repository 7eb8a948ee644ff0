"""Keep listening sockets open across a restart of the process, so that arriving data waits in them.

The service manager creates the sockets (socket units), or keeps sockets that an earlier process passed to it
(descriptor store). It passes them to the next process of the service (sd_listen_fds(3)).

A listener finds its socket by the socket's address. If the operating system chose the port, the listener does not know
the address, and finds its socket by the name under which the service manager keeps it.
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
    """The sockets that the service manager passed to this process.

    `handed` contains those that no listener has taken yet.
    """

    def __init__(self, notifier: Notifier, handed: list[Handed] | None = None) -> None:
        self._notifier = notifier
        self._handed = handed or []
        self._taken: set[str] = set()

    @classmethod
    def from_environment(cls, notifier: Notifier, environ: MutableMapping[str, str]) -> Self:
        """Return the sockets that the service manager passed to this process.

        Remove the environment variables that announce these sockets.
        """
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
        """Return the slot for the socket of one listener. The service manager keeps the slot's socket open under `name`
        (ASCII text without colons).

        With `anywhere`, the slot also accepts a socket with another name, if it has the wanted address.
        """
        if len(name) > NAME_MAX:
            name = blake2s(name.encode(), digest_size=16).hexdigest()
        return Slot(self, name, anywhere=anywhere)

    def close(self) -> None:
        """Close this process's copies of the sockets that no listener has taken.

        The service manager keeps its own copies.
        """
        for _, sock in self._handed:
            sock.close()
        self._handed.clear()

    def take(
        self, name: str, fits: Callable[[socket.socket], bool], *, anywhere: bool
    ) -> Handed | None:
        """Return a socket that no listener has taken and for which `fits` returns true, and remove it from the list.

        Return None if there is none.
        """
        found = next(
            (h for h in self._handed if (anywhere or h.name == name) and fits(h.sock)), None
        )
        if found is not None:
            logger.info("uses the socket %s that the service manager kept", found.name)
            self._handed.remove(found)
            self._taken.add(found.name)
        return found

    def close_rest(self) -> bool:
        """Close all sockets that no listener has taken, in this process and in the service manager.

        Return whether there were any such sockets.
        """
        names = {handed.name for handed in self._handed}
        for name in sorted(names):
            self._refuse(name)
        return bool(names)

    def store(self, name: str, sock: socket.socket) -> bool:
        """Pass a socket to the service manager to keep it under a name, in place of any earlier socket with this name.

        Return whether the message was sent.
        """
        self._refuse(name)
        return self._notifier.store(name, sock)

    def remove(self, name: str) -> None:
        self._notifier.remove(name)

    def _refuse(self, name: str) -> None:
        """Close the sockets with this name that no listener has taken, in this process and in the service manager."""
        refused = [handed for handed in self._handed if handed.name == name]
        for handed in refused:
            logger.info("closes the socket %s of the service manager: no listener wants it", name)
            handed.sock.close()
            self._handed.remove(handed)
        # A listener may use another socket with this name, because a socket unit and the descriptor store can each have
        # one. Then keep the name in the service manager.
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
        """Return the socket that the service manager kept for this listener.

        Return None if it kept none for which `fits` returns true.
        """
        found = self._descriptors.take(self._name, fits, anywhere=self._anywhere)
        if found is None:
            return None
        self._name, self.kept = found.name, True
        return found.sock

    def keep(self, sock: socket.socket) -> None:
        """Pass a new socket to the service manager, if one runs this process, so that the socket survives a restart."""
        self.kept = self._descriptors.store(self._name, sock)

    def forget(self) -> None:
        """Let the service manager close the socket, because its listener no longer exists."""
        if self.kept:
            self._descriptors.remove(self._name)
            self.kept = False

    def make_way(self) -> bool:
        """Close all kept sockets that no listener has taken, because one of them may occupy the address that a listener
        wants.

        Return whether any were closed, so that it is useful to bind the address again.
        """
        return self._descriptors.close_rest()


NOWHERE = Descriptors(Notifier()).slot("")
"""The slot for a socket that no service manager keeps open, so that the socket is closed when the process ends."""


def _adopted(fd: int, name: str) -> list[Handed]:
    """Return a descriptor from the service manager as a socket, in a list.

    If it is no socket, close it and return an empty list.
    """
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
