"""The frames that are open on each thread of an ET3 trace, and the numbers they get."""

from __future__ import annotations

import msgspec

DEPTH_MAX = 4096
"""Frames of one thread that are remembered; Java's default stack holds a few times as many."""

THREADS_MAX = 512
"""Threads whose frames are remembered."""

Frame = tuple[str, int, bool]
"""Of an open frame: its method, its number, and whether its begin was written without a name."""


class Stacks(msgspec.Struct):
    """Frames by thread, the innermost last. Numbers count all frames from 1 in order of begins.

    What is beyond the bounds is given up, the oldest first. `whole` says that nothing was: only
    then does an exit without its entry say anything.
    """

    frames: dict[str, list[Frame]] = {}
    number: int = 0
    whole: bool = True

    def of(self, thread: str) -> list[Frame]:
        """The frames of a thread, which may be new. They stay the same list."""
        frames = self.frames.get(thread)
        if frames is None:
            if len(self.frames) >= THREADS_MAX:
                del self.frames[next(iter(self.frames))]
                self.whole = False
            frames = self.frames[thread] = []
        return frames

    def shorten(self, frames: list[Frame]) -> None:
        """Give up the older half of a stack that is too deep."""
        del frames[: len(frames) // 2]
        self.whole = False

    def clear(self) -> None:
        self.frames.clear()
        self.number, self.whole = 0, True

    def in_hexadecimal(self) -> None:
        """What was read as decimal is hexadecimal: threads and methods are called otherwise."""
        again = {
            _again(thread): [
                (_again(method), number, nameless) for method, number, nameless in frames
            ]
            for thread, frames in self.frames.items()
        }
        self.frames.clear()
        self.frames.update(again)


def leave(frames: list[Frame], method: str) -> Frame | None:
    """Take the innermost frame of a method off a stack, and those above it: they ended by an
    exception, of which there is no line, or theirs is missing. None if no frame is this method's."""
    if frames and frames[-1][0] == method:
        return frames.pop()
    for at in range(len(frames) - 2, -1, -1):
        if frames[at][0] == method:
            frame = frames[at]
            del frames[at:]
            return frame
    return None


def _again(decimal: str) -> str:
    return str(int(decimal, 16)) if decimal.isdigit() and len(decimal) <= 16 else decimal
