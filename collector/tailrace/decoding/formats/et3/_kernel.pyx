# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of ET3: pack lines of the usual shape, of either form, into blocks.

A usual line consists of a letter of ET3 and its numbers, with single spaces between them, without signs and leading
zeros, and with at most 18 digits. It must also fulfil these conditions:

- In the specification's form, the last field is the next time for an entry or exit, and the current time for other
  events. In the agents' form, it is a thread that cannot be a clock.
- An exit ends the innermost frame of its thread. If the method's name is known now, it was known when the frame began.
- A death proves no missing lines, and does not make the times of deaths trusted.

The kernel stops before any other line, and before bytes without a newline. It copies the open frames from the decoder's
stacks, and copies them back after a block."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from tailrace.decoding.json_text cimport write_plain
from tailrace.decoding.word_table cimport (
    WordTable, add_word, empty_table, find_word, free_table, has_room, hash_word, make_table,
)
from tailrace.rows.buffers cimport allocated, copied

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind

cdef enum:
    ROWS_MAX = 16384
    FIELDS_MAX = 6
    DIGITS_MAX = 18
    STREAMS_MAX = 4096
    # Maximum number of streams at the beginning of a block. A block then has room for as many new streams.
    STREAMS_KEPT = STREAMS_MAX // 2
    OPEN_MAX = 16384  # maximum number of open frames at the beginning of a block
    FRAMES_MAX = OPEN_MAX + ROWS_MAX
    THINGS_MAX = 8192  # maximum numbers of stored methods, of stored classes and of stored fields
    # maximum size (bytes) of the texts for the methods, for the classes or for the fields
    THINGS_BYTES = 1 << 20
    NAMED_MAX = 16384  # maximum size (bytes) of the text for one method, class or field
    TEXT_MAX = 2 << 20  # maximum size (bytes) of the attributes of a block
    # Maximum size (bytes) of the attributes of a line, without the text for its method, class or field.
    TEXT_OF_LINE = 256
    NO_NAME = -1
    NO_FRAME = -1
    NO_METHOD = -1  # a method whose number no usual line can have
    # Results that state why the kernel stopped
    HERE = -2  # the next bytes are not usual, or the block is full
    INTERPRETER = -3  # the next bytes need the Python interpreter, and its lock is not held
    # Kinds of rows, in the order of `_KINDS`
    BEGIN = 0
    END = 1
    INSTANT = 2
    # Names of rows, in the order of `_NAMES`
    ALLOCATION = 0
    ARRAY_ALLOCATION = 1
    UPDATE = 2
    WITNESS = 3
    DEATH = 4
    # Indexes of numbers in a line
    OBJECT = 0
    METHOD = 0

_KINDS = [Kind.BEGIN, Kind.END, Kind.INSTANT]
_NAMES = ["allocation", "array_allocation", "update", "witness", "death"]


cdef struct Text:
    const uint8_t *at
    Py_ssize_t size


cdef struct Number:
    const uint8_t *at
    int32_t size
    int64_t value


cdef struct Line:
    uint8_t letter
    int count
    Number field[FIELDS_MAX]


cdef struct Thing:
    Text text  # the attributes of a class or field, or those of a method's entry up to its receiver
    Text end  # the attributes of the exit of a method
    int32_t name  # the code of a method's name, or NO_NAME if its name is unknown


cdef struct Frame:
    int64_t method
    int64_t number
    int32_t below
    bint nameless


cdef struct Thread:
    int32_t top  # index of the innermost open frame
    int32_t depth
    int32_t kept  # number of frames from before the block that are still open
    int64_t doubted  # an exit without an entry came while the frames up to this number were open; 0 if none came
    bint known  # whether the decoder's stacks have this thread
    bint touched


cdef struct Clock:  # a copy of the form's state
    bint agent
    bint unread
    int64_t time
    int64_t number  # the number of the last frame that was opened
    int threads
    # The following fields are used only in the agents' form.
    int64_t lost, ahead, agreeing, agreed_at, disagreements, base, died, died_at, claimed
    bint trusted
    bint hashed  # whether a thread has a number that is too large for a clock


