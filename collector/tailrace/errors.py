"""Define all exceptions of the collector. Each one calls for another action of the caller, such as to wait or to end.

A command that fails exits with status 1, unless the exception states another one. Bad *input* never raises an
exception: the collector adds a record (`Kind.MALFORMED`), a count and a quarantine entry."""

from __future__ import annotations

from collections.abc import Iterator


class TailraceError(Exception):
    """The base class of all exceptions of Tailrace. The message of an exception is meant for the user."""


class ConfigError(TailraceError):
    """The configuration is wrong (exit 2). Each problem has one line, `file:line: key: problem and allowed values`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NoProgramError(ConfigError):
    """The program that the user wants to run does not exist (exit 127)."""


class AddressError(ConfigError):
    """An address of the configuration is in use or does not exist yet (exit 5). A later start may succeed."""


class LockedError(TailraceError):
    """A directory is in use by another process, whose pid is in the message."""


class SyncError(TailraceError):
    """A sync failed, so unacknowledged data may not be on disk. The process must end."""


class LostError(TailraceError):
    """A path no longer leads to the file or directory that this process has opened. The process must end."""


class FullError(TailraceError):
    """The disk is full. The failed operation changed nothing: wait, and repeat it."""


class FencedError(TailraceError):
    """Another collector with the same name writes to the table, and has committed rows. This collector must stop."""


class StoreError(TailraceError):
    """The table cannot be opened, read, written or repaired."""


class BrokenOffError(StoreError):
    """Files of the table were deleted while a query read them. A repeated query reads the newest version."""


DELETED = "the table's files were deleted while they were read; ask again"
"""Text of a BrokenOffError that asks the user to repeat the query."""


class MemoryLimitError(StoreError):
    """Reading the data needs more memory than the process may use. The user can raise the limit."""


class DescriptorsError(StoreError):
    """No file descriptor was free for an operation on the table: wait, and repeat it."""


class UnreadableError(StoreError):
    """Synced entries of the spool cannot be read any more. The spool continues at the position `until`."""

    def __init__(self, text: str, *, until: int) -> None:
        super().__init__(text)
        self.until = until


class NoAnswerError(TailraceError):
    """The collector of a store does not answer requests, or it is unknown whether a collector runs."""


class IncompleteError(TailraceError):
    """The caller required complete data, and events are missing (exit 3). The message describes the missing events."""


class QueryError(TailraceError):
    """An SQL statement was refused or failed. The message is from the database."""


class UnknownError(QueryError):
    """The requested source, session or stream does not exist (exit 2). The message lists the existing ones."""


class ExportError(TailraceError):
    """A file of an export cannot be written. The message has the path and the reason."""


class StreamError(TailraceError):
    """Standard input or output cannot be read or written. The message names the stream and the reason. `unread` states
    that the reader of the output has closed it (exit 141)."""

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
