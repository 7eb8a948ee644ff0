# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Join the columns of several parts of a batch into one column. Blocks are copied whole, lists value by value.

A part is a column of a block (`Integers`, `Words` or `Texts`), a list, or None for rows without a value. `counts` has
the number of rows of each part. The validity bitmap is None if all rows have a value. All functions keep the
interpreter's lock, as in `rows._columns`."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy, memset

cdef const char *_utf8(text, Py_ssize_t *size) except NULL:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    return PyUnicode_AsUTF8AndSize(text, size)


cdef class _Valid:
    """The validity bitmap of a joined column: a bit is set for each row that has a value."""

    cdef bytearray bits
    cdef unsigned char[::1] view
    cdef bint all

    def __cinit__(self, Py_ssize_t rows):
        self.bits = bytearray(b"\xff") * ((rows + 7) >> 3)
        self.view = self.bits
        self.all = True

    cdef void clear(self, Py_ssize_t row) noexcept:
        self.view[row >> 3] &= ~(1 << (row & 7))
        self.all = False

    cdef void clear_all(self, Py_ssize_t begin, Py_ssize_t stop) noexcept:
        while begin < stop and begin & 7:
            self.clear(begin)
            begin += 1
        if stop - begin >= 8:
            memset(&self.view[begin >> 3], 0, (stop - begin) >> 3)
            self.all = False
            begin += (stop - begin) & ~7
        while begin < stop:
            self.clear(begin)
            begin += 1

    cdef int take(self, part, Py_ssize_t begin, Py_ssize_t rows) except -1:
        """Copy the validity bits of a block's column to rows from `begin` on. `part` is None without values."""
        cdef const unsigned char[::1] bits
        cdef unsigned char *to
        cdef Py_ssize_t i
        cdef int shift = begin & 7
        if part is None:
            self.clear_all(begin, begin + rows)
            return 0
        if part.valid is None or not rows:
            return 0
        bits = part.valid
        if bits.shape[0] * 8 < rows:
            raise ValueError(f"{bits.shape[0]} bytes do not hold {rows} bits")
        to = &self.view[begin >> 3]
        for i in range(rows >> 3):  # all bits of these rows are still set, because each row is taken once
            if bits[i] == 0xFF:
                continue
            self.all = False
            to[i] &= (bits[i] << shift) | ((1 << shift) - 1)
            if shift:
                to[i + 1] &= (bits[i] >> (8 - shift)) | (0xFF << shift)
        for i in range(rows & ~7, rows):
            if not bits[i >> 3] >> (i & 7) & 1:
                self.clear(begin + i)
        return 0

    cdef found(self):
        return None if self.all else self.bits


cdef const unsigned char[::1] _bytes(buffer, Py_ssize_t size):
    cdef const unsigned char[::1] view = memoryview(buffer).cast("B")
    if view.shape[0] < size:
        raise ValueError(f"a buffer of {view.shape[0]} bytes, not {size}")
    return view


cdef _piece(buffer, Py_ssize_t begin, Py_ssize_t stop):
    whole = memoryview(buffer).cast("B")
    if not 0 <= begin <= stop <= len(whole):
        raise ValueError(f"a buffer of {len(whole)} bytes has no bytes {begin} to {stop}")
    return whole[begin:stop]


def integers(list parts, list counts):
    """Join columns of integers. Return the values, and the validity bitmap."""
    cdef Py_ssize_t rows = sum(counts), at = 0, i, count
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * 8)
    cdef long long *values = <long long *>PyBytes_AS_STRING(found)
    cdef _Valid valid = _Valid(rows)
    cdef const unsigned char[::1] data
    for part, count in zip(parts, counts):
        if isinstance(part, list):
            for i, value in enumerate(<list>part):
                if value is None:
                    valid.clear(at + i)
                elif not isinstance(value, int):
                    raise TypeError(f"{value!r} is no integer")
                values[at + i] = 0 if value is None else value
        else:
            valid.take(part, at, count)
            if part is None:
                memset(values + at, 0, count * 8)
            elif count:
                data = _bytes(part.values, count * 8)
                memcpy(values + at, &data[0], count * 8)
        at += count
    return found, valid.found()


