# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of Heph: pack events of the usual shape into blocks.

An event is usual if `decoder` reads it without a flaw, its description is UTF-8, and its attributes are at most
`FIELDS_MAX` u64, i64, finite f64 or UTF-8 strings with different, ordinary names. The kernel stops before any other
packet, and before bytes that end inside a packet. It checks the size of a packet against the input before it reads the
packet, and reads no byte outside of it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    """
    void *memmem(const void *data, size_t size, const void *part, size_t part_size) nogil

from tailrace.decoding.json_text cimport (
    write_float, write_plain, write_signed, write_string, write_unsigned,
)
from tailrace.decoding.word_table cimport (
    WordTable, add_word, empty_table, find_word, free_table, has_room, hash_word, make_table,
)
from tailrace.rows.buffers cimport allocated, copied

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind

cdef enum:
    EVENT_MIN = 42
    ROWS_MAX = 8192
    FIELDS_MAX = 64
    NAMES_MAX = 4096
    NAMES_BYTES = 1 << 20
    STREAMS_MAX = 8192
    TEXT_MAX = 1 << 20  # maximum size (bytes) of the attributes of a block
    # A byte of a name may become 6 bytes of JSON, or 12 if the name is also under `$types`.
    TEXT_PER_BYTE = 12
    TEXT_MORE = 64
    # Types of attributes in the body
    U64 = 1
    I64 = 2
    F64 = 3
    STRING = 4
    # Results that state why the kernel stopped
    HERE = -2  # the next bytes are not usual, or the block is full
    INTERPRETER = -3  # the next bytes need the Python interpreter, and its lock is not held

cdef uint32_t EVENT = 0xC1FC1FB7
cdef const char *EVENT_MAGIC = b"\xC1\xFC\x1F\xB7"
cdef const char *METADATA_MAGIC = b"\x75\xD1\x1D\x4D"
cdef const char *COUNTER = b"\x00\x10tailrace.counter"
cdef enum:
    COUNTER_SIZE = 18

_KINDS = [Kind.SPAN, Kind.COUNTER]


cdef inline uint16_t _u16(const uint8_t *at) noexcept nogil:
    return <uint16_t>((at[0] << 8) | at[1])


cdef inline uint32_t _u32(const uint8_t *at) noexcept nogil:
    return (<uint32_t>_u16(at) << 16) | _u16(at + 2)


cdef inline uint64_t _u64(const uint8_t *at) noexcept nogil:
    return (<uint64_t>_u32(at) << 32) | _u32(at + 4)


cdef struct Columns:
    int64_t *offset
    int64_t *size
    int64_t *substream
    int64_t *counter
    int64_t *start
    int64_t *end
    int32_t *kind
    int32_t *stream
    int32_t *name
    int32_t *ends  # for each row, the end of its attributes in `text`; the first entry is 0
    uint8_t *valid  # bitmap of the rows with attributes
    uint8_t *text
    int rows
    int empty  # number of rows without attributes
    int counters


cdef int _write_attributes(
    const uint8_t *at, const uint8_t *end, uint8_t **out, bint locked
) except -1 nogil:
    """Write the attributes of a body as a JSON object, and set `out` to its end; to NULL if they are not usual.

    Return HERE, or INTERPRETER if only the interpreter can write a number."""
    cdef const uint8_t *names[FIELDS_MAX]
    cdef const uint8_t *keys[FIELDS_MAX]  # names of i64 attributes whose JSON looks like a u64
    cdef int sizes[FIELDS_MAX]
    cdef int key_sizes[FIELDS_MAX]
    cdef int fields = 0, typed = 0, i, size, kind
    cdef const uint8_t *name
    cdef uint8_t *text = out[0]
    cdef uint8_t *key
    cdef uint64_t bits
    cdef double number
    out[0] = NULL
    text[0] = c'{'
    text += 1
    while at < end:
        if fields == FIELDS_MAX or end - at < 3 or at[0]:
            return HERE
        size = at[1]
        name = at + 2
        if end - name <= size or (size and name[0] == c'$'):
            return HERE
        for i in range(fields):
            if sizes[i] == size and not memcmp(names[i], name, size):
                return HERE
        names[fields], sizes[fields] = name, size
        if fields:
            text[0] = c','
            text += 1
        fields += 1
        key = text
        text = write_string(name, size, text)
        if not text:
            return HERE
        text[0] = c':'
        text += 1
        kind = name[size]
        at = name + size + 1
        if kind == STRING:
            if end - at < 2:
                return HERE
            size = _u16(at)
            at += 2
            if end - at < size:
                return HERE
            text = write_string(at, size, text)
            if not text:
                return HERE
            at += size
            continue
        if end - at < 8:
            return HERE
        bits = _u64(at)
        at += 8
        if kind == U64:
            text = write_unsigned(bits, text)
        elif kind == I64:
            if not bits >> 63:
                keys[typed], key_sizes[typed] = key, <int>(text - key)
                typed += 1
            text = write_signed(<int64_t>bits, text)
        elif kind == F64:
            memcpy(&number, &bits, 8)
            if not isfinite(number):
                return HERE
            if not locked:
                return INTERPRETER
            with gil:
                text = write_float(number, text)
        else:
            return HERE
    if typed:
        text = write_plain(b',"$types":{', text)
        for i in range(typed):
            if i:
                text[0] = c','
                text += 1
            memcpy(text, keys[i], key_sizes[i])
            text = write_plain(b'"i64"', text + key_sizes[i])
        text[0] = c'}'
        text += 1
    text[0] = c'}'
    out[0] = text + 1
    return HERE


cdef class Scanner:
    """Packs usual events of Heph into blocks. Several decoders may share one scanner, which keeps names and streams."""

    cdef WordTable names, streams
    cdef list name_texts, stream_texts
    cdef Columns columns
    cdef bint busy

    def __cinit__(self) -> None:
        # Producers do not know the seed. Otherwise they could choose words with equal hashes.
        cdef uint64_t seed = <uint64_t>hash(b"tailrace") | 1
        cdef Columns *into = &self.columns
        make_table(&self.names, NAMES_MAX, NAMES_BYTES, seed)
        make_table(&self.streams, STREAMS_MAX, STREAMS_MAX * 4, seed)
        self.name_texts, self.stream_texts = [], []
        cdef int64_t **longs[6]
        cdef int32_t **ints[4]
        longs[:] = [&into.offset, &into.size, &into.substream, &into.counter, &into.start, &into.end]
        ints[:] = [&into.kind, &into.stream, &into.name, &into.ends]
        for i in range(6):
            longs[i][0] = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
        for i in range(4):
            ints[i][0] = <int32_t *>allocated((ROWS_MAX + 1) * sizeof(int32_t))
        into.valid = <uint8_t *>allocated(ROWS_MAX // 8)
        into.text = <uint8_t *>allocated(TEXT_MAX)

    def __dealloc__(self) -> None:
        cdef Columns *of = &self.columns
        free_table(&self.names)
        free_table(&self.streams)
        for pointer in (
            <size_t>of.offset, <size_t>of.size, <size_t>of.substream, <size_t>of.counter,
            <size_t>of.start, <size_t>of.end, <size_t>of.kind, <size_t>of.stream, <size_t>of.name,
            <size_t>of.ends, <size_t>of.valid, <size_t>of.text,
        ):
            free(<void *><size_t>pointer)

    def scan(
        self, bytes data not None, Py_ssize_t at, int64_t offset, Py_ssize_t size_max, int rows_min,
        bytes first=b"", /
    ):
        """Pack the event `first`, then the usual events from `data[at]` on, whose offset in the input is `offset`.

        Return a block and the position in `data` after it. The block is None if it would have less than
        `rows_min` rows, if `first` is not usual, or while another thread calls. Packets longer than `size_max`
        (at most 4096) are not usual."""
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t have = PyBytes_GET_SIZE(data), stop = at, before = 0
        cdef Py_ssize_t first_size = PyBytes_GET_SIZE(first)
        cdef int why
        if at < 0 or at > have or self.busy:
            return None, at
        self.busy = True
        try:
            self.columns.rows = self.columns.empty = self.columns.counters = 0
            self.columns.ends[0] = 0
            memset(self.columns.valid, 0, ROWS_MAX // 8)
            if first_size:
                self._fill(
                    <const uint8_t *>PyBytes_AS_STRING(first), first_size, &before, offset - first_size,
                    size_max, True,
                )
                if before < first_size:
                    return None, at
            with nogil:
                why = self._fill(begin, have, &stop, offset - at, size_max, False)
            # From the first event on that needs the interpreter's lock, hold the lock. To take it for each event could mean to
            # wait for another thread each time.
            if why == INTERPRETER:
                self._fill(begin, have, &stop, offset - at, size_max, True)
            if self.columns.rows < max(rows_min, 1):
                return None, stop
            return self._block(first_size + stop - at), stop
        finally:
            self.busy = False

    cdef int _fill(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t *at, int64_t offset,
        Py_ssize_t size_max, bint locked,
    ) except -1 nogil:
        """Add rows of the usual packets from `at` on, and set `at` to their end. `offset` is the offset of `data`.

        Return why the next packet was not added: HERE or INTERPRETER."""
        cdef Columns *to = &self.columns
        cdef const uint8_t *packet
        cdef const uint8_t *body
        cdef Py_ssize_t size, length
        cdef uint8_t *text
        cdef int row = to.rows, name, stream = 0
        cdef uint32_t id
        cdef int64_t known = -1  # the stream id of the previous event
        size_max = min(size_max, 4096)
        while row < ROWS_MAX and have - at[0] >= EVENT_MIN:
            packet = data + at[0]
            size = _u32(packet + 4)
            length = _u16(packet + 40)
            if (
                _u32(packet) != EVENT or size > size_max or size > have - at[0]
                or length + EVENT_MIN > size or (packet[24] | packet[32]) & 0x80
                or TEXT_MAX - to.ends[row] < size * TEXT_PER_BYTE + TEXT_MORE
            ):
                break
            body = packet + EVENT_MIN + length
            text = to.text + to.ends[row]
            if body < packet + size:
                if _write_attributes(body, packet + size, &text, locked) == INTERPRETER:
                    return INTERPRETER
                if not text:
                    break
            id = _u32(packet + 8)
            if id != known:
                stream = self._stream(packet + 8, locked)
                if stream < 0:
                    return stream
                known = id
            name = self._name(packet + EVENT_MIN, <uint32_t>length, locked)
            if name < 0:
                return name
            to.ends[row + 1] = <int32_t>(text - to.text)
            if text > to.text + to.ends[row]:
                to.valid[row >> 3] |= 1 << (row & 7)
            else:
                to.empty += 1
            to.kind[row] = (
                packet + size - body >= COUNTER_SIZE and not memcmp(body, COUNTER, COUNTER_SIZE)
            )
            to.counters += to.kind[row]
            to.offset[row], to.size[row] = offset + at[0], size
            to.stream[row], to.name[row] = stream, name
            to.counter[row], to.substream[row] = _u32(packet + 12), <int64_t>_u64(packet + 16)
            to.start[row], to.end[row] = <int64_t>_u64(packet + 24), <int64_t>_u64(packet + 32)
            row += 1
            to.rows = row
            at[0] += size
        return HERE

    cdef inline int _stream(self, const uint8_t *id, bint locked) except -1 nogil:
        """Return the code of a stream; for a new one, INTERPRETER if the lock is not held, and HERE without room."""
        cdef uint32_t hash = hash_word(&self.streams, id, 4)
        cdef int code = find_word(&self.streams, id, 4, hash)
        if code >= 0:
            return code
        return self._add_stream(id, hash) if locked else INTERPRETER

    cdef int _add_stream(self, const uint8_t *id, uint32_t hash) except -1 with gil:
        """Store a new stream and return its code. Return HERE if there is no room and rows of the block use codes."""
        if not has_room(&self.streams, 4):
            if self.columns.rows:
                return HERE
            empty_table(&self.streams)
            self.stream_texts = []
        self.stream_texts.append(str(_u32(id)))
        return add_word(&self.streams, id, 4, hash)

    cdef inline int _name(self, const uint8_t *raw, uint32_t size, bint locked) except -1 nogil:
        """Return the code of a name; for a new one, INTERPRETER if the lock is not held, and HERE if not stored."""
        cdef uint32_t hash = hash_word(&self.names, raw, size)
        cdef int code = find_word(&self.names, raw, size, hash)
        if code >= 0:
            return code
        return self._add_name(raw, size, hash) if locked else INTERPRETER

    cdef int _add_name(self, const uint8_t *raw, uint32_t size, uint32_t hash) except -1 with gil:
        """Store a new name and return its code. Return HERE if the name is not UTF-8 or there is no room.

        In `_name`, which runs for each event, this code would take the interpreter's lock."""
        try:
            text = PyUnicode_DecodeUTF8(<const char *>raw, size, NULL)
        except UnicodeDecodeError:
            return HERE
        if not has_room(&self.names, size):
            if self.columns.rows:
                return HERE
            empty_table(&self.names)
            self.name_texts = []
        self.name_texts.append(text)
        return add_word(&self.names, raw, size, hash)

    cdef object _block(self, Py_ssize_t length):
        cdef Columns *of = &self.columns
        cdef int rows = of.rows
        names, streams = self.name_texts, self.stream_texts
        attributes = None
        if of.empty < rows:
            attributes = Texts(
                copied(of.ends, (rows + 1) * sizeof(int32_t)),
                copied(of.text, of.ends[rows]),
                copied(of.valid, (rows + 7) // 8) if of.empty else None,
            )
        return Block(
            rows, length, _longs(of.offset, rows), _longs(of.size, rows),
            Words(copied(of.kind, rows * sizeof(int32_t)), _KINDS, 2),
            Words(copied(of.stream, rows * sizeof(int32_t)), streams, len(streams)),
            _longs(of.substream, rows), _longs(of.counter, rows),
            Words(copied(of.name, rows * sizeof(int32_t)), names, len(names)),
            None, None, None, _longs(of.start, rows), _longs(of.end, rows), attributes,
        )


def of_events(bytes payload not None, tuple sizes not None, Py_ssize_t first, Py_ssize_t begin):
    """Return the number of datagrams, from index `first` on, that contain only whole events (`Format.whole`)."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(payload) - begin, size, index = first
    if first < 0 or begin < 0:
        return 0
    at += begin
    while index < len(sizes):
        size = sizes[index]
        if size > left or not _are_events(at, size):
            break
        at += size
        left -= size
        index += 1
    return index - first


cdef bint _are_events(const uint8_t *at, Py_ssize_t left) noexcept nogil:
    """Return whether bytes are a sequence of whole events, none of which contains the magic of another packet."""
    cdef Py_ssize_t size
    if left < EVENT_MIN:
        return False
    while left:
        if left < EVENT_MIN or _u32(at) != EVENT:
            return False
        size = _u32(at + 4)
        if size > left or _u16(at + 40) + EVENT_MIN > size:
            return False
        if memmem(at + 4, size - 4, EVENT_MAGIC, 4) or memmem(at + 4, size - 4, METADATA_MAGIC, 4):
            return False
        at += size
        left -= size
    return True


cdef inline object _longs(const int64_t *values, int rows):
    return Integers(copied(values, rows * sizeof(int64_t)))
