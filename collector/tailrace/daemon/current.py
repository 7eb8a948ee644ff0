"""The configuration that runs, and the outcome of attempts to reload it.

All holders of a `Current` see the next configuration as soon as a reload puts it there."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.clock import Clock
from tailrace.config.load import Loaded
from tailrace.config.schema import Config
from tailrace.figures import ConfigStatus, Reload


class Current:
    def __init__(self, loaded: Loaded, clock: Clock) -> None:
        self._clock = clock
        self._reloads = {"done": 0, "failed": 0}
        self._last: Reload | None = None
        self.put(loaded)

    @property
    def config(self) -> Config:
        return self.loaded.config

    def put(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._since = self._now()

    def tried(self, problems: Sequence[str]) -> None:
        """Note that a reload ended; without problems it succeeded."""
        self._reloads["failed" if problems else "done"] += 1
        self._last = Reload(
            timestamp_seconds=self._now(), good=not problems, problems=list(problems)
        )

    def status(self) -> ConfigStatus:
        return ConfigStatus(
            path=str(self.loaded.path) if self.loaded.path else None,
            sha256=self.loaded.sha256,
            loaded_timestamp_seconds=self._since,
            reload_success=int(self._last is None or self._last.good),
            reloads=self._reloads,
            last_reload=self._last,
        )

    def _now(self) -> float:
        return self._clock.wall_ns() / 10**9
