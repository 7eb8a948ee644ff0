"""Listening sockets that outlive the process. The service manager keeps them (its descriptor store) or
makes them (socket units), and hands them to the next process of the service (sd_listen_fds(3)).

Bytes that arrive while no service runs wait in these sockets. A socket is identified by its address,
whatever its name. Only a socket whose address the system chose is identified by the name under which it
was stored.
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
"""The first descriptor that a service receives. The others follow."""

NAME_MAX = 255

logger = logging.getLogger(__name__)


class Handed(NamedTuple):
    name: str
    sock: socket.socket


class Descriptors:
    """The sockets that the manager handed over. `handed` are those that nobody has taken yet."""

    def __init__(self, notifier: Notifier, handed: list[Handed] | None = None) -> None:
        self._notifier = notifier
        self._handed = handed or []
        self._taken: set[str] = set()

    @classmethod
    def from_environment(cls, notifier: Notifier, environ: MutableMapping[str, str]) -> Self:
        """Return the sockets handed to this process, and remove the manager's variables."""
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
        """Return the slot of a listener's socket. The name is ASCII without colons. With `anywhere`, a
        socket of another name will do if it fits."""
        if len(name) > NAME_MAX:
            name = blake2s(name.encode(), digest_size=16).hexdigest()
        return Slot(self, name, anywhere=anywhere)

    def close(self) -> None:
        """Close the sockets that nobody has taken. The manager keeps its copies."""
        for _, sock in self._handed:
            sock.close()
        self._handed.clear()

    def take(
        self, name: str, fits: Callable[[socket.socket], bool], *, anywhere: bool
    ) -> Handed | None:
        """Return a handed socket that fits, or None."""
        found = next(
            (h for h in self._handed if (anywhere or h.name == name) and fits(h.sock)), None
        )
        if found is not None:
            logger.info("uses the socket %s that the service manager kept", found.name)
            self._handed.remove(found)
            self._taken.add(found.name)
        return found

    def close_rest(self) -> bool:
        """Close every untaken socket, here and in the manager. Return whether there was any."""
        names = {handed.name for handed in self._handed}
        for name in sorted(names):
            self._refuse(name)
        return bool(names)

    def store(self, name: str, sock: socket.socket) -> bool:
        """Hand a socket to the manager, in place of the one it had by this name. Return whether the
        message was sent."""
        self._refuse(name)
        return self._notifier.store(name, sock)

    def remove(self, name: str) -> None:
        self._notifier.remove(name)

    def _refuse(self, name: str) -> None:
        """Close the sockets of this name that were handed over and not taken."""
        refused = [handed for handed in self._handed if handed.name == name]
        for handed in refused:
            logger.info("closes the socket %s of the service manager: no listener wants it", name)
            handed.sock.close()
            self._handed.remove(handed)
        # The same name may come from a socket unit and from the store.
        if refused and name not in self._taken:
            self._notifier.remove(name)


class Slot:
    """The place where the manager keeps one listener's socket while no process has it."""

    def __init__(self, descriptors: Descriptors, name: str, *, anywhere: bool) -> None:
        self.kept = False
        """Whether the manager has the socket."""
        self._descriptors = descriptors
        self._name = name
        self._anywhere = anywhere

    def take(self, fits: Callable[[socket.socket], bool]) -> socket.socket | None:
        """Return the kept socket if there is one and it fits."""
        found = self._descriptors.take(self._name, fits, anywhere=self._anywhere)
        if found is None:
            return None
        self._name, self.kept = found.name, True
        return found.sock

    def keep(self, sock: socket.socket) -> None:
        """Hand a new socket to the manager, if there is a manager."""
        self.kept = self._descriptors.store(self._name, sock)

    def forget(self) -> None:
        """Remove the socket from the manager, since nobody will listen there any more."""
        if self.kept:
            self._descriptors.remove(self._name)
            self.kept = False

    def make_way(self) -> bool:
        """Close the sockets that nobody has taken, because one of them may hold the wanted address.
        Return whether it is worth another try."""
        return self._descriptors.close_rest()


NOWHERE = Descriptors(Notifier()).slot("")
"""The slot of a socket that ends with its process."""


def _adopted(fd: int, name: str) -> list[Handed]:
    """Return a descriptor that was handed to us as a socket, or close it if it is not a socket."""
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
