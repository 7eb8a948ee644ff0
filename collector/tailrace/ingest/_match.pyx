# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Match the ends of spans in a block to their begins by id, faster than `Spans` does with lists of records.

First, `_run` decides from which records each row is made. It stops before the first record that breaks a rule, or may
break one; Python decides about that record. The ids of begins must follow one another. Then each column of the rows is
collected from the chosen records.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    """
    void *memmem(const void *data, size_t size, const void *part, size_t part_size) nogil

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind
from tailrace.rows.fields import united

cdef enum:
    OTHER = 0
    BEGIN = 1
    END = 2
    KINDS_MAX = 32
    # States of an id that no begin of this run has
    UNKNOWN = 0
    ABSENT = 1
    OPEN = 2
    EARLIER_MAX = 512  # number of such ids that are remembered; a power of two
    NO_DEPTH = -1
    NO_RECORD = -1


cdef struct Earlier:
    int64_t id
    int64_t start
    int64_t depth
    bint has_start
    int state


cdef struct Longs:
    const int64_t *values  # NULL if no row has a value
    const uint8_t *valid  # NULL if all rows have a value


cdef inline bint _has(Longs *column, Py_ssize_t row) noexcept nogil:
    if column.values == NULL:
        return False
    return column.valid == NULL or column.valid[row >> 3] >> (row & 7) & 1


cdef class Matching:
    """Matches the records of one block with each other, and with the spans that were open before the block."""

    cdef object block
    cdef dict opened
    cdef tuple awaited
    cdef bint awaits
    cdef list views, ended, left
    cdef const int32_t *kinds
    cdef Longs ids, parents, starts, ends
    cdef int classes[KINDS_MAX]
    cdef Py_ssize_t rows
    # Rows to write: for each, the indexes of the records of its begin and of its end (equal if it has one record), and
    # its depth
    cdef Py_ssize_t count
    cdef int32_t *begins
    cdef int32_t *lasts
    cdef int64_t *depths
    # Begins that this run of `run` has read, with the ids `base`, `base + 1` …: the indexes of their records, until their
    # ends arrive, and their depths
    cdef uint64_t base
    cdef Py_ssize_t waits
    cdef int32_t *begun
    cdef int64_t *depth_of
    cdef Earlier earlier[EARLIER_MAX]

    def __cinit__(self, block, dict opened):
        """Prepare to match the records of a block. `opened` contains the spans that were open before the block, by id."""
        self.block, self.opened = block, opened
        self.rows = block.rows
        self.views, self.ended, self.left = [], [], []
        if len(block.kind.texts) > KINDS_MAX:
            raise ValueError("a block has more kinds than there are")
        for i in range(KINDS_MAX):
            self.classes[i] = OTHER
        for i, kind in enumerate(block.kind.texts[:block.kind.known]):
            self.classes[i] = BEGIN if kind == Kind.BEGIN else END if kind == Kind.END else OTHER
        self.kinds = <const int32_t *>self._buffer(block.kind.codes, self.rows * 4)
        cdef int known = block.kind.known
        cdef Py_ssize_t row
        for row in range(self.rows):
            if not 0 <= self.kinds[row] < known:
                raise ValueError(f"row {row} has kind {self.kinds[row]} of {known}")
        self._longs(block.id, &self.ids)
        self._longs(block.parent, &self.parents)
        self._longs(block.start, &self.starts)
        self._longs(block.end, &self.ends)
        self.begins = <int32_t *>_allocated(self.rows * sizeof(int32_t))
        self.lasts = <int32_t *>_allocated(self.rows * sizeof(int32_t))
        self.depths = <int64_t *>_allocated(self.rows * sizeof(int64_t))
        self.begun = <int32_t *>_allocated(self.rows * sizeof(int32_t))
        self.depth_of = <int64_t *>_allocated(self.rows * sizeof(int64_t))

    def __dealloc__(self):
        PyMem_Free(self.begins)
        PyMem_Free(self.lasts)
        PyMem_Free(self.depths)
        PyMem_Free(self.begun)
        PyMem_Free(self.depth_of)

    cdef const uint8_t *_buffer(self, values, Py_ssize_t size) except? NULL:
        """Return a pointer to the bytes of a buffer. Raise ValueError if it has fewer than `size` bytes."""
        cdef const uint8_t[::1] view = memoryview(values).cast("B")
        if view.shape[0] < size:
            raise ValueError(f"{view.shape[0]} bytes are less than {size}")
        self.views.append(view)
        return &view[0] if view.shape[0] else NULL

    cdef int _longs(self, column, Longs *into) except -1:
        into.values, into.valid = NULL, NULL
        if column is not None:
            into.values = <const int64_t *>self._buffer(column.values, self.rows * 8)
            if column.valid is not None:
                into.valid = self._buffer(column.valid, (self.rows + 7) // 8)
        return 0

    # Decide from which records each row is made

    def run(self, Py_ssize_t at, int64_t first, int64_t last, Py_ssize_t room, tuple awaited not None):
        """Match the records from the index `at` on, until a record breaks a rule or may break one.

        Records with all ids from `first` to `last` have arrived, and none with a higher id. No begin may have an id in
        one of the sets or dicts in `awaited`. At most `room` more spans may be open.

        Return the index of the record before which the matching stopped; the highest id that has arrived now; the rows as
        a block with their depths and end offsets (None without rows); the spans that were open before and have ended; and
        the begins whose ends have not arrived, each with its id, the index of its record, and its depth."""
        if not 0 <= at <= self.rows:
            raise ValueError(f"{at} is no row of {self.rows}")
        cdef Py_ssize_t begin = at, i
        self.count = self.waits = 0
        self.ended, self.left = [], []
        self.awaited = tuple(ids for ids in awaited if ids)
        self.awaits = len(self.awaited) > 0
        self.base = <uint64_t>last + 1
        memset(self.earlier, 0, sizeof(self.earlier))
        with nogil:
            at = self._run(at, first, &last, room)
        for i in range(self.waits):
            if self.begun[i] != NO_RECORD:
                depth = None if self.depth_of[i] == NO_DEPTH else self.depth_of[i]
                self.left.append((<int64_t>(self.base + i), self.begun[i], depth))
        rows = self._matched(begin, at) if self.count else None
        return at, last, rows, self.ended, self.left

    cdef Py_ssize_t _run(
        self, Py_ssize_t at, int64_t first, int64_t *last, Py_ssize_t room
    ) except -1 nogil:
        cdef int64_t id, depth
        cdef int kind
        while at < self.rows:
            kind = self.classes[self.kinds[at]]
            if kind == OTHER:
                if _has(&self.parents, at) and not self._knows(self.parents.values[at], first, last[0]):
                    break
                self._row(<int32_t>at, <int32_t>at, NO_DEPTH)
            elif not _has(&self.ids, at):
                break
            elif kind == BEGIN:
                id = self.ids.values[at]
                if not room or last[0] == INT64_MAX or id != last[0] + 1:
                    break
                if self.awaits and self._awaits(id):
                    break
                depth = 0
                if _has(&self.parents, at):
                    if not self._knows(self.parents.values[at], first, last[0]):
                        break
                    depth = self._depth_in(self.parents.values[at])
                self.begun[self.waits], self.depth_of[self.waits] = <int32_t>at, depth
                self.waits += 1
                last[0] = id
                room -= 1
            else:
                if not self._end(self.ids.values[at], at):
                    break
                room += 1
            at += 1
        return at

    cdef inline bint _knows(self, int64_t parent, int64_t first, int64_t last) except -1 nogil:
        """Return whether a record with the id `parent` is known to have arrived: the id is in the range, or a span with this
        id was open before the block."""
        return first <= parent <= last or self._earlier(parent).state == OPEN

    cdef bint _awaits(self, int64_t id) except -1 nogil:
        with gil:
            for ids in self.awaited:
                if id in ids:
                    return True
        return False

    cdef inline Py_ssize_t _waiting(self, int64_t id) noexcept nogil:
        """Return the index, among the begins of this run, of the begin with an id; -1 if none has the id."""
        cdef uint64_t place = <uint64_t>id - self.base
        return <Py_ssize_t>place if place < <uint64_t>self.waits else -1

    cdef inline bint _end(self, int64_t id, Py_ssize_t at) except -1 nogil:
        """Make a row of the span with an id, whose end is the record `at`. Return False without a row if no such span is open,
        or if the end breaks a rule."""
        cdef Py_ssize_t place = self._waiting(id)
        cdef int32_t begin
        if place < 0:
            return self._end_earlier(id, at)
        begin = self.begun[place]
        if begin == NO_RECORD or (
            _has(&self.ends, at) and _has(&self.starts, begin)
            and self.ends.values[at] < self.starts.values[begin]
        ):
            return False
        self._row(begin, <int32_t>at, self.depth_of[place])
        self.begun[place] = NO_RECORD
        return True

    cdef inline void _row(self, int32_t begin, int32_t last, int64_t depth) noexcept nogil:
        self.begins[self.count], self.lasts[self.count] = begin, last
        self.depths[self.count] = depth
        self.count += 1

    cdef inline int64_t _depth_in(self, int64_t parent) except? -2 nogil:
        """Return the depth of a span with this parent; NO_DEPTH if the parent is not open or its depth is unknown."""
        cdef int64_t depth = NO_DEPTH
        cdef Earlier *earlier
        cdef Py_ssize_t place = self._waiting(parent)
        if place >= 0:
            if self.begun[place] != NO_RECORD:
                depth = self.depth_of[place]
        else:
            earlier = self._earlier(parent)
            if earlier.state == OPEN:
                depth = earlier.depth
        return depth if depth == NO_DEPTH else depth + 1

    cdef inline Earlier *_earlier(self, int64_t id) except NULL nogil:
        """Return whether a span with an id was open before the block, and its start and depth."""
        cdef Earlier *earlier = &self.earlier[id & (EARLIER_MAX - 1)]
        if earlier.state == UNKNOWN or earlier.id != id:
            self._look_up(earlier, id)
        return earlier

    cdef int _look_up(self, Earlier *earlier, int64_t id) except -1 with gil:
        span = self.opened.get(id)
        earlier.id = id
        earlier.state = ABSENT if span is None else OPEN
        if span is not None:
            earlier.depth = NO_DEPTH if span.depth is None else span.depth
            earlier.has_start = span.start is not None
            earlier.start = span.start if earlier.has_start else 0
        return 0

    cdef bint _end_earlier(self, int64_t id, Py_ssize_t at) except -1 nogil:
        """Do the same as `_end` for a span that was open before the block."""
        cdef Earlier *earlier = self._earlier(id)
        if earlier.state != OPEN:
            return False
        if _has(&self.ends, at) and earlier.has_start and self.ends.values[at] < earlier.start:
            return False
        earlier.state = ABSENT
        with gil:
            self.ended.append(self.opened.pop(id))
            self._row(<int32_t>-len(self.ended), <int32_t>at, earlier.depth)
        return True

    # Make the rows

    cdef object _matched(self, Py_ssize_t begin, Py_ssize_t end):
        """Return the rows that were made of the records from `begin` to `end`: a block, their depths and their end offsets."""
        block, ended = self.block, self.ended
        stream = block.stream
        cdef const int64_t *sizes
        cdef int64_t length = 0
        cdef Py_ssize_t i
        sizes = <const int64_t *>self._buffer(block.size.values, self.rows * 8)
        for i in range(begin, end):
            length += sizes[i]
        rows = Block(
            self.count,
            length,
            self._gathered(block.offset, self.begins, [span.offset for span in ended]),
            self._gathered(block.size, self.lasts, None),
            self._kinds(),
            self._words(stream, self.lasts, None),
            self._gathered(block.substream, self.lasts, None),
            None,
            self._words(block.name, self.begins, [span.name for span in ended]),
            self._words(block.category, self.begins, [span.category for span in ended]),
            self._gathered(block.id, self.lasts, None),
            self._gathered(block.parent, self.begins, [span.parent for span in ended]),
            self._gathered(block.start, self.begins, [span.start for span in ended]),
            self._gathered(block.end, self.lasts, None),
            self._attributes(),
        )
        return rows, self._depths(), self._end_offsets()

    cdef object _kinds(self):
        kind = self.block.kind
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * sizeof(int32_t))
        cdef int32_t *codes = <int32_t *>PyBytes_AS_STRING(found)
        cdef int32_t span = kind.known
        cdef Py_ssize_t i
        for i in range(self.count):
            codes[i] = self.kinds[self.lasts[i]] if self._single(i) else span
        return Words(found, [*kind.texts[:kind.known], Kind.SPAN], kind.known + 1)

    cdef inline bint _single(self, Py_ssize_t row) noexcept nogil:
        """Return whether a row is made of one record, not of a begin and an end."""
        return self.begins[row] == self.lasts[row]

    cdef object _depths(self):
        cdef bytes found = PyBytes_FromStringAndSize(<const char *>self.depths, self.count * 8)
        cdef bytearray valid = bytearray((self.count + 7) // 8)
        cdef uint8_t[::1] bits = valid
        cdef Py_ssize_t i, known = 0
        cdef int64_t *depths = <int64_t *>PyBytes_AS_STRING(found)
        for i in range(self.count):
            if depths[i] == NO_DEPTH:
                depths[i] = 0
            else:
                bits[i >> 3] |= 1 << (i & 7)
                known += 1
        if not known:
            return None
        return Integers(found, None if known == self.count else valid)

    cdef object _end_offsets(self):
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * 8)
        cdef int64_t *to = <int64_t *>PyBytes_AS_STRING(found)
        cdef bytearray valid = bytearray((self.count + 7) // 8)
        cdef uint8_t[::1] bits = valid
        cdef const int64_t *offsets
        cdef Py_ssize_t i, known = 0
        offsets = <const int64_t *>self._buffer(self.block.offset.values, self.rows * 8)
        for i in range(self.count):
            if self._single(i):
                to[i] = 0
            else:
                to[i] = offsets[self.lasts[i]]
                bits[i >> 3] |= 1 << (i & 7)
                known += 1
        if not known:
            return None
        return Integers(found, None if known == self.count else valid)

    cdef object _gathered(self, column, const int32_t *records, list earlier):
        """Return a column of integers for the rows. `records` has the record from which each row takes its value; a negative
        index refers to `earlier`, the values of spans that were open before the block."""
        if column is None and (earlier is None or not any(each is not None for each in earlier)):
            return None
        cdef Longs from_
        self._longs(column, &from_)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * 8)
        cdef int64_t *to = <int64_t *>PyBytes_AS_STRING(found)
        cdef bytearray valid = bytearray((self.count + 7) // 8)
        cdef uint8_t[::1] bits = valid
        cdef Py_ssize_t i, known = 0
        cdef bint all_valid = from_.values != NULL and from_.valid == NULL
        for i in range(self.count):
            if records[i] >= 0:
                if all_valid:
                    to[i] = from_.values[records[i]]
                    continue
                if _has(&from_, records[i]):
                    to[i] = from_.values[records[i]]
                    bits[i >> 3] |= 1 << (i & 7)
                    known += 1
                    continue
            elif earlier is not None:
                value = earlier[-records[i] - 1]
                if value is not None:
                    to[i] = value
                    if not all_valid:
                        bits[i >> 3] |= 1 << (i & 7)
                        known += 1
                    continue
                elif all_valid:
                    # This is the first row without a value, so mark all rows before it as valid.
                    all_valid = False
                    memset(&bits[0], 0xFF, i >> 3)
                    bits[i >> 3] = (1 << (i & 7)) - 1
                    known = i
            to[i] = 0
        if not (all_valid or known):
            return None
        return Integers(found, None if all_valid or known == self.count else valid)

    cdef object _words(self, column, const int32_t *records, list earlier):
        """Do the same as `_gathered` for a column of words."""
        if column is None and (earlier is None or not any(each is not None for each in earlier)):
            return None
        cdef const int32_t *codes = NULL
        cdef const uint8_t *given = NULL
        texts, known = [], 0
        if column is not None:
            texts, known = column.texts, column.known
            codes = <const int32_t *>self._buffer(column.codes, self.rows * 4)
            if column.valid is not None:
                given = self._buffer(column.valid, (self.rows + 7) // 8)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * 4)
        cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(found)
        cdef bytearray valid = bytearray((self.count + 7) // 8)
        cdef uint8_t[::1] bits = valid
        cdef Py_ssize_t i, some = 0
        cdef int32_t record
        if earlier:
            texts, codes_of = texts[:known], []
            for text in earlier:
                codes_of.append(None if text is None else len(texts))
                if text is not None:
                    texts.append(text)
            known = len(texts)
        for i in range(self.count):
            record = records[i]
            to[i] = 0
            if record >= 0:
                if codes == NULL or (given != NULL and not given[record >> 3] >> (record & 7) & 1):
                    continue
                to[i] = codes[record]
            else:
                code = codes_of[-record - 1]
                if code is None:
                    continue
                to[i] = code
            bits[i >> 3] |= 1 << (i & 7)
            some += 1
        if not some:
            return None
        return Words(found, texts, known, None if some == self.count else valid)

    cdef object _attributes(self):
        """Return the column of attributes for the rows. A span has the attributes of its begin and of its end."""
        column, ended = self.block.attributes, self.ended
        cdef const int32_t *ends = NULL
        cdef const uint8_t *data = NULL
        cdef const uint8_t *given = NULL
        cdef Py_ssize_t i, have = 0
        if column is not None:
            ends = <const int32_t *>self._buffer(column.ends, (self.rows + 1) * 4)
            for i in range(self.rows):
                if not 0 <= ends[i] <= ends[i + 1]:
                    raise ValueError(f"row {i} has a text from {ends[i]} to {ends[i + 1]}")
            have = ends[self.rows]
            data = self._buffer(column.data, have)
            if column.valid is not None:
                given = self._buffer(column.valid, (self.rows + 7) // 8)
        cdef Output out
        cdef bytearray valid = bytearray((self.count + 7) // 8)
        cdef uint8_t[::1] bits = valid
        cdef Py_ssize_t some = 0
        cdef bytes stops = PyBytes_FromStringAndSize(NULL, (self.count + 1) * 4)
        cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(stops)
        cdef Text first, last
        _make_output(&out, have)
        try:
            to[0] = 0
            for i in range(self.count):
                last = _text(self.lasts[i], ends, data, given)
                if self._single(i):
                    first.at, first.size = NULL, 0
                elif self.begins[i] >= 0:
                    first = _text(self.begins[i], ends, data, given)
                else:
                    held = ended[-self.begins[i] - 1].attributes
                    held = None if held is None else held.encode()
                    first.at, first.size = NULL, 0
                    if held is not None:
                        first.at, first.size = <const uint8_t *>PyBytes_AS_STRING(held), len(held)
                if _write_united(&out, last, first):
                    bits[i >> 3] |= 1 << (i & 7)
                    some += 1
                if out.size > 0x7FFF_FFFF:
                    raise OverflowError("the attributes of a block take 2 GiB")
                to[i + 1] = <int32_t>out.size
            if not some:
                return None
            found = PyBytes_FromStringAndSize(<const char *>out.data, out.size)
            return Texts(stops, found, None if some == self.count else valid)
        finally:
            PyMem_Free(out.data)


# Attributes

cdef struct Text:
    const uint8_t *at  # NULL if there is no text
    Py_ssize_t size


cdef struct Output:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef inline Text _text(
    int32_t record, const int32_t *ends, const uint8_t *data, const uint8_t *given
) noexcept nogil:
    cdef Text found
    found.at, found.size = NULL, 0
    if ends != NULL and (given == NULL or given[record >> 3] >> (record & 7) & 1):
        found.at, found.size = data + ends[record], ends[record + 1] - ends[record]
    return found


cdef int _make_output(Output *out, Py_ssize_t room) except -1:
    out.size, out.room = 0, max(room, 64)
    out.data = <uint8_t *>_allocated(out.room)
    return 0


cdef int _add(Output *out, const uint8_t *data, Py_ssize_t size) except -1:
    cdef uint8_t *more
    if size > out.room - out.size:
        more = <uint8_t *>PyMem_Realloc(out.data, 2 * out.room + size)
        if not more:
            raise MemoryError
        out.data, out.room = more, 2 * out.room + size
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline bint _none(Text text) noexcept nogil:
    return not text.at or (text.size == 2 and text.at[0] == c'{' and text.at[1] == c'}')


cdef bint _write_united(Output *out, Text ends, Text begins) except -1:
    """Write the text that `rows.fields.united` returns; return False if it is None."""
    if _none(begins) or _none(ends):
        if not _none(begins):
            ends = begins
        if ends.at:
            _add(out, ends.at, ends.size)
        return ends.at != NULL
    if _apart(ends, begins):
        _add(out, ends.at, ends.size - 1)
        _add(out, b",", 1)
        _add(out, begins.at + 1, begins.size - 1)
        return True
    if _one_more(ends, begins):
        _add(out, begins.at, begins.size)
        return True
    text = united(_decoded(ends), _decoded(begins)).encode()
    _add(out, <const uint8_t *>PyBytes_AS_STRING(text), len(text))
    return True


cdef str _decoded(Text text):
    return PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)


cdef bint _apart(Text ends, Text begins) noexcept nogil:
    """Return whether two JSON objects certainly have no name in common, so that their members can be joined.

    If neither has a backslash, a common name would occur in both with the same bytes: in quotes, before a colon."""
    cdef const uint8_t *at = ends.at
    cdef const uint8_t *stop = ends.at + ends.size
    cdef const uint8_t *key
    cdef int depth = 0
    if memchr(begins.at, c'\\', begins.size) or memchr(ends.at, c'\\', ends.size):
        return False
    if begins.size < 3 or begins.at[1] != c'"' or at[0] != c'{' or at[1] != c'"':
        return False
    while at < stop:
        if at[0] == c'"':
            key = at
            at = <const uint8_t *>memchr(at + 1, c'"', stop - at - 1)
            if not at:
                return False
            at += 1
            if at == stop:
                return False
            if depth == 1 and at[0] == c':':
                if memmem(begins.at, begins.size, key, at + 1 - key):
                    return False
            elif depth == 1 and at[0] != c',' and at[0] != c'}':
                return False
            continue
        if at[0] == c'{' or at[0] == c'[':
            depth += 1
        elif at[0] == c'}' or at[0] == c']':
            depth -= 1
        at += 1
    return True


cdef bint _one_more(Text ends, Text begins) noexcept nogil:
    """Return whether the attributes of a begin certainly consist of all members of the end's attributes, with the same
    bytes, and of one further member, and neither refers to names in other records."""
    cdef const uint8_t *rest = begins.at + ends.size  # the further member, after the comma
    cdef const uint8_t *stop = begins.at + begins.size - 1
    cdef const uint8_t *at
    cdef int depth = 0
    cdef bint quoted = False
    if begins.size < ends.size + 4 or memcmp(begins.at, ends.at, ends.size - 1) or begins.at[ends.size - 1] != c',' or rest[0] != c'"':
        return False
    if memchr(begins.at, c'\\', begins.size) or memmem(ends.at, ends.size, b'"$late"', 7):
        return False
    at = <const uint8_t *>memchr(rest + 1, c'"', stop - rest - 1)
    if not at or at + 1 >= stop or at[1] != c':' or memmem(ends.at, ends.size, rest, at + 1 - rest):
        return False
    while at < stop:
        if at[0] == c'"':
            quoted = not quoted
        elif not quoted:
            if at[0] == c',' and not depth:
                return False
            depth += (at[0] == c'{' or at[0] == c'[') - (at[0] == c'}' or at[0] == c']')
        at += 1
    return True


cdef void *_allocated(size_t size) except NULL:
    cdef void *memory = PyMem_Malloc(size if size else 1)
    if not memory:
        raise MemoryError
    return memory
