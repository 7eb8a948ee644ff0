# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of JETS: pack lines of the usual shape into blocks.

A line is usual if `line` reads it as a record, record_end, event or annotation without a flaw, it has at most
`KEYS_MAX` fields beyond the specification, each key comes once, no key begins with "$", string ids have neither quotes,
backslashes nor control characters, and values nest no deeper than `json_scan` reads them. The kernel stops before any
other line, and before bytes without a newline."""

from json import loads

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    """
    void *memrchr(const void *data, int byte, size_t size) nogil

from tailrace.decoding.formats.jets.checksum cimport checksum
from tailrace.decoding.json_scan cimport (
    RESPELLED, behind_blank_lines, behind_white, number_end, read_integral, read_unsigned, string_end, value_end, word_end,
    write_respelled,
)
from tailrace.decoding.json_text cimport BACKSLASH, QUOTE
from tailrace.decoding.key_set cimport KEYS_MAX, KeySet, add_key
from tailrace.decoding.word_table cimport (
    WordTable, add_word, empty_table, find_word, free_table, has_room, hash_word, make_table,
)
from tailrace.rows.buffers cimport allocated, copied

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind

cdef enum:
    ROWS_MAX = 8192
    # maximum size (bytes) of all keys, types and ids of a line that have escapes
    RESPELLED_MAX = 2048
    NAMES_MAX = 8192
    CATEGORIES_MAX = 1024
    WORDS_BYTES = 1 << 20
    TEXT_MAX = 1 << 20  # maximum size (bytes) of the attributes of a block

cdef enum:  # codes of keys
    CLK, TYPE, NAME, RECORD_TYPE, ID, PARENT_ID, RECORD_ID, DESCRIPTION, DATA
    KEYS
    OTHER = KEYS

cdef enum:  # types of values
    STRING, INTEGER, REAL, NULL_, ANY

cdef enum:  # kinds of rows
    BEGIN, END, INSTANT, ANNOTATION
    ROW_KINDS

_KINDS = [Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.ANNOTATION]


cdef struct Member:
    const uint8_t *key
    # the beginning of the value; for a string, the position after its first quote
    const uint8_t *begin
    const uint8_t *end
    int key_size
    int what  # the code of its key, or OTHER
    int value  # the type of its value
    int spelling  # for a string, the kinds of its escapes (`json_scan`)


cdef struct Line:
    Member members[KEYS_MAX + KEYS + 1]  # the last one: the member that is one too many
    int count
    int at[KEYS]  # for each key, the index of its field in `members`, or -1
    int respelled
    KeySet others  # the keys that the specification does not have
    # The first `respelled` bytes are copies of strings without their escapes.
    uint8_t text[RESPELLED_MAX]


cdef struct Long:
    int64_t *values
    uint8_t *valid
    int count  # number of rows that have a value


cdef struct Columns:
    int64_t *offset
    int64_t *size
    int32_t *kind
    int32_t *name
    int32_t *category
    Long id, parent, start, end
    int32_t *ends  # for each row, the end of its attributes in `text`; the first entry is 0
    uint8_t *name_valid
    uint8_t *category_valid
    uint8_t *attributes_valid
    uint8_t *text
    int rows
    int named  # number of rows that have a name
    int kinds[ROW_KINDS]
    int attributed  # number of rows that have attributes


cdef inline const uint8_t *_respelled(
    Line *line, const uint8_t *at, const uint8_t *end, const uint8_t **stop
) noexcept nogil:
    """Return a copy of a string without escapes that JSON does not require, up to `stop`; NULL if there is no room."""
    cdef uint8_t *to = line.text + line.respelled
    if end - at > RESPELLED_MAX - line.respelled:
        return NULL
    stop[0] = write_respelled(at, end, to)
    line.respelled += <int>(stop[0] - to)
    return to


cdef inline int _key(const uint8_t *key, Py_ssize_t size) noexcept nogil:
    if size == 2:
        return ID if not memcmp(key, "id", 2) else OTHER
    if size == 3:
        return CLK if not memcmp(key, "clk", 3) else OTHER
    if size == 4:
        if not memcmp(key, "type", 4):
            return TYPE
        if not memcmp(key, "name", 4):
            return NAME
        return DATA if not memcmp(key, "data", 4) else OTHER
    if size == 9:
        if not memcmp(key, "record_id", 9):
            return RECORD_ID
        return PARENT_ID if not memcmp(key, "parent_id", 9) else OTHER
    if size == 11:
        if not memcmp(key, "description", 11):
            return DESCRIPTION
        return RECORD_TYPE if not memcmp(key, "record_type", 11) else OTHER
    return OTHER


