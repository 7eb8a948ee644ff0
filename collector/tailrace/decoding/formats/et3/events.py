"""Turn lines of ET3, in either form, into records.

| line    | kind    | name                 | id            | parent          | attributes             |
|---------|---------|----------------------|---------------|-----------------|------------------------|
| M       | begin   | the method           | frame number  | enclosing frame | method, receiver       |
| E       | end     | (its begin's)        | frame number  |                 | method                 |
| X       | end     | (its begin's)        | frame number  |                 | method, receiver, exception |
| N A     | instant | (array_)allocation   | object        | enclosing frame | class, size, site, length |
| U       | instant | update               | object, 0 for a static field | enclosing frame | field, value |
| W       | instant | witness              | object        | enclosing frame | class                  |
| D       | instant | death                | object        |                 | thread that allocated it |
| of ET1  | instant | as in `ET1_SHAPES`   | object        | enclosing frame | the other fields       |
| C       | instant | counters             |               |                 | counters               |
| unknown | session | the letter           |               |                 | fields                 |
| comment | annotation | comment           |               |                 | text                   |

The form of the lines determines stream and time (module `form`). Attributes have the producer's numbers and the names
of classes, fields and methods. For an allocation, the agents write the class whose code allocates the object, instead
of the object's class. Deaths belong to no thread.

An exit ends the innermost open frame of its method. Frames inside this frame are closed, too, but their spans get no
end. An exit without a frame becomes an end without an id (`unmatched_end`). Begins and ends with a late or repeated
time have no id either.

The shape of a line is its letter and the number of its fields. A shape that only ET3 or only ET1 has determines the
version of a file. In an ET1 file, all numbers from this line on are hexadecimal, and ends of frames that began before
this line have the attribute `"$begun":"decimal"`. In an ET3 file, a line of ET1's shape becomes an instant with the
original fields (`et1_shape`), because the line may be damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring as quote
from typing import cast

from tailrace.decoding.formats.et3.form import (
    SPECIFICATION,
    Form,
    LineContext,
    MissingLines,
    OtherFormError,
    SpecificationForm,
)
from tailrace.decoding.formats.et3.line import ET1_SHAPES, INT64_MAX, Line, are_usual, read_line
from tailrace.decoding.formats.et3.maps import MapNames
from tailrace.decoding.formats.et3.stack import DEPTH_MAX, OpenFrame
from tailrace.decoding.json_object import as_object
from tailrace.decoding.lines import marks_before, split_lines
from tailrace.model.record import (
    Kind,
    Record,
    SessionFacts,
    as_int64,
    malformed,
    missing,
    session_record,
)


def read_other(offset: int, size: int, line: Line) -> Record:
    """Return the record of a line that is not an event: a comment, or a line with an unknown letter."""
    if line.kind == "comment":
        kind, name, about = Kind.ANNOTATION, "comment", {"text": quote(line.comment or "")}
    else:
        fields = ",".join(map(quote, line.fields[1:]))
        kind, name, about = Kind.SESSION, line.fields[0], {"fields": f"[{fields}]"}
        if line.comment is not None:
            about["comment"] = quote(line.comment)
    return Record(
        offset, size, kind, "", None, None, name, None, None, None, None, None, as_object(about),
        line.flaw, None,
    )  # fmt: skip


def begun(offset: int, form: str, *, again: bool) -> Record:
    """Return the session record "trace" for the beginning of a trace or, with `again`, for a further run of the program
    within the same trace."""
    facts = SessionFacts(clock="logical", starts=again)
    return session_record(offset, 0, "trace", f'{{"clock":"logical","form":"{form}"}}', facts=facts)


def lost(offset: int, loss: MissingLines) -> Record:
    """Return a gap record for missing lines, or a heal record for lines that have come late."""
    record = missing(
        offset, loss.reason, loss.lines, stream=loss.stream, first=loss.first, of=loss.of,
        detail=loss.detail,
    )  # fmt: skip
    return record._replace(kind=Kind.HEAL) if loss.heal else record


def with_member(record: Record, member: str) -> Record:
    attributes = record.attributes
    text = f"{attributes[:-1]},{member}}}" if attributes else f"{{{member}}}"
    return record._replace(attributes=text)


BEGIN, END, INSTANT = Kind.BEGIN, Kind.END, Kind.INSTANT

_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)

ET3, ET1 = "et3", "et1"
_OF_ET3 = re.compile(rb"^[EUWD]", re.MULTILINE).search
"""Finds the first line whose letter shows that the trace is of ET3. Search only in lines with shapes of ET3, because
ET1 uses some of these letters in other shapes."""

LineReader = Callable[[int, int, list[str]], Record]


class Events:
    """Reads whole lines of one ET3 trace into records. `version` is "et3", "et1", or "" while it is unknown."""

    def __init__(self, form: Form, names: MapNames, version: str = "") -> None:
        self.version = ET3 if form.name == SPECIFICATION else version
        self._form, self._stacks = form, form.stacks
        self._tick, self._at = form.tick, form.at
        self._methods, self._classes, self._fields = names.methods, names.classes, names.fields
        self._readers: dict[str, LineReader] = {
            "M": self._enter,
            "E": self._leave,
            "X": self._leave_by_exception,
            "N": self._allocate,
            "A": self._allocate,
            "U": self._update,
            "W": self._witness,
            "D": self._die,
        }

    def read(self, offset: int, data: bytes, records: list[Record]) -> None:
        """Read whole lines, and append their records to `records`. The first line begins at `offset`."""
        read = 0
        if self.version != ET1 and are_usual(data):
            read = self._read_usual(offset, data, records)
            if not self.version and _OF_ET3(data, 0, read):
                self.version = ET3
        for line in split_lines(data[read:]):
            self.read_line(offset + read, line, records)
            read += len(line)

    def _read_usual(self, offset: int, data: bytes, records: list[Record]) -> int:
        """Read lines that consist of an ET3 letter and numbers, up to a line that needs `read_line`. Return the number
        of bytes that were read."""
        readers, found, append = self._readers, self._form.found, records.append
        at = offset
        for line in data.decode("ascii").split("\n")[:-1]:
            fields = line.split()
            size = len(line) + 1
            try:
                append(readers[fields[0]](at, size, fields))
            except (KeyError, ValueError):
                break
            if found:
                self._tell(records)
            at += size
        return at - offset

    def read_line(self, offset: int, data: bytes, records: list[Record]) -> None:
        """Read one line of any kind, with the blank lines and the Ctrl-Zs before it."""
        line = read_line(data, et1=self.version == ET1)
        if isinstance(line, str) and (marks := marks_before(data)):
            size = marks[-1].offset + len(marks[-1].data)
            behind = read_line(data[size:], et1=self.version == ET1)
            if isinstance(behind, Line) and behind.kind not in {"comment", "unknown"}:
                for each in marks:
                    at = offset + each.offset
                    records.append(session_record(at, len(each.data), each.name))
                self.read_line(offset + size, data[size:], records)
                return
        try:
            found = line if isinstance(line, str) else self._read(offset, len(data), line)
        except OtherFormError:
            found = "other_form"
        if isinstance(found, str):
            # The wrong bytes may be in the place of newlines. Only clock times show how many lines are missing.
            several = found == "invalid_utf8" and not isinstance(self._form, SpecificationForm)
            record = malformed(offset, data, found)
            records.append(record._replace(name="lines") if several else record)
            self._form.unreadable()
            return
        records.append(found)
        if self._form.found:
            self._tell(records)

    def read_last(self, offset: int, data: bytes, records: list[Record]) -> None:
        """Read the last line, which has no newline. It is whole if its last field is expected (`Form.expects`)."""
        line = read_line(data, et1=self.version == ET1)
        if isinstance(line, Line) and (
            line.comment is not None
            or (line.kind == "event" and self._form.expects(line.fields[0], line.fields[-1]))
        ):
            self.read_line(offset, data, records)
        else:
            records.append(malformed(offset, data, "truncated"))

    def settle(self, offset: int, records: list[Record], *, ended: bool) -> None:
        """When the input pauses or has `ended`, append the records of lines that now count as missing (gaps) or no
        longer do so (heals)."""
        self._form.settle(ended=ended)
        records += [lost(offset, loss) for loss in self._form.found if loss]
        self._form.found.clear()

    def _read(self, offset: int, size: int, line: Line) -> Record:
        letter = line.fields[0] if line.fields else ""
        if line.kind == "event":
            record = self._readers[letter](offset, size, line.fields)
            if letter in "EUWD":
                self.version = self.version or ET3
        elif line.kind == "et1":
            record = self._read_et1(offset, size, line)
        elif line.kind == "counters":
            about = {"counters": f"[{','.join(line.fields[1:])}]"}
            record = self._other_instant(offset, size, "counters", about)
        else:
            return read_other(offset, size, line)
        if line.comment is not None:
            record = with_member(record, f'"comment":{quote(line.comment)}')
        return record if record.flaw else record._replace(flaw=line.flaw)

    def _tell(self, records: list[Record]) -> None:
        """Append the records that follow from the line just read: of missing lines (gaps), of lines that no longer
        count as missing (heals), and of a new run (session)."""
        found = self._form.found
        record = records.pop()
        if None in found:
            records.append(begun(record.offset, self._form.name, again=True))
        records.append(record)
        records += [lost(record.offset + record.size, loss) for loss in found if loss]
        found.clear()

    # Methods that read lines about entries and exits of Java methods

    def _enter(self, offset: int, size: int, fields: list[str]) -> Record:
        _, method, receiver, last = fields
        stream, frames, time, flaw = self._tick(last)
        name, attributes, _ = self._methods[method]
        number = parent = None
        if frames is not None:
            number = self._stacks.number = self._stacks.number + 1
            if frames:
                parent = frames[-1][1]
                if len(frames) >= DEPTH_MAX:
                    self._stacks.shorten(stream, frames)
            if self._stacks.behind:
                self._form.take_back()
            frames.append((method, number, name is None))
        return _record(
            Record,
            (
                offset, size, BEGIN, stream, None, None, name, None, number, parent, time, None,
                f"{attributes}{receiver}}}", flaw, None,
            ),
        )  # fmt: skip

    def _leave(self, offset: int, size: int, fields: list[str]) -> Record:
        _, method, last = fields
        stream, frames, time, flaw = self._tick(last)
        name, _, attributes = self._methods[method]
        number = None
        if frames is not None:
            if frames and frames[-1][0] == method:
                frame: OpenFrame | None = frames.pop()
            else:
                frame = self._stacks.leave(stream, frames, method)
            if frame is None:
                flaw = "unmatched_end"
                self._form.unmatched(stream, method)
            else:
                number = frame[1]
                if stream in self._stacks.doubted:
                    time += self._form.matched(stream, number)
                if frame[2] and name is not None:
                    # The begin's record has the method's key instead of its name, because the name was not yet known.
                    # The end's record must have the same key.
                    attributes = f'{{"$name":"method:{method}",{attributes[1:]}'
                if number <= self._stacks.decimal:
                    attributes = f'{{"$begun":"decimal",{attributes[1:]}'
            if self._stacks.behind:
                self._form.take_back()
        return _record(
            Record,
            (
                offset, size, END, stream, None, None, name, None, number, None, None, time,
                attributes, flaw, None,
            ),
        )  # fmt: skip

    def _leave_by_exception(self, offset: int, size: int, fields: list[str]) -> Record:
        letter, method, receiver, exception, last = fields
        record = self._leave(offset, size, [letter, method, last])
        return with_member(record, f'"receiver":{receiver},"exception":{exception}')

    # Methods that read lines about objects: allocations, updates, witnesses and deaths

    def _allocate(self, offset: int, size: int, fields: list[str]) -> Record:
        letter, object_, bytes_, class_, site, length, last = fields
        name, elements = "allocation", ""
        if letter == "A":
            name = "array_allocation"
        if letter == "A" or length != "0":
            elements = f',"length":{length}'
        context = self._at(last)
        attributes = f'{{{self._classes[class_]},"size":{bytes_},"site_id":{site}{elements}}}'
        return self._instant(offset, size, name, object_, context, attributes)

    def _update(self, offset: int, size: int, fields: list[str]) -> Record:
        _, object_, value, field, last = fields
        context = self._at(last)
        attributes = f'{{{self._fields[field]},"value":{value}}}'
        return self._instant(offset, size, "update", object_, context, attributes)

    def _witness(self, offset: int, size: int, fields: list[str]) -> Record:
        _, object_, class_, last = fields
        context = self._at(last)
        attributes = f"{{{self._classes[class_]}}}"
        return self._instant(offset, size, "witness", object_, context, attributes)

    def _instant(
        self, offset: int, size: int, name: str, object_: str, context: LineContext, attributes: str
    ) -> Record:
        stream, frames, time, flaw = context
        id_ = int(object_)
        return _record(
            Record,
            (
                offset, size, INSTANT, stream, None, None, name, None,
                id_ if id_ <= INT64_MAX else as_int64(id_), frames[-1][1] if frames else None,
                time, None, attributes, flaw, None,
            ),
        )  # fmt: skip

    def _die(self, offset: int, size: int, fields: list[str]) -> Record:
        _, object_, thread, last = fields
        time = self._form.death(int(last))
        return Record(
            offset, size, INSTANT, "", None, None, "death", None, as_int64(int(object_)), None,
            time, None, f'{{"thread":{thread}}}', None, None,
        )  # fmt: skip

    # Methods that read lines that only ET1, the ancestor of ET3, writes

    def _read_et1(self, offset: int, size: int, line: Line) -> Record:
        letter, *values = line.fields
        name, keys = ET1_SHAPES[letter, len(values)]
        if self.version == ET3:
            about = {"fields": f"[{','.join(map(quote, line.spelled))}]"}
            record = self._other_instant(offset, size, name, about)
            return record._replace(flaw="et1_shape")
        if not self.version:
            self.version = ET1
            self._stacks.in_hexadecimal()
        said = dict(zip(keys, values, strict=True))
        thread = said.pop("thread")
        if name == "leave":
            record = self._leave(offset, size, [letter, said["method_id"], thread])
            return with_member(record, f'"receiver":{said["receiver"]}')
        if name == "update":
            record = self._update(offset, size, [letter, *values[1:]])
            return with_member(record, f'"old":{said["old"]}')
        if "class" in said:
            said["class"] = quote(said["class"])
        object_ = said.pop("object", None)
        frames = self._stacks.of(thread)
        return self._other_instant(offset, size, name, said)._replace(
            stream=thread,
            id=None if object_ is None else as_int64(int(object_)),
            parent=frames[-1][1] if frames else None,
        )

    def _other_instant(self, offset: int, size: int, name: str, about: dict[str, str]) -> Record:
        return Record(
            offset, size, INSTANT, "", None, None, name, None, None, None, self._form.time, None,
            as_object(about), None, None,
        )  # fmt: skip
