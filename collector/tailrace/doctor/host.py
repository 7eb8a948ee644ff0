"""The host as the checks see it: the kernel's files, the environment, the clock and the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.config.load import collector_path, spool_path, store_path
from tailrace.config.schema import Config
from tailrace.store.running import RunningCollector, find


class Host(NamedTuple):
    """One host and one configuration. `root` is the parent of /proc and /run."""

    config: Config
    environ: Mapping[str, str]
    clock: Clock
    root: Path = Path("/")
    daemon: RunningCollector | None = None

    @property
    def store(self) -> Path | None:
        """Return the store's directory, or None if it is not on this machine."""
        path = store_path(self.config, self.environ)
        return None if "://" in path else Path(path).absolute()

    @property
    def spool(self) -> Path:
        return Path(spool_path(self.config, self.environ)).absolute()

    @property
    def directories(self) -> dict[str, Path]:
        """Return the directories that are written to, by their use."""
        spool = {"spool": self.spool}
        return spool if self.store is None else {"store": self.store, **spool}

    def text(self, path: str) -> str | None:
        """Return the text of a file below the root, or None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if text.isdecimal() else None

    def with_daemon(self) -> Host:
        """Return the same host with the daemon of the configuration's name that runs on its store, if any."""
        own = collector_path(self.config, self.environ).absolute()
        found = find(own, [own, self.spool], self.root, self.config.collector.name)
        return self._replace(daemon=found)


def nearest(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(part for part in (path, *path.parents) if exists(part))


def exists(path: Path) -> bool:
    """Return whether the path exists and this user can see it."""
    try:
        return path.exists()
    except OSError:  # a parent directory cannot be entered
        return False
