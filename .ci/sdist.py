"""Build a source distribution that is the same wherever it is built, byte for byte.

    SOURCE_DATE_EPOCH=1700000000 python .ci/sdist.py PROJECT DIRECTORY

An archive of setuptools tells of the machine: who built it, under which umask, and when each file was checked
out. Here all members have the time of the variable, and one owner.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path

from setuptools import build_meta


def build(project: Path, directory: Path) -> Path:
    """Build the source distribution of a project into a directory, and return its path."""
    os.chdir(project)
    archive = directory / build_meta.build_sdist(str(directory))
    archive.write_bytes(neutral(archive.read_bytes(), int(os.environ["SOURCE_DATE_EPOCH"])))
    return archive


def neutral(archive: bytes, time: int) -> bytes:
    """Return a packed archive with the same files, of which all have one time and one owner."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=time) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            made = tarfile.TarInfo(member.name)
            made.type, made.size, made.mtime = member.type, member.size, time
            made.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(made, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
