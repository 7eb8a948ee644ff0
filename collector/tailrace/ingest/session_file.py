"""Track the file of a session, and write the rows that describe how far it has grown.

A row `moved` has a new path. A row `rest` states why the file has stopped growing, and whether the end of its stream
is missing. Readers derive from these rows whether a session is complete, and which of two equal files to show.
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
"""Maximum size (bytes) of the list of missing names in one row: names that events refer to and that have not
arrived."""


class SessionFile:
    """Tracks the file of a session, if the session reads a file. The argument `own` of the methods is the writer of the
    rows."""

    def __init__(self, state: SessionState, decoder: Decoder) -> None:
        self._state = state
        self.decoder = decoder

    def read(self, data: bytes, own: OwnRows, now: int) -> None:
        """Count the next bytes of the file. If the file had stopped growing, write a row about the renewed growth."""
        if file := self._state.file:
            if file.facts.rest or file.facts.copied_in:
                file.facts = replace(file.facts, copied_in=())
                self._rest(file, None, own, now)
            file.read(data)

    def change(self, facts: FileFacts | None, own: OwnRows, now: int) -> None:
        """Record a change of the file's path, inode or gzip member, or of whether it grows. If `facts` is None, no
        source follows the file any more."""
        file = self._state.file
        if file is None:
            return
        if facts is None:
            rest = file.facts.rest
            if not rest or rest.why != "unfollowed":
                rest = Rest(why="unfollowed", since=own.wall(now))
            facts = replace(file.facts, rest=rest)
        if facts.path != file.facts.path:
            own.session("moved", {"peer": facts.path}, now)
        before, file.facts = file.facts, facts
        if (facts.rest, facts.copied_in) != (before.rest, before.copied_in):
            self._rest(file, facts.rest, own, now)

    def rest_again(self, own: OwnRows, now: int) -> None:
        """Write the row `rest` (the file has stopped growing) again, because another file continues the file's run."""
        file = self._state.file
        if file and file.facts.rest:
            self._rest(file, file.facts.rest, own, now)

    def stopped(self, own: OwnRows, now: int, *, is_alike: bool) -> None:
        """Write a row about the end of the session's file as it was when the daemon stopped. Do so only if the
        stream has its end mark, if the file ends within a record, if a name that events refer to has not arrived, or
        if another file has the same content (`is_alike`)."""
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
        """Collect a part of a document, such as a metadata file. Return its records once all parts have arrived."""
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
        """Write a gap row for bytes that the source could not pass on, and skip a hole in the file."""
        own.loss(self._state, loss)
        if self._state.file:
            self._state.file.lose(loss)
        self._state.skipped += loss.skip

    def of_incarnation(self) -> dict[str, object]:
        """Return attributes for an incarnation's first row: `group`, and `ends` if an end mark is required."""
        group = self._state.info.group
        about: dict[str, object] = {"group": group} if group else {}
        return about | self._end(self._state.process)

    def as_read(self) -> dict[str, object]:
        """Return attributes for the row of the session's end, so that a later import can compare the file."""
        file = self._state.file
        return {"file": _as_read(file)} | self._asks if file else {}

    def note_end(self, process: int, own: OwnRows, now: int) -> None:
        """Write a row if the end mark (the last record of a complete stream) of the run of `process` became required or
        has arrived. If the collector is killed later, only this row shows this fact."""
        file, lacks = self._state.file, self._lacks(own, process)
        if file and lacks is not None and bool(lacks) != own.incarnation.awaits_end:
            self._write(file, own, now, process)

    def _rest(self, file: FileState, rest: Rest | None, own: OwnRows, now: int) -> None:
        """Write a row about the growth of the file. If `rest` is None, the row states that the file grows again."""
        file.facts = replace(file.facts, rest=rest)
        self._write(file, own, now)

    def _write(self, file: FileState, own: OwnRows, now: int, process: int | None = None) -> None:
        """Write a session row `rest`. The row states whether the file grows, and what is missing at the end of the run
        of `process`. If `process` is None, the row states what is missing at the end of any run."""
        rest, lacks = file.facts.rest, self._lacks(own, process)
        about: dict[str, object] = {"rest": rest.why if rest else ""}
        about["since"] = rest.since if rest else own.wall(now)
        # State the bytes of an unfinished record only for a file that has stopped growing. In a growing file, the
        # remaining bytes of the record are still to come.
        if rest and (pending := self.decoder.pending + rest.pending):
            about["pending"] = pending
        if rest or file.facts.copied_in:
            about["file"] = _as_read(file)
        if lacks is not None:
            about["lacks"] = lacks
        own.incarnation.awaits_end = bool(lacks)
        own.session("rest", about | self._end(process) | self._asks, now)

    def _lacks(self, own: OwnRows, process: int | None = None) -> str | None:
        """Return what is missing at the end of the run of `process` or, without `process`, at the end of any run.
        Return "" if nothing is missing, and None if no end mark is required."""
        lacking = self._lacking(process)
        return "" if own.incarnation.goodbye_at or (lacking and self._state.goes_on) else lacking

    def _lacking(self, process: int | None) -> str | None:
        decoder = self.decoder
        if process is not None and separates(decoder):
            return decoder.lacking_of(process)
        return decoder.lacking if states_end(decoder) else None

    def _end(self, process: int | None) -> dict[str, object]:
        """Return the attribute `ends` with the name of the stream if the stream must have an end mark. Otherwise return
        an empty dict."""
        decoder = self.decoder
        if states_end(decoder) and self._lacking(process) is not None:
            return {"ends": decoder.stream}
        return {}

    @property
    def _asks(self) -> dict[str, object]:
        """Return the attribute `asks`: keys of the missing names, up to `ASKS_MAX` bytes, with "" in place of further
        keys."""
        kept: list[str] = []
        size = 0
        for key in sorted(asked_names(self.decoder)):
            size += len(quote(key)) + 1
            if size > ASKS_MAX:
                kept = list(dict.fromkeys(["", *kept]))
                break
            kept.append(key)
        return {"asks": kept} if kept else {}


def _as_read(file: FileState) -> dict[str, object]:
    facts = file.facts
    about: dict[str, object] = {
        "path": facts.path, "device": facts.device, "inode": facts.inode,
        "size": file.offset, "crc": file.crc,
    }  # fmt: skip
    if facts.copied_in:
        about["copied_in"] = facts.copied_in
    return about | ({"documents": file.documents} if file.documents else {})
