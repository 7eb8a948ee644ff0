"""Take the place of systemd: start a collector as systemd would, receive its messages, and keep its sockets while no
process runs.

It does what sd_notify(3) and sd_listen_fds(3) define, and no more. The unit under a real systemd is tested in
tests/deploy.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from tests.system.collector import Collector, until


class Manager:
    """One service. `messages` are its messages, each as a dict of variables."""

    def __init__(self, directory, *, watchdog_seconds=None, abstract=False, **options):
        self.messages = []
        self._store = {}
        self._asked = self._heard = 0
        path = str(directory / "notify.sock")
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind("\0" + path if abstract else path)
        self._mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mark.connect(self._sock.getsockname())
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        environ = {"NOTIFY_SOCKET": "@" + path if abstract else path}
        if watchdog_seconds:
            environ["WATCHDOG_USEC"] = str(round(watchdog_seconds * 1e6))
        self._variables = environ
        self.collector = Collector(directory, environ=dict(environ), **options)

    @property
    def store(self):
        """The sockets that are kept, by name."""
        self._catch_up()
        return self._store

    @store.setter
    def store(self, kept):
        self._store = kept

    def start(self, *, heard=True):
        """Start the service with the sockets that are kept for it.

        Return once it is ready. With `heard`, do not wait for its own message about this.
        """
        kept = [(name, sock) for name, socks in self.store.items() for sock in socks]
        names, socks = [name for name, _ in kept], [sock for _, sock in kept]
        self.collector.handed = tuple(sock.fileno() for sock in socks)
        self.collector.environ = self._variables | {
            "LISTEN_FDS": str(len(socks)),
            "LISTEN_FDNAMES": ":".join(names),
        }
        self.messages.clear()
        self.collector.start()
        if heard:
            until(lambda: self.said("READY"), "the service to say that it is ready")
        return self.collector

    def end(self):
        self.collector.end()
        for socks in self._store.values():
            for sock in socks:
                sock.close()
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()
        self._mark.close()

    def said(self, variable):
        """Return the values of a variable in all messages, in order."""
        self._catch_up()
        return [message[variable] for message in list(self.messages) if variable in message]

    def alive(self):
        """Return the number of watchdog signals that have arrived."""
        return len(self.said("WATCHDOG"))

    def wait_alive(self):
        """Wait until another watchdog signal arrives."""
        before = self.alive()
        until(lambda: self.alive() > before, "a sign of life")

    def signs_of_life_within(self, seconds):
        """Return how many watchdog signals arrive in this time. Signals that were already on their way do not count."""
        time.sleep(0.5)
        before = self.alive()
        time.sleep(seconds)
        return self.alive() - before

    def _catch_up(self):
        """Return once all messages of the service were read."""
        self._asked += 1
        self._mark.send(b"ASKED=%d" % self._asked)
        until(lambda: self._heard >= self._asked, "what the service said to be heard")

    def _listen(self):
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._sock, 65536, 16)
            if not data:
                return
            message = dict(line.split("=", 1) for line in data.decode().splitlines())
            if "ASKED" in message:
                self._heard = int(message["ASKED"])
                continue
            name = message.get("FDNAME", "stored")
            if "FDSTOREREMOVE" in message:
                for sock in self._store.pop(name, []):
                    sock.close()
            for fd in descriptors:
                if "FDSTORE" in message:
                    self._store.setdefault(name, []).append(socket.socket(fileno=fd))
                else:  # The message is BARRIER=1.
                    os.close(fd)
            self.messages.append(message)


def threads(pid):
    """Return the ids of a process's threads, with the main thread first.

    The ids of other threads may be lower: the kernel begins again at 300 once it has used the largest id.
    """
    others = {int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()} - {pid}
    return [pid, *sorted(others)]
