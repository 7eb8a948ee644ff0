# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Count those events of a block that have the number which their stream expects. `counters` counts all other events."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #define fetch(address) __builtin_prefetch(address, 1)
    """
    void fetch(void *address) noexcept nogil

cdef unsigned long long FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF

cdef struct Slot:
    # The state of one stream of the block. `stream` is an owned reference to the ledger's StreamCounter, and `next` is the number that the
    # stream expects. `marks` points to the marks of the stream's last numbers, and `heads` to the marks of the wire numbers near zero. `room` is the number of
    # slots in `marks`, and `held` is how many of them are in use.
    PyObject *stream
    unsigned long long next
    unsigned long long zero
    unsigned long long *marks
    unsigned long long *heads
    unsigned long long room
    unsigned long long held
    unsigned long long heads_held
    int code
    bint followed
    bint moved
    bint listed
    bint viewed
    Py_buffer view


cdef class InOrder:
    """Counts the events of one block as long as each has the number that its stream expects.

    `take` stops at the first event that the ledger itself must count in Python. This object has copies of the streams'
    state. Before the ledger uses the state of one stream or of all streams, call `write` or `write_back`. After the
    ledger has changed the state of one stream or of all streams, call `read` or `read_all`.

    If the array with a stream's marks has its full size, this object writes to the array directly. A smaller array,
    and the array with the marks of numbers near zero, must still be able to grow, which a shared buffer prevents. Their
    marks are copied, and the copies are written back later."""

    cdef Slot *slots
    cdef int *slot_of
    cdef int *moved
    cdef int streams
    cdef int moving
    cdef readonly Py_ssize_t added
    cdef int known
    cdef Py_ssize_t rows
    cdef const int[::1] codes
    cdef const long long[::1] counts, starts, ends, sizes
    cdef unsigned long long mask, window, head
    cdef bytes numbers
    cdef list texts
    cdef dict table

    def __cinit__(
        self, block, dict table, unsigned long long mask, unsigned long long window,
        unsigned long long head,
    ):
        self.rows = block.rows
        self.codes = _codes(block.stream.codes)
        self.counts = _integers(block.counter.values)
        self.starts = _integers(block.start.values)
        self.ends = _integers(block.end.values)
        self.sizes = _integers(block.size.values)
        self.texts, self.known = block.stream.texts, block.stream.known
        self.table, self.mask, self.window, self.head = table, mask, window, head
        if self.rows > min(
            self.codes.shape[0], self.counts.shape[0], self.starts.shape[0], self.ends.shape[0],
            self.sizes.shape[0],
        ):
            raise ValueError(f"the block's buffers do not hold {self.rows} rows")
        self.numbers = PyBytes_FromStringAndSize(NULL, self.rows * 8)
        self.slot_of = <int *>PyMem_Malloc(self.known * sizeof(int))
        self.moved = <int *>PyMem_Malloc(min(self.rows, self.known) * sizeof(int))
        if self.slot_of == NULL or self.moved == NULL:
            raise MemoryError
        self._find_streams()
        self.read_all()

    cdef int _find_streams(self) except -1:
        """Assign a slot to each stream of the block, in the order of their first events. Raise ValueError for an invalid stream code."""
        cdef Py_ssize_t i
        cdef int code, found = 0
        memset(self.slot_of, 0xFF, self.known * sizeof(int))  # -1: no slot
        for i in range(self.rows):
            code = self.codes[i]
            if code < 0 or code >= self.known:
                raise ValueError(f"row {i} has stream {code} of {self.known}")
            if self.slot_of[code] < 0:
                self.slot_of[code] = found
                self.moved[found] = code
                found += 1
        # Allocate slots only for the streams of this block. Slots for all codes would be so large that each call would get new memory from the operating system.
        self.slots = <Slot *>PyMem_Calloc(max(found, 1), sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        for i in range(found):
            self.slots[i].code = self.moved[i]
        self.streams = found
        return 0

    def __dealloc__(self):
        cdef int slot
        if self.slots != NULL:
            for slot in range(self.streams):
                self._let_go(&self.slots[slot])
        PyMem_Free(self.slots)
        PyMem_Free(self.slot_of)
        PyMem_Free(self.moved)

    cdef void _let_go(self, Slot *slot) noexcept:
        if slot.viewed:
            PyBuffer_Release(&slot.view)
        else:
            PyMem_Free(slot.marks)
        PyMem_Free(slot.heads)
        Py_XDECREF(slot.stream)
        slot.stream = NULL
        slot.marks = slot.heads = NULL
        slot.viewed = slot.followed = False

    # Read the streams' state from the ledger, and write it back

    def read_all(self):
        """Read the state of all streams of the block from the ledger."""
        cdef int slot
        for slot in range(self.streams):
            self._read(&self.slots[slot])

    def read(self, Py_ssize_t row):
        """Read the state of a row's stream from the ledger."""
        self._read(&self.slots[self.slot_of[self.codes[row]]])

    cdef int _read(self, Slot *slot) except -1:
        self._let_go(slot)
        cdef int overflow = 0
        stream = self.table.get(self.texts[slot.code])
        if stream is None or not stream.counted:
            return 0
        cdef long long number = PyLong_AsLongLongAndOverflow(stream.next, &overflow)
        if overflow or number < 0:
            return 0
        slot.next = <unsigned long long>number
        recent = stream.recent
        slot.held = len(recent)
        slot.room = min(self.window, self.head)
        if slot.held == self.window:
            PyObject_GetBuffer(recent, &slot.view, PyBUF_WRITABLE)
            slot.viewed, slot.marks, slot.room = True, <unsigned long long *>slot.view.buf, self.window
            # The marks of many streams do not fit in the cache. Prefetch the slot of the next mark while other streams are read.
            fetch(&slot.marks[slot.next % self.window])
        elif slot.held <= slot.room:
            slot.marks = _copy(recent, slot.room)
        else:
            return 0
        if slot.next & self.mask < self.head:
            slot.zero, slot.heads_held = stream.zero, len(stream.head)
            if slot.heads_held <= self.head:
                slot.heads = _copy(stream.head, self.head)
        slot.stream = <PyObject *>stream
        Py_INCREF(stream)
        slot.followed = True
        return 0

    def write_back(self):
        """Write the state of all streams that have changed back to the ledger."""
        cdef int i
        for i in range(self.moving):
            self._write(&self.slots[self.moved[i]])
            self.slots[self.moved[i]].listed = False
        self.moving = 0

    def write(self, Py_ssize_t row):
        """Write the state of a row's stream back to the ledger."""
        self._write(&self.slots[self.slot_of[self.codes[row]]])

    cdef int _write(self, Slot *slot) except -1:
        if not slot.moved:
            return 0
        slot.moved = False
        stream = <object>slot.stream
        stream.next = slot.next
        if not slot.viewed:
            self.added += _write_marks(stream.recent, slot.marks, slot.held)
        if slot.heads != NULL:
            self.added += _write_marks(stream.head, slot.heads, slot.heads_held)
        return 0

    # Count events

    def take(self, Py_ssize_t begin):
        """Count events from the row `begin` on. Return the first row that the ledger itself must count, or the number of rows."""
        cdef Py_ssize_t at = self._take(begin)
        while at < self.rows and self._grow(at):
            at = self._take(at)
        return at

    cdef bint _grow(self, Py_ssize_t row) except -1:
        """Add all remaining slots for marks to a row's stream, if the row's event can be counted afterwards.

        Return whether slots were added. The ledger does the same at the first number that is not near zero."""
        cdef Slot *slot = &self.slots[self.slot_of[self.codes[row]]]
        if (
            not slot.followed or slot.viewed or slot.held != self.head or slot.next % self.window != self.head
            or <unsigned long long>self.counts[row] != slot.next & self.mask
        ):
            return False
        self._write(slot)
        recent = (<object>slot.stream).recent
        recent.frombytes(bytes(8 * (self.window - self.head)))
        self.added += <Py_ssize_t>(self.window - self.head)
        self._read(slot)
        return True

    cdef Py_ssize_t _take(self, Py_ssize_t begin) noexcept:
        """Count events from the row `begin` on, without adding slots. Return the first row that could not be counted."""
        cdef unsigned long long *numbers = <unsigned long long *>PyBytes_AS_STRING(self.numbers)
        cdef Slot *slot
        cdef Py_ssize_t i = begin
        with nogil:
            while i < self.rows:
                slot = &self.slots[self.slot_of[self.codes[i]]]
                if not slot.followed or not self._put_mark(slot, <unsigned long long>self.counts[i], i):
                    break
                numbers[i] = slot.next
                slot.next += 1
                if not slot.moved:
                    slot.moved = True
                    self._list(slot)
                i += 1
        return i

    cdef bint _put_mark(self, Slot *slot, unsigned long long count, Py_ssize_t i) noexcept nogil:
        """Store the mark of a row's event, if the event can be counted here. Otherwise the ledger must count it: change nothing and return False."""
        cdef unsigned long long at = slot.next % self.window
        cdef unsigned long long mark = self._mark(i)
        if count != slot.next & self.mask or at >= slot.room:
            return False
        if count < self.head:
            if slot.heads == NULL or slot.next - count != slot.zero:
                return False
            slot.heads[count] = mark
            slot.heads_held = max(slot.heads_held, count + 1)
        slot.marks[at] = mark
        slot.held = max(slot.held, at + 1)
        return True

    cdef void _list(self, Slot *slot) noexcept nogil:
        """Add a stream to the list of changed streams, unless the list contains it already."""
        if not slot.listed:
            slot.listed = True
            self.moved[self.moving] = <int>(slot - self.slots)
            self.moving += 1

    cdef unsigned long long _mark(self, Py_ssize_t i) noexcept nogil:
        return (
            <unsigned long long>self.starts[i] + <unsigned long long>self.ends[i]
            + <unsigned long long>self.sizes[i]
        ) & FINGERPRINT

    def event(self, Py_ssize_t row):
        """Return the stream, the wire number and the mark of a row's event."""
        return (
            self.texts[self.codes[row]],
            self.counts[row],
            <object>self.starts[row] + self.ends[row] + self.sizes[row],
        )

    def put(self, Py_ssize_t row, long long number):
        """Set the sequence number of a row that the ledger itself has counted."""
        (<long long *>PyBytes_AS_STRING(self.numbers))[row] = number

    @property
    def seqs(self):
        """Return the sequence numbers of all rows as bytes: signed 64-bit integers in the machine's byte order."""
        return self.numbers


