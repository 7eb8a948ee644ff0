"""Read the usual record in one line or element of DFTracer for the kernel.

A NUL follows the buffer, as it follows the content of each bytes object. No string or number contains a NUL or a
newline. A function that reads several bytes at once must check the end of the buffer first. The `read` functions return
the position after the text that they read, or NULL if the text is not usual."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from tailrace.decoding.json_scan cimport (
    behind_white, number_end, read_integral, string_end, value_end, write_respelled,
)
from tailrace.decoding.json_text cimport BACKSLASH, QUOTE
from tailrace.decoding.key_set cimport KEYS_MAX, KeySet, add_key

cdef enum:
    HASH_MAX = 64  # maximum size (bytes) of a hash
    QUOTED_MAX = 20  # maximum number of digits of a number in quotes
    # maximum size (bytes) of all keys and hashes of a line that are spelled with escapes
    RESPELLED_MAX = 1024
    # Bits that stand for the fields of a record
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
    OPTIONAL = 525  # the fields `id`, `cat`, `type` and `args`
    EVENT_FIELDS = 498
    COUNTER_FIELDS = 370  # the fields of an event without `dur`
    NAMING_FIELDS = 818  # the fields of metadata with arguments
    NAMING_ARGUMENTS = 3


cdef struct Text:
    const uint8_t *at
    Py_ssize_t size


cdef struct Member:
    Text key, value


cdef struct Line:
    int fields, arguments, respelled
    int spelling  # the kinds of the escapes in its strings, as in `json_scan`
    Text id, name, category, type, args
    # the arguments `hhash`, `fhash` and `value`; a string begins with its first quote
    Text host, file, value
    Text given  # the argument `name`, if it is a string
    int64_t number, pid, tid, start, duration
    uint8_t phase  # the phase; M stands for all phases of metadata
    bint counts_calls  # whether the arguments have `dft_cnt`, the number of calls in an aggregate
    bint names  # whether the record gives a name to a hash
    Text told_host, told_file  # the arguments `hostname` and `fname`, if they are strings
    bint quoted_id, quoted_pid
    int others
    Member other[KEYS_MAX]  # fields that the tracer does not write
    KeySet keys  # their keys
    # The first `respelled` bytes are keys and hashes without their escapes, with a quote after each.
    uint8_t text[RESPELLED_MAX]


cdef inline const uint8_t *_read_digits(const uint8_t *at, int64_t *value) noexcept nogil:
    """Read a number of 1 to 19 digits and at most 63 bits."""
    cdef const uint8_t *begin = at
    cdef uint64_t number = 0
    while c'0' <= at[0] <= c'9':
        number = number * 10 + (at[0] - c'0')
        at += 1
        if at - begin > 19:
            return NULL
    if at == begin or number >> 63:
        return NULL
    value[0] = <int64_t>number
    return at


cdef inline const uint8_t *read_integer(const uint8_t *at, int64_t *value) noexcept nogil:
    """Read a JSON integer of 64 bits. Return the position after it, or NULL for any other text."""
    cdef bint negative = at[0] == c'-'
    cdef const uint8_t *begin = at + negative
    at = _read_digits(begin, value)
    if not at or (begin[0] == c'0' and (negative or at - begin > 1)):
        return NULL
    if negative:
        value[0] = -value[0]
    return at


cdef inline const uint8_t *behind_mark(const uint8_t *at, uint8_t mark) noexcept nogil:
    """Return the position after the character `mark` and white space around it; NULL for another character."""
    if at[0] != mark:
        at = behind_white(at)
        if at[0] != mark:
            return NULL
    return behind_white(at + 1) if at[1] <= c' ' else at + 1


cdef inline bint is_word(Text text, const char *word, Py_ssize_t size) noexcept nogil:
    return text.size == size and not memcmp(text.at, word, size)


cdef inline const uint8_t *_any_end(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Return the position after a value of any type. Add the kinds of its escapes to the line."""
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


cdef inline const uint8_t *_read_text(const uint8_t *at, const uint8_t *stop, Line *line, Text *text) noexcept nogil:
    """Read the string whose first quote is at `at`, without the escapes that JSON does not require."""
    cdef int spelling = 0
    cdef const uint8_t *end = string_end(at + 1, stop, &spelling)
    cdef uint8_t *to
    if not end:
        return NULL
    text.at, text.size = at + 1, end - at - 1
    if spelling:
        line.spelling |= spelling
        if text.size > RESPELLED_MAX - 8 - line.respelled:
            return NULL
        to = line.text + line.respelled
        to[0] = QUOTE
        text.at = to + 1
        text.size = write_respelled(at + 1, end, to + 1) - (to + 1)
        to[1 + text.size] = QUOTE
        line.respelled += 2 + <int>text.size
    return end + 1


