"""The host as the checks see it: the kernel's files, the environment, the clock and the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.config.load import spool_path, store_path
from tailrace.config.schema import Config
from tailrace.store.running import RunningCollector, find


class Host(NamedTuple):
    """`root` is where /proc and /run are looked for; all else is where it is."""

    config: Config
    environ: Mapping[str, str]
    clock: Clock
    root: Path = Path("/")
    daemon: RunningCollector | None = None

    @property
    def store(self) -> Path | None:
        """The store's directory; None if it is not on this machine."""
        path = store_path(self.config, self.environ)
        return None if "://" in path else Path(path).absolute()

    @property
    def spool(self) -> Path:
        return Path(spool_path(self.config, self.environ)).absolute()

    @property
    def directories(self) -> dict[str, Path]:
        """The directories that are written to, by what they are for."""
        spool = {"spool": self.spool}
        return spool if self.store is None else {"store": self.store, **spool}

    def text(self, path: str) -> str | None:
        """A file below the root; None where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if text.isdecimal() else None

    def with_daemon(self) -> Host:
        """The same, knowing the daemon that runs on its store, if one does."""
        found = find(self.store or self.spool, self.directories.values(), self.root)
        return self._replace(daemon=found)


def nearest(path: Path) -> Path:
    """The path, or what exists of the way to it: where its missing directories would be made."""
    return next(part for part in (path, *path.parents) if exists(part))


def exists(path: Path) -> bool:
    """Whether there is something that this user can see."""
    try:
        return path.exists()
    except OSError:  # a directory on the way may not be entered
        return False
