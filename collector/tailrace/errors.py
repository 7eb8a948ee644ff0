"""Define all exceptions of the collector: one for each action that the caller can take.

    TailraceError
    ├── ConfigError      fix the configuration (exit 2)
    │   ├── NoProgramError the program to run does not exist (exit 127)
    │   └── AddressError an address is not available now: free it, or wait and try again (exit 5)
    ├── LockedError      another daemon owns this directory (exit 1)
    ├── SyncError        a sync to disk failed: stop, acknowledge nothing (exit 1)
    ├── LostError        an opened file is no longer at its path: stop, acknowledge nothing (exit 1)
    ├── FullError        the disk is full: wait, try again
    ├── FencedError      another collector writes under the same name: stop (exit 1)
    ├── StoreError       the table is not usable; the text has the reason
    │   ├── MemoryLimitError the daemon's start needs more memory: raise the limit (exit 1)
    │   ├── DescriptorsError no file descriptor was free: wait, try again
    │   └── BrokenOffError files of a query were deleted during the query: repeat the query
    ├── NoAnswerError    the running collector does not respond; the text has the reason (exit 1)
    ├── IncompleteError  events are missing although completeness was required (exit 3)
    ├── ExportError      a file of an export cannot be written (exit 1)
    ├── StreamError      standard input or output is closed, full or broken (exit 1), or has no reader (exit 141)
    ├── MissingPackageError  an optional package is not installed; the text is the command (exit 1)
    └── QueryError       the statement cannot be run: change it (exit 1)
        └── UnknownError the requested source, session or stream does not exist (exit 2)

Bad *input* never raises an exception: the collector adds a record (`Kind.MALFORMED`), a count and a quarantine entry.
"""

from __future__ import annotations

from collections.abc import Iterator


class TailraceError(Exception):
    """The base class of all exceptions of Tailrace. The message of an exception is meant for the user."""


class ConfigError(TailraceError):
    """The configuration is wrong. Each problem has one line, `file:line: key: problem and allowed values`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NoProgramError(ConfigError):
    """The program that the user wants to run does not exist."""


class AddressError(ConfigError):
    """An address of the configuration is in use or does not exist yet. A later start may succeed."""


class LockedError(TailraceError):
    """A directory is in use by another process, whose pid is in the message."""


class SyncError(TailraceError):
    """A sync failed, so unacknowledged data may not be on disk. The process must end."""


class LostError(TailraceError):
    """A path no longer leads to the file or directory that this process has opened. The process must end."""


class FullError(TailraceError):
    """The disk is full. The failed operation changed nothing and may be repeated."""


class FencedError(TailraceError):
    """Another collector with the same name writes to the table, and has committed rows. This collector must stop."""


class StoreError(TailraceError):
    """The table cannot be opened, read, written or repaired."""


class BrokenOffError(StoreError):
    """Files of the table were deleted while a query read them. A repeated query reads the newest version."""


class MemoryLimitError(StoreError):
    """Data must be read that needs more memory than the process may use."""


class DescriptorsError(StoreError):
    """No file descriptor was free for an operation on the table. The operation may be repeated."""


class UnreadableError(StoreError):
    """Synced entries of the spool cannot be read any more. The spool continues at the position `until`."""

    def __init__(self, text: str, *, until: int) -> None:
        super().__init__(text)
        self.until = until


class NoAnswerError(TailraceError):
    """The collector of a store does not answer requests, or it is unknown whether a collector runs."""


class IncompleteError(TailraceError):
    """The caller required complete data, and events are missing. The message describes the missing events."""


class QueryError(TailraceError):
    """An SQL statement was refused or failed. The message is from the database."""


class UnknownError(QueryError):
    """The requested source, session or stream does not exist. The message lists the existing ones."""


class ExportError(TailraceError):
    """A file of an export cannot be written. The message has the path and the reason."""


class StreamError(TailraceError):
    """Standard input or output cannot be read or written. The message names the stream and the reason. `unread` states
    that the reader of the output has closed it."""

    def __init__(self, text: str, *, unread: bool) -> None:
        super().__init__(text)
        self.unread = unread


class MissingPackageError(TailraceError, ImportError):
    """An optional package is not installed. The message is the command that installs it."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield all exceptions within a (possibly nested) exception group, or `error` itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error


def first_failure(group: BaseExceptionGroup[TailraceError]) -> TailraceError:
    """Return the first error within a (possibly nested) exception group."""
    return next(error for error in causes(group) if isinstance(error, TailraceError))
