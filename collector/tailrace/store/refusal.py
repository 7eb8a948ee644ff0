"""Translate exceptions of the Delta library into Tailrace's exceptions.

The library has few exception types, so details come from the message."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import DescriptorsError, FullError, StoreError, SyncError
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
    """Return the message of an exception on one line, without colours, and shortened to `_LONGEST` characters."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def os_error(error: Exception) -> int | None:
    """Return the errno of an exception, from its attribute or its message, or None."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.search(str(error))
    return int(found[1]) if found else None


def is_conflict(error: Exception) -> bool:
    """Return whether another writer caused this error, so that the operation may succeed on a newly opened table."""
    # Compare the name of the type, because importing the library takes longer than most commands that fail.
    failed = type(error).__name__ == "CommitFailedError"
    return failed or _LOG_GONE.search(str(error)) is not None


def is_broken_off(error: Exception) -> bool:
    """Return whether an operation failed because the response of an object store was incomplete. The library itself
    retries other network errors."""
    return _BROKEN_OFF in str(error)


def refusal(error: Exception, root: str, doing: str) -> FullError | StoreError:
    """Return the exception to raise instead of `error`, an exception of the library or of the system.

    `doing` describes the failed operation. A full disk gives a FullError, a lack of file descriptors a
    DescriptorsError, and anything else a StoreError."""
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


@contextmanager
def refusing(root: object, doing: str, more: type[Exception] = OSError) -> Iterator[None]:
    """Raise the exception of `refusal` if the `with` block raises OSError or an exception of the type `more`."""
    try:
        yield
    except (OSError, more) as error:
        raise refusal(error, str(root), doing) from error


@contextmanager
def syncing(what: str) -> Iterator[None]:
    """Raise SyncError if the `with` block, which syncs `what`, fails. Raise DescriptorsError if no descriptor is free:
    then no file can be opened, so no sync has failed and the operation may be repeated."""
    try:
        yield
    except (OSError, LookupError, ValueError) as error:
        text = f"{what} cannot be brought to disk: {error}"
        raise (DescriptorsError if os_error(error) in _NO_DESCRIPTOR else SyncError)(
            text
        ) from error