cdef inline const uint8_t *_read_member(
    Line *line, const uint8_t *at, const uint8_t *end
) noexcept nogil:
    """Add the field at `at` to the line. Return the position after its value, or NULL if the field is not usual."""
    cdef Member *member = &line.members[line.count]
    cdef const uint8_t *stop
    cdef int spelling = 0
    cdef bint whole = False
    if at[0] != QUOTE:
        return NULL
    member.key = at + 1
    at = stop = string_end(at + 1, end, &spelling)
    if not stop:
        return NULL
    if spelling:
        member.key = _respelled(line, member.key, stop, &stop)
        if not member.key:
            return NULL
    member.key_size = <int>(stop - member.key)
    if member.key_size and member.key[0] == c'$':
        return NULL
    member.what = _key(member.key, member.key_size)
    if member.what == OTHER:
        if not add_key(&line.others, member.key, member.key_size):
            return NULL
    elif line.at[member.what] >= 0:
        return NULL
    else:
        line.at[member.what] = line.count
    at = behind_white(at + 1)
    if at[0] != c':':
        return NULL
    at = behind_white(at + 1)
    member.begin = at
    member.value, member.spelling = ANY, 0
    if at[0] == QUOTE:
        member.value, member.begin = STRING, at + 1
        stop = string_end(at + 1, end, &member.spelling)
        at = stop + 1 if stop else NULL
    elif at[0] == c'-' or c'0' <= at[0] <= c'9':
        at = stop = number_end(at, &whole)
        member.value = INTEGER if whole else REAL
    elif at[0] == c'n':
        at = stop = word_end(at)
        member.value = NULL_
    else:
        at = stop = value_end(at, end)
    member.end = stop
    line.count += 1
    return at


