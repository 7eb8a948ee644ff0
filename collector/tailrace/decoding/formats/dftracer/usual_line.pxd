"""The record of a line of DFTracer, for the kernel.

A newline ends every line that is read, and no string or number goes on beyond it. Where more than one byte is
read at once, the line's end is checked first.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from tailrace.decoding.json_scan cimport behind_white, number_end, string_end, value_end, write_respelled
from tailrace.decoding.json_text cimport BACKSLASH, QUOTE

cdef enum:
    HASH_MAX = 64  # bytes of a hash
    OTHERS_MAX = 8
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


cdef struct Member:
    Text key, value


cdef struct Line:
    int fields, arguments
    int spelling  # of the strings, as in `json_scan`
    Text id, name, category, type, args
    Text host, file, value  # among the arguments: hashes, and what a name is for; a string's with its first quote
    Text given  # the argument `name`, if it is a string
    int64_t number, pid, tid, start, duration
    uint8_t phase  # M for all phases of metadata
    bint counts_calls  # says how many calls it stands for
    bint names  # gives a name to a hash
    Text told_host, told_file  # the arguments `hostname` and `fname`, if they are strings
    bint quoted_id, quoted_pid
    int others
    Member other[OTHERS_MAX]  # fields that the tracer does not have


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


cdef inline const uint8_t *behind_mark(const uint8_t *at, uint8_t mark) noexcept nogil:
    """Return what follows a mark and the white space on its sides, NULL if the mark is not there."""
    if at[0] != mark:
        at = behind_white(at)
        if at[0] != mark:
            return NULL
    return behind_white(at + 1) if at[1] <= c' ' else at + 1


cdef inline bint is_word(Text text, const char *word, Py_ssize_t size) noexcept nogil:
    return text.size == size and not memcmp(text.at, word, size)


cdef inline const uint8_t *_any_end(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Return where any value ends."""
    cdef const uint8_t *begin = at
    cdef bint whole
    if at[0] == QUOTE:
        at = string_end(at + 1, stop, &line.spelling)
        return at + 1 if at else NULL
    if at[0] == c'-' or c'0' <= at[0] <= c'9':
        return number_end(at, &whole)
    at = value_end(at, stop)
    if at and memchr(begin, BACKSLASH, at - begin):
        line.spelling = 1
    return at


