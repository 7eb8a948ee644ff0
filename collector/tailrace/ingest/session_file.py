"""The file that a session reads: rows about its rest and its moves, its documents, its end."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote

from msgspec.structs import replace
from zlib_ng.zlib_ng import crc32

from tailrace.decoding.contract import Decoder, asks, reads_files, states_end
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.state import SessionState
from tailrace.model.record import Record
from tailrace.spool.payloads import FileFacts, FileLoss, FileState, Rest

ASKS_MAX = 2**16
"""The size of the keys that a row may have, in bytes."""


class SessionFile:
    """The file of a session, if the session reads one. `own` writes the rows of the current
    incarnation."""

    def __init__(self, state: SessionState, decoder: Decoder) -> None:
        self.goes_on = False
        """Whether other files have the ends that this one lacks."""
        self._state = state
        self.decoder = decoder

    def read(self, data: bytes, own: OwnRows, now: int) -> None:
        """Take the next bytes of the file."""
        if file := self._state.file:
            if file.facts.rest:
                self._rest(file, None, own, now)
            file.read(data)

    def change(self, facts: FileFacts | None, own: OwnRows, now: int) -> None:
        """Take note that the file has another name or place, begins a member, or rests. None: no source follows it any
        more."""
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
        """Write anew what the file lacks, if it rests: other files turned out to have a part of it."""
        file = self._state.file
        if file and file.facts.rest:
            self._rest(file, file.facts.rest, own, now)

    def stopped(self, own: OwnRows, now: int, *, is_alike: bool) -> None:
        """Write a row at the daemon's stop if the file's stream has stated its end or lacks it, if the file ends within a
        record, if names have not come, or if another file `is_alike`."""
        file = self._state.file
        if not file or file.facts.rest:
            return
        since, lacks = own.wall(self._state.last), self._lacks(own)
        if self.decoder.pending or (is_alike and lacks != ""):
            self._rest(file, Rest(why="stopped", since=since), own, now)
        elif lacks == "":
            self._rest(file, Rest(why="ended", since=since), own, now)
        elif lacks or self._asked:
            self._rest(file, None, own, now)

    def document(self, name: str, part: bytes, *, more: bool) -> list[Record]:
        """Take a part of a document beside the file. Return the records of a document that is whole."""
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
        """Take note of bytes that the session lacks."""
        own.loss(self._state, loss)
        if self._state.file:
            self._state.file.pass_over(loss.skip)
        self._state.skipped += loss.skip

    def of_incarnation(self) -> dict[str, object]:
        """Return what the row of a file's incarnation says besides."""
        group = self._state.info.group
        about: dict[str, object] = {"group": group} if group else {}
        return about | self._end

    def as_read(self) -> dict[str, object]:
        """Return what the row of the session's end says of the file: what tells later whether a file is
        still the same. These are its path and numbers, size and checksum, and documents. Return also the keys that events ask
        for in vain so far."""
        file = self._state.file
        return {"file": _as_read(file)} | self._asked if file else {}

    def _rest(self, file: FileState, rest: Rest | None, own: OwnRows, now: int) -> None:
        """Write that the file rests or grows again, and what the stream's end still lacks. Readers leave out a file that
        rests with the content of another one (`query.inner_views`)."""
        file.facts = replace(file.facts, rest=rest)
        about: dict[str, object] = {"rest": rest.why if rest else ""}
        about["since"] = rest.since if rest else own.wall(now)
        if rest and (pending := self.decoder.pending + rest.pending):
            about["pending"] = pending
        if rest:
            about["file"] = _as_read(file)
        if (lacking := self._lacks(own)) is not None:
            about["lacks"] = lacking
        own.session("rest", about | self._end | self._asked, now)

    def _lacks(self, own: OwnRows) -> str | None:
        """Return what the stream's end still lacks; None where no end is known to come."""
        if own.said_goodbye:
            return ""
        lacking = self.decoder.lacking if states_end(self.decoder) else None
        return "" if lacking and self.goes_on else lacking

    @property
    def _asked(self) -> dict[str, object]:
        """Return, as members of a row, the keys of the names that have not come. Beyond `ASKS_MAX`, "" stands for the others."""
        kept: list[str] = []
        size = 0
        for key in sorted(self.decoder.asked if asks(self.decoder) else ()):
            size += len(quote(key)) + 1
            if size > ASKS_MAX:
                kept = list(dict.fromkeys(["", *kept]))
                break
            kept.append(key)
        return {"asks": kept} if kept else {}

    @property
    def _end(self) -> dict[str, object]:
        """Return, as members of a row, the stream whose end is known to come."""
        decoder = self.decoder
        if states_end(decoder) and decoder.lacking is not None:
            return {"ends": decoder.stream}
        return {}


def _unfollowed(before: Rest | None, now: int) -> Rest:
    """Return why and since when an unfollowed file is taken not to grow. Keep the time of an earlier report of the
    same."""
    return before if before and before.why == "unfollowed" else Rest(why="unfollowed", since=now)


def _as_read(file: FileState) -> dict[str, object]:
    facts = file.facts
    about: dict[str, object] = {
        "path": facts.path, "device": facts.device, "inode": facts.inode,
        "size": file.offset, "crc": file.crc,
    }  # fmt: skip
    return about | ({"documents": file.documents} if file.documents else {})
