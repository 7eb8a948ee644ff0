"""A program that takes over copies of an older store and dies in each one change of a file later.

    LD_PRELOAD=kill_at.so dying_upgrade.py STORE DIRECTORY

Copies STORE to DIRECTORY/1, DIRECTORY/2, … and lets a child open a daemon on copy n, killed in its nth
change of a file; until one survives, whose number it prints. It is of the version `tests.upgrade.later`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tests.upgrade import later


def main() -> None:
    store, directory = Path(sys.argv[1]), Path(sys.argv[2])
    later.register()
    kill_at = ctypes.CDLL(None).kill_at
    number = 0
    while True:
        number += 1
        copy = directory / str(number)
        shutil.copytree(store, copy)
        child = os.fork()
        if not child:
            kill_at(number, os.fsencode(copy))
            small = {"TAILRACE_SPOOL_SEGMENT_SIZE": "1 MiB"}
            loaded = load(None, environ=small, flags={"store": str(copy)}, formats=transports)
            with collecting(loaded, SystemClock()):
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            sys.stdout.write(f"{number}\n")
            return


if __name__ == "__main__":
    main()
