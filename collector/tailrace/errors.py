"""All exceptions of the collector, named by what the caller can do about them.

    TailraceError
    ├── ConfigError      fix the configuration (exit 2)
    │   ├── NoProgramError there is no such program to run (exit 127)
    │   └── AddressError an address is not available now: free it, or wait and try again (exit 5)
    ├── LockedError      another daemon owns this directory (exit 1)
    ├── SyncError        the disk did not keep a promise: stop, acknowledge nothing (exit 1)
    ├── LostError        a name on disk leads to something else: stop, acknowledge nothing (exit 1)
    ├── FullError        no room now: wait, try again
    ├── FencedError      another collector writes under our name: stop (exit 1)
    ├── StoreError       the table cannot be used as it is; the text says what was found
    │   ├── MemoryLimitError a start does not fit into memory: raise the limit (exit 1)
    │   ├── DescriptorsError no descriptor was free: wait, try again
    │   └── BrokenOffError an answer's files were deleted while it was read: ask again
    ├── NoAnswerError    the running collector cannot be asked; the text says why (exit 1)
    ├── IncompleteError  something is missing although completeness was required (exit 3)
    ├── ExportError      a file of an export cannot be written (exit 1)
    ├── StreamError      standard input or output is closed, full or broken (exit 1), or nobody reads it (exit 141)
    ├── MissingPackageError  an optional package is not installed; the text is the command (exit 1)
    └── QueryError       the statement cannot be run: change it (exit 1)
        └── UnknownError the requested source, session or stream does not exist (exit 2)

Bad *input* is never an exception: it is a record (`Kind.MALFORMED`), a count and a quarantine entry.
"""

from __future__ import annotations

from collections.abc import Iterator


class TailraceError(Exception):
    """The base class. The text of an exception is meant for the person at the terminal."""


class ConfigError(TailraceError):
    """The configuration is wrong: one line for each problem, `file:line: key: what is wrong and what is allowed`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NoProgramError(ConfigError):
    """There is no such program to run."""


class AddressError(ConfigError):
    """An address of the configuration is taken or not up yet; the same start may succeed later."""


class LockedError(TailraceError):
    """A directory is in use by another process; the text names its pid."""


class SyncError(TailraceError):
    """A sync failed. Data that was not acknowledged yet is not on disk; the process must end."""


class LostError(TailraceError):
    """A name no longer leads to the file or directory that this process holds; the process must end."""


class FullError(TailraceError):
    """The disk has no room. Nothing is half done: repeat the same call later."""


class FencedError(TailraceError):
    """Another process has advanced the table under our identity."""


class StoreError(TailraceError):
    """The table cannot be opened, read or repaired as it stands."""


class BrokenOffError(StoreError):
    """Files of an answer were deleted while it was read. Ask again: the newest snapshot has its files."""


class MemoryLimitError(StoreError):
    """The data that must be read needs more memory than this process may use."""


class DescriptorsError(StoreError):
    """No descriptor was free for the table. Nothing is half done: repeat the same call later."""


class NoAnswerError(TailraceError):
    """The collector of a store gives no answer, or nobody can tell whether one runs."""


class IncompleteError(TailraceError):
    """Completeness was required and something is missing; the text says what."""


class QueryError(TailraceError):
    """A statement was refused or failed; the text is the database's."""


class UnknownError(QueryError):
    """The requested source, session or stream does not exist; the text lists the ones that do."""


class ExportError(TailraceError):
    """A file of an export cannot be written; the text names it and says why."""


class StreamError(TailraceError):
    """A standard stream cannot be read or written; the text names it and says why. `unread`: its reader is gone."""

    def __init__(self, text: str, *, unread: bool) -> None:
        super().__init__(text)
        self.unread = unread


class MissingPackageError(TailraceError, ImportError):
    """The request needs an optional package that is not installed."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside the (nested) groups that trio raises, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error
