"""Provide a clock that stands still, spools that are closed at the end, and a disk that fails when told to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.config.schema import SpoolConfig
from tailrace.spool.spool import Spool
from tailrace.units import Size


class StoppedClock:
    """A clock that shows `now_ns` until it is set, or time passes."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000
        self._passed_ns = 0

    def passes(self, nanoseconds: int) -> None:
        self.now_ns += nanoseconds
        self._passed_ns += nanoseconds

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self._passed_ns / 1e9


class FailingDisk:
    """Lets a number of changes of the disk pass.

    Then one of them fails, or all do. It takes the place of the kernel: it replaces the functions of `os` with which
    the spool changes files.
    """

    WRITES = ("pwritev", "posix_fallocate", "rename", "replace", "unlink", "ftruncate")
    SYNCS = ("fsync", "fdatasync")

    def __init__(self) -> None:
        self.calls = 0

    @contextlib.contextmanager
    def failing(
        self, names: tuple[str, ...], error: BaseException, *, after: int, times: int = 1
    ) -> Iterator[None]:
        """After `after` calls, let `times` calls of the given functions raise `error`."""
        self.calls = 0
        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                patch.setattr(os, name, self._wrapped(getattr(os, name), error, after, times))
            yield

    def _wrapped(
        self, call: Callable[..., object], error: BaseException, after: int, times: int
    ) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            self.calls += 1
            if after < self.calls <= after + times:
                raise error
            return call(*args, **kwargs)

        return wrapped


def kill(spool: Spool) -> None:
    """Close the files as the end of the process would, without any clean-up."""
    spool._closed = False  # An earlier close may have been interrupted.
    spool.close(failed=True)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def open_spool(tmp_path: Path, clock: StoppedClock) -> Iterator[Callable[..., Spool]]:
    """Open the spool of this test, by default with small segments; also again after a `close`."""
    with contextlib.ExitStack() as stack:

        def opened(**config: int) -> Spool:
            sizes = {"segment_size": 4096, "max_size": 2**20} | config
            config_ = SpoolConfig(**{key: Size(value) for key, value in sizes.items()})
            spool = Spool.open(tmp_path / "spool", config_, clock)
            stack.callback(spool.close)
            return spool

        yield opened
