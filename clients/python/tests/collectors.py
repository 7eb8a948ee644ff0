"""Ends of a connection for tests: what a client sends comes out here as bytes."""

from __future__ import annotations

import socket
import threading
import time


def until(condition, seconds=20.0):
    """Wait for a condition; fail when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class UdpCollector:
    def __init__(self, port=0):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        self.socket.bind(("127.0.0.1", port))
        self.socket.settimeout(20)
        self.address = f"udp://127.0.0.1:{self.socket.getsockname()[1]}"

    def receive(self):
        """The next datagram."""
        return self.socket.recv(65536)

    def waiting(self):
        """All datagrams that are there now."""
        datagrams = []
        self.socket.settimeout(0)
        try:
            while True:
                datagrams.append(self.socket.recv(65536))
        except BlockingIOError:
            return datagrams
        finally:
            self.socket.settimeout(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class TcpCollector:
    """Accepts one connection after the other; `sessions` has the bytes of each."""

    def __init__(self, port=0, receive_buffer=None):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.sessions = []
        self.reading = threading.Event()
        self.reading.set()
        self.connection = None
        self.ended = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                self.connection, _ = self.listener.accept()
            except OSError:
                return
            received = bytearray()
            self.sessions.append(received)
            with self.connection:
                while self.reading.wait():
                    try:
                        data = self.connection.recv(65536)
                    except OSError:
                        break
                    if not data:
                        break
                    received += data
            self.ended += 1

    def hang_up(self):
        """Close the connection that is open, in order."""
        self.connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reading.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if self.connection and self.connection.fileno() >= 0:
            self.hang_up()
        self.thread.join(20)
        assert not self.thread.is_alive()
