# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Divide the time of lanes among owners, as `tailrace.analysis.innermost` does in Python, for times of 64 bits.

The times of a lane that are added to owners do not overlap, so that each sum fits into 64 bits without a sign."""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef long long LEAST = -9223372036854775807 - 1
cdef long long GREATEST = 9223372036854775807

cdef struct Open:
    long long end
    int owner

cdef struct Node:
    int parent
    int name
    long long spans

cdef void *grown(void *room, size_t size) except NULL:
    cdef void *found = realloc(room, size)
    if found == NULL:
        raise MemoryError
    return found


cdef class LaneDivision:
    """Divides the time of lanes, as `innermost.LaneDivision` does."""

    cdef long long since, until, now
    cdef int deepest, lane
    cdef bint nested, started
    cdef Open *open
    cdef Py_ssize_t opens, open_room
    cdef unsigned long long *times  # by owner, of the present lane
    cdef Py_ssize_t known
    cdef int *touched  # the owners that have time in the present lane
    cdef Py_ssize_t touches
    cdef Node *node
    cdef Py_ssize_t count, node_room
    cdef int *slots  # hash table: the index of a node plus 1, or 0
    cdef size_t mask

    def __cinit__(self, since, until, deepest):
        self.since = LEAST if since is None else max(LEAST, min(since, GREATEST))
        # No time of 64 bits lies after the greatest.
        self.until = GREATEST if until is None else max(LEAST, min(until, GREATEST))
        self.nested = deepest is not None
        self.deepest = deepest or 0
        if self.nested:
            if deepest < 1:
                raise ValueError(f"no node has a depth of {deepest}")
            self._rehash(1024)

    def __dealloc__(self):
        free(self.open)
        free(self.times)
        free(self.touched)
        free(self.node)
        free(self.slots)

    def add(self, const int[::1] lanes, const long long[::1] begins, const long long[::1] ends, const int[::1] codes):
        """Add spans, which may continue the last lane. Return the lanes that end before the last lane.

        Raise ValueError if the columns differ in length, or a code is less than -1."""
        cdef Py_ssize_t i, rows = lanes.shape[0]
        if begins.shape[0] != rows or ends.shape[0] != rows or codes.shape[0] != rows:
            raise ValueError("the columns differ in length")
        cdef list ended = []
        cdef int owner
        for i in range(rows):
            if not self.started or lanes[i] != self.lane:
                ended += self.finish()
                self.started, self.lane = True, lanes[i]
            if codes[i] < -1:
                raise ValueError(f"row {i} has code {codes[i]}")
            self._reach(begins[i])
            owner = self._node(codes[i]) if self.nested else codes[i]
            if owner >= self.known:
                self._know(owner)
            if ends[i] > begins[i]:
                if self.opens == self.open_room:
                    self.open = <Open *>grown(self.open, (2 * self.open_room + 64) * sizeof(Open))
                    self.open_room = 2 * self.open_room + 64
                self.open[self.opens] = Open(ends[i], owner)
                self.opens += 1
        return ended

    def finish(self):
        """End the last lane. Return this lane, or nothing if there is none."""
        if not self.started:
            return []
        self._reach(GREATEST)
        cdef dict times = {}
        cdef Py_ssize_t i
        for i in range(self.touches):
            times[self.touched[i]] = self.times[self.touched[i]]
            self.times[self.touched[i]] = 0
        self.touches = 0
        self.started = False
        return [(self.lane, times)]

    def nodes(self):
        """Return the parent (-1: none), the name and the number of spans of each node. Parents come first."""
        cdef Py_ssize_t i
        return [(self.node[i].parent, self.node[i].name, self.node[i].spans) for i in range(self.count)]

    cdef void _reach(self, long long moment) noexcept:
        cdef long long stop, begins, ends
        cdef Open *last
        while self.opens:
            last = &self.open[self.opens - 1]
            stop = min(last.end, moment)
            if stop > self.now:
                begins, ends = max(self.now, self.since), min(stop, self.until)
                if last.owner >= 0 and ends > begins:
                    if self.times[last.owner] == 0:
                        self.touched[self.touches] = last.owner
                        self.touches += 1
                    self.times[last.owner] += <unsigned long long>ends - <unsigned long long>begins
                self.now = stop
            if last.end > moment:
                break
            self.opens -= 1
        self.now = moment

    cdef int _know(self, int owner) except -1:
        """Make room for the times of an owner."""
        cdef Py_ssize_t known = max(2 * self.known, <Py_ssize_t>owner + 64)
        self.times = <unsigned long long *>grown(self.times, known * sizeof(unsigned long long))
        memset(self.times + self.known, 0, (known - self.known) * sizeof(unsigned long long))
        self.touched = <int *>grown(self.touched, known * sizeof(int))
        self.known = known
        return 0

    cdef int _node(self, int name) except -1:
        """Count a span for its node. Return the node's index."""
        cdef int place = self.open[self.opens - 1].owner if self.opens else -1
        if self.opens < self.deepest:
            place = self._child(place, name)
        self.node[place].spans += 1
        return place

    cdef int _child(self, int parent, int name) except -1:
        """Return the index of the node with a parent and a name. Add the node if it is new."""
        cdef size_t slot = self._slot(parent, name)
        if self.slots[slot]:
            return self.slots[slot] - 1
        if 2 * self.count > <Py_ssize_t>self.mask:
            self._rehash(4 * (self.mask + 1))
            slot = self._slot(parent, name)
        if self.count == self.node_room:
            self.node = <Node *>grown(self.node, (2 * self.node_room + 64) * sizeof(Node))
            self.node_room = 2 * self.node_room + 64
        self.node[self.count] = Node(parent, name, 0)
        self.count += 1
        self.slots[slot] = <int>self.count
        return <int>self.count - 1

    cdef size_t _slot(self, int parent, int name) noexcept:
        """Return the place in the hash table that has a node, or would have it."""
        cdef unsigned long long key = (<unsigned long long><unsigned int>parent << 32) | <unsigned int>name
        cdef size_t slot = <size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32) & self.mask
        cdef Node *found
        while self.slots[slot]:
            found = &self.node[self.slots[slot] - 1]
            if found.parent == parent and found.name == name:
                break
            slot = (slot + 1) & self.mask
        return slot

    cdef int _rehash(self, size_t size) except -1:
        self.slots = <int *>grown(self.slots, size * sizeof(int))
        memset(self.slots, 0, size * sizeof(int))
        self.mask = size - 1
        cdef Py_ssize_t i
        for i in range(self.count):
            self.slots[self._slot(self.node[i].parent, self.node[i].name)] = <int>i + 1
        return 0
