"""The stored fixtures, laid out as if their disk were here."""

from __future__ import annotations

import os
import socket
import tarfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from tailrace.sources.tail.identity import birth
from tailrace.spool.checkpoint import Checkpoints

VECTORS = Path(__file__).parent.parent / "vectors" / "upgrade"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in VECTORS.glob("*.tar.xz"))


class Stored(NamedTuple):
    """`files` has what the tail sources follow, if that version had any; `peer` is a socket at the
    address from which the datagrams came; `knows_clients` is whether that version knew of sessions
    that their clients announce; `died` whether it was killed."""

    store: Path
    files: Path
    peer: socket.socket
    knows_clients: bool
    died: bool


def unpack(name: str, directory: Path) -> Stored:
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    checkpoints = Checkpoints(directory / "store" / "spool")
    newest = checkpoints.newest(2**64 - 1)
    assert newest is not None
    state = msgspec.msgpack.decode(newest.state, strict=False)
    stored = Stored(
        directory / "store",
        directory / "files",
        peer,
        "announced" in state,
        name.endswith("killed"),
    )
    for session in state["sessions"].values():
        _settle_in(session, stored)
    checkpoints.save(newest.position, msgspec.msgpack.encode(state))
    return stored


def _settle_in(session, stored: Stored) -> None:
    """A file has the inode that it has here, a peer its address."""
    info = session["info"]
    if info["transport"] == "udp":
        info["peer"] = "{}:{}".format(*stored.peer.getsockname())
    if info["transport"] != "tail":
        return
    before = info["file"]["path"].partition("/files/")[0] + "/files"
    info["group"] = info["group"].replace(before, str(stored.files))
    for facts in (info["file"], session["file"]["facts"]):
        facts["path"] = facts["path"].replace(before, str(stored.files))
        fd = os.open(facts["path"], os.O_RDONLY)
        status = os.fstat(fd)
        facts |= {"device": status.st_dev, "inode": status.st_ino, "birth": birth(fd)}
        os.close(fd)