def hear(words, Py_ssize_t rows, dict table, dict news, now):
    """Record for each stream with an event that its last event arrived at `now`. Add these streams to `news`, in the order of their first events.

    `words` is the column with the streams of `rows` events, and `table` maps a stream to its StreamCounter. Raise
    ValueError if the column is too short or contains an invalid code."""
    cdef const int[::1] codes = _codes(words.codes)
    cdef list texts = words.texts
    cdef int known = words.known
    cdef bytearray seen = bytearray(known)
    cdef unsigned char[::1] mark = seen
    cdef Py_ssize_t i
    if rows > codes.shape[0]:
        raise ValueError(f"{codes.shape[0]} codes are not of {rows} rows")
    for i in range(rows):
        if codes[i] < 0 or codes[i] >= known:
            raise ValueError(f"row {i} has stream {codes[i]} of {known}")
        if mark[codes[i]]:
            continue
        mark[codes[i]] = True
        text = texts[codes[i]]
        stream = table.get(text)
        if stream is not None:
            stream.heard = now
        news[text] = None


cdef const int[::1] _codes(buffer):
    return memoryview(buffer).cast("B").cast("i")


cdef const long long[::1] _integers(buffer):
    return memoryview(buffer).cast("B").cast("q")


cdef unsigned long long *_copy(marks, unsigned long long room) except NULL:
    """Return a copy of an array of marks with `room` slots. Additional slots are 0, which means that no mark is remembered."""
    cdef Py_buffer view
    cdef unsigned long long *copy = <unsigned long long *>PyMem_Malloc(room * sizeof(unsigned long long))
    if copy == NULL:
        raise MemoryError
    memset(copy, 0, room * sizeof(unsigned long long))
    PyObject_GetBuffer(marks, &view, PyBUF_SIMPLE)
    memcpy(copy, view.buf, min(<size_t>view.len, room * sizeof(unsigned long long)))
    PyBuffer_Release(&view)
    return copy


cdef Py_ssize_t _write_marks(marks, const unsigned long long *copy, unsigned long long held) except -1:
    """Write the first `held` marks of a copy back to their array. Return how many marks were added to the array."""
    cdef Py_buffer view
    cdef Py_ssize_t more = <Py_ssize_t>held - len(marks)
    if more > 0:
        marks.frombytes(PyBytes_FromStringAndSize(<const char *>(copy + held - more), more * sizeof(unsigned long long)))
    PyObject_GetBuffer(marks, &view, PyBUF_WRITABLE)
    memcpy(view.buf, copy, min(<size_t>view.len, held * sizeof(unsigned long long)))
    PyBuffer_Release(&view)
    return max(more, 0)
