"""Track the file of a session, and write the rows that describe how far it has grown.

A row `moved` has a new path. A row `rest` states why the file has stopped growing, and whether the end of its stream is
missing. Readers derive from these rows whether a session is complete, and which of two equal files to show.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote

from msgspec.structs import replace
from zlib_ng.zlib_ng import crc32

from tailrace.decoding.contract import Decoder, asked_names, reads_files, separates, states_end
from tailrace.ingest.incarnation_rows import OwnRows
from tailrace.ingest.state import SessionState
from tailrace.model.record import Record
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, Rest

ASKS_MAX = 2**16
"""Maximum size (bytes) of the list of missing names in one row. These are names that events refer to and that have not
arrived."""


class SessionFile:
    """Tracks the file of a session, if the session reads one. Rows are written through the argument `own` of the
    methods."""

    def __init__(self, state: SessionState, decoder: Decoder) -> None:
        self._state = state
        self.decoder = decoder

    def read(self, data: bytes, own: OwnRows, now: int) -> None:
        """Count the next bytes of the file. If the file had stopped growing, write a row about the renewed growth."""
        if file := self._state.file:
            if file.facts.rest:
                self._rest(file, None, own, now)
            file.read(data)

    def change(self, facts: FileFacts | None, own: OwnRows, now: int) -> None:
        """Record new facts about the session's file: path, inode, gzip member, or why the file is assumed not to grow.
        If `facts` is None, no source follows the file any more."""
        file = self._state.file
        if file is None:
            return
        if facts is None:
            facts = replace(file.facts, rest=_unfollowed(file.facts.rest, own.wall(now)))
        if facts.path != file.facts.path:
            own.session("moved", {"peer": facts.path}, now)
        before, file.facts = file.facts.rest, facts
        if facts.rest != before:
            self._rest(file, facts.rest, own, now)

    def rest_again(self, own: OwnRows, now: int) -> None:
        """Write the rest row of a file again, because another file has turned out to continue the file's run. A rest
        row states that a file has stopped growing."""
        file = self._state.file
        if file and file.facts.rest:
            self._rest(file, file.facts.rest, own, now)

    def stopped(self, own: OwnRows, now: int, *, is_alike: bool) -> None:
        """Write a row about the end of the session's file as it was when the daemon stopped.

        Do so only if the stream has its end mark, if the file ends within a record, if a name that events refer to has
        not arrived, or if another file has the same content (`is_alike`)."""
        file = self._state.file
        if not file or file.facts.rest:
            return
        since, lacks = own.wall(self._state.last), self._lacks(own)
        if self.decoder.pending or (is_alike and lacks != ""):
            self._rest(file, Rest(why="stopped", since=since), own, now)
        elif lacks == "":
            self._rest(file, Rest(why="ended", since=since), own, now)
        elif asked_names(self.decoder):
            self._write(file, own, now, self._state.process)

    def document(self, name: str, part: bytes, *, more: bool) -> list[Record]:
        """Collect a part of a document (a file that describes the stream, such as its metadata). Return the document's
        records once all parts have arrived."""
        file = self._state.file
        if file is None or not reads_files(self.decoder):
            return []
        file.part += part
        if more:
            return []
        data, file.part = file.part, b""
        file.documents[name] = crc32(data)
        return self.decoder.document(name, data)

    def lose(self, loss: FileLoss, own: OwnRows) -> None:
        """Write a gap row for bytes that the source could not pass to the session. If the session's file has a hole,
        skip the bytes of the hole."""
        own.loss(self._state, loss)
        if self._state.file:
            self._state.file.lose(loss)
        self._state.skipped += loss.skip

    def of_incarnation(self) -> dict[str, object]:
        """Return attributes for the first row of an incarnation (producer run) in a file: `group`, the group of the
        session, and `ends`, the name of the stream if it must have an end mark."""
        group = self._state.info.group
        about: dict[str, object] = {"group": group} if group else {}
        return about | self._end(self._state.process)

    def as_read(self) -> dict[str, object]:
        """Return attributes for the row of the session's end.

        They describe the file as it was read (path, device, inode, size, checksum and metadata files), so that a later
        import can compare it. They also contain the keys of missing names (see `_asks`)."""
        file = self._state.file
        return {"file": _as_read(file)} | self._asks if file else {}

    def note_end(self, process: int, own: OwnRows, now: int) -> None:
        """Write a row if, since the last such row, the format began to require an end mark of a run, or the end mark
        arrived.

        After a kill of the collector, only this row shows whether the end mark is missing. `process` is the number of
        the process whose run it is. `own` writes the run's rows."""
        file, lacks = self._state.file, self._lacks(own, process)
        if file and lacks is not None and bool(lacks) != own.awaits_end:
            self._write(file, own, now, process)

    def _rest(self, file: FileState, rest: Rest | None, own: OwnRows, now: int) -> None:
        """Write a row about the growth of the file. If `rest` is given, the row states why the file has stopped
        growing; otherwise it states that the file grows again."""
        file.facts = replace(file.facts, rest=rest)
        self._write(file, own, now)

    def _write(self, file: FileState, own: OwnRows, now: int, process: int | None = None) -> None:
        """Write a row `rest`. It states whether the file has stopped growing, and what its stream lacks at the end: in
        the run of `process` or, if `process` is None, in any run of the file.

        Readers use these rows to ignore one of two files with the same content (`query.inner_views`)."""
        rest, lacks = file.facts.rest, self._lacks(own, process)
        about: dict[str, object] = {"rest": rest.why if rest else ""}
        about["since"] = rest.since if rest else own.wall(now)
        if rest:
            # The rest of a growing file's last record is still to come.
            if pending := self.decoder.pending + rest.pending:
                about["pending"] = pending
            about["file"] = _as_read(file)
        if lacks is not None:
            about["lacks"] = lacks
        own.awaits_end = bool(lacks)
        own.session("rest", about | self._end(process) | self._asks, now)

    def _lacks(self, own: OwnRows, process: int | None = None) -> str | None:
        """Return a description of what is missing at the end of the run of `process`, or of the whole stream if
        `process` is None. Return "" if the run is complete, and None if it is not known to have an end."""
        if own.said_goodbye:
            return ""
        lacking = self._lacking(process)
        return "" if lacking and self._state.goes_on else lacking

    def _lacking(self, process: int | None) -> str | None:
        decoder = self.decoder
        if process is not None and separates(decoder):
            return decoder.lacking_of(process)
        return decoder.lacking if states_end(decoder) else None

    def _end(self, process: int | None) -> dict[str, object]:
        """Return the attribute `ends`, the name of the stream, if it must have an end mark; else no attribute."""
        decoder = self.decoder
        if states_end(decoder) and self._lacking(process) is not None:
            return {"ends": decoder.stream}
        return {}

    @property
    def _asks(self) -> dict[str, object]:
        """Return the keys of missing names as an attribute of a row: names that events refer to and that have not
        arrived. If the keys exceed `ASKS_MAX` bytes, "" stands for the keys that are left out."""
        kept: list[str] = []
        size = 0
        for key in sorted(asked_names(self.decoder)):
            size += len(quote(key)) + 1
            if size > ASKS_MAX:
                kept = list(dict.fromkeys(["", *kept]))
                break
            kept.append(key)
        return {"asks": kept} if kept else {}


def _unfollowed(before: Rest | None, now: int) -> Rest:
    """Return the statement (`Rest`) that a file is assumed not to grow, because no source follows it since the time
    `now` (Unix ns).

    If the earlier statement `before` states this, too, return it, so that the earlier time stays."""
    return before if before and before.why == "unfollowed" else Rest(why="unfollowed", since=now)


def _as_read(file: FileState) -> dict[str, object]:
    facts = file.facts
    about: dict[str, object] = {
        "path": facts.path, "device": facts.device, "inode": facts.inode,
        "size": file.offset, "crc": file.crc,
    }  # fmt: skip
    return about | ({"documents": file.documents} if file.documents else {})
