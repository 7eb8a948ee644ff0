# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The ledger's window over a block: counts the events that come in order; `counters` counts all others."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memset

cdef unsigned long long FINGERPRINT = 0x7FFF_FFFF_FFFF_FFFF

cdef struct Slot:
    unsigned long long next
    unsigned long long *marks
    int code
    bint followed
    bint moved
    Py_buffer view


cdef class InOrder:
    """Follows the streams of one block while their events come in order.

    `take` counts until an event needs the ledger. Call `write` or `write_back` before the ledger looks at a stream or
    at all of them, and `read` or `read_all` after the ledger has changed them."""

    cdef Slot *slots
    cdef int *slot_of
    cdef int streams
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
        cdef Py_ssize_t most = min(self.rows, self.known)
        self.slot_of = <int *>PyMem_Malloc(self.known * sizeof(int))
        self.slots = <Slot *>PyMem_Malloc(most * sizeof(Slot))
        if self.slot_of == NULL or self.slots == NULL:
            raise MemoryError
        self._find_streams()
        self.read_all()

    cdef int _find_streams(self) except -1:
        """Give each stream of the block a slot, in the order in which they come."""
        cdef Py_ssize_t i
        cdef int code
        memset(self.slot_of, 0xFF, self.known * sizeof(int))  # -1: no slot
        for i in range(self.rows):
            code = self.codes[i]
            if code < 0 or code >= self.known:
                raise ValueError(f"row {i} has stream {code} of {self.known}")
            if self.slot_of[code] < 0:
                self.slot_of[code] = self.streams
                self.slots[self.streams].code = code
                self.slots[self.streams].followed = self.slots[self.streams].moved = False
                self.streams += 1
        return 0

    def __dealloc__(self):
        cdef int slot
        if self.slots != NULL:
            for slot in range(self.streams):
                self._let_go(&self.slots[slot])
        PyMem_Free(self.slots)
        PyMem_Free(self.slot_of)

    cdef void _let_go(self, Slot *slot) noexcept:
        if slot.followed:
            PyBuffer_Release(&slot.view)
        slot.followed = False

    # The ledger's streams

    def read_all(self):
        """Read where all streams stand."""
        cdef int slot
        for slot in range(self.streams):
            self._read(&self.slots[slot])

    def read(self, Py_ssize_t row):
        """Read where the stream of a row stands."""
        self._read(&self.slots[self.slot_of[self.codes[row]]])

    cdef int _read(self, Slot *slot) except -1:
        self._let_go(slot)
        stream = self.table.get(self.texts[slot.code])
        if stream is None or not stream.counted:
            return 0
        recent = stream.recent
        if <unsigned long long>len(recent) != self.window:
            return 0
        PyObject_GetBuffer(recent, &slot.view, PyBUF_WRITABLE)
        slot.marks = <unsigned long long *>slot.view.buf
        slot.next = stream.next & 0xFFFF_FFFF_FFFF_FFFF
        slot.followed, slot.moved = stream.next < 2**63, False
        if not slot.followed:
            PyBuffer_Release(&slot.view)
        return 0

    def write_back(self):
        """Write where all streams stand now."""
        cdef int slot
        for slot in range(self.streams):
            self._write(&self.slots[slot])

    def write(self, Py_ssize_t row):
        """Write where the stream of a row stands now."""
        self._write(&self.slots[self.slot_of[self.codes[row]]])

    cdef int _write(self, Slot *slot) except -1:
        if slot.moved:
            slot.moved = False
            self.table[self.texts[slot.code]].next = slot.next
        return 0

    # Events

    def take(self, Py_ssize_t begin):
        """Count events from a row on. Return the first row that does not come in order, or the number of rows."""
        cdef unsigned long long *numbers = <unsigned long long *>PyBytes_AS_STRING(self.numbers)
        cdef Slot *slot
        cdef Py_ssize_t i = begin
        cdef unsigned long long count
        with nogil:
            while i < self.rows:
                slot = &self.slots[self.slot_of[self.codes[i]]]
                count = <unsigned long long>self.counts[i]
                if not slot.followed or count != slot.next & self.mask or count < self.head:
                    break
                slot.marks[slot.next % self.window] = self._mark(i)
                numbers[i] = slot.next
                slot.next += 1
                slot.moved = True
                i += 1
        return i

    cdef unsigned long long _mark(self, Py_ssize_t i) noexcept nogil:
        return (
            <unsigned long long>self.starts[i] + <unsigned long long>self.ends[i]
            + <unsigned long long>self.sizes[i]
        ) & FINGERPRINT

    def event(self, Py_ssize_t row):
        """Return stream, number on the wire and mark of a row's event."""
        return (
            self.texts[self.codes[row]],
            self.counts[row],
            <object>self.starts[row] + self.ends[row] + self.sizes[row],
        )

    def put(self, Py_ssize_t row, long long number):
        """Set the sequence number of a row."""
        (<long long *>PyBytes_AS_STRING(self.numbers))[row] = number

    @property
    def seqs(self):
        """The sequence numbers of all rows, as 64-bit integers."""
        return self.numbers


cdef const int[::1] _codes(buffer):
    return memoryview(buffer).cast("B").cast("i")


cdef const long long[::1] _integers(buffer):
    return memoryview(buffer).cast("B").cast("q")
