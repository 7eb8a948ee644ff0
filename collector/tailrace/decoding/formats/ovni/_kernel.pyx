# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of ovni: pack the usual events (`event.PLANS`) of little-endian streams into blocks.

The kernel stops before any other event, before late events whose clocks decrease, and before bytes that end inside an
event. It copies the open spans from the decoder's stack, and copies them back after a block."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from tailrace.decoding.json_text cimport write_signed, write_unsigned
from tailrace.rows.buffers cimport allocated, copied

from tailrace.rows.block import Block, Integers, Texts, Words
from tailrace.model.record import Kind

cdef enum:
    HEAD = 12
    ROWS_MAX = 16384
    OPENED_MAX = 512
    SLOTS = 4096  # A power of two, and several times the number of plans.
    FIELDS_MAX = 3
    NAMES_MAX = 4096
    TEXT_MAX = 1 << 21  # maximum size (bytes) of the attributes of a block
    TEXT_OF_EVENT = 512  # maximum size (bytes) of the attributes of an event, without names
    PREFIX_MAX = 32
    LITERAL_MAX = 24
    NO_NAME = -1
    NO_ROOM = -2
    # The events `OU[` and `OU]`, between which the clock may go back
    LATE_BEGIN = 1
    LATE_END = 2
    # Sources of the name of an event
    BY_TABLE = 0
    OF_TASK = 1
    OF_CREATED_TASK = 2
    OTHERWISE = 3
    # Results that state why the kernel stopped
    HERE = 0  # the next bytes are not usual, or the block is full
    INTERPRETER = 1  # the next bytes need the Python interpreter, and its lock is not held

MARK = "mark"

_KINDS = [Kind.BEGIN, Kind.END, Kind.INSTANT, Kind.COUNTER, Kind.NAME]
cdef enum:
    BEGIN = 0
    END = 1


cdef struct Field:
    uint8_t type  # i, I, q or Q, as in the module `struct`: the type of the number
    uint8_t literal_size
    uint8_t literal[LITERAL_MAX]


cdef struct Plan:
    uint32_t key  # the flags and the MCV of the event
    int32_t size
    int32_t kind
    int32_t name
    int32_t category
    int32_t pair
    int32_t naming
    int32_t fields
    bint own
    bint by_value  # whether the second field is part of the channel
    int32_t late
    int32_t prefix_size
    uint8_t prefix[PREFIX_MAX]
    Field field[FIELDS_MAX]


cdef struct Opened:
    int64_t id
    int64_t values[FIELDS_MAX]
    int32_t pair
    int32_t fields


cdef struct Text:
    const uint8_t *at
    Py_ssize_t size


cdef struct Open:
    Opened spans[OPENED_MAX]
    int32_t count
    int32_t kept  # number of spans from before the block that are still open


cdef struct Columns:
    int64_t *offset
    int64_t *size
    int64_t *id
    int64_t *parent
    int64_t *start
    int64_t *end
    int32_t *kind
    int32_t *name
    int32_t *category
    int32_t *ends  # for each row, the end of its attributes in `text`; the first entry is 0
    uint8_t *has_id
    uint8_t *has_parent
    uint8_t *has_start
    uint8_t *has_end
    uint8_t *has_name
    uint8_t *text
    int rows