cdef inline const uint8_t *read_arguments(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the object of the arguments from `at` on; return where it ends, NULL if it is not usual."""
    cdef Text key
    cdef Text *hash
    cdef Text *told
    cdef const uint8_t *value
    cdef int64_t number
    cdef int spelling
    at = behind_mark(at, c'{')
    if not at:
        return NULL
    if at[0] == c'}':
        return at + 1
    while at and at[0] == QUOTE:
        key.at = at + 1
        spelling = 0
        at = string_end(key.at, stop, &spelling)
        if not at or spelling:
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
        if hash:
            if value[0] == QUOTE:
                at = string_end(value + 1, stop, &spelling)
                if not at or spelling or hash.at or at - value > HASH_MAX:
                    return NULL
                hash.at, hash.size = value, at - value
                at += 1
            else:
                at = read_integer(value, &number)
                if not at or hash.at or at - value > 18:
                    return NULL
                hash.at, hash.size = value, at - value
        else:
            at = _any_end(value, stop, line)
            if not at:
                return NULL
            if is_word(key, b"name", 4):
                line.given.at = NULL
                if value[0] == QUOTE:
                    line.given.at, line.given.size = value + 1, at - value - 2
            elif is_word(key, b"fname", 5) or is_word(key, b"hostname", 8):
                told = &line.told_file if key.size == 5 else &line.told_host
                told.at = NULL
                if value[0] == QUOTE:
                    told.at, told.size = value + 1, at - value - 2
            elif is_word(key, b"value", 5):
                line.value.at, line.value.size = value, at - value - (value[0] == QUOTE)
        at = behind_white(at)
        if at[0] == c'}':
            return at + 1
        at = behind_mark(at, c',')
    return NULL


cdef inline int _field_of(const uint8_t *key) noexcept nogil:
    """Return the field whose key begins behind a quote, 0 if it is none of the tracer's. At least 5 bytes follow."""
    if not memcmp(key, b'id"', 3):
        return ID
    if not memcmp(key, b'ts"', 3):
        return TS
    if not memcmp(key, b'ph"', 3):
        return PH
    if not memcmp(key, b'pid"', 4):
        return PID
    if not memcmp(key, b'tid"', 4):
        return TID
    if not memcmp(key, b'dur"', 4):
        return DUR
    if not memcmp(key, b'cat"', 4):
        return CATEGORY
    if not memcmp(key, b'name"', 5):
        return NAME
    if not memcmp(key, b'type"', 5):
        return TYPE
    return ARGS if not memcmp(key, b'args"', 5) else 0


cdef inline bint _is_ours(Text key) noexcept nogil:
    """Return whether an attribute of ours may have this key (see `record.OURS`)."""
    return (
        is_word(key, b"aggregate", 9) or is_word(key, b"clock", 5) or is_word(key, b"cmd", 3) or is_word(key, b"cwd", 3)
        or is_word(key, b"epoch", 5) or is_word(key, b"exec", 4) or is_word(key, b"fname", 5)
        or is_word(key, b"hostname", 8) or is_word(key, b"producer", 8) or is_word(key, b"thread_name", 11)
        or is_word(key, b"ticks_per_second", 16)
    )


cdef inline const uint8_t *_read_other(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read a field that the tracer does not have; return where it ends, NULL if it is not usual."""
    cdef Member *other = &line.other[line.others]
    cdef int spelling = 0, i
    if line.others == OTHERS_MAX:
        return NULL
    other.key.at = at + 1
    at = string_end(at + 1, stop, &spelling)
    if not at or spelling or other.key.at[0] == c'$':
        return NULL
    other.key.size = at - other.key.at
    if _is_ours(other.key):
        return NULL
    for i in range(line.others):
        if is_word(other.key, <const char *>line.other[i].key.at, line.other[i].key.size):
            return NULL
    at = behind_mark(at + 1, c':')
    if not at:
        return NULL
    other.value.at = at
    at = _any_end(at, stop, line)
    if at:
        other.value.size = at - other.value.at
        line.others += 1
    return at


cdef inline const uint8_t *_read_number(const uint8_t *at, int64_t *value) noexcept nogil:
    """Read an integer, which may stand in quotes; return where it ends, NULL for anything else."""
    if at[0] != QUOTE:
        return read_integer(at, value)
    at = read_integer(at + 1, value)
    return at + 1 if at and at[0] == QUOTE else NULL


cdef inline const uint8_t *read_field(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read a field of the record from its key on; return where it ends, NULL if it is not usual."""
    cdef const uint8_t *value
    cdef int64_t ignored
    cdef int field
    if stop - at < 6 or at[0] != QUOTE:
        return NULL
    field = _field_of(at + 1)
    if not field:
        return _read_other(at, stop, line)
    if line.fields & field:
        return NULL
    line.fields |= field
    value = behind_mark(at + (4 if field & (ID | TS | PH) else 5 if field & (PID | TID | DUR | CATEGORY) else 6), c':')
    if not value:
        return NULL
    if field == TS:
        return _read_number(value, &line.start)
    if field == PID:
        line.quoted_pid = value[0] == QUOTE
        return _read_number(value, &line.pid)
    if field == TID:
        return _read_number(value, &line.tid)
    if field == DUR:
        return _read_number(value, &line.duration)
    if field == ID:
        line.quoted_id = value[0] == QUOTE
        at = _read_number(value, &line.number)
        if at:
            line.id.at, line.id.size = value, at - value
        return at
    if field == PH:
        if value[0] == QUOTE and value[1] in b"XCMH" and value[2] == QUOTE:
            line.phase = value[1]
            return value + 3
        line.phase = value[0]
        return value + 1 if c'1' <= value[0] <= c'4' else NULL
    if field == TYPE:
        at = read_integer(value, &ignored)
        if at:
            line.type.at, line.type.size = value, at - value
        return at
    if field == ARGS:
        at = read_arguments(value, stop, line)
        if at:
            line.args.at, line.args.size = value, at - value
        return at
    if value[0] != QUOTE:
        return NULL
    at = string_end(value + 1, stop, &line.spelling)
    if not at:
        return NULL
    if field == NAME:
        line.name.at, line.name.size = value + 1, at - value - 1
    else:
        line.category.at, line.category.size = value + 1, at - value - 1
    return at + 1


cdef inline bint is_key(Text hash) noexcept nogil:
    """Return whether a hash is an integer of 64 bits, or a short string that JSON in ASCII spells as it is."""
    cdef int64_t number
    cdef Py_ssize_t at
    if hash.at[0] != QUOTE:
        return read_integer(hash.at, &number) == hash.at + hash.size
    if hash.size > HASH_MAX:
        return False
    for at in range(hash.size):
        if hash.at[at] >= 0x7F or hash.at[at] == BACKSLASH:
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


cdef inline bint _is_tracers(Text category) noexcept nogil:
    """Return whether a valid string is `dftracer`, however it is spelled."""
    cdef uint8_t value[48]  # each of the 8 letters as an escape
    if category.size < 8 or category.size > <Py_ssize_t>sizeof(value):
        return False
    return write_respelled(category.at, category.at + category.size, value) == value + 8 and not memcmp(value, b"dftracer", 8)


cdef inline bint read_line(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the record of a line that ends before the newline `stop`; return whether it is usual."""
    cdef int needed
    memset(line, 0, sizeof(Line) - sizeof(line.other))
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
    if line.quoted_pid and (line.told_host.at or line.told_file.at) and (line.host.at or line.file.at):
        return False
    needed = line.fields & ~(TYPE | ARGS)
    if line.phase == c'1' or line.phase == c'X':
        return needed == EVENT_FIELDS and line.duration >= 0 and not _is_tracers(line.category)
    return needed == COUNTER_FIELDS
