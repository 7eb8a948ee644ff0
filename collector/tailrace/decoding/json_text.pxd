"""Write JSON text for the kernels, with the spelling of `json.encoder.encode_basestring`, `str` and `repr`.

Each `write` function writes at `out` and returns the end of the text. `out` needs room for at most 6 bytes for each
byte of a string, 20 for an integer, and 26 for a float."""

from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, strlen

cdef extern from "Python.h":
    char *PyOS_double_to_string(double, char, int, int, int *) except NULL
    int Py_DTSF_ADD_DOT_0

cdef enum:
    QUOTE = 0x22
    BACKSLASH = 0x5C


cdef inline uint8_t *write_plain(const char *text, uint8_t *out) noexcept nogil:
    cdef size_t size = strlen(text)
    memcpy(out, text, size)
    return out + size


cdef inline bint all_plain(uint64_t word) noexcept nogil:
    """Return whether each of the eight bytes in `word` is ASCII and needs no escape in a JSON string.

    `(w - 0x01…) & ~w & 0x80…` finds a zero byte in `w`. `& ~w` is left out to find bytes from
    0x80 on."""
    cdef uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL
    cdef uint64_t quotes = word ^ (ones * QUOTE), slashes = word ^ (ones * BACKSLASH)
    return not (
        (word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & tops
    )


cdef inline int sequence(const uint8_t *at, Py_ssize_t have) noexcept nogil:
    """Return the length of the UTF-8 sequence of two to four bytes that begins at `at`, or 0."""
    cdef uint8_t lead = at[0], low = 0x80, high = 0xBF
    cdef int size, i
    if 0xC2 <= lead <= 0xDF:
        size = 2
    elif 0xE0 <= lead <= 0xEF:
        size = 3
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:  # UTF-8 excludes surrogates
            high = 0x9F
    elif 0xF0 <= lead <= 0xF4:
        size = 4
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
    else:
        return 0
    if have < size or not low <= at[1] <= high:
        return 0
    for i in range(2, size):
        if at[i] & 0xC0 != 0x80:
            return 0
    return size


cdef inline uint8_t *write_escape(uint8_t c, uint8_t *out) noexcept nogil:
    """Write a control character, a quote or a backslash as an escape."""
    cdef const char *digits = "0123456789abcdef"
    cdef uint8_t letter = 0
    if c == QUOTE or c == BACKSLASH:
        letter = c
    elif c == 0x08:
        letter = c'b'
    elif c == 0x09:
        letter = c't'
    elif c == 0x0A:
        letter = c'n'
    elif c == 0x0C:
        letter = c'f'
    elif c == 0x0D:
        letter = c'r'
    out[0] = BACKSLASH
    if letter:
        out[1] = letter
        return out + 2
    memcpy(out + 1, "u00", 3)
    out[4] = digits[c >> 4]
    out[5] = digits[c & 15]
    return out + 6


cdef inline uint8_t *write_string(const uint8_t *at, Py_ssize_t size, uint8_t *out) noexcept nogil:
    """Write UTF-8 as a JSON string. Return NULL if the bytes are not UTF-8."""
    cdef const uint8_t *end = at + size
    cdef uint64_t word
    cdef int width
    out[0] = QUOTE
    out += 1
    while at < end:
        while end - at >= 8:
            memcpy(&word, at, 8)
            if not all_plain(word):
                break
            memcpy(out, &word, 8)
            at += 8
            out += 8
        if at == end:
            break
        if at[0] >= 0x80:
            width = sequence(at, end - at)
            if not width:
                return NULL
            memcpy(out, at, width)
            at += width
            out += width
        elif at[0] < 0x20 or at[0] == QUOTE or at[0] == BACKSLASH:
            out = write_escape(at[0], out)
            at += 1
        else:
            out[0] = at[0]
            at += 1
            out += 1
    out[0] = QUOTE
    return out + 1


cdef inline uint8_t *write_unsigned(uint64_t number, uint8_t *out) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = c'0' + number % 10
        number //= 10
        if not number:
            break
    memcpy(out, digits + at, 20 - at)
    return out + (20 - at)


cdef inline uint8_t *write_signed(int64_t number, uint8_t *out) noexcept nogil:
    if number >= 0:
        return write_unsigned(number, out)
    out[0] = c'-'
    return write_unsigned(0 - <uint64_t>number, out + 1)


cdef inline uint8_t *write_float(double number, uint8_t *out) except NULL:
    """Write a finite number as `repr` does."""
    cdef char *text = PyOS_double_to_string(number, c'r', 0, Py_DTSF_ADD_DOT_0, NULL)
    out = write_plain(text, out)
    PyMem_Free(text)
    return out