cdef class Scanner:
    """Packs usual events of ovni into blocks. Several decoders may share one scanner."""

    cdef Plan *plans
    # A hash table by key, with open addressing: the index of the plan + 1, or 0 for a free slot.
    cdef int32_t slots[SLOTS]
    cdef list events, categories, names, pairs
    cdef dict pair_codes, name_codes
    cdef int names_of_table
    cdef Columns columns
    cdef Open nested, alone
    cdef int64_t begun, clock
    cdef bint busy, late
    # The thread whose events are read: its names (`Names`) and texts
    cdef object known
    cdef bint tasks  # whether `known` may have tasks
    cdef dict types  # cache: the name of tasks by their type, and the members for the name
    cdef bytes asks, gives, behind
    cdef Text asking, giving, after

    def __cinit__(self, list plans not None, int open_max):
        """Create a scanner for usual events: flags and MCV, values of `usual.EventPlan`, types of the fields, source of
        the name, and whether the event begins or ends late events (LATE_BEGIN, LATE_END, 0)."""
        cdef Columns *to = &self.columns
        cdef int64_t **longs[6]
        cdef int32_t **ints[4]
        cdef uint8_t **bits[5]
        longs[:] = [&to.offset, &to.size, &to.id, &to.parent, &to.start, &to.end]
        ints[:] = [&to.kind, &to.name, &to.category, &to.ends]
        bits[:] = [&to.has_id, &to.has_parent, &to.has_start, &to.has_end, &to.has_name]
        for i in range(6):
            longs[i][0] = <int64_t *>allocated(ROWS_MAX * sizeof(int64_t))
        for i in range(4):
            ints[i][0] = <int32_t *>allocated((ROWS_MAX + 1) * sizeof(int32_t))
        for i in range(5):
            bits[i][0] = <uint8_t *>allocated(ROWS_MAX // 8)
        to.text = <uint8_t *>allocated(TEXT_MAX)
        if len(plans) > SLOTS // 4 or OPENED_MAX != open_max:
            raise ValueError("the kernel is older than the table")
        self.plans = <Plan *>allocated(len(plans) * sizeof(Plan))
        self.events, self.categories, self.pairs = [], [], []
        self.name_codes, self.pair_codes = {}, {}
        memset(self.slots, 0, sizeof(self.slots))
        for i, plan in enumerate(plans):
            self._read_plan(&self.plans[i], plan)
            self._put(i)
        self.names = list(self.name_codes)
        self.names_of_table = len(self.names)

    def __dealloc__(self):
        cdef Columns *of = &self.columns
        for pointer in (
            <size_t>of.offset, <size_t>of.size, <size_t>of.id, <size_t>of.parent, <size_t>of.start,
            <size_t>of.end, <size_t>of.kind, <size_t>of.name, <size_t>of.category, <size_t>of.ends,
            <size_t>of.has_id, <size_t>of.has_parent, <size_t>of.has_start, <size_t>of.has_end,
            <size_t>of.has_name, <size_t>of.text, <size_t>self.plans,
        ):
            free(<void *><size_t>pointer)

    cdef int _read_plan(self, Plan *to, tuple plan) except -1:
        memset(to, 0, sizeof(Plan))
        key, kind, name, category, attributes, channel, begin, fields, types, to.naming, to.late = plan
        memcpy(&to.key, PyBytes_AS_STRING(key), 4)
        to.size = HEAD
        to.kind = _KINDS.index(kind)
        to.name = self.name_codes.setdefault(name, len(self.name_codes))
        if category not in self.categories:
            self.categories.append(category)
        to.category = self.categories.index(category)
        to.pair = -1
        prefix = attributes.encode()
        if fields is not None:
            to.size, to.own, to.by_value = fields.size, fields.own, fields.event.role == MARK
            # The attributes of an end have no fields. Its fields only determine the span that it ends.
            literals = fields.members.encode().split(b"%d")
            if len(types) > FIELDS_MAX or max(map(len, literals)) > LITERAL_MAX:
                raise ValueError(f"the kernel has no room for the fields of {key!r}")
            to.fields = len(types)
            for i in range(to.fields):
                to.field[i].type = ord(types[i])
                to.field[i].literal_size = len(literals[i])
                memcpy(to.field[i].literal, PyBytes_AS_STRING(literals[i]), len(literals[i]))
            if to.kind != END and not to.fields and to.naming == BY_TABLE:
                prefix += b"}"
        if to.kind <= END:
            to.pair = self.pair_codes.setdefault(begin, len(self.pair_codes))
            if to.pair == len(self.pairs):
                self.pairs.append((begin, channel, to.by_value))
        if len(prefix) > PREFIX_MAX:
            raise ValueError(f"the kernel has no room for {prefix!r}")
        to.prefix_size = len(prefix)
        memcpy(to.prefix, PyBytes_AS_STRING(prefix), to.prefix_size)
        self.events.append(fields)
        return 0

    cdef int _put(self, int plan) except -1:
        cdef uint32_t slot = _slot(self.plans[plan].key)
        while self.slots[slot]:
            slot = (slot + 1) & (SLOTS - 1)
        self.slots[slot] = plan + 1
        return 0

    def scan(
        self, bytes data not None, Py_ssize_t at, int64_t offset, order, thread, int rows_min, /
    ):
        """Pack the usual events from `data[at]` on, whose offset in the input is `offset`.

        Return a block and the position in `data` after it. The block is None if it would have less than `rows_min`
        rows, or while another thread calls; stack and order are then unchanged. `order` is the stream's
        `EventOrder`, and `thread` a `decoder._Thread`."""
        cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t have = PyBytes_GET_SIZE(data), stop = at
        cdef int why
        stack = thread.stack
        if at < 0 or at > have or self.busy:
            return None, at
        # For few events, copying the open spans takes more time than the decoder in Python.
        stop = self._end_of_few(begin, have, at, rows_min)
        if stop >= 0:
            return None, stop
        stop = at
        self.busy = True
        try:
            if not (self._load(stack.nested, &self.nested) and self._load(stack.alone, &self.alone)):
                return None, at
            self.begun, self.clock, self.late = stack.begun, order.last, order.late
            if self.late and not self._rises(begin, have, at):
                return None, at
            self.known, self.types = thread.names, {}
            self.tasks = bool(thread.names.state.tasks)
            self.asks, self.gives, self.behind = thread.asks, thread.gives, thread.behind
            self.asking, self.giving = _text(self.asks), _text(self.gives)
            self.after = _text(self.behind)
            self.columns.rows = 0
            self.columns.ends[0] = 0
            self._clear()
            with nogil:
                why = self._fill(begin, have, &stop, offset - at, False)
            # From the first event on that needs the interpreter's lock, hold the lock. To take it for each event could mean to
            # wait for another thread each time.
            if why == INTERPRETER:
                self._fill(begin, have, &stop, offset - at, True)
            if self.columns.rows < max(rows_min, 1):
                return None, stop
            self._store(stack.nested, &self.nested)
            self._store(stack.alone, &self.alone)
            stack.begun = self.begun
            order.last, order.late = self.clock, self.late
            return self._block(stop - at, thread.stream), stop
        finally:
            self.busy = False

    # The stack

    cdef bint _load(self, list spans, Open *to) except -1:
        """Copy the decoder's open spans. Return whether the kernel can represent all of them."""
        cdef Opened *span
        if len(spans) > OPENED_MAX:
            return False
        to.count = to.kept = len(spans)
        for i, (_, key, id_) in enumerate(spans):
            begin, *values = key.split(" ")
            code = self.pair_codes.get(begin)
            if code is None or len(values) > FIELDS_MAX:
                return False
            span = &to.spans[i]
            span.id, span.pair, span.fields = id_, code, len(values)
            for place, value in enumerate(values):
                span.values[place] = int(value)
        return True

    cdef int _store(self, list spans, Open *of) except -1:
        """Copy the changed open spans back to the decoder's stack."""
        cdef Opened *span
        del spans[of.kept:]
        for i in range(of.kept, of.count):
            span = &of.spans[i]
            key, channel, by_value = self.pairs[span.pair]
            values = [str(span.values[place]) for place in range(span.fields)]
            if by_value:
                channel = f"{channel} {values[1]}"
            spans.append((channel, " ".join([key, *values]), span.id))
        return 0

    # Events

    cdef int _fill(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t *at, int64_t offset, bint locked
    ) except -1 nogil:
        """Add rows of the usual events from `at` on, and move `at` to their end. `offset` is the offset of `data`.

        Return HERE or INTERPRETER: why the next events are not added."""
        cdef Columns *to = &self.columns
        cdef const uint8_t *event
        cdef Plan *plan
        cdef Open *open_
        cdef Opened span
        cdef int64_t clock, parent
        cdef uint8_t *text
        cdef int row = to.rows, name, place, ended = -1
        cdef uint8_t bit
        while row < ROWS_MAX and have - at[0] >= HEAD:
            event = data + at[0]
            plan = self._plan(event)
            memcpy(&clock, event + 4, 8)
            if (
                plan == NULL or plan.size > have - at[0]
                or (clock < self.clock and (not self.late or plan.late == LATE_END))
                or TEXT_MAX - to.ends[row] < TEXT_OF_EVENT
                or (plan.late == LATE_BEGIN and not self.late and not self._rises(data, have, at[0] + HEAD))
            ):
                break
            span.pair, span.fields = plan.pair, plan.fields
            for place in range(plan.fields):
                span.values[place] = 0
            _read_fields(event + HEAD, plan, span.values)
            open_ = &self.alone if plan.own else &self.nested
            text = to.text + to.ends[row]
            memcpy(text, plan.prefix, PREFIX_MAX)
            text += plan.prefix_size
            name, parent = plan.name, 0
            if plan.kind == END:
                ended = self._last(open_, plan, &span)
                if ended < 0 or not _same(&open_.spans[ended], &span):
                    break
            else:
                if plan.kind == BEGIN and open_.count == OPENED_MAX:
                    break
                if plan.fields or plan.naming:
                    text = _write_fields(plan, span.values, text)
                    if plan.naming:
                        if (plan.naming != OF_TASK or self.tasks) and not locked:
                            return INTERPRETER
                        name = self._named(plan, span.values, &text)
                        if name == NO_ROOM:
                            break
                    text[0] = c'}'
                    text += 1
                parent = self._parent(plan, &span)
            # The event can be added. Up to here, nothing has changed.
            bit = 1 << (row & 7)
            to.offset[row], to.size[row] = offset + at[0], plan.size
            to.kind[row], to.category[row] = plan.kind, plan.category
            to.name[row] = name if name >= 0 else 0
            if name >= 0:
                to.has_name[row >> 3] |= bit
            to.id[row] = to.start[row] = to.end[row] = 0
            to.parent[row] = parent
            if parent:
                to.has_parent[row >> 3] |= bit
            if plan.kind == END:
                to.id[row], to.end[row] = open_.spans[ended].id, clock
                _remove(open_, ended)
                to.has_id[row >> 3] |= bit
                to.has_end[row >> 3] |= bit
            else:
                to.start[row] = clock
                to.has_start[row >> 3] |= bit
                if plan.kind == BEGIN:
                    self.begun += 1
                    span.id = to.id[row] = self.begun
                    to.has_id[row >> 3] |= bit
                    open_.spans[open_.count] = span
                    open_.count += 1
            row += 1
            to.ends[row] = <int32_t>(text - to.text)
            to.rows = row
            if plan.late == LATE_END:
                self.late = False
            if not self.late:
                self.clock = clock
            if plan.late == LATE_BEGIN:
                self.late = True
            at[0] += plan.size
        return HERE

    cdef inline bint _rises(self, const uint8_t *data, Py_ssize_t have, Py_ssize_t at) noexcept nogil:
        """Return whether the late events from `at` on up to `OU]` are all usual, and their clocks do not decrease."""
        cdef Plan *plan
        cdef int64_t clock, before = INT64_MIN
        while have - at >= HEAD:
            plan = self._plan(data + at)
            if plan == NULL or plan.size > have - at:
                return False
            if plan.late == LATE_END:
                return True
            memcpy(&clock, data + at + 4, 8)
            if clock < before:
                return False
            before = clock
            at += plan.size
        return False

    cdef inline Py_ssize_t _end_of_few(
        self, const uint8_t *data, Py_ssize_t have, Py_ssize_t at, int few
    ) noexcept nogil:
        """Return the end of the events from `at` on that may be usual, if there are less than `few` of them, otherwise -1."""
        cdef Plan *plan
        cdef int events
        for events in range(few):
            plan = self._plan(data + at) if have - at >= HEAD else NULL
            if plan == NULL or plan.size > have - at:
                return at
            at += plan.size
        return -1

    cdef inline Plan *_plan(self, const uint8_t *event) noexcept nogil:
        cdef uint32_t key, slot
        memcpy(&key, event, 4)
        slot = _slot(key)
        while self.slots[slot]:
            if self.plans[self.slots[slot] - 1].key == key:
                return &self.plans[self.slots[slot] - 1]
            slot = (slot + 1) & (SLOTS - 1)
        return NULL

    cdef inline int _last(self, const Open *open_, const Plan *plan, const Opened *span) noexcept nogil:
        """Return the index of the last open span of an event's channel, or -1. All nested channels count as one."""
        cdef int i
        cdef const Opened *other
        if not plan.own:
            return open_.count - 1
        for i in range(open_.count - 1, -1, -1):
            other = &open_.spans[i]
            if other.pair == span.pair and (not plan.by_value or other.values[1] == span.values[1]):
                return i
        return -1

    cdef inline int64_t _parent(self, const Plan *plan, const Opened *span) noexcept nogil:
        """Return the id of the span that encloses an event, or 0 if there is none."""
        cdef const Open *open_ = &self.alone if plan.own and plan.kind == BEGIN else &self.nested
        cdef int place = open_.count - 1
        if open_ == &self.alone:
            place = self._last(open_, plan, span)
        return open_.spans[place].id if place >= 0 else 0

    cdef int _named(self, Plan *plan, int64_t *values, uint8_t **text) except? -3 nogil:
        """Write the members for an event's name. Return the code of the name, NO_NAME if it is unknown, or NO_ROOM."""
        cdef Py_ssize_t room = TEXT_MAX - (text[0] - self.columns.text) - TEXT_OF_EVENT
        if room < self.asking.size + self.giving.size:
            return NO_ROOM
        if plan.naming == OF_TASK and not self.tasks:
            text[0] = self._key(plan, values[0], self.asking, text[0])
            return NO_NAME
        with gil:
            if plan.naming == OTHERWISE:
                return self._otherwise(plan, values, text, room)
            return self._task(plan, values, text, room - self.asking.size - self.giving.size)

    cdef uint8_t *_key(self, Plan *plan, int64_t task, Text before, uint8_t *at) noexcept nogil:
        """Write a member whose value ends with the key of a task."""
        memcpy(at, before.at, before.size)
        at += before.size
        at[0] = <uint8_t>(plan.key >> 8)  # the character of the model
        at = write_unsigned(<uint64_t>task, at + 1)
        at[0] = c'"'
        return at + 1

    cdef int _task(self, Plan *plan, int64_t *values, uint8_t **text, Py_ssize_t room) except? -3:
        """Name an event of a task that may be known, or that is created, with the results of `_named`."""
        model, task = chr((plan.key >> 8) & 0xFF), values[0]
        created = plan.naming == OF_CREATED_TASK
        type_ = values[1] if created else self.known.state.tasks.get(f"{model}{task}")
        code = NO_NAME
        if type_ is None:
            text[0] = self._key(plan, task, self.asking, text[0])
            return code
        found = self.types.get((model, type_))
        if found is None:
            name, members = self.known.of_type(model, type_)
            found = self.types[model, type_] = (name, members.encode())
        name, members = found
        if PyBytes_GET_SIZE(members) > room:
            return NO_ROOM
        if name is not None:
            code = self._code(name)
            if code == NO_ROOM:
                return code
        text[0] = _written(_text(members), text[0])
        if created:
            self.known.learn_task(model, task, type_)
            self.tasks = True
            text[0] = self._key(plan, task, self.giving, text[0]) - 1
            text[0] = _written(self.after, text[0])
        return code

    cdef int _otherwise(self, Plan *plan, int64_t *values, uint8_t **text, Py_ssize_t room) except? -3:
        """Name an event with the Python function that `usual` uses, with the results of `_named`."""
        fields = self.events[plan - self.plans]
        numbers = tuple([_number(plan, i, values[i]) for i in range(plan.fields)])
        name, about = fields.naming(self.known, fields.event, numbers)
        members = about.encode()
        if PyBytes_GET_SIZE(members) > room:
            return NO_ROOM
        text[0] = _written(_text(members), text[0])
        return NO_NAME if name is None else self._code(name)

    cdef int _code(self, str name) except? -3:
        """Return the code of a name, which is added if it is new; NO_ROOM if that would evict names of rows."""
        code = self.name_codes.get(name)
        if code is None:
            if len(self.names) >= NAMES_MAX:
                if self.columns.rows:
                    return NO_ROOM
                self.names = self.names[:self.names_of_table]
                self.name_codes = {known: code for code, known in enumerate(self.names)}
            code = self.name_codes[name] = len(self.names)
            self.names.append(name)
        return code

    cdef void _clear(self) noexcept:
        cdef Columns *to = &self.columns
        to.rows = 0
        to.ends[0] = 0
        for bits in [<size_t>to.has_id, <size_t>to.has_parent, <size_t>to.has_start, <size_t>to.has_end, <size_t>to.has_name]:
            memset(<void *><size_t>bits, 0, ROWS_MAX // 8)

    cdef object _block(self, Py_ssize_t length, str stream):
        cdef Columns *of = &self.columns
        cdef int rows = of.rows
        return Block(
            rows, length, _longs(of.offset, NULL, rows), _longs(of.size, NULL, rows),
            Words(copied(of.kind, rows * 4), _KINDS, len(_KINDS)), Words(bytes(rows * 4), [stream], 1),
            None, None,
            Words(copied(of.name, rows * 4), self.names, len(self.names), copied(of.has_name, (rows + 7) // 8)),
            Words(copied(of.category, rows * 4), self.categories, len(self.categories)),
            _longs(of.id, of.has_id, rows), _longs(of.parent, of.has_parent, rows),
            _longs(of.start, of.has_start, rows), _longs(of.end, of.has_end, rows),
            Texts(copied(of.ends, (rows + 1) * 4), copied(of.text, of.ends[rows])),
        )


cdef inline uint32_t _slot(uint32_t key) noexcept nogil:
    return (key * <uint32_t>0x9E3779B1) >> 20


cdef inline bint _same(const Opened *one, const Opened *two) noexcept nogil:
    """Return whether an end with these values ends the span: pair and fields are equal."""
    cdef int i
    if one.pair != two.pair or one.fields != two.fields:
        return False
    for i in range(one.fields):
        if one.values[i] != two.values[i]:
            return False
    return True


cdef inline void _remove(Open *open_, int place) noexcept nogil:
    open_.count -= 1
    open_.kept = min(open_.kept, place)
    memmove(&open_.spans[place], &open_.spans[place + 1], (open_.count - place) * sizeof(Opened))


cdef inline void _read_fields(const uint8_t *at, const Plan *plan, int64_t *values) noexcept nogil:
    cdef int i
    cdef int32_t signed_
    cdef uint32_t unsigned_
    for i in range(plan.fields):
        if plan.field[i].type == c'i':
            memcpy(&signed_, at, 4)
            values[i] = signed_
            at += 4
        elif plan.field[i].type == c'I':
            memcpy(&unsigned_, at, 4)
            values[i] = unsigned_
            at += 4
        else:
            memcpy(&values[i], at, 8)
            at += 8


cdef inline uint8_t *_write_fields(const Plan *plan, const int64_t *values, uint8_t *out) noexcept nogil:
    cdef int i
    for i in range(plan.fields):
        memcpy(out, plan.field[i].literal, plan.field[i].literal_size)
        out += plan.field[i].literal_size
        if plan.field[i].type == c'Q':
            out = write_unsigned(<uint64_t>values[i], out)
        else:
            out = write_signed(values[i], out)
    return out


cdef inline object _number(const Plan *plan, int i, int64_t value):
    return <uint64_t>value if plan.field[i].type == c'Q' else value


cdef inline Text _text(bytes text):
    cdef Text found
    found.at, found.size = <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return found


cdef inline uint8_t *_written(Text text, uint8_t *out) noexcept nogil:
    memcpy(out, text.at, text.size)
    return out + text.size


cdef inline object _longs(const int64_t *values, const uint8_t *valid, int rows):
    return Integers(
        copied(values, rows * sizeof(int64_t)),
        None if valid == NULL else copied(valid, (rows + 7) // 8),
    )
