"""Lay out stores that a collector has left, as if their disk were here."""

from __future__ import annotations

import os
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tailrace.sources.tail.identity import birth
from tailrace.spool.checkpoint import Checkpoints
from tests.upgrade import later

VECTORS = Path(__file__).parent.parent / "vectors" / "upgrade"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in VECTORS.glob("*.tar.xz"))


class Stored(NamedTuple):
    """`files` contains the files that the sources follow.

    `peer` is a socket at the address from which the datagrams came. `died` states whether the collector was killed.
    """

    store: Path
    files: Path
    peer: socket.socket
    died: bool


def unpack(name: str, directory: Path) -> Stored:
    """Lay out a store that a released version has left."""
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return _settled(directory, died=name.endswith("killed"))


def laid_out(made: Path, directory: Path) -> Stored:
    """Lay out a copy of a store that `make.leave` made in `made`, in the shape from before `later`."""
    passed_over = shutil.ignore_patterns("ports.json", "lock")
    shutil.copytree(made, directory, ignore=passed_over, dirs_exist_ok=True)
    return _settled(directory, later.before, died=(made / "killed").exists())


def _settled(
    directory: Path, change: Callable[[dict[str, Any]], None] = lambda _: None, *, died: bool
) -> Stored:
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    checkpoints = Checkpoints(directory / "store" / "spool")
    newest = checkpoints.newest(2**64 - 1)
    assert newest is not None
    state = msgspec.msgpack.decode(newest.state, strict=False)
    stored = Stored(directory / "store", directory / "files", peer, died)
    for session in state["sessions"].values():
        _settle_in(session, stored)
    change(state)
    checkpoints.save(newest.position, msgspec.msgpack.encode(state))
    return stored


def _settle_in(session, stored: Stored) -> None:
    """Adapt the store to this machine: a file has the inode that it has here, and a peer its address here."""
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
