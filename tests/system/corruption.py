"""Damage one file at random, as disks, copies and people damage the files of a store."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile


def _truncated(path, chance, _others):
    size = path.stat().st_size
    os.truncate(path, chance.randrange(size) if size else 0)


def _flipped(path, chance, _others):
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data.rstrip(b"\0")) or 1)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _zeroed(path, chance, _others):
    data = bytearray(path.read_bytes())
    if data:
        at = chance.randrange(len(data.rstrip(b"\0")) or 1)
        size = min(chance.choice([16, 512, 4096]), len(data) - at)
        data[at : at + size] = bytes(size)
    path.write_bytes(data)


def _all_zeros(path, _chance, _others):
    path.write_bytes(bytes(path.stat().st_size))


def _emptied(path, _chance, _others):
    path.write_bytes(b"")


def _garbage(path, chance, _others):
    path.write_bytes(chance.randbytes(max(path.stat().st_size, 64)))


def _longer(path, chance, _others):
    with path.open("ab") as file:
        file.write(chance.randbytes(100))


def _deleted(path, _chance, _others):
    path.unlink()


def _directory(path, _chance, _others):
    path.unlink()
    path.mkdir()


def _link_to_nothing(path, _chance, _others):
    path.unlink()
    path.symlink_to("/nonexistent/file")


def _unreadable(path, _chance, _others):
    """Replace the file by a socket, which nobody can open.

    File modes would not keep root out, as which tests may run.
    """
    path.unlink()
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{short}/s")  # The address of a unix socket has at most 107 characters.
        shutil.move(f"{short}/s", path)


def _another(path, chance, others):
    """Replace the content by that of another file of its kind, or by a part of its own."""
    if others:
        shutil.copyfile(chance.choice(others), path)
    else:
        _truncated(path, chance, others)


FORMS = {
    form.__name__[1:]: form
    for form in (
        _flipped, _truncated, _deleted, _zeroed, _directory, _emptied, _garbage, _link_to_nothing,
        _another, _all_zeros, _unreadable, _longer,
    )
}  # fmt: skip
"""Forms of damage by name. Each is a function of a file, a random generator, and the other files of the kind."""