cdef inline const uint8_t *_read_hash(const uint8_t *at, const uint8_t *stop, Line *line, Text *hash) noexcept nogil:
    """Read an argument that may be a hash: an integer, or a string with its first quote; otherwise empty."""
    cdef int64_t number
    cdef const uint8_t *end
    hash.at = NULL
    hash.size = 0
    if at[0] == QUOTE:
        end = _read_text(at, stop, line, hash)
        if not end or hash.size >= HASH_MAX or memchr(hash.at, BACKSLASH, hash.size):
            return NULL
        hash.at -= 1
        hash.size += 1
        return end
    if at[0] == c'-' or c'0' <= at[0] <= c'9':
        end = read_integer(at, &number)
        if not end or end[0] == c'.' or end[0] | 0x20 == c'e':
            return NULL
        hash.at, hash.size = at, end - at
        return end
    return _any_end(at, stop, line)


cdef inline const uint8_t *read_arguments(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the JSON object with the arguments."""
    cdef Text key
    cdef Text *told
    cdef const uint8_t *value
    cdef int kept
    at = behind_mark(at, c'{')
    if not at:
        return NULL
    if at[0] == c'}':
        return at + 1
    while at and at[0] == QUOTE:
        kept = line.respelled
        at = _read_text(at, stop, line, &key)
        if not at:
            return NULL
        value = behind_mark(at, c':')
        if not value:
            return NULL
        line.arguments += 1
        if is_word(key, b"hhash", 5) or is_word(key, b"fhash", 5):
            at = _read_hash(value, stop, line, &line.host if key.at[0] == c'h' else &line.file)
            if not at:
                return NULL
        else:
            line.respelled = kept
            if is_word(key, b"dft_cnt", 7):
                line.counts_calls = True
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
                line.value.at, line.value.size = value, at - value
        at = behind_white(at)
        if at[0] == c'}':
            return at + 1
        at = behind_mark(at, c',')
    return NULL


cdef inline int _field_of(const uint8_t *key) noexcept nogil:
    """Return the bit of the field whose key is at `key`, after the quote; 0 for a key that the tracer does not write.

    At least 5 bytes must be readable."""
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
    """Return whether the decoder itself adds an attribute with this key (see `record.OURS`)."""
    return (
        is_word(key, b"aggregate", 9) or is_word(key, b"clock", 5) or is_word(key, b"cmd", 3) or is_word(key, b"cwd", 3)
        or is_word(key, b"epoch", 5) or is_word(key, b"exec", 4) or is_word(key, b"fname", 5)
        or is_word(key, b"hostname", 8) or is_word(key, b"producer", 8) or is_word(key, b"thread_name", 11)
        or is_word(key, b"ticks_per_second", 16)
    )


cdef inline const uint8_t *_read_other(Text key, const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the value of a field that the tracer does not write."""
    cdef Member *other = &line.other[line.others]
    if key.at[0] == c'$' or _is_ours(key) or not add_key(&line.keys, key.at, key.size):
        return NULL
    other.key, other.value.at = key, at
    at = _any_end(at, stop, line)
    if at:
        other.value.size = at - other.value.at
        line.others += 1
    return at


cdef inline const uint8_t *_read_number(const uint8_t *at, int64_t *value) noexcept nogil:
    """Read an integer, which may be in quotes or have a fraction or an exponent."""
    cdef const uint8_t *begin
    cdef const uint8_t *end
    cdef bint whole
    if at[0] == QUOTE:
        begin = end = at + 1 + (at[1] == c'-')
        while end[0] == c'0' and c'0' <= end[1] <= c'9':
            end += 1
        end = _read_digits(end, value)
        if not end or end[0] != QUOTE or end - begin > QUOTED_MAX:
            return NULL
        if at[1] == c'-':
            value[0] = -value[0]
        return end + 1
    end = read_integer(at, value)
    if end and end[0] != c'.' and end[0] | 0x20 != c'e':
        return end
    if at[0] != c'-' and not c'0' <= at[0] <= c'9':
        return NULL
    end = number_end(at, &whole)
    return end if end and read_integral(at, end, value) else NULL


cdef inline const uint8_t *_read_phase(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    cdef Text text
    cdef int64_t number = 0
    if at[0] == QUOTE:
        at = _read_text(at, stop, line, &text)
        if not at or text.size != 1 or text.at[0] not in b"XCMH":
            return NULL
        line.phase = text.at[0]
        return at
    at = _read_number(at, &number)
    line.phase = <uint8_t>(c'0' + number)
    return at if 1 <= number <= 4 else NULL


cdef inline const uint8_t *read_field(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read a field of the record, its key and its value."""
    cdef const uint8_t *value
    cdef Text key
    cdef int field
    if stop - at < 6 or at[0] != QUOTE:
        return NULL
    field = _field_of(at + 1)
    if field:
        at += 4 if field & (ID | TS | PH) else 5 if field & (PID | TID | DUR | CATEGORY) else 6
    else:
        at = _read_text(at, stop, line, &key)
        if not at:
            return NULL
        field = _field_of(key.at)
    value = behind_mark(at, c':')
    if not value:
        return NULL
    if not field:
        return _read_other(key, value, stop, line)
    if line.fields & field:
        return NULL
    line.fields |= field
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
        line.id.at, line.id.size = value, at - value
        return at
    if field == PH:
        return _read_phase(value, stop, line)
    if field == TYPE:
        at = _any_end(value, stop, line)
        line.type.at, line.type.size = value, at - value
        return at
    if field == ARGS:
        at = read_arguments(value, stop, line)
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
    """Return whether a hash is an integer of 64 bits, or a short ASCII string without escapes."""
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


cdef inline bint is_naming(Line *line, const uint8_t *stop) noexcept nogil:
    """Return whether a metadata record gives a name to a hash, with exactly the arguments for this."""
    cdef int i
    for i in range(line.others):
        if is_word(line.other[i].key, b"hhash", 5):
            return False
    if line.fields & ~(CATEGORY | TYPE) != NAMING_FIELDS or line.arguments != NAMING_ARGUMENTS:
        return False
    if line.name.size != 2 or line.name.at[0] not in b"HFS" or line.name.at[1] != c'H':
        return False
    # There are three arguments and three different keys, so no key is repeated.
    if not (line.host.at and line.given.at and line.value.at and _read_hash(line.value.at, stop, line, &line.value)):
        return False
    return line.value.at and is_key(line.value)


cdef inline const uint8_t *behind_separators(const uint8_t *at) noexcept nogil:
    """Return the position after the commas and the white space that may stand around a record."""
    while at[0] == c',' or at[0] == c' ' or at[0] == c'\t' or at[0] == c'\r':
        at += 1
    return at


cdef inline bint _is_tracers(Text category) noexcept nogil:
    """Return whether the value of a valid JSON string is `dftracer`, with or without escapes."""
    cdef uint8_t value[48]  # room for 8 letters that are all written as escapes
    if category.size < 8 or category.size > <Py_ssize_t>sizeof(value):
        return False
    return write_respelled(category.at, category.at + category.size, value) == value + 8 and not memcmp(value, b"dftracer", 8)


cdef inline const uint8_t *_record_end(const uint8_t *at) noexcept nogil:
    """Return the position after a record and its separators: after the newline, or where the next element of the line
    begins. Return NULL if other text follows the record."""
    cdef bint comma = False
    while at[0] == c',' or at[0] == c' ' or at[0] == c'\t' or at[0] == c'\r':
        comma |= at[0] == c','
        at += 1
    if at[0] == c'\n':
        return at + 1
    return at if comma and (at[0] == c'{' or at[0] == c'[') else NULL


cdef inline const uint8_t *read_line(const uint8_t *at, const uint8_t *stop, Line *line) noexcept nogil:
    """Read the record of a line or element in a buffer that ends at `stop`. Return the position after the element."""
    cdef int needed
    cdef bint usual
    memset(line, 0, sizeof(Line) - sizeof(line.other) - sizeof(line.keys) - sizeof(line.text))
    line.keys.count = 0
    at = behind_mark(behind_separators(at), c'{')
    while at:
        at = read_field(at, stop, line)
        if not at:
            return NULL
        at = behind_white(at)
        if at[0] == c'}':
            break
        at = behind_mark(at, c',')
    at = _record_end(at + 1) if at else NULL
    if not at:
        return NULL
    needed = line.fields & ~OPTIONAL
    if line.phase == c'4' or line.phase == c'M' or line.phase == c'H':
        usual = line.names = is_naming(line, stop)
    elif line.phase == c'1' or line.phase == c'X':
        usual = needed == EVENT_FIELDS and line.duration >= 0 and not _is_tracers(line.category)
    else:
        usual = needed == COUNTER_FIELDS and not line.fields & ID
    return at if usual else NULL