cdef inline const uint8_t *_read_line(Line *line, const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Read the fields of the line at `at`. Return the position of its newline, or NULL if the line is not usual."""
    cdef int i
    line.count = line.respelled = line.others.count = 0
    for i in range(KEYS):
        line.at[i] = -1
    if at[0] != c'{':
        return NULL
    while True:
        at = _read_member(line, behind_white(at + 1), end)
        if not at:
            return NULL
        at = behind_white(at)
        if at[0] == c'}':
            at = behind_white(at + 1)
            return at if at[0] == c'\n' else NULL
        if at[0] != c',':
            return NULL


cdef inline const Member *_member(Line *line, int key, int value) noexcept nogil:
    """Return the field with this key if its value has the type `value`, otherwise NULL."""
    cdef int i = line.at[key]
    return &line.members[i] if i >= 0 and line.members[i].value == value else NULL


cdef inline bint _is(const Member *member, const char *text, int size) noexcept nogil:
    return member.end - member.begin == size and not memcmp(member.begin, text, size)


cdef inline int _kind(Line *line) noexcept nogil:
    cdef Member *type_ = <Member *>_member(line, TYPE, STRING)
    if not type_:
        return -1
    if type_.spelling:
        type_.begin = _respelled(line, type_.begin, type_.end, &type_.end)
        if not type_.begin:
            return -1
    if _is(type_, "event", 5):
        return INSTANT
    if _is(type_, "record", 6):
        return BEGIN
    if _is(type_, "record_end", 10):
        return END
    return ANNOTATION if _is(type_, "annotation", 10) else -1


cdef inline bint _read_clk(Line *line, int64_t *clk) noexcept nogil:
    cdef const Member *member = _member(line, CLK, INTEGER)
    cdef uint64_t number
    cdef bint negative
    if not member:
        member = _member(line, CLK, REAL)
        return member and read_integral(member.begin, member.end, clk)
    negative = member.begin[0] == c'-'
    if not read_unsigned(member.begin + negative, member.end, &number):
        return False
    if number >> 63:
        return False  # -2^63 also comes here, and Python reads it
    clk[0] = -<int64_t>number if negative else <int64_t>number
    return True


cdef inline bint _read_id(Line *line, int key, int64_t *id, int *used) noexcept nogil:
    """Read an id for its column. Return whether the id is valid. If the id is a number, add `key` to `used`."""
    cdef const Member *member = _member(line, key, STRING)
    cdef const uint8_t *begin
    cdef const uint8_t *end
    if not member:
        used[0] |= 1 << key
        member = _member(line, key, INTEGER)
        if member and member.begin[0] != c'-':
            return read_unsigned(member.begin, member.end, <uint64_t *>id)
        # An integer with a minus sign may still be a negative zero.
        if not member:
            member = _member(line, key, REAL)
        return member and read_integral(member.begin, member.end, id) and id[0] >= 0
    begin, end = member.begin, member.end
    if member.spelling:
        begin = _respelled(line, begin, end, &end)
        if not begin or memchr(begin, BACKSLASH, end - begin):
            return False
    id[0] = <int64_t>(checksum(begin, end - begin) >> 1)
    return True


cdef inline uint8_t *_write_attributes(Line *line, int used, uint8_t *out) noexcept nogil:
    """Write the fields whose keys are not in the set `used` as a JSON object. Return the position after it."""
    cdef const Member *member
    cdef uint8_t *begin = out
    cdef int i, key, quote
    for i in range(-2, line.count):
        # The description and the data come first, wherever they stand in the line.
        key = DESCRIPTION if i == -2 else DATA if i == -1 else line.members[i].what
        if i >= 0 and (key == DESCRIPTION or key == DATA) or key != OTHER and used >> key & 1:
            continue
        if i < 0:
            if line.at[key] < 0:
                continue
            member = &line.members[line.at[key]]
        else:
            member = &line.members[i]
        out[0] = c',' if out > begin else c'{'
        out[1] = QUOTE
        memcpy(out + 2, member.key, member.key_size)
        out += 2 + member.key_size
        out[0] = QUOTE
        out[1] = c':'
        if i == -2 and member.spelling & RESPELLED:
            out[2] = QUOTE
            out = write_respelled(member.begin, member.end, out + 3)
            out[0] = QUOTE
            out += 1
            continue
        quote = member.value == STRING
        memcpy(out + 2, member.begin - quote, member.end - member.begin + 2 * quote)
        out += 2 + member.end - member.begin + 2 * quote
    if out > begin:
        out[0] = c'}'
        out += 1
    return out


cdef inline void _put(Long *column, int row, int64_t value) noexcept nogil:
    column.values[row] = value
    column.valid[row >> 3] |= 1 << (row & 7)
    column.count += 1


cdef class Vocabulary:
    """Words that repeat in the input, with their codes. The Python strings of new words come with the next block."""

    cdef WordTable table
    cdef list texts
    cdef bint emptied  # whether the table has been emptied since `texts` was created

    def __cinit__(self, uint32_t words_max):
        make_table(&self.table, words_max, WORDS_BYTES, <uint64_t>hash(b"tailrace") | 1)
        self.texts = []

    def __dealloc__(self):
        free_table(&self.table)

    cdef inline int code(self, const Member *word, bint alone) noexcept nogil:
        """Return the code of a word, or -1 without room. If no row uses a code (`alone`), the table may be emptied."""
        cdef uint32_t size = <uint32_t>(word.end - word.begin)
        cdef uint32_t hash = hash_word(&self.table, word.begin, size)
        cdef int code = find_word(&self.table, word.begin, size, hash)
        if code >= 0:
            return code
        if not has_room(&self.table, size):
            if not alone or size > WORDS_BYTES:
                return -1
            empty_table(&self.table)
            self.emptied = True
        return add_word(&self.table, word.begin, size, hash)

    cdef object words(self, const int32_t *codes, int rows, bytes valid):
        """Return the column of a block with these codes. `valid` is the bitmap of the rows that have a value."""
        cdef WordTable *table = &self.table
        cdef uint32_t code
        cdef const char *word
        cdef Py_ssize_t size
        if self.emptied:
            self.texts, self.emptied = [], False
        for code in range(<uint32_t>len(self.texts), table.words):
            word, size = <const char *>table.arena + table.ends[code], table.ends[code + 1] - table.ends[code]
            self.texts.append(
                loads(b'"' + word[:size] + b'"') if memchr(word, BACKSLASH, size) else PyUnicode_DecodeUTF8(word, size, NULL)
            )
        return Words(copied(codes, rows * sizeof(int32_t)), self.texts, len(self.texts), valid)


cdef class Scanner:
    """Packs usual lines of JETS into blocks. Several decoders may share one scanner, which keeps names."""

    cdef Vocabulary names, categories
    cdef list streams
    cdef Columns columns
    cdef bint busy

    def __cinit__(self):
        cdef Columns *into = &self.columns
        cdef Long *longs[4]
        cdef int i
        self.names, self.categories = Vocabulary(NAMES_MAX), Vocabulary(CATEGORIES_MAX)
        self.streams = [""]
        longs[:] = [&into.id, &into.parent, &into.start, &into.end]
        for i in range(4):
            longs[i].values = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
            longs[i].valid = <uint8_t *>allocated(ROWS_MAX // 8)
        into.offset = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
        into.size = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
        into.kind = <int32_t *>allocated(ROWS_MAX * sizeof(int32_t))
        into.name = <int32_t *>allocated(ROWS_MAX * sizeof(int32_t))
        into.category = <int32_t *>allocated(ROWS_MAX * sizeof(int32_t))
        into.ends = <int32_t *>allocated((ROWS_MAX + 1) * sizeof(int32_t))
        into.name_valid = <uint8_t *>allocated(ROWS_MAX // 8)
        into.category_valid = <uint8_t *>allocated(ROWS_MAX // 8)
        into.attributes_valid = <uint8_t *>allocated(ROWS_MAX // 8)
        into.text = <uint8_t *>allocated(TEXT_MAX)

    def __dealloc__(self):
        cdef Columns *of = &self.columns
        for pointer in (
            <size_t>of.id.values, <size_t>of.id.valid, <size_t>of.parent.values, <size_t>of.parent.valid,
            <size_t>of.start.values, <size_t>of.start.valid, <size_t>of.end.values, <size_t>of.end.valid,
            <size_t>of.offset, <size_t>of.size, <size_t>of.kind, <size_t>of.name, <size_t>of.category,
            <size_t>of.ends, <size_t>of.name_valid, <size_t>of.category_valid,
            <size_t>of.attributes_valid, <size_t>of.text,
        ):
            free(<void *><size_t>pointer)

    def scan(
        self, bytes data not None, Py_ssize_t at, int64_t offset, Py_ssize_t size_max, int rows_min, /
    ):
        """Pack the usual lines from `data[at]` on. A line must begin there. `offset` is its offset in the input.

        Return a block and the position in `data` after it. The block is None if it would have less than `rows_min`
        rows, or while another thread calls. Lines longer than `size_max` are not usual."""
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t have = PyBytes_GET_SIZE(data), stop = at
        if at < 0 or at > have or self.busy:
            return None, at
        self.busy = True
        try:
            self._begin()
            with nogil:
                self._fill(begin, have, &stop, offset - at, size_max)
            return (self._block(stop - at) if self.columns.rows >= max(rows_min, 1) else None), stop
        finally:
            self.busy = False

    cdef void _begin(self) noexcept:
        cdef Columns *of = &self.columns
        of.rows = of.attributed = of.named = 0
        of.id.count = of.parent.count = of.start.count = of.end.count = 0
        memset(of.kinds, 0, sizeof(of.kinds))
        of.ends[0] = 0
        for bits in (
            <size_t>of.id.valid, <size_t>of.parent.valid, <size_t>of.start.valid, <size_t>of.end.valid,
            <size_t>of.name_valid, <size_t>of.category_valid, <size_t>of.attributes_valid,
        ):
            memset(<void *><size_t>bits, 0, ROWS_MAX // 8)

    cdef void _fill(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t *at, int64_t offset, Py_ssize_t size_max
    ) noexcept nogil:
        """Add rows of the usual lines from `at` on, and set `at` to their end. `offset` is the offset of `data`."""
        cdef Columns *to = &self.columns
        cdef const uint8_t *end = data + have
        cdef const uint8_t *last = <const uint8_t *>memrchr(data + at[0], c'\n', have - at[0])
        cdef const uint8_t *begin = data + at[0]
        cdef const uint8_t *newline
        cdef Py_ssize_t size
        cdef Line line
        if not last:
            return
        while to.rows < ROWS_MAX and begin < last:
            newline = _read_line(&line, behind_blank_lines(begin, last), end)
            if not newline:
                return
            size = newline + 1 - begin
            # The attributes of a line never have more bytes than the line.
            if size > size_max or size > TEXT_MAX - to.ends[to.rows]:
                return
            if not self._add(&line, offset + (begin - data), size):
                return
            begin = newline + 1
            at[0] = begin - data

    cdef inline bint _add(self, Line *line, int64_t offset, Py_ssize_t size) noexcept nogil:
        """Add the row of a line. Return False, with no row added, if the line is not usual or there is no room."""
        cdef Columns *to = &self.columns
        cdef int row = to.rows, kind = _kind(line), used, name = 0, category = 0, key
        cdef int64_t clk = 0, id = 0, parent = 0
        cdef bint has_parent = False, named = False
        cdef uint8_t *text = to.text + to.ends[row]
        cdef uint8_t *stop
        if kind < 0:
            return False
        if line.at[DESCRIPTION] >= 0 and not _member(line, DESCRIPTION, STRING):
            return False
        if kind == ANNOTATION:
            if line.at[DATA] < 0:
                return False
            used = 1 << TYPE
        else:
            used = 1 << TYPE | 1 << CLK
            if not _read_clk(line, &clk):
                return False
        if kind == END:
            key = RECORD_ID if line.at[RECORD_ID] >= 0 else ID
            if line.at[RECORD_ID] >= 0 and line.at[ID] >= 0 or not _read_id(line, key, &id, &used):
                return False
        else:
            named = line.at[NAME] >= 0
            if named:
                name = self._code(line, NAME, self.names)
                if name < 0:
                    return False
            elif not _member(line, ID if kind == BEGIN else RECORD_ID, STRING):
                return False
            used |= 1 << NAME
            if kind == BEGIN:
                category = self._code(line, RECORD_TYPE, self.categories)
                has_parent = line.at[PARENT_ID] >= 0 and not _member(line, PARENT_ID, NULL_)
                if category < 0 or not _read_id(line, ID, &id, &used):
                    return False
                if has_parent and not _read_id(line, PARENT_ID, &parent, &used):
                    return False
                used |= 1 << RECORD_TYPE
                if not has_parent:
                    used |= 1 << PARENT_ID
            else:
                has_parent = True
                if not _read_id(line, RECORD_ID, &parent, &used):
                    return False
        stop = _write_attributes(line, used, text)
        to.ends[row + 1] = <int32_t>(stop - to.text)
        if stop > text:
            to.attributes_valid[row >> 3] |= 1 << (row & 7)
            to.attributed += 1
        to.offset[row], to.size[row], to.kind[row] = offset, size, kind
        to.name[row], to.category[row] = name, category
        to.id.values[row] = to.parent.values[row] = to.start.values[row] = to.end.values[row] = 0
        if kind == BEGIN or kind == END:
            _put(&to.id, row, id)
        if has_parent:
            _put(&to.parent, row, parent)
        if kind == END:
            _put(&to.end, row, clk)
        elif kind != ANNOTATION:
            _put(&to.start, row, clk)
        if named:
            to.name_valid[row >> 3] |= 1 << (row & 7)
            to.named += 1
        if kind == BEGIN:
            to.category_valid[row >> 3] |= 1 << (row & 7)
        to.kinds[kind] += 1
        to.rows = row + 1
        return True

    cdef inline int _code(self, Line *line, int key, Vocabulary words) noexcept nogil:
        """Return the code of the field `key` in `words`, or -1 if it is not a string or there is no room."""
        cdef const Member *text = _member(line, key, STRING)
        if not text:
            return -1
        return words.code(text, not self.columns.rows)

    cdef object _block(self, Py_ssize_t length):
        cdef Columns *of = &self.columns
        cdef int rows = of.rows, begins = of.kinds[BEGIN]
        names = categories = attributes = None
        if of.named:
            names = self.names.words(of.name, rows, _bits(of.name_valid, rows, of.named))
        if begins:
            categories = self.categories.words(of.category, rows, _bits(of.category_valid, rows, begins))
        if of.attributed:
            attributes = Texts(
                copied(of.ends, (rows + 1) * sizeof(int32_t)),
                copied(of.text, of.ends[rows]),
                _bits(of.attributes_valid, rows, of.attributed),
            )
        return Block(
            rows, length,
            Integers(copied(of.offset, rows * sizeof(int64_t))),
            Integers(copied(of.size, rows * sizeof(int64_t))),
            Words(copied(of.kind, rows * sizeof(int32_t)), _KINDS, ROW_KINDS),
            Words(bytes(rows * sizeof(int32_t)), self.streams, 1),
            None, None, names, categories,
            _longs(&of.id, rows), _longs(&of.parent, rows), _longs(&of.start, rows), _longs(&of.end, rows),
            attributes,
        )


cdef inline bytes _bits(const uint8_t *valid, int rows, int count):
    """Return the bitmap of the rows that have a value, or None if all rows have one. `count` rows have one."""
    return None if count == rows else copied(valid, (rows + 7) // 8)


cdef inline object _longs(const Long *column, int rows):
    if not column.count:
        return None
    return Integers(
        copied(column.values, rows * sizeof(int64_t)), _bits(column.valid, rows, column.count)
    )
