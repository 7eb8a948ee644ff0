"""The record of a line of DFTracer, for the kernel.

A newline ends every line that is read, and no string or number goes on beyond it. Where more than one byte is
read at once, the line's end is checked first.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from tailrace.decoding.json_scan cimport behind_white
from tailrace.decoding.json_text cimport BACKSLASH, QUOTE, sequence

cdef extern from *:
    """
    #define lowest_bit(word) __builtin_ctzll(word)
    #define FIRST_IS_LOWEST (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
    """
    bint FIRST_IS_LOWEST
    int lowest_bit(uint64_t word) noexcept nogil

cdef enum:
    HASH_MAX = 64  # bytes of a hash
    # The fields of a record
    ID = 1
    NAME = 2
    CATEGORY = 4
    TYPE = 8
    PID = 16
    TID = 32
    TS = 64
    DUR = 128
    PH = 256
    ARGS = 512
    EVENT_FIELDS = 503  # all but `type` and `args`, which may lack
    COUNTER_FIELDS = 374  # the same without `id` and `dur`
    NAMING_FIELDS = 822  # of metadata, with the arguments
    NAMING_ARGUMENTS = 3


cdef struct Text:
    const uint8_t *at
    Py_ssize_t size


cdef struct Line:
    int fields, arguments
    Text id, name, category, type, args
    Text host, file, value  # among the arguments: hashes, and what a name is for; a string's with its first quote
    Text given  # the argument `name`, if it is a string
    int64_t number, pid, tid, start, duration
    uint8_t phase  # M for all phases of metadata
    bint counts_calls  # says how many calls it stands for
    bint names  # gives a name to a hash


cdef inline const uint8_t *string_end(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """Return where the quote stands that ends a string, NULL for a string that is not usual. `stop` is a newline."""
    cdef uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL
    cdef uint64_t word, quotes, slashes
    cdef int width
    while True:
        if FIRST_IS_LOWEST and stop - at >= 8:
            memcpy(&word, at, 8)
            quotes, slashes = word ^ (ones * QUOTE), word ^ (ones * BACKSLASH)
            # A borrow can only mark a byte behind the first one that is marked rightly.
            word = (word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & tops
            if not word:
                at += 8
                continue
            at += lowest_bit(word) >> 3
        if at[0] == QUOTE:
            return at
        if at[0] >= 0x80:
            width = sequence(at, stop - at)
            if not width:
                return NULL
            at += width
        elif at[0] < 0x20 or at[0] == BACKSLASH:
            return NULL
        else:
            at += 1


cdef inline const uint8_t *read_integer(const uint8_t *at, int64_t *value) noexcept nogil:
    """Read an integer of 64 bits as JSON spells it; return where it ends, NULL for anything else."""
    cdef bint negative = at[0] == c'-'
    cdef const uint8_t *begin
    cdef uint64_t number = 0
    at += negative
    begin = at
    while c'0' <= at[0] <= c'9':
        number = number * 10 + (at[0] - c'0')
        at += 1
        if at - begin > 19:
            return NULL
    if at == begin or number >> 63 or (begin[0] == c'0' and (negative or at - begin > 1)):
        return NULL
    value[0] = -<int64_t>number if negative else <int64_t>number
    return at


cdef inline const uint8_t *digits_end(const uint8_t *at) noexcept nogil:
    """Return where digits end, NULL if there are none."""
    cdef const uint8_t *begin = at
    while c'0' <= at[0] <= c'9':
        at += 1
    return at if at > begin else NULL


cdef inline const uint8_t *number_end(const uint8_t *at) noexcept nogil:
    """Return where a number ends, NULL for what JSON does not take as one."""
    at += at[0] == c'-'
    if at[0] == c'0':
        at += 1
    else:
        at = digits_end(at)
        if not at:
            return NULL
    if at[0] == c'.':
        at = digits_end(at + 1)
        if not at:
            return NULL
    if at[0] == c'e' or at[0] == c'E':
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            at += 1
        at = digits_end(at)
    return at


cdef inline const uint8_t *behind_mark(const uint8_t *at, uint8_t mark) noexcept nogil:
    """Return what follows a mark and the white space on its sides, NULL if the mark is not there."""
    if at[0] != mark:
        at = behind_white(at)
        if at[0] != mark:
            return NULL
    return behind_white(at + 1) if at[1] <= c' ' else at + 1


cdef inline bint is_word(Text text, const char *word, Py_ssize_t size) noexcept nogil:
    return text.size == size and not memcmp(text.at, word, size)


cdef inline const uint8_t *read_arguments(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the object of the arguments from `at` on; return where it ends, NULL if it is not usual."""
    cdef Text key
    cdef Text *hash
    cdef const uint8_t *value
    cdef int64_t number
    at = behind_mark(at, c'{')
    if not at:
        return NULL
    if at[0] == c'}':
        return at + 1
    while at and at[0] == QUOTE:
        key.at = at + 1
        at = string_end(key.at, stop)
        if not at:
            return NULL
        key.size = at - key.at
        value = behind_mark(at + 1, c':')
        if not value:
            return NULL
        line.arguments += 1
        hash = NULL
        if key.size == 5 and not memcmp(key.at + 1, "hash", 4):
            hash = &line.host if key.at[0] == c'h' else &line.file if key.at[0] == c'f' else NULL
        elif is_word(key, b"dft_cnt", 7):
            line.counts_calls = True
        if value[0] == QUOTE:
            at = string_end(value + 1, stop)
            if not at:
                return NULL
            if hash:
                if hash.at or at - value > HASH_MAX:
                    return NULL
                hash.at, hash.size = value, at - value
            elif is_word(key, b"name", 4):
                line.given.at, line.given.size = value + 1, at - value - 1
            elif is_word(key, b"value", 5):
                line.value.at, line.value.size = value, at - value
            at += 1
        elif hash:
            at = read_integer(value, &number)
            if not at or hash.at or at - value > 18:
                return NULL
            hash.at, hash.size = value, at - value
        else:
            at = number_end(value)
            if not at:
                return NULL
            if is_word(key, b"value", 5):
                line.value.at, line.value.size = value, at - value
        at = behind_white(at)
        if at[0] == c'}':
            return at + 1
        at = behind_mark(at, c',')
    return NULL


