# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of DFTracer: pack complete events, counters and names of hashes of the usual shape into blocks.

A record is usual if it has the tracer's fields and at most `KEYS_MAX` other fields, each once, in any order and any
legal spelling, and its strings are UTF-8. A line may have several records (see `elements`). The kernel stops before a
record that is not usual."""

from array import array
from json import loads

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from tailrace.decoding.formats.dftracer.usual_line cimport (
    ARGS, CATEGORY, HASH_MAX, ID, TYPE, Line, Text, read_integer, read_line,
)
from tailrace.decoding.json_scan cimport behind_blank_lines, write_respelled
from tailrace.decoding.json_text cimport BACKSLASH, QUOTE, write_plain
from tailrace.decoding.word_table cimport (
    WordTable, add_word, empty_table, find_word, free_table, has_room, hash_word, make_table,
)
from tailrace.rows.buffers cimport allocated, copied

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind

cdef extern from *:
    """
    #define add_overflows(a, b, sum) __builtin_add_overflow(a, b, sum)
    """
    bint add_overflows(int64_t a, int64_t b, int64_t *sum) noexcept nogil

cdef enum:
    ROWS_MAX = 8192
    LINE_MAX = 1 << 17
    WORDS_MAX = 4096
    WORDS_BYTES = 1 << 20
    CATEGORIES_MAX = 1024
    CATEGORIES_BYTES = 1 << 16
    STREAMS_MAX = 8192
    MEMBERS_MAX = 4096
    NAMED_MAX = 16384  # maximum size (bytes) of the names behind the hashes of one record
    TEXT_MAX = 2 << 20  # maximum size (bytes) of the attributes of a block
    TEXT_MORE = 128
    SPAN_OF_IDS = 1 << 15
    PROCESSES_MAX = 64
    # Results that state why the kernel stopped
    HERE = -2  # the next bytes are not usual, or the block is full
    INTERPRETER = -3  # the next bytes need the Python interpreter, and its lock is not held

    # Kinds of rows, in the order of `_KINDS`
    A_SPAN = 0
    A_COUNTER = 1
    A_NAME = 2

_KINDS = [Kind.SPAN, Kind.COUNTER, Kind.NAME]
_FLAWS = ["backslash"]


cdef struct Columns:
    int64_t *offset
    int64_t *size
    int64_t *start
    int64_t *end
    int64_t *number  # the ids of the complete events only, one after the other
    uint8_t *numbers_of  # for each id in `number`, the process that wrote the event
    uint8_t *process
    int32_t *kind
    int32_t *stream
    int32_t *name
    int32_t *category
    int32_t *ends  # for each row, the end of its attributes in `text`; the first entry is 0
    uint8_t *valid_category
    uint8_t *valid_start
    uint8_t *valid_end
    uint8_t *valid_text
    uint8_t *flawed
    uint8_t *text
    int rows
    int numbers
    int names


cdef struct Named:
    Text file, host, late  # JSON members of the attributes, each after a comma


cdef struct Process:
    int64_t pid
    Text host
    bint numbered  # whether its ids seem to count its events (`Ids.believed`)
    bint counts  # whether a record shows a release that numbers its events by id
    uint8_t other_phase  # the phase of the complete events that need Python (`TracedRun.other_phase`), or 0
    int rows, last  # number of its rows in the block, and index of its last row


cdef inline uint8_t *_copy(Text text, uint8_t *out) noexcept nogil:
    if text.size:  # An empty text may have NULL as its pointer.
        memcpy(out, text.at, text.size)
    return out + text.size


cdef inline uint8_t *_copy_rest(Text text, uint8_t *out) noexcept nogil:
    memcpy(out, text.at + 1, text.size - 1)
    return out + text.size - 1


cdef class Known:
    """Texts that repeat in the input: the code and the Python string of each text."""

    cdef WordTable table
    cdef list texts

    def __cinit__(self, uint32_t words_max, uint32_t bytes_max, uint64_t seed) -> None:
        make_table(&self.table, words_max, bytes_max, seed)
        self.texts = []

    def __dealloc__(self) -> None:
        free_table(&self.table)

    cdef inline int find(self, const uint8_t *word, uint32_t size) noexcept nogil:
        """Return the code of the text with the bytes `word`, or -1 if the text is not stored."""
        return find_word(&self.table, word, size, hash_word(&self.table, word, size))

    cdef int add(self, const uint8_t *word, uint32_t size, str text, bint in_use) except -1:
        """Store a new text and return its code. Without room, forget all texts; HERE if rows use them (`in_use`)."""
        if not has_room(&self.table, size):
            if in_use:
                return HERE
            empty_table(&self.table)
            self.texts = []
        self.texts.append(text)
        return add_word(&self.table, word, size, hash_word(&self.table, word, size))


cdef class Scanner:
    """Packs usual records of DFTracer into blocks. Several decoders may share one scanner, which keeps its texts."""

    cdef Known words, categories, streams
    cdef WordTable hashes
    cdef list member_texts
    cdef Named members[MEMBERS_MAX]  # members whose bytes are in `member_texts`
    cdef object version  # the `version` of the names when `members` were made
    cdef Columns columns
    cdef Process process[PROCESSES_MAX]  # the processes whose records the kernel may pack
    cdef int processes, current
    cdef int32_t rows_of[ROWS_MAX]  # for the block of one process, the indexes of its rows
    cdef bint busy

    def __cinit__(self) -> None:
        # Producers do not know the seed. Otherwise they could choose words with equal hashes.
        cdef uint64_t seed = <uint64_t>hash(b"tailrace") | 1
        cdef Columns *into = &self.columns
        self.words = Known(WORDS_MAX, WORDS_BYTES, seed)
        self.categories = Known(CATEGORIES_MAX, CATEGORIES_BYTES, seed)
        self.streams = Known(STREAMS_MAX, STREAMS_MAX * 16, seed)
        make_table(&self.hashes, MEMBERS_MAX, MEMBERS_MAX * (2 * HASH_MAX + 1), seed)
        self.member_texts = []
        cdef int64_t **longs[5]
        cdef int32_t **ints[5]
        longs[:] = [&into.offset, &into.size, &into.start, &into.end, &into.number]
        ints[:] = [&into.kind, &into.stream, &into.name, &into.category, &into.ends]
        for i in range(5):
            longs[i][0] = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
            ints[i][0] = <int32_t *>allocated((ROWS_MAX + 1) * sizeof(int32_t))
        into.numbers_of = <uint8_t *>allocated(ROWS_MAX)
        into.process = <uint8_t *>allocated(ROWS_MAX)
        into.valid_category = <uint8_t *>allocated(ROWS_MAX // 8)
        into.valid_start = <uint8_t *>allocated(ROWS_MAX // 8)
        into.valid_end = <uint8_t *>allocated(ROWS_MAX // 8)
        into.valid_text = <uint8_t *>allocated(ROWS_MAX // 8)
        into.flawed = <uint8_t *>allocated(ROWS_MAX // 8)
        into.text = <uint8_t *>allocated(TEXT_MAX)

    def __dealloc__(self) -> None:
        cdef Columns *of = &self.columns
        free_table(&self.hashes)
        for pointer in (
            <size_t>of.offset, <size_t>of.size, <size_t>of.start, <size_t>of.end, <size_t>of.number,
            <size_t>of.numbers_of, <size_t>of.process, <size_t>of.kind, <size_t>of.stream, <size_t>of.name, <size_t>of.category, <size_t>of.ends,
            <size_t>of.valid_category, <size_t>of.valid_start, <size_t>of.valid_end, <size_t>of.valid_text,
            <size_t>of.flawed, <size_t>of.text,
        ):
            free(<void *><size_t>pointer)

    def scan(
        self, bytes data not None, Py_ssize_t at, int64_t offset, Py_ssize_t size_max, int rows_min,
        names not None, list processes not None, /
    ):
        """Pack the usual records from `data[at]` on. A line or an element must begin there, at `offset` in the input.

        Each of `processes` has a PID of its own, a host, whether its ids are believed to count its events, and the
        phase of the complete events that are not usual. The result is a list of parts and the position in `data`
        after them. A part is the index of a process, its block, the ids of its complete events as 64-bit
        integers, and whether a record shows a release that numbers its events by id. There is no part if there would
        be less than `rows_min` rows, unless a row names a hash (`names` has this name already), or while another
        thread calls."""
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t have = PyBytes_GET_SIZE(data), stop = at
        cdef Columns *to = &self.columns
        if at < 0 or at > have or self.busy:
            return [], at
        self.busy = True
        try:
            to.rows = to.numbers = to.names = to.ends[0] = 0
            memset(to.valid_category, 0, ROWS_MAX // 8)
            memset(to.valid_start, 0, ROWS_MAX // 8)
            memset(to.valid_end, 0, ROWS_MAX // 8)
            memset(to.valid_text, 0, ROWS_MAX // 8)
            memset(to.flawed, 0, ROWS_MAX // 8)
            self._know(processes)
            if self.version is not names.version:
                self._forget_members()
                self.version = names.version
            with nogil:
                why = self._fill(begin, have, &stop, offset - at, size_max, names, False)
            # From the first record on that needs the interpreter's lock, hold the lock. To take it for each record could mean to
            # wait for another thread each time.
            if why == INTERPRETER:
                self._fill(begin, have, &stop, offset - at, size_max, names, True)
            if to.rows < (1 if to.names else max(rows_min, 1)):
                return [], stop
            found = sorted((self.process[i].last, i) for i in range(self.processes) if self.process[i].rows)
            return [self._part(i, stop - at) for _, i in found], stop
        finally:
            self.busy = False

    cdef object _part(self, int process, Py_ssize_t length):
        """Return one part of the result of `scan`. `length` is the number of bytes of the rows of all processes."""
        cdef Columns *of = &self.columns
        cdef Process *whose = &self.process[process]
        cdef int rows = 0, count = 0, i
        if whose.rows == of.rows:
            return process, self._block(of.rows, length), copied(of.number, of.numbers * sizeof(int64_t)), whose.counts
        length = 0
        for i in range(of.rows):
            if of.process[i] == process:
                self.rows_of[rows] = i
                rows += 1
                length += of.size[i]
        numbers = array("q", (of.number[i] for i in range(of.numbers) if of.numbers_of[i] == process)).tobytes()
        return process, self._block(rows, length), numbers, whose.counts

    cdef int _fill(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t *at, int64_t offset,
        Py_ssize_t size_max, object names, bint locked,
    ) except -1 nogil:
        """Add rows of the usual records from `at` on, and set `at` to their end. `offset` is the offset of `data`.

        Return why the next record was not added: HERE or INTERPRETER."""
        cdef Columns *to = &self.columns
        cdef const uint8_t *begin
        cdef const uint8_t *stop
        cdef const uint8_t *end = data + have
        cdef uint8_t *text
        cdef Line line
        cdef Process *process
        cdef Py_ssize_t size
        cdef int row = to.rows, kind, stream, name, category, member
        cdef bint aggregate
        size_max = min(size_max, LINE_MAX)
        while row < ROWS_MAX and at[0] < have:
            begin = behind_blank_lines(data + at[0], end)
            stop = read_line(begin, end, &line)
            if not stop:
                break
            size = stop - data - at[0]
            if size + ((stop - 1)[0] != c'\n') > size_max:
                break
            process = self._process(&line)
            if not process:
                break
            if TEXT_MAX - to.ends[row] < 2 * size + NAMED_MAX + TEXT_MORE:
                break
            kind = A_NAME if line.names else A_SPAN if line.phase == c'1' or line.phase == c'X' else A_COUNTER
            aggregate = kind == A_COUNTER and (line.phase == c'3' or line.counts_calls)
            # Python must find out that these ids no longer count the events of the process.
            if process.numbered and (aggregate or kind == A_SPAN and (line.quoted_id or not line.fields & ID)):
                break
            if kind == A_SPAN and line.phase == process.other_phase:
                break
            if kind == A_SPAN and add_overflows(line.start, line.duration, &to.end[row]):
                break
            stream = self._stream(line.pid, line.tid, locked)
            if stream < 0:
                return stream
            name = self._word(self.words, line.given if kind == A_NAME else line.name, locked)
            if name < 0:
                return name
            category = 0
            if line.fields & CATEGORY:
                category = self._word(self.categories, line.category, locked)
                if category < 0:
                    return category
                to.valid_category[row >> 3] |= 1 << (row & 7)
            text = to.text + to.ends[row]
            if kind == A_NAME:
                if not locked:
                    return INTERPRETER
                self._define(&line, names)
                text = _write_naming(&line, text)
            else:
                member = 0
                if line.host.at or line.file.at:
                    member = self._members(&line, names, locked)
                    if member < 0:
                        return member
                text = self._write_attributes(&line, aggregate, kind == A_SPAN and line.quoted_pid, &self.members[member], text)
            if line.spelling:
                to.flawed[row >> 3] |= 1 << (row & 7)
            if text > to.text + to.ends[row]:
                to.valid_text[row >> 3] |= 1 << (row & 7)
            to.ends[row + 1] = <int32_t>(text - to.text)
            self._put_kind(&line, row, kind)
            to.process[row] = self.current
            process.rows += 1
            process.last = row
            to.offset[row], to.size[row] = offset + at[0], size
            to.stream[row], to.name[row], to.category[row] = stream, name, category
            row += 1
            to.rows = row
            at[0] += size
        return HERE

    cdef int _know(self, list processes) except -1:
        """Store the processes whose records the kernel may pack, up to the first PID that is not a 64-bit integer."""
        cdef Process *to
        self.processes = self.current = 0
        for pid, host, numbered, other_phase in processes:
            if self.processes == PROCESSES_MAX:
                break
            to = &self.process[self.processes]
            memset(to, 0, sizeof(Process))
            if not read_integer(<const uint8_t *>PyBytes_AS_STRING(pid), &to.pid):
                break
            to.host.at, to.host.size, to.numbered = <const uint8_t *>PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host), numbered
            to.other_phase = PyBytes_AS_STRING(other_phase)[0]  # the end of an empty string is 0
            self.processes += 1
        return 0

    cdef inline Process *_process(self, const Line *line) noexcept nogil:
        """Make the process of a record the current process and return it; NULL if it is not stored."""
        cdef int i
        if self.process[self.current].pid != line.pid:
            for i in range(self.processes):
                if self.process[i].pid == line.pid:
                    self.current = i
                    break
        cdef Process *found = &self.process[self.current]
        return found if self.processes and found.pid == line.pid and _is_host(line.host, found.host) else NULL

    cdef inline void _put_kind(self, const Line *line, int row, int kind) noexcept nogil:
        cdef Columns *to = &self.columns
        cdef uint8_t bit = 1 << (row & 7)
        to.kind[row] = kind
        to.start[row] = line.start
        if kind == A_SPAN:
            if line.fields & ID and not line.quoted_id:
                to.number[to.numbers], to.numbers_of[to.numbers] = line.number, self.current
                to.numbers += 1
            self.process[self.current].counts |= line.phase == c'1'
            to.valid_end[row >> 3] |= bit
        else:
            to.end[row] = 0
        if kind == A_NAME:
            to.names += 1
            self.process[self.current].counts = True
        else:
            to.valid_start[row >> 3] |= bit

    cdef inline uint8_t *_write_attributes(
        self, const Line *line, bint aggregate, bint told, const Named *named, uint8_t *out
    ) noexcept nogil:
        """Write the attributes of an event at `out`. Return the position after them; `out` if there are none.

        `told`: whether the arguments may have names instead of hashes. `named`: members for
        the hashes."""
        cdef uint8_t *begin = out
        if line.spelling:
            out = write_plain(b',"$flaw":"backslash"', out)
        if line.fields & ID:
            out = _copy(line.id, write_plain(b',"id":', out))
        if line.fields & TYPE:
            out = _copy(line.type, write_plain(b',"type":', out))
        if aggregate:
            out = write_plain(b',"aggregate":true', out)
        elif told:
            out = _write_told(line, named, out)
        if line.host.at or line.file.at:
            if not (told and line.told_file.at):
                out = _copy(named.file, out)
            if not (told and line.told_host.at):
                out = _copy(named.host, out)
            out = _copy(named.late, out)
        out = _write_others(line, out)
        if line.fields & ARGS:
            out = _copy(line.args, write_plain(b',"args":', out))
        if out == begin:
            return out
        begin[0] = c'{'
        out[0] = c'}'
        return out + 1

    cdef inline int _stream(self, int64_t pid, int64_t tid, bint locked) except -1 nogil:
        """Return the code of a stream; for a new one, INTERPRETER if the lock is not held, and HERE without room."""
        cdef int64_t[2] ids
        ids[0], ids[1] = pid, tid
        cdef const uint8_t *word = <const uint8_t *>&ids[0]
        cdef int code = self.streams.find(word, 16)
        if code >= 0:
            return code
        if not locked:
            return INTERPRETER
        with gil:
            return self.streams.add(word, 16, f"{pid}/{tid}", self.columns.rows)

    cdef inline int _word(self, Known known, Text raw, bint locked) except -1 nogil:
        """Return the code of a text; for a new one, INTERPRETER if the lock is not held, and HERE without room."""
        cdef int code = known.find(raw.at, <uint32_t>raw.size)
        if code >= 0:
            return code
        if not locked:
            return INTERPRETER
        with gil:
            return known.add(raw.at, <uint32_t>raw.size, _text(raw), self.columns.rows)

    cdef inline int _members(self, const Line *line, object names, bint locked) except -1 nogil:
        """Return the code of the JSON members for hashes; for new hashes, INTERPRETER if the lock is not held."""
        cdef uint8_t[2 * HASH_MAX + 1] word
        cdef uint32_t size = <uint32_t>(line.host.size + 1 + line.file.size), hash
        cdef int code
        _copy(line.host, word)[0] = c'\n'
        _copy(line.file, word + line.host.size + 1)
        hash = hash_word(&self.hashes, word, size)
        code = find_word(&self.hashes, word, size, hash)
        if code >= 0:
            return code
        return self._add_members(line, names, word, size, hash) if locked else INTERPRETER

    cdef int _add_members(
        self, const Line *line, object names, const uint8_t *word, uint32_t size, uint32_t hash
    ) except -1 with gil:
        """Store the JSON members for new hashes. Return their code, or HERE if the members are too long.

        In `_members`, which runs for each line, this code would take the interpreter's lock."""
        file, host, late = names.members(_unquoted(line.file), _unquoted(line.host))
        cdef bytes found = file + host + late
        if len(found) > NAMED_MAX:
            return HERE
        if not has_room(&self.hashes, size):
            self._forget_members()
        self.member_texts.append(found)
        cdef int code = add_word(&self.hashes, word, size, hash)
        cdef Named *to = &self.members[code]
        to.file.at, to.file.size = <const uint8_t *>PyBytes_AS_STRING(found), len(file)
        to.host.at, to.host.size = to.file.at + to.file.size, len(host)
        to.late.at, to.late.size = to.host.at + to.host.size, len(late)
        return code

    cdef int _define(self, const Line *line, object names) except -1 nogil:
        """Store the name that a metadata record gives to a hash in `names`."""
        with gil:
            names.define(f"{_text(line.name)}:{_unquoted(line.value)}", _text(line.given))
            if self.version is not names.version:
                self._forget_members()
                self.version = names.version
        return 0

    cdef int _forget_members(self) except -1:
        empty_table(&self.hashes)
        self.member_texts = []
        return 0

    cdef object _block(self, int rows, Py_ssize_t length):
        """Return a block with copies of all rows, or of the first `rows` rows whose indexes are in `rows_of`."""
        cdef Columns *of = &self.columns
        end = None
        spans = self._bits(of.valid_end, rows)
        if spans is None or any(spans):
            end = Integers(self._taken(of.end, rows, sizeof(int64_t)), spans)
        start = None
        timed = self._bits(of.valid_start, rows)
        if timed is None or any(timed):
            start = Integers(self._taken(of.start, rows, sizeof(int64_t)), timed)
        flaws = None
        flawed = self._bits(of.flawed, rows)
        if flawed is None or any(flawed):
            flaws = Words(bytes(rows * sizeof(int32_t)), _FLAWS, 1, flawed)
        categories = None
        categorized = self._bits(of.valid_category, rows)
        if categorized is None or any(categorized):
            categories = Words(self._taken(of.category, rows, sizeof(int32_t)), self.categories.texts, len(self.categories.texts), categorized)
        return Block(
            rows, length, self._longs(of.offset, rows), self._longs(of.size, rows),
            self._words(of.kind, rows, _KINDS), self._words(of.stream, rows, self.streams.texts), None, None,
            self._words(of.name, rows, self.words.texts), categories, None, None,
            start, end, self._texts(rows), flaws,
        )

    cdef object _texts(self, int rows):
        cdef Columns *of = &self.columns
        cdef int i, row, size = 0
        cdef bytes ends, text
        valid = self._bits(of.valid_text, rows)
        if valid is not None and not any(valid):
            return None
        if rows == of.rows:
            return Texts(copied(of.ends, (rows + 1) * sizeof(int32_t)), copied(of.text, of.ends[rows]), valid)
        ends = bytes((rows + 1) * sizeof(int32_t))
        cdef int32_t *to = <int32_t *>PyBytes_AS_STRING(ends)
        for i in range(rows):
            row = self.rows_of[i]
            size += of.ends[row + 1] - of.ends[row]
            to[i + 1] = size
        text = PyBytes_FromStringAndSize(NULL, size)
        for i in range(rows):
            row = self.rows_of[i]
            memcpy(PyBytes_AS_STRING(text) + to[i], of.text + of.ends[row], to[i + 1] - to[i])
        return Texts(ends, text, valid)

    cdef bytes _taken(self, const void *values, int rows, size_t size):
        cdef int i
        if rows == self.columns.rows:
            return copied(values, rows * size)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, rows * size)
        cdef char *to = PyBytes_AS_STRING(found)
        for i in range(rows):
            memcpy(to + i * size, <const char *>values + self.rows_of[i] * size, size)
        return found

    cdef bytes _bits(self, const uint8_t *bits, int rows):
        cdef int i, row, count = 0
        cdef bint is_all = rows == self.columns.rows
        cdef bytes found = bytes((rows + 7) // 8)
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(found)
        for i in range(rows):
            row = i if is_all else self.rows_of[i]
            if bits[row >> 3] >> (row & 7) & 1:
                to[i >> 3] |= 1 << (i & 7)
                count += 1
        return None if count == rows else found

    cdef object _longs(self, const int64_t *values, int rows):
        return Integers(self._taken(values, rows, sizeof(int64_t)))

    cdef object _words(self, const int32_t *codes, int rows, list texts):
        return Words(self._taken(codes, rows, sizeof(int32_t)), texts, len(texts))


cdef inline bint _is_host(Text stated, Text host) noexcept nogil:
    """Return whether a record has no host, or the hash of its process's host."""
    cdef const uint8_t *at = stated.at
    cdef Py_ssize_t size = stated.size
    if not at:
        return True
    if at[0] == QUOTE:
        at, size = at + 1, size - 1
    return not size or size == host.size and memcmp(at, host.at, size) == 0


def ranges(bytes numbers not None):
    """Return the ranges of 64-bit integers, ascending, and how many integers do not directly follow the one before.

    Return None if an integer is repeated, or if the span is `SPAN_OF_IDS` or more."""
    cdef const int64_t *number = <const int64_t *>PyBytes_AS_STRING(numbers)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(numbers) // sizeof(int64_t), i
    cdef uint8_t[SPAN_OF_IDS] come
    cdef int64_t least, most
    cdef uint64_t span, place, begin
    cdef Py_ssize_t breaks = 0
    if not count:
        return [], 0
    least = most = number[0]
    for i in range(1, count):
        breaks += number[i - 1] == INT64_MAX or number[i] != number[i - 1] + 1
        least, most = min(least, number[i]), max(most, number[i])
    if not breaks:
        return [(least, most)], 0
    span = <uint64_t>most - <uint64_t>least
    if span >= SPAN_OF_IDS:
        return None
    memset(come, 0, span + 1)
    for i in range(count):
        place = <uint64_t>number[i] - <uint64_t>least
        if come[place]:
            return None
        come[place] = 1
    found = []
    place = 0
    while place <= span:
        begin = place
        while place <= span and come[place]:
            place += 1
        found.append((least + <int64_t>begin, least + <int64_t>(place - 1)))
        while place <= span and not come[place]:
            place += 1
    return found, breaks


cdef inline uint8_t *_write_naming(const Line *line, uint8_t *out) noexcept nogil:
    """Write to `out` the attributes of a row that gives a name to a hash. Return the position after them."""
    cdef bint text = line.value.at[0] == QUOTE
    if line.spelling:
        out = write_plain(b'{"$flaw":"backslash","$key":"', out)
    else:
        out = write_plain(b'{"$key":"', out)
    out = _copy(line.name, out)
    out[0] = c':'
    out = out + 1
    if text:
        out = write_plain(b'","$scope":"source"', _copy_rest(line.value, out))
    else:
        out = write_plain(b'","$scope":"group"', _copy(line.value, out))
    if line.fields & TYPE:
        out = _copy(line.type, write_plain(b',"type":', out))
    out = _copy(line.host, write_plain(b',"hhash":', out))
    if line.host.at[0] == QUOTE:
        out[0] = QUOTE
        out = out + 1
    out = _write_others(line, out)
    out[0] = c'}'
    return out + 1


cdef inline uint8_t *_write_told(const Line *line, const Named *named, uint8_t *out) noexcept nogil:
    """Write the names of file and host from arguments of releases before 1.0, or the known names of their hashes."""
    cdef bint hashed = line.host.at or line.file.at
    if line.told_file.at and hashed and named.file.size:
        out = _copy(named.file, out)
    elif line.told_file.at:
        out = write_plain(b',"fname":"', out)
        out = write_respelled(line.told_file.at, line.told_file.at + line.told_file.size, out)
        out = write_plain(b'"', out)
    if line.told_host.at and hashed and named.host.size:
        out = _copy(named.host, out)
    elif line.told_host.at:
        out = write_plain(b',"hostname":"', out)
        out = write_respelled(line.told_host.at, line.told_host.at + line.told_host.size, out)
        out = write_plain(b'"', out)
    return out


cdef inline uint8_t *_write_others(const Line *line, uint8_t *out) noexcept nogil:
    """Write to `out` the fields that the tracer does not write, each after a comma. Return the position after them."""
    cdef int i
    for i in range(line.others):
        out = _copy(line.other[i].key, write_plain(b',"', out))
        out = _copy(line.other[i].value, write_plain(b'":', out))
    return out


cdef inline object _text(Text raw):
    """Return the value of a JSON string, given without quotes."""
    if memchr(raw.at, BACKSLASH, raw.size):
        return loads(b'"' + raw.at[: raw.size] + b'"', strict=True)
    return raw.at[: raw.size].decode()


cdef inline object _unquoted(Text hash):
    """Return the text of a hash without quotes, or None if the record has no hash."""
    if not hash.at:
        return None
    return _text(hash)[1:] if hash.at[0] == QUOTE else _text(hash)