cdef struct Limits:
    int32_t depth, threads
    int64_t trust, doubt, time, clock


cdef struct Columns:
    int64_t *offset
    int64_t *size
    int64_t *id
    int64_t *parent
    int64_t *start
    int64_t *end
    int32_t *kind
    int32_t *stream
    int32_t *name
    int32_t *ends  # for each row, the end of its attributes in `text`; the first entry is 0
    uint8_t *has_parent
    uint8_t *has_start
    uint8_t *has_end
    uint8_t *has_name
    uint8_t *text
    int rows


cdef inline int _fields(uint8_t letter) noexcept nogil:
    """Return how many numbers a usual line with this letter has, or 0 if no usual line has the letter."""
    if letter == c'M' or letter == c'W' or letter == c'D':
        return 3
    if letter == c'E':
        return 2
    if letter == c'U' or letter == c'X':
        return 4
    return 6 if letter == c'N' or letter == c'A' else 0


cdef inline Py_ssize_t _read_line(const uint8_t *begin, const uint8_t *end, Line *line) noexcept nogil:
    """Read the usual line that begins at `begin`. Return its size (bytes), or 0 if it is not usual or not whole."""
    cdef const uint8_t *at = begin + 1
    cdef Number *number
    cdef int i
    cdef uint8_t digit
    line.letter = begin[0]
    line.count = _fields(line.letter)
    if not line.count:
        return 0
    for i in range(line.count):
        if end - at < DIGITS_MAX + 2:
            return _read_slowly(begin, end, line)
        if at[0] != c' ':
            return 0
        number = &line.field[i]
        at += 1
        number.at, number.value = at, 0
        digit = at[0] - c'0'
        while digit <= 9 and at - number.at < DIGITS_MAX:
            number.value = 10 * number.value + digit
            at += 1
            digit = at[0] - c'0'
        number.size = <int32_t>(at - number.at)
        if not number.size or (number.at[0] == c'0' and number.size > 1):
            return 0
    return at + 1 - begin if at[0] == c'\n' else 0


cdef Py_ssize_t _read_slowly(const uint8_t *begin, const uint8_t *end, Line *line) noexcept nogil:
    """Read a line like `_read_line`, but no byte beyond `end`, because the line may be incomplete."""
    cdef const uint8_t *at = begin + 1
    cdef Number *number
    cdef int i
    for i in range(line.count):
        if at == end or at[0] != c' ':
            return 0
        number = &line.field[i]
        at += 1
        number.at, number.value = at, 0
        while at < end and c'0' <= at[0] <= c'9' and at - number.at < DIGITS_MAX:
            number.value = 10 * number.value + (at[0] - c'0')
            at += 1
        number.size = <int32_t>(at - number.at)
        if not number.size or (number.at[0] == c'0' and number.size > 1):
            return 0
    return at + 1 - begin if at < end and at[0] == c'\n' else 0


cdef inline uint8_t *_copy(Text text, uint8_t *out) noexcept nogil:
    memcpy(out, text.at, text.size)
    return out + text.size


cdef inline uint8_t *_digits(const Number *number, uint8_t *out) noexcept nogil:
    memcpy(out, number.at, number.size)
    return out + number.size


