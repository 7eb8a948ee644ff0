"""A small file system in a file, whose power can be cut.

`cut` is FS_IOC_SHUTDOWN without flushing the journal: from then on nothing reaches the disk, every
write fails, and what was not synced is gone after `mount`, as after a power failure (ext4 and XFS
have it; Linux, ioctl_fs and `fs/ext4/ioctl.c`). A lying disk cache it does not show.

Needs root, a loop device and `mkfs.ext4`; `why_not` says what is missing. Load it through the
fixture `loopfs`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Self

SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def why_not() -> str | None:
    """Return why such a file system is not possible here, and what to do about it; None if it is possible."""
    if os.geteuid() != 0:
        return "mounting needs root: run `sudo make test-slow`, or pytest tests/faults as root"
    for program, package in (("mkfs.ext4", "e2fsprogs"), ("mount", "mount"), ("losetup", "mount")):
        if not shutil.which(program):
            return f"there is no {program}: run `apt-get install {package}`"
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode:
        return "there is no loop device: run `modprobe loop`, or the container with --privileged"
    return None


class LoopFs:
    """An ext4 file system in `directory`/image. It is mounted at `path` within the `with` block."""

    def __init__(self, directory: Path, *, mebibytes: int = 128) -> None:
        self.path = directory / "mounted"
        self._image = directory / "image"
        self._mebibytes = mebibytes
        self._mounted = False

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._mebibytes * 2**20)
        _run("mkfs.ext4", "-q", "-F", self._image)
        self.mount()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._mounted:
            self.unmount()
        self._image.unlink()

    def mount(self) -> None:
        """Mount the image.

        A mount namespace that another test has made meanwhile has a copy of the last mount. It keeps the file system
        alive whose power was cut: wait until it is gone.
        """
        deadline = time.monotonic() + 60
        while True:
            _run("mount", "-o", "loop", self._image, self.path)
            self._mounted = True
            if self._has_power() or time.monotonic() > deadline:
                return
            self.unmount()
            time.sleep(0.2)

    def _has_power(self) -> bool:
        probe = self.path / "probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError:
            return False
        return True

    def unmount(self) -> None:
        """Wait until no process has a file open in it. An upkeep may run for a moment longer than its killed daemon."""
        deadline = time.monotonic() + 60
        while True:
            try:
                _run("umount", self.path)
            except OSError as error:
                if "busy" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                break
        self._mounted = False

    def cut(self) -> None:
        """Cut the power: data that is not on disk by now never will be."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
