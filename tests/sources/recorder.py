"""Take the place of the intake, and keep what a network source passes on."""

from __future__ import annotations

from contextlib import nullcontext

import trio

from tailrace.spool.entry import Datagrams, EntryKind


class Recorder:
    """Keeps `chunks` and `closed` by session. Session numbers begin at 1."""

    def __init__(self):
        self.opened = {}
        self.chunks = {}
        self.closed = {}
        self.losses = []
        self.full = False

    def open(self, transport, peer, *, record_max, garbage_max=0):
        number = len(self.opened) + 1
        self.opened[number] = (transport, peer)
        self.chunks[number] = []
        return number

    def append(self, kind, number, payload):
        datagrams = kind is EntryKind.DATAGRAMS
        self.chunks[number] += Datagrams(payload) if datagrams else [payload]

    def now(self):
        return 0

    def at(self, wall):
        return wall

    def moment(self):
        return nullcontext()

    def drops(self, count, since, socket, total):
        pass

    def drops_before(self, socket):
        return 0, 0

    def loss(self, number, loss):
        self.losses.append((number, loss))

    def close(self, number, reason):
        self.closed[number] = reason

    def sessions(self):
        return {}

    async def room(self):
        await until(lambda: not self.full)

    def received(self, number=1):
        return b"".join(self.chunks.get(number, []))


async def until(condition):
    with trio.fail_after(30):
        await trio.lowlevel.checkpoint()
        while not condition():  # noqa: ASYNC110 - of anything
            await trio.sleep(0.005)
