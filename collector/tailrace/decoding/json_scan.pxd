"""Find the ends of JSON values for the kernels, as strictly as `json_object` reads JSON.

A newline must come before `end`, the end of the buffer, or a NUL must be at `end`. No function reads beyond these. A
function returns the position after the text, unless its docstring states another result. It returns NULL for text that
is not JSON, and for text that only Python reads: lone surrogates, and nesting deeper than `NESTING_MAX`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from tailrace.decoding.json_text cimport BACKSLASH, QUOTE, sequence, write_escape

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define little_endian(word) __builtin_bswap64(word)
    #else
    #define little_endian(word) (word)
    #endif
    """
    uint64_t little_endian(uint64_t word) noexcept nogil
    int trailing_zeros "__builtin_ctzll" (uint64_t word) noexcept nogil

cdef enum:
    NESTING_MAX = 126  # levels of a value inside a record and its arguments, together `DEPTH_MAX`
    SPELLED_MAX = 64  # bytes of an integer that is written with a fraction or an exponent
    # How a string is spelled in JSON
    AS_IT_IS = 0  # without escapes
    ESCAPED = 1  # with escapes that have only one usual spelling
    RESPELLED = 2  # with an escape that `json.encoder.encode_basestring` may spell otherwise


cdef inline const uint8_t *behind_white(const uint8_t *at) noexcept nogil:
    """Return the position after the white space at `at`. A newline ends the white space."""
    while at[0] == c' ' or at[0] == c'\t' or at[0] == c'\r':
        at += 1
    return at


