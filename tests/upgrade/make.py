"""Leave a store as a version leaves it, stopped in order or killed in its work; as an archive, or for a test.

    PYTHONPATH=OTHER/collector:THIS python -m tests.upgrade.make OUT.tar.xz stopped|killed

OTHER is a clone at the commit of that version, THIS the one with this file. The archive holds:
`store/` as the daemon left it, `files/` what its tail sources followed. Killed means: with a saved
state, rows committed after it, and entries in the spool that no commit has.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.upgrade import feeding

CONFIG = """
[admin]
listen = "127.0.0.1:0"
[store]
commit_interval = "1500 ms"
[spool]
segment_size = "1 MiB"
checkpoint_interval = "1 h"
checkpoint_bytes = "{checkpoint}"
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"
[sources.tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
[sources.jets]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
"""

CLIENTS = """
[sources.clients]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"
"""

TAILS = """
[sources.simulator]
type = "tail"
format = "jets"
paths = ["{files}/run.jets"]
poll_interval = "10 ms"
idle_interval = "100 ms"
[sources.io]
type = "tail"
format = "dftracer"
paths = ["{files}/trace.pfw.gz"]
poll_interval = "10 ms"
idle_interval = "100 ms"
[sources.hpc]
type = "tail"
format = "ovni"
paths = ["{files}/ovni"]
poll_interval = "10 ms"
idle_interval = "100 ms"
"""

FILES = {
    "run.jets": feeding.jets,
    "trace.pfw.gz": feeding.dftracer,
    "ovni/loom.a/proc.1/thread.1/stream.obs": feeding.ovni,
}

DOCUMENTS = {"ovni/loom.a/proc.1/thread.1/stream.json": feeding.OVNI_DOCUMENT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("how", choices=["stopped", "killed"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        leave(directory, killed=arguments.how == "killed")
        with tarfile.open(arguments.out, "w:xz") as archive:
            for name in ("store", "files"):
                archive.add(directory / name, name, filter=_anonymous)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(info.name).name in {"ports.json", "lock"}:
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def leave(directory: Path, *, killed: bool) -> None:
    """Run the version in PYTHONPATH on `directory/store`, and leave the store in the requested state.

    A file `killed` shows that the daemon was killed.
    """
    store, files = directory / "store", directory / "files"
    # The data before the kill leads to a saved state, and the data after that to no other one.
    config = CONFIG.format(checkpoint="24 KiB" if killed else "1 GiB")
    for name, data in DOCUMENTS.items():
        _append(files / name, data)
    for name, parts in FILES.items():
        _append(files / name, b"".join(parts().before))
    config += TAILS.format(files=files) + CLIENTS
    (directory / "tailrace.toml").write_text(config)
    serve = ["-m", "tailrace", "serve", "--config", directory / "tailrace.toml", "--store", store]
    with subprocess.Popen([sys.executable, *serve]) as daemon, ExitStack() as sockets:
        try:
            _feed(daemon, directory, sockets, killed=killed)
        finally:
            daemon.kill()


def _feed(
    daemon: subprocess.Popen[bytes], directory: Path, stack: ExitStack, *, killed: bool
) -> None:
    store, files = directory / "store", directory / "files"
    _until((store / "ports.json").exists)
    ports = json.loads((store / "ports.json").read_text())
    sockets = [stack.enter_context(sock) for sock in _connect(ports["sources"])]
    _send(sockets, [p.before for p in NETWORK.values()])
    _send_and_leave(ports["sources"]["clients"], feeding.announced().before)
    _until(lambda: _committed(ports))
    if killed:
        _until(lambda: list((store / "spool").glob("*.checkpoint")))
    _send(sockets, [p.after[: len(p.after) // 2] for p in NETWORK.values()])
    _until(lambda: _committed(ports))
    _send(sockets, [p.after[len(p.after) // 2 :] for p in NETWORK.values()])
    for name, parts in FILES.items():
        _append(files / name, b"".join(parts().after))
    # This time suffices for a sync and not for a commit. The unread part of the files is read later.
    time.sleep(0.5)
    if killed:
        daemon.kill()
        (directory / "killed").touch()
    else:
        _until(lambda: _committed(ports))
        daemon.terminate()
    daemon.wait(60)


NETWORK = {"udp": feeding.udp(), "tcp": feeding.tcp(), "jets": feeding.jets()}


def _connect(addresses: dict[str, str]) -> list[socket.socket]:
    kinds = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM, "jets": socket.SOCK_STREAM}
    sockets = []
    for name, kind in kinds.items():
        host, _, port = addresses[name].rpartition(":")
        sock = socket.socket(socket.AF_INET, kind)
        sock.connect((host, int(port)))
        sockets.append(sock)
    return sockets


def _send(sockets: list[socket.socket], parts: list[list[bytes]]) -> None:
    for sock, pieces in zip(sockets, parts, strict=True):
        for piece in pieces:
            sock.sendall(piece)


def _send_and_leave(address: str, pieces: list[bytes]) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"".join(pieces))


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def _committed(ports: dict[str, str]) -> bool:
    time.sleep(0.3)
    with urllib.request.urlopen(f"http://{ports['admin']}/status") as answer:
        spool = json.loads(answer.read())["spool"]
    return bool(spool["end"] == spool["durable"] == spool["committed"])


def _until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited too long")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
