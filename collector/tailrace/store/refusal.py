"""Translate the library's exceptions into ours. The library has few types; the rest is in their text."""

from __future__ import annotations

import errno
import os
import re

from tailrace.errors import DescriptorsError, FullError, StoreError
from tailrace.filesystem import NO_ROOM, refusal_text

_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LOG_GONE = re.compile(
    r"Invalid table version|File not found: \S*/_delta_log/|/_delta_log/\S+ not found"
)
_BROKEN_OFF = "response body error"
_LONGEST = 300


def line(error: Exception) -> str:
    """Return an error's text on one line, without colours, cut after some hundred characters."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def os_error(error: Exception) -> int | None:
    """Return the errno, if the system refused something to the library or to us; else None."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return int(found[1]) if found else None


def is_conflict(error: Exception) -> bool:
    """Return whether another writer caused the error, so that a retry with the table opened anew may succeed.

    Either its commit changed what this one had read, or it shortened the log that a long-open table
    had to catch up on."""
    # By its name: to import the library takes longer than most commands that refuse something.
    failed = type(error).__name__ == "CommitFailedError"
    return failed or _LOG_GONE.search(str(error)) is not None


def is_broken_off(error: Exception) -> bool:
    """Return whether an answer of an object store broke off. For any other loss the library asks again by itself."""
    return _BROKEN_OFF in str(error)


def refusal(error: Exception, root: str, doing: str) -> FullError | StoreError:
    """Return a FullError when there was no room, else a StoreError with the reason."""
    number = os_error(error)
    if number in NO_ROOM:
        return FullError(f"{root}: no room to {doing}: {refusal_text(number, root)}")
    if number in _NO_DESCRIPTOR:
        return DescriptorsError(f"{root}: cannot {doing}: {os.strerror(number or 0)}")
    if number is None:
        return StoreError(f"{root}: cannot {doing}: {line(error)}")
    if isinstance(error, OSError) and error.filename:
        root, doing = str(error.filename), f"be used to {doing}"
    return StoreError(f"{root}: cannot {doing}: {refusal_text(number, root)}")