cdef inline const uint8_t *behind_blank_lines(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return the position of the first character that is not white space or newline, or `end`."""
    while at < end and (at[0] == c'\n' or at[0] == c' ' or at[0] == c'\t' or at[0] == c'\r'):
        at += 1
    return at


cdef inline bint _is_hexadecimal(uint8_t c) noexcept nogil:
    return c'0' <= c <= c'9' or c'a' <= (c | 0x20) <= c'f'


cdef inline uint8_t _surrogate(const uint8_t *at) noexcept nogil:
    """Classify the escape `\\uXXXX` at `at`: 0xD8 for the first of a surrogate pair, 0xDC for the second, else 1.

    Return 0 if it is not such an escape."""
    cdef int i
    for i in range(2, 6):
        if not _is_hexadecimal(at[i]):
            return 0
    if (at[2] | 0x20) != c'd' or c'0' <= at[3] <= c'7':
        return 1
    return 0xD8 if at[3] <= c'9' or (at[3] | 0x20) <= c'b' else 0xDC


cdef inline int _escape(const uint8_t *at, int *spelling) noexcept nogil:
    """Return the number of bytes of the escape at `at`, or 0 if the escape is not valid. Add its kind to `spelling`."""
    cdef uint8_t c = at[1]
    if (
        c == QUOTE or c == BACKSLASH
        or c == c'b' or c == c'f' or c == c'n' or c == c'r' or c == c't'
    ):
        spelling[0] |= ESCAPED
        return 2
    spelling[0] |= RESPELLED
    if c == c'/':
        return 2
    if c != c'u':
        return 0
    c = _surrogate(at)
    if c == 0xD8:
        return 12 if at[6] == BACKSLASH and at[7] == c'u' and _surrogate(at + 6) == 0xDC else 0
    return 6 if c == 1 else 0


cdef inline const uint8_t *string_end(
    const uint8_t *at, const uint8_t *end, int *spelling
) noexcept nogil:
    """Return the position of the quote that ends the string. `at` is the string's first character.

    Add the kinds of its escapes to `spelling`."""
    cdef uint64_t word, ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL, special
    cdef int width
    while True:
        while end - at >= 8:
            memcpy(&word, at, 8)
            word = little_endian(word)
            # The first byte whose top bit is set here is special; see `json_text.all_plain`.
            special = (
                word | (word - ones * 0x20) | ((word ^ (ones * QUOTE)) - ones)
                | ((word ^ (ones * BACKSLASH)) - ones)
            ) & tops
            if special:
                at += trailing_zeros(special) >> 3
                break
            at += 8
        if at[0] == QUOTE:
            return at
        if at[0] == BACKSLASH:
            width = _escape(at, spelling)
        elif at[0] >= 0x80:
            width = sequence(at, end - at)
        else:
            width = at[0] >= 0x20
        if not width:
            return NULL
        at += width


cdef inline uint32_t _unit(const uint8_t *at) noexcept nogil:
    cdef uint32_t unit = 0
    cdef int i
    for i in range(2, 6):
        unit = unit << 4 | ((at[i] & 15) + 9 * (at[i] >> 6))
    return unit


cdef inline uint8_t *write_respelled(const uint8_t *at, const uint8_t *stop, uint8_t *out) noexcept nogil:
    """Write the characters of a valid string as `json.encoder.encode_basestring` spells them, never in more bytes."""
    cdef const uint8_t *escape
    cdef uint32_t point
    cdef uint8_t c
    while at < stop:
        escape = <const uint8_t *>memchr(at, BACKSLASH, stop - at)
        if not escape:
            escape = stop
        memcpy(out, at, escape - at)
        out += escape - at
        at = escape
        if at == stop:
            break
        c = at[1]
        if c != c'u':
            if c == c'/':
                out[0] = c
                out += 1
            else:
                out[0], out[1] = BACKSLASH, c
                out += 2
            at += 2
            continue
        point = _unit(at)
        at += 6
        if point < 0x20 or point == QUOTE or point == BACKSLASH:
            out = write_escape(<uint8_t>point, out)
            continue
        if point < 0x80:
            out[0] = <uint8_t>point
            out += 1
            continue
        if point < 0x800:
            out[0] = 0xC0 | point >> 6
            out += 1
        else:
            if 0xD800 <= point < 0xDC00:
                point = 0x10000 + ((point & 0x3FF) << 10 | (_unit(at) & 0x3FF))
                at += 6
                out[0], out[1] = 0xF0 | point >> 18, 0x80 | (point >> 12 & 0x3F)
                out += 2
            else:
                out[0] = 0xE0 | point >> 12
                out += 1
            out[0] = 0x80 | (point >> 6 & 0x3F)
            out += 1
        out[0] = 0x80 | (point & 0x3F)
        out += 1
    return out


cdef inline const uint8_t *_digits_end(const uint8_t *at) noexcept nogil:
    if not c'0' <= at[0] <= c'9':
        return NULL
    while c'0' <= at[0] <= c'9':
        at += 1
    return at


cdef inline const uint8_t *number_end(const uint8_t *at, bint *whole) noexcept nogil:
    """Return the position after a number. Set `whole` to whether the number has neither fraction nor exponent."""
    whole[0] = True
    if at[0] == c'-':
        at += 1
    at = at + 1 if at[0] == c'0' else _digits_end(at)
    if at and at[0] == c'.':
        whole[0] = False
        at = _digits_end(at + 1)
    if at and at[0] | 0x20 == c'e':
        whole[0] = False
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            at += 1
        at = _digits_end(at)
    return at


cdef inline bint read_integral(const uint8_t *at, const uint8_t *stop, int64_t *value) noexcept nogil:
    """Store the integer value of a valid number. Return whether `json_object.integral` returns this integer."""
    cdef bint negative = at[0] == c'-', lowers, fraction = False
    cdef uint64_t number = 0
    cdef int zeros = 0, exponent = 0, places = 0, i
    if stop - at > SPELLED_MAX:
        return False
    at += negative
    while at < stop and at[0] | 0x20 != c'e':
        if at[0] == c'.':
            fraction = True
        else:
            places += fraction
            zeros += 1  # the zeros since the last other digit, until this digit is known
            if at[0] != c'0':
                for i in range(zeros if number else 1):
                    number *= 10
                    if number > 1ULL << 53:
                        return False
                number += at[0] - c'0'
                zeros = 0
        at += 1
    if at < stop:
        lowers = at[1] == c'-'
        at += 1 + (lowers or at[1] == c'+')
        while at < stop:
            if exponent < 1000:
                exponent = 10 * exponent + (at[0] - c'0')
            at += 1
        if lowers:
            exponent = -exponent
    value[0] = 0
    if not number:
        return True
    zeros += exponent - places
    if not 0 <= zeros <= 16:
        return False
    for i in range(zeros):
        number *= 10
        if number > 1ULL << 53:
            return False
    if number > 1ULL << 53:
        return False
    value[0] = -<int64_t>number if negative else <int64_t>number
    return True


cdef inline const uint8_t *word_end(const uint8_t *at) noexcept nogil:
    # Compare the characters one by one, because the buffer may end after the newline.
    cdef const char *word = "true" if at[0] == c't' else "false" if at[0] == c'f' else "null"
    while word[0]:
        if at[0] != <uint8_t>word[0]:
            return NULL
        at += 1
        word += 1
    return at


cdef inline const uint8_t *_scalar_end(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef int spelling = 0
    cdef bint whole
    if at[0] == QUOTE:
        at = string_end(at + 1, end, &spelling)
        return at + 1 if at else NULL
    if at[0] == c'-' or c'0' <= at[0] <= c'9':
        return number_end(at, &whole)
    return word_end(at)


cdef inline const uint8_t *_key_end(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef int spelling = 0
    if at[0] != QUOTE:
        return NULL
    at = string_end(at + 1, end, &spelling)
    if not at:
        return NULL
    at = behind_white(at + 1)
    return behind_white(at + 1) if at[0] == c':' else NULL


cdef inline const uint8_t *value_end(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef uint8_t[NESTING_MAX] closing  # the bracket that closes each open level
    cdef int depth = 0
    while True:
        if at[0] == c'{' or at[0] == c'[':
            if depth == NESTING_MAX:
                return NULL
            closing[depth] = at[0] + 2
            depth += 1
            at = behind_white(at + 1)
            if at[0] != closing[depth - 1]:
                if closing[depth - 1] == c'}':
                    at = _key_end(at, end)
                    if not at:
                        return NULL
                continue
        else:
            at = _scalar_end(at, end)
            if not at:
                return NULL
        # `at` is after a value, or at the closing bracket of an empty object or array.
        while depth:
            at = behind_white(at)
            if at[0] == c',':
                break
            if at[0] != closing[depth - 1]:
                return NULL
            at += 1
            depth -= 1
        if not depth:
            return at
        at = behind_white(at + 1)
        if closing[depth - 1] == c'}':
            at = _key_end(at, end)
            if not at:
                return NULL


cdef inline bint read_unsigned(const uint8_t *at, const uint8_t *stop, uint64_t *number) noexcept nogil:
    """Store the value of an integer without a sign. Return whether it has at most 64 bits."""
    cdef uint64_t value = 0
    cdef uint8_t digit
    if stop - at > 20:
        return False
    while at < stop:
        digit = at[0] - c'0'
        if digit > 9 or value > 1844674407370955161ULL or (value == 1844674407370955161ULL and digit > 5):
            return False
        value = 10 * value + digit
        at += 1
    number[0] = value
    return True