cdef class Things:
    """The texts for events about methods, about classes or about fields, by their number."""

    cdef WordTable table
    cdef Thing thing[THINGS_MAX]
    cdef uint8_t *texts
    cdef Py_ssize_t used  # number of used bytes of `texts`

    def __cinit__(self, uint64_t seed):
        make_table(&self.table, THINGS_MAX, THINGS_MAX * DIGITS_MAX, seed)
        self.texts, self.used = <uint8_t *>allocated(THINGS_BYTES), 0

    def __dealloc__(self):
        free_table(&self.table)
        free(self.texts)

    cdef inline Thing *find(self, const Number *number) noexcept nogil:
        cdef uint32_t size = <uint32_t>number.size
        cdef int code = find_word(&self.table, number.at, size, hash_word(&self.table, number.at, size))
        return &self.thing[code] if code >= 0 else NULL

    cdef Thing *add(self, const Number *number, bytes text, bytes end, int32_t name) noexcept:
        """Add the texts for a new number, for which there must be room."""
        cdef uint32_t size = <uint32_t>number.size
        cdef int code = add_word(&self.table, number.at, size, hash_word(&self.table, number.at, size))
        cdef Thing *thing = &self.thing[code]
        thing.text, thing.end, thing.name = self._kept(text), self._kept(end), name
        return thing

    cdef Text _kept(self, bytes text) noexcept:
        cdef Text found
        found.at, found.size = self.texts + self.used, PyBytes_GET_SIZE(text)
        memcpy(self.texts + self.used, PyBytes_AS_STRING(text), found.size)
        self.used += found.size
        return found

    cdef bint has_room(self, Py_ssize_t size) noexcept:
        """Return whether there is room for a new number with texts of `size` bytes."""
        return has_room(&self.table, DIGITS_MAX) and size <= THINGS_BYTES - self.used

    cdef void forget(self) noexcept:
        empty_table(&self.table)
        self.used = 0