def texts(list parts, list counts):
    """Join columns of texts that rarely repeat. Return the ends, the texts in UTF-8, and the validity bitmap or None.

    Raise OverflowError if the texts exceed 2 GiB."""
    cdef Py_ssize_t rows = sum(counts), at = 0, i, count, size, total = 0
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4)
    cdef int *end = <int *>PyBytes_AS_STRING(ends)
    cdef const int *other
    cdef const char *text
    cdef _Valid valid = _Valid(rows)
    cdef const unsigned char[::1] view
    pieces = []
    end[0] = 0
    for part, count in zip(parts, counts):
        if isinstance(part, list):
            for i, value in enumerate(<list>part):
                if value is None:
                    valid.clear(at + i)
                else:
                    text = _utf8(value, &size)
                    pieces.append(text[:size])
                    total += size
                end[at + i + 1] = <int>total
        else:
            valid.take(part, at, count)
            if part is None or not count:
                for i in range(count):
                    end[at + i + 1] = <int>total
            else:
                view = _bytes(part.ends, (count + 1) * 4)
                other = <const int *>&view[0]
                for i in range(count):
                    end[at + i + 1] = <int>(total + other[i + 1] - other[0])
                pieces.append(_piece(part.data, other[0], other[count]))
                total += other[count] - other[0]
        at += count
        if total > 0x7FFF_FFFF:
            raise OverflowError(f"texts of {total} bytes do not fit into one column")
    return ends, b"".join(pieces), valid.found()


def words(list parts, list counts):
    """Join columns of repeated texts. Return the codes, the texts in order of occurrence, and the validity bitmap."""
    cdef Py_ssize_t rows = sum(counts), at = 0, i, count
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * 4)
    cdef int *codes = <int *>PyBytes_AS_STRING(found)
    cdef const int *other
    cdef int *table
    cdef array.array known
    cdef int code, most
    cdef bint all_valid
    cdef list own
    cdef _Valid valid = _Valid(rows)
    cdef const unsigned char[::1] view
    cdef list seen = []
    cdef dict code_of = {}
    # for each part's list of texts: the joined code by the part's code, -1 for a text that has not occurred yet
    cdef dict tables = {}
    for part, count in zip(parts, counts):
        if isinstance(part, list):
            for i, value in enumerate(<list>part):
                if value is None:
                    valid.clear(at + i)
                    codes[at + i] = 0
                else:
                    codes[at + i] = _code(value, code_of, seen)
        else:
            valid.take(part, at, count)
            if part is None or not count:
                memset(codes + at, 0, count * 4)
                at += count
                continue
            view = _bytes(part.codes, count * 4)
            other = <const int *>&view[0]
            own, most, all_valid = part.texts, part.known, part.valid is None
            known = tables.setdefault(id(own), array.array("i"))
            if len(known) < most:
                known.frombytes(b"\xff" * (4 * (most - len(known))))
            table = known.data.as_ints
            for i in range(count):
                code = other[i]
                if not all_valid and not valid.view[(at + i) >> 3] >> ((at + i) & 7) & 1:
                    codes[at + i] = 0
                    continue
                if not 0 <= code < most:
                    raise ValueError(f"row {i} has code {code} of {most}")
                if table[code] < 0:
                    table[code] = _code(own[code], code_of, seen)
                codes[at + i] = table[code]
        at += count
    return found, seen, valid.found()


cdef int _code(text, dict code_of, list seen) except -1:
    cdef Py_ssize_t size
    code = code_of.get(text)
    if code is None:
        _utf8(text, &size)
        code = code_of[text] = len(seen)
        seen.append(text)
    return code
