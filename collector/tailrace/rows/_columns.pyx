# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Compute on columns of 64-bit integers, and on columns of 32-bit codes.

All functions keep the interpreter's lock (GIL): a column takes microseconds, but a thread may wait milliseconds to get
a released lock back."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from *:
    """
    #define add_overflows(a, b, sum) __builtin_add_overflow((long long)(a), (long long)(b), (long long *)(sum))
    #define mul_overflows(a, b, product) __builtin_mul_overflow((long long)(a), (long long)(b), (long long *)(product))
    """
    bint add_overflows(long long a, long long b, long long *total) noexcept nogil
    bint mul_overflows(long long a, long long b, long long *product) noexcept nogil


def shifted(const unsigned char[::1] values, Py_ssize_t rows, long long by, long long factor=1):
    """Return the first `rows` integers, each multiplied by `factor` and increased by `by`.

    Return None if a result has more than 64 bits. Raise ValueError if the buffer is too short."""
    if rows * 8 > values.shape[0]:
        raise ValueError(f"{values.shape[0]} bytes do not hold {rows} integers")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * 8)
    cdef long long *total = <long long *>PyBytes_AS_STRING(found)
    cdef const long long *value = <const long long *>&values[0] if rows else NULL
    cdef bint over = False
    cdef Py_ssize_t i
    for i in range(rows):
        over |= mul_overflows(value[i], factor, &total[i])
        over |= add_overflows(total[i], by, &total[i])
    return None if over else found


def divided(const unsigned char[::1] values, Py_ssize_t rows, long long by):
    """Return the first `rows` integers divided by `by`, rounded towards zero.

    Raise ValueError if `by` is not positive or the buffer is too short."""
    if rows * 8 > values.shape[0] or by < 1:
        raise ValueError(f"{values.shape[0]} bytes do not hold {rows} integers, or {by} is not positive")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * 8)
    cdef long long *result = <long long *>PyBytes_AS_STRING(found)
    cdef const long long *value = <const long long *>&values[0] if rows else NULL
    cdef Py_ssize_t i
    for i in range(rows):
        result[i] = value[i] // by
    return found


def greatest(const unsigned char[::1] values, Py_ssize_t rows, Py_ssize_t begin=0):
    """Return the greatest integer in the rows from `begin` to `rows` (exclusive).

    Raise ValueError if the range is empty or exceeds the buffer."""
    if not 0 <= begin < rows or rows * 8 > values.shape[0]:
        raise ValueError(f"{values.shape[0]} bytes do not hold integers {begin} to {rows}")
    cdef const long long *value = <const long long *>&values[0]
    cdef long long most = value[begin]
    cdef Py_ssize_t i
    for i in range(begin, rows):
        most = value[i] if value[i] > most else most
    return most


def present(const unsigned char[::1] codes, Py_ssize_t rows, int known, valid=None):
    """Return the distinct codes in the first `rows` rows, in the order of their first occurrence.

    With the bitmap `valid`, only rows whose bit is set count. Raise ValueError for a code outside 0 to `known`
    (exclusive), and for buffers that are too short."""
    if rows * 4 > codes.shape[0]:
        raise ValueError(f"{codes.shape[0]} bytes do not hold {rows} codes")
    cdef const int *code = <const int *>&codes[0] if rows else NULL
    cdef const unsigned char[::1] bits = b"" if valid is None else valid
    cdef bint all_valid = valid is None
    if not all_valid and bits.shape[0] * 8 < rows:
        raise ValueError(f"{bits.shape[0]} bytes do not hold {rows} bits")
    cdef bytearray seen = bytearray(known)
    cdef unsigned char[::1] mark = seen
    cdef list found = []
    cdef Py_ssize_t i
    for i in range(rows):
        if all_valid or bits[i >> 3] >> (i & 7) & 1:
            if not 0 <= code[i] < known:
                raise ValueError(f"row {i} has code {code[i]} of {known}")
            if not mark[code[i]]:
                mark[code[i]] = 1
                found.append(code[i])
    return found


def counted(const unsigned char[::1] codes, Py_ssize_t rows, int known):
    """Return the number of rows with each code from 0 to `known` (exclusive), among the first `rows` rows.

    Raise ValueError for another code, and if the buffer is too short."""
    if rows * 4 > codes.shape[0]:
        raise ValueError(f"{codes.shape[0]} bytes do not hold {rows} codes")
    cdef const int *code = <const int *>&codes[0] if rows else NULL
    cdef array.array found = array.array("q", bytes(8 * known))
    cdef long long *count = found.data.as_longlongs
    cdef Py_ssize_t i
    for i in range(rows):
        if not 0 <= code[i] < known:
            raise ValueError(f"row {i} has code {code[i]} of {known}")
        count[code[i]] += 1
    return found.tolist()


def recoded(const unsigned char[::1] codes, Py_ssize_t rows, const int[::1] table):
    """Return `table[code]` for the code of each of the first `rows` rows; 0 for no entry or a negative entry.

    Raise ValueError if the buffer is too short."""
    if rows * 4 > codes.shape[0]:
        raise ValueError(f"{codes.shape[0]} bytes do not hold {rows} codes")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * 4)
    cdef int *other = <int *>PyBytes_AS_STRING(found)
    cdef const int *code = <const int *>&codes[0] if rows else NULL
    cdef Py_ssize_t i, known = table.shape[0]
    for i in range(rows):
        other[i] = max(table[code[i]], 0) if 0 <= code[i] < known else 0
    return found