cdef inline const uint8_t *read_field(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read a field of the record from its key on; return where it ends, NULL if it is not usual."""
    cdef const uint8_t *value
    cdef int64_t ignored
    cdef int field
    if stop - at < 6 or at[0] != QUOTE:
        return NULL
    if at[3] == QUOTE:
        value = behind_mark(at + 4, c':')
        if not value:
            return NULL
        if at[1] == c'i' and at[2] == c'd':
            field, at = ID, read_integer(value, &line.number)
            if not at:
                return NULL
            line.id.at, line.id.size = value, at - value
        elif at[1] == c't' and at[2] == c's':
            field, at = TS, read_integer(value, &line.start)
        elif at[1] == c'p' and at[2] == c'h':
            field = PH
            if value[0] == QUOTE and value[1] in b"XCMH" and value[2] == QUOTE:
                line.phase, at = value[1], value + 3
            elif c'1' <= value[0] <= c'4':
                line.phase, at = value[0], value + 1
            else:
                return NULL
        else:
            return NULL
    elif at[4] == QUOTE:
        value = behind_mark(at + 5, c':')
        if not value:
            return NULL
        if not memcmp(at + 1, "pid", 3):
            field, at = PID, read_integer(value, &line.pid)
        elif not memcmp(at + 1, "tid", 3):
            field, at = TID, read_integer(value, &line.tid)
        elif not memcmp(at + 1, "dur", 3):
            field, at = DUR, read_integer(value, &line.duration)
        elif not memcmp(at + 1, "cat", 3) and value[0] == QUOTE:
            field, at = CATEGORY, string_end(value + 1, stop)
            if not at:
                return NULL
            line.category.at, line.category.size = value + 1, at - value - 1
            at += 1
        else:
            return NULL
    elif at[5] == QUOTE:
        value = behind_mark(at + 6, c':')
        if not value:
            return NULL
        if not memcmp(at + 1, "name", 4) and value[0] == QUOTE:
            field, at = NAME, string_end(value + 1, stop)
            if not at:
                return NULL
            line.name.at, line.name.size = value + 1, at - value - 1
            at += 1
        elif not memcmp(at + 1, "type", 4):
            field, at = TYPE, read_integer(value, &ignored)
            if not at:
                return NULL
            line.type.at, line.type.size = value, at - value
        elif not memcmp(at + 1, "args", 4):
            field, at = ARGS, read_arguments(value, stop, line)
            if not at:
                return NULL
            line.args.at, line.args.size = value, at - value
        else:
            return NULL
    else:
        return NULL
    if line.fields & field:
        return NULL
    line.fields |= field
    return at


cdef inline bint is_key(Text hash) noexcept nogil:
    """Return whether a hash is an integer of 64 bits, or a short string that JSON in ASCII spells as it is."""
    cdef int64_t number
    cdef Py_ssize_t at
    if hash.at[0] != QUOTE:
        return read_integer(hash.at, &number) == hash.at + hash.size
    if hash.size > HASH_MAX:
        return False
    for at in range(hash.size):
        if hash.at[at] >= 0x7F:
            return False
    return True


cdef inline bint is_naming(const Line *line) noexcept nogil:
    """Return whether the metadata gives a name to a hash, and has only the arguments for that, each once."""
    if line.fields & ~TYPE != NAMING_FIELDS or line.arguments != NAMING_ARGUMENTS:
        return False
    if line.name.size != 2 or line.name.at[0] not in b"HFS" or line.name.at[1] != c'H':
        return False
    # All three came, so none came twice.
    return line.host.at and line.given.at and line.value.at and is_key(line.value)


cdef inline const uint8_t *behind_separators(const uint8_t *at) noexcept nogil:
    """Return where the commas and the white space around a record end."""
    while at[0] == c',' or at[0] == c' ' or at[0] == c'\t' or at[0] == c'\r':
        at += 1
    return at


cdef inline bint read_line(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the record of a line that ends before the newline `stop`; return whether it is usual."""
    cdef int needed
    memset(line, 0, sizeof(Line))
    at = behind_mark(behind_separators(at), c'{')
    while at:
        at = read_field(at, stop, line)
        if not at:
            return False
        at = behind_white(at)
        if at[0] == c'}':
            break
        at = behind_mark(at, c',')
    if not at or behind_separators(at + 1) != stop:
        return False
    if line.phase == c'4' or line.phase == c'M' or line.phase == c'H':
        line.names = is_naming(line)
        return line.names
    needed = line.fields & ~(TYPE | ARGS)
    if line.phase == c'1' or line.phase == c'X':
        return needed == EVENT_FIELDS and line.duration >= 0 and not is_word(line.category, b"dftracer", 8)
    return needed == COUNTER_FIELDS