cdef class Scanner:
    """Packs usual lines of ET3 into blocks. Several decoders may share one scanner, which keeps names and threads."""

    cdef Things methods, classes, fields
    cdef object version  # the `version` of the names when these texts were made
    cdef list names
    cdef WordTable threads
    cdef Thread thread[STREAMS_MAX]  # by the code of a stream
    cdef list streams
    cdef Frame *frames
    cdef int32_t free_frame, frames_used
    cdef int32_t touched_codes[ROWS_MAX]
    cdef int touched_count
    cdef bint of_et3
    cdef str agent
    cdef Limits limits
    cdef Clock clock
    cdef Columns columns
    cdef bint busy

    def __cinit__(self, str agent not None, *, depth, threads, trust, doubt, time, clock):
        """Create a scanner. `agent` is the name of the agents' form. All other arguments are limits of the Python
        decoder: `depth` (frames of a thread), `threads`, TRUST (`trust`), DOUBT (`doubt`), TIME_MAX (`time`) and
        CLOCK_LIKELY (`clock`)."""
        # Producers do not know the seed. Otherwise they could choose words with equal hashes.
        cdef uint64_t seed = <uint64_t>hash(b"tailrace") | 1
        self.agent = agent
        self.limits.depth, self.limits.threads, self.limits.time = depth, threads, time
        self.limits.trust, self.limits.doubt, self.limits.clock = trust, doubt, clock
        cdef Columns *to = &self.columns
        cdef int64_t **longs[6]
        cdef int32_t **ints[4]
        cdef uint8_t **bits[4]
        longs[:] = [&to.offset, &to.size, &to.id, &to.parent, &to.start, &to.end]
        ints[:] = [&to.kind, &to.stream, &to.name, &to.ends]
        bits[:] = [&to.has_parent, &to.has_start, &to.has_end, &to.has_name]
        for i in range(6):
            longs[i][0] = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
        for i in range(4):
            ints[i][0] = <int32_t *>allocated((ROWS_MAX + 1) * sizeof(int32_t))
            bits[i][0] = <uint8_t *>allocated(ROWS_MAX // 8)
        to.text = <uint8_t *>allocated(TEXT_MAX)
        self.frames = <Frame *>allocated(FRAMES_MAX * sizeof(Frame))
        self.methods, self.classes, self.fields = Things(seed), Things(seed), Things(seed)
        make_table(&self.threads, STREAMS_MAX, STREAMS_MAX * DIGITS_MAX * 2, seed)
        self.streams, self.names = [], list(_NAMES)

    def __dealloc__(self):
        cdef Columns *of = &self.columns
        free_table(&self.threads)
        for pointer in (
            <size_t>of.offset, <size_t>of.size, <size_t>of.id, <size_t>of.parent, <size_t>of.start,
            <size_t>of.end, <size_t>of.kind, <size_t>of.stream, <size_t>of.name, <size_t>of.ends,
            <size_t>of.has_parent, <size_t>of.has_start, <size_t>of.has_end, <size_t>of.has_name,
            <size_t>of.text, <size_t>self.frames,
        ):
            free(<void *><size_t>pointer)

    def scan(
        self, bytes data not None, Py_ssize_t at, int64_t offset, Py_ssize_t size_max, int rows_min,
        form not None, names not None, /
    ):
        """Pack the usual lines from `data[at]` on. A line must begin there. `offset` is its offset in the input.

        Return a block, the position in `data` after it, and whether it has a line that only ET3 writes. The block is
        None if it would have less than `rows_min` rows, or while another thread calls; `form` is then unchanged. Lines
        longer than `size_max` are not usual. `form.found` must be empty."""
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t have = PyBytes_GET_SIZE(data), stop = at
        cdef Columns *to = &self.columns
        cdef int why
        if at < 0 or at > have or self.busy:
            return None, at, False
        self.busy = True
        try:
            if not (self._read_form(form) and self._load(form.stacks)):
                return None, at, False
            if self.version is not names.version:
                self._forget()
                self.version = names.version
            to.rows = to.ends[0] = 0
            for bits in (<size_t>to.has_parent, <size_t>to.has_start, <size_t>to.has_end, <size_t>to.has_name):
                memset(<void *><size_t>bits, 0, ROWS_MAX // 8)
            with nogil:
                why = self._fill(begin, have, &stop, offset - at, size_max, names, False)
            # From the first line on that needs the interpreter's lock, hold the lock. To take it for each line could mean to
            # wait for another thread each time.
            if why == INTERPRETER:
                self._fill(begin, have, &stop, offset - at, size_max, names, True)
            if to.rows < max(rows_min, 1):
                return None, stop, False
            self._store(form.stacks)
            self._write_form(form)
            return self._block(stop - at), stop, self.of_et3
        finally:
            self.busy = False

    # Copies of the decoder's state

    cdef bint _read_form(self, form) except -1:
        """Copy the clock of the form. Return whether the kernel can read lines while the form is in this state."""
        cdef Clock *clock = &self.clock
        self.of_et3 = False
        if form.time > self.limits.time:  # 64 bits never overflow below this limit
            return False
        clock.time, clock.number = form.time, form.stacks.number
        clock.agent = form.name == self.agent
        clock.threads, clock.hashed = len(form.stacks.frames), False
        clock.unread = form.unread > 0
        if not clock.agent:
            return form.begun and not clock.unread
        if form.mixed or form.stacks.behind:  # Python must take back losses at the next entry or exit
            return False
        clock.lost, clock.ahead, clock.agreeing = form.lost, form.ahead, form.agreeing
        clock.agreed_at, clock.disagreements, clock.trusted = form.agreed_at, form.disagreements, form.trusted
        clock.base, clock.died, clock.died_at, clock.claimed = form.base, form.died, form.died_at, form.claimed
        return True

    cdef int _write_form(self, form) except -1:
        cdef Clock *clock = &self.clock
        form.time, form.stacks.number = clock.time, clock.number
        if clock.agent:
            form.ahead, form.agreeing = clock.ahead, clock.agreeing
            form.agreed_at, form.disagreements, form.base = clock.agreed_at, clock.disagreements, clock.base
            form.died, form.died_at = clock.died, clock.died_at
        return 0

    cdef bint _load(self, stacks) except -1:
        """Copy the open frames from the decoder's stacks. Return whether the kernel has room for them."""
        cdef int32_t i, code, frame
        cdef Thread *thread
        if self.threads.words > STREAMS_KEPT or not self.threads.words:
            empty_table(&self.threads)
            self.streams = []
            self._code(b"", 0)
        for i in range(<int32_t>self.threads.words):
            self._make(i, False)
        self.frames_used, self.free_frame, self.touched_count = 0, NO_FRAME, 0
        for name, frames in stacks.frames.items():
            text = name.encode()
            if len(frames) > OPEN_MAX - self.frames_used or len(text) > DIGITS_MAX + 2:
                return False
            code = self._code(PyBytes_AS_STRING(text), <uint32_t>len(text))
            if code < 0:
                return False
            thread = &self.thread[code]
            thread.known = True
            self.clock.hashed = self.clock.hashed or (self.clock.agent and int(name) >= self.limits.clock)
            thread.depth = thread.kept = <int32_t>len(frames)
            for method, number, nameless in frames:
                frame = self.frames_used
                self.frames_used += 1
                self.frames[frame].method = _method(method)
                self.frames[frame].number, self.frames[frame].nameless = number, nameless
                self.frames[frame].below = thread.top
                thread.top = frame
            for number, _ in stacks.doubted.get(name, ()):
                thread.doubted = number
        return True

    cdef inline void _make(self, int32_t code, bint known) noexcept nogil:
        cdef Thread *thread = &self.thread[code]
        thread.top, thread.depth, thread.kept, thread.doubted = NO_FRAME, 0, 0, 0
        thread.known, thread.touched = known, False

    cdef int _store(self, stacks) except -1:
        """Copy the changed open frames back to the decoder's stacks."""
        cdef Thread *thread
        cdef Frame *frame
        cdef int32_t at
        self._tell_streams()
        for i in range(self.touched_count):
            thread = &self.thread[self.touched_codes[i]]
            frames = stacks.of(self.streams[self.touched_codes[i]])
            del frames[thread.kept:]
            new = []
            at = thread.top
            for _ in range(thread.depth - thread.kept):
                frame = &self.frames[at]
                new.append((str(frame.method), frame.number, bool(frame.nameless)))
                at = frame.below
            new.reverse()
            frames += new
        return 0

    cdef int _forget(self) except -1:
        self.methods.forget()
        self.classes.forget()
        self.fields.forget()
        self.names = list(_NAMES)
        return 0

    # Add rows for lines

    cdef int _fill(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t *at, int64_t offset,
        Py_ssize_t size_max, object names, bint locked,
    ) except -1 nogil:
        """Add rows of the usual lines from `at` on, and set `at` to their end. `offset` is the offset of `data`.

        Return why the next line was not added: HERE or INTERPRETER."""
        cdef Columns *to = &self.columns
        cdef Line line
        cdef Py_ssize_t size
        cdef int row, why
        while to.rows < ROWS_MAX and at[0] < have:
            row = to.rows
            size = _read_line(data + at[0], data + have, &line)
            if not size or size > size_max or TEXT_MAX - to.ends[row] < NAMED_MAX + TEXT_OF_LINE:
                break
            to.id[row] = to.parent[row] = to.start[row] = to.end[row] = 0
            if line.letter == c'M':
                why = self._enter(&line, names, locked)
            elif line.letter == c'E' or line.letter == c'X':
                why = self._leave(&line, names, locked)
            elif line.letter == c'D':
                why = self._die(&line)
            else:
                why = self._happen(&line, names, locked)
            if why:
                return why
            to.offset[row], to.size[row] = offset + at[0], size
            if line.letter != c'M' and line.letter != c'N' and line.letter != c'A' and line.letter != c'X':
                self.of_et3 = True
            to.rows = row + 1
            at[0] += size
        return HERE

    cdef int _enter(self, const Line *line, object names, bint locked) except -1 nogil:
        """Add the row of an entry. Return 0, or, without any change, why it cannot be added: HERE or INTERPRETER."""
        cdef Columns *to = &self.columns
        cdef Clock *clock = &self.clock
        cdef Thread *thread
        cdef Frame *frame
        cdef Thing *method = NULL
        cdef int row = to.rows, code, why
        cdef int32_t place
        cdef uint8_t *out
        code = self._stream(&line.field[2], True)
        if code < 0:
            return HERE
        why = self._thing(self.methods, c'M', &line.field[METHOD], names, locked, &method)
        if why:
            return why
        thread = &self.thread[code]
        if thread.depth >= self.limits.depth or (not thread.known and clock.threads >= self.limits.threads):
            return HERE
        place = self.free_frame
        if place >= 0:
            self.free_frame = self.frames[place].below
        else:
            place = self.frames_used
            self.frames_used += 1
        self._touch(code)
        if not thread.known:
            thread.known = True
            clock.threads += 1
            clock.hashed = clock.hashed or line.field[2].value >= self.limits.clock
        clock.time += 1
        clock.number += 1
        if thread.top >= 0:
            to.parent[row] = self.frames[thread.top].number
            to.has_parent[row >> 3] |= 1 << (row & 7)
        frame = &self.frames[place]
        frame.method, frame.number = line.field[METHOD].value, clock.number
        frame.nameless, frame.below = method.name == NO_NAME, thread.top
        thread.top = place
        thread.depth += 1
        out = _digits(&line.field[1], _copy(method.text, to.text + to.ends[row]))
        out[0] = c'}'
        self._put(BEGIN, code, method.name, clock.number, out + 1)
        self._start(clock.time)
        return 0

    cdef int _leave(self, const Line *line, object names, bint locked) except -1 nogil:
        cdef Columns *to = &self.columns
        cdef Clock *clock = &self.clock
        cdef Thread *thread
        cdef Frame *frame
        cdef Thing *method = NULL
        cdef int row = to.rows, code, why
        cdef int32_t place
        cdef uint8_t *out
        code = self._stream(&line.field[line.count - 1], True)
        if code < 0:
            return HERE
        why = self._thing(self.methods, c'M', &line.field[METHOD], names, locked, &method)
        if why:
            return why
        thread = &self.thread[code]
        place = thread.top
        if place < 0:
            return HERE
        frame = &self.frames[place]
        if frame.method != line.field[METHOD].value or (frame.nameless and method.name != NO_NAME):
            return HERE
        if frame.number <= thread.doubted:
            return HERE
        self._touch(code)
        clock.time += 1
        thread.top = frame.below
        thread.depth -= 1
        thread.kept = min(thread.kept, thread.depth)
        frame.below, self.free_frame = self.free_frame, place
        out = _copy(method.end, to.text + to.ends[row])
        if line.letter == c'X':
            out = _digits(&line.field[1], write_plain(b',"receiver":', out - 1))
            out = _digits(&line.field[2], write_plain(b',"exception":', out))
            out[0] = c'}'
            out += 1
        self._put(END, code, method.name, frame.number, out)
        to.end[row] = clock.time
        to.has_end[row >> 3] |= 1 << (row & 7)
        return 0

    cdef int _happen(self, const Line *line, object names, bint locked) except -1 nogil:
        cdef Columns *to = &self.columns
        cdef Thread *thread
        cdef Thing *thing = NULL
        cdef int row = to.rows, code, why, name
        cdef uint8_t *out
        cdef const Number *field = &line.field[0]
        code = self._stream(field + line.count - 1, False)
        if code < 0:
            return HERE
        if line.letter == c'U':
            why = self._thing(self.fields, c'U', field + 2, names, locked, &thing)
        else:
            why = self._thing(self.classes, c'C', field + (1 if line.letter == c'W' else 2), names, locked, &thing)
        if why:
            return why
        thread = &self.thread[code]
        if thread.top >= 0:
            to.parent[row] = self.frames[thread.top].number
            to.has_parent[row >> 3] |= 1 << (row & 7)
        out = to.text + to.ends[row]
        out[0] = c'{'
        out = _copy(thing.text, out + 1)
        if line.letter == c'U':
            name = UPDATE
            out = _digits(field + 1, write_plain(b',"value":', out))
        elif line.letter == c'W':
            name = WITNESS
        else:
            name = ALLOCATION if line.letter == c'N' else ARRAY_ALLOCATION
            out = _digits(field + 1, write_plain(b',"size":', out))
            out = _digits(field + 3, write_plain(b',"site_id":', out))
            if name == ARRAY_ALLOCATION or field[4].value:
                out = _digits(field + 4, write_plain(b',"length":', out))
        out[0] = c'}'
        self._put(INSTANT, code, name, field[OBJECT].value, out + 1)
        self._start(self.clock.time)
        return 0

    cdef int _die(self, const Line *line) except -1 nogil:
        """Add the row of a death, which belongs to no thread."""
        cdef Clock *clock = &self.clock
        cdef int64_t time = line.field[2].value
        cdef uint8_t *out = self.columns.text + self.columns.ends[self.columns.rows]
        if not clock.agent:
            if time > clock.time:
                return HERE
        elif clock.claimed < 0:
            pass
        elif time < clock.died and clock.time - clock.lost > clock.died_at:
            return HERE
        elif time < clock.time:
            if not clock.trusted and clock.disagreements < self.limits.doubt:
                return HERE
        elif clock.trusted:
            if time > clock.time or clock.unread or clock.base < 0:
                return HERE
        elif not self._weigh(time - (clock.time - clock.lost)):
            return HERE
        if clock.agent and clock.claimed >= 0 and time >= clock.died:
            clock.died, clock.died_at = time, clock.time - clock.lost
        out = _digits(&line.field[1], write_plain(b'{"thread":', out))
        out[0] = c'}'
        self._put(INSTANT, 0, DEATH, line.field[OBJECT].value, out + 1)
        self._start(time)
        return 0

    cdef bint _weigh(self, int64_t ahead) noexcept nogil:
        """Compare a death with earlier deaths. Return False, without a change, if deaths would now be trusted."""
        cdef Clock *clock = &self.clock
        cdef int64_t lines = clock.time - clock.lost
        cdef int64_t agreeing = clock.agreeing, disagreements = clock.disagreements, base = clock.base
        if ahead != clock.ahead:
            disagreements += agreeing > 0
            agreeing = 1
        elif lines != clock.agreed_at:
            agreeing += 1
            if base < 0 and agreeing > 1:
                if clock.unread:
                    return False
                base = ahead - clock.lost
        if agreeing >= self.limits.trust and disagreements < self.limits.doubt:
            return False
        if ahead != clock.ahead or lines != clock.agreed_at:
            clock.agreed_at = lines
        clock.ahead, clock.agreeing, clock.disagreements, clock.base = ahead, agreeing, disagreements, base
        return True

    cdef inline void _put(self, int kind, int stream, int name, int64_t id, const uint8_t *text_end) noexcept nogil:
        cdef Columns *to = &self.columns
        cdef int row = to.rows
        to.kind[row], to.stream[row], to.id[row] = kind, stream, id
        to.name[row] = 0 if name == NO_NAME else name
        if name != NO_NAME:
            to.has_name[row >> 3] |= 1 << (row & 7)
        to.ends[row + 1] = <int32_t>(text_end - to.text)

    cdef inline void _start(self, int64_t time) noexcept nogil:
        cdef int row = self.columns.rows
        self.columns.start[row] = time
        self.columns.has_start[row >> 3] |= 1 << (row & 7)

    # Find the codes of streams and threads

    cdef inline int _stream(self, const Number *last, bint ticks) noexcept nogil:
        """Return the code of a line's stream, given its last field. `ticks`: whether the line is an entry or exit.

        Return HERE if the field is not the expected time, may be a clock instead of a thread, or has
        no room."""
        cdef int code
        if not self.clock.agent:
            return 0 if last.value == self.clock.time + ticks else HERE
        code = self._code(<const char *>last.at, <uint32_t>last.size)
        if code >= 0 and self.clock.hashed and last.value < self.limits.clock and not self.thread[code].known:
            return HERE
        return code

    cdef inline int _code(self, const char *text, uint32_t size) noexcept nogil:
        """Return the code of a thread, which is added if it is new, or HERE if there is no room."""
        cdef const uint8_t *word = <const uint8_t *>text
        cdef uint32_t hash = hash_word(&self.threads, word, size)
        cdef int code = find_word(&self.threads, word, size, hash)
        if code < 0:
            if not has_room(&self.threads, size):
                return HERE
            code = add_word(&self.threads, word, size, hash)
            self._make(code, False)
        return code

    cdef inline void _touch(self, int code) noexcept nogil:
        if not self.thread[code].touched:
            self.thread[code].touched = True
            self.touched_codes[self.touched_count] = code
            self.touched_count += 1

    cdef int _tell_streams(self) except -1:
        """Create the Python strings of those streams that have none yet."""
        cdef WordTable *of = &self.threads
        cdef uint32_t code
        for code in range(<uint32_t>len(self.streams), of.words):
            self.streams.append(
                PyUnicode_DecodeUTF8(<const char *>of.arena + of.ends[code], of.ends[code + 1] - of.ends[code], NULL)
            )
        return 0

    # Find the texts for methods, classes and fields

    cdef inline int _thing(
        self, Things things, uint8_t sort, const Number *id, object names, bint locked, Thing **found
    ) except -1 nogil:
        """Set `found` to the texts for a method, class or field, and return 0.

        Return INTERPRETER if the texts are not stored and the lock is not held, and HERE
        without room."""
        found[0] = things.find(id)
        if found[0] != NULL:
            return 0
        if not locked:
            return INTERPRETER
        with gil:
            return self._learn(things, sort, id, names, found)

    cdef int _learn(self, Things things, uint8_t sort, const Number *id, object names, Thing **found) except -1:
        cdef str key = id.at[:id.size].decode()
        name, end = None, b""
        if sort == c'M':
            name, text, end = names.methods[key]
            text, end = text.encode(), end.encode()
        else:
            text = (names.classes if sort == c'C' else names.fields)[key].encode()
        cdef Py_ssize_t size = PyBytes_GET_SIZE(text) + PyBytes_GET_SIZE(end)
        if size > NAMED_MAX:
            return HERE
        if not things.has_room(size):
            if self.columns.rows:
                return HERE
            self._forget()
        if name is not None:
            self.names.append(name)
        found[0] = things.add(id, text, end, NO_NAME if name is None else <int32_t>(len(self.names) - 1))
        return 0

    cdef object _block(self, Py_ssize_t length):
        cdef Columns *of = &self.columns
        cdef int rows = of.rows
        return Block(
            rows, length, _longs(of.offset, NULL, rows), _longs(of.size, NULL, rows),
            Words(copied(of.kind, rows * 4), _KINDS, len(_KINDS)),
            Words(copied(of.stream, rows * 4), self.streams, len(self.streams)), None, None,
            Words(copied(of.name, rows * 4), self.names, len(self.names), copied(of.has_name, (rows + 7) // 8)),
            None, _longs(of.id, NULL, rows), _longs(of.parent, of.has_parent, rows),
            _longs(of.start, of.has_start, rows), _longs(of.end, of.has_end, rows),
            Texts(copied(of.ends, (rows + 1) * 4), copied(of.text, of.ends[rows])),
        )


cdef int64_t _method(str text) except? -2:
    """Return the method of a frame as a number, or NO_METHOD if a usual line cannot have this method."""
    usual = len(text) <= DIGITS_MAX and text.isascii() and text.isdigit() and (text[0] != "0" or len(text) == 1)
    return int(text) if usual else NO_METHOD


cdef inline object _longs(const int64_t *values, const uint8_t *valid, int rows):
    return Integers(
        copied(values, rows * sizeof(int64_t)),
        None if valid == NULL else copied(valid, (rows + 7) // 8),
    )
