/* The recorder (_recorder.py), compiled: the same interface, the same bytes.

   Nothing of Python runs between taking an event's number and keeping its packet: neither threads
   nor signal handlers come between, and no lock is needed. What may run code of the program
   (values that are no plain numbers or texts, a clock of its own, reports) comes before; the
   values are `_wire`'s business, as in Python.

   Stable ABI of Python 3.10; it needs the GIL and is not built for Pythons without. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(_MSC_VER)
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL __thread
#endif

enum { U64 = 1, I64 = 2, F64 = 3, TEXT = 4 };
#define EVENT_MAGIC 0xC1FC1FB7u
enum { HEADER_SIZE = 40, LENGTH_MAX = 0xFFFF };
enum { RANGES_PER_REPORT = 16 };

/* As in _recorder.REASONS. */
enum { FULL, OVERSIZE, NESTED, ENCODING, CLOSED, REFUSED, LOST, GIVEN_UP, UNCOUNTED, REASON_COUNT, NONE = -1 };
static const char *const REASONS[] = {"full",    "oversize", "nested",   "encoding", "closed",
                                      "refused", "lost",     "given_up", "uncounted"};

typedef struct {
    PyTypeObject *recorder_type, *span_type, *lane_type;
    PyObject *wire_text, *wire_value, *wire_report; /* functions of _wire */
    PyObject *encoding_errors;                      /* _recorder.ENCODING_ERRORS */
    PyObject *chunk_type, *tuple_new, *substream_get, *local_type, *monotonic_ns;
    PyObject *lane_name, *counter_name, *error_name, *name_name; /* texts used as names */
    PyObject *off;     /* the span of all that are off */
    PyObject *current; /* what the module's functions record to; NULL: nothing */
} State;

/* ---- Streams -------------------------------------------------------------------------------- */

typedef struct {
    char *data;
    size_t size, room;
    uint64_t first, next;
} Piece;

typedef struct {
    uint64_t first, count;
} Hole;

typedef struct {
    uint32_t number;
    uint64_t next;
    Piece open;    /* packets since the last sealed piece */
    Piece *sealed; /* pieces that nobody has taken yet */
    size_t sealed_count, sealed_room;
    Hole *holes; /* discarded events that no report has told yet */
    size_t hole_count, hole_room;
} Stream;

/* All that is recorded. It belongs to a recorder and to the lanes of its threads; `reset` begins a
   new one. */
typedef struct {
    size_t owners;
    uint64_t id;
    PyObject *local; /* a threading.local with a lane */
    Stream **streams;
    size_t stream_count, stream_room;
    PyObject *places; /* by number, the place in `streams` */
    Stream **free; /* of ended threads; NULL for one that had none */
    size_t free_count, free_room;
    uint64_t used; /* bytes recorded and not released */
    uint64_t since_filled;
    uint64_t discarded[REASON_COUNT];
    bool idle, closed;
} Book;

/* A thread's hold on a stream; it ends with the thread. */
typedef struct {
    PyObject_HEAD
    Book *book;
    Stream *own, *stream;
} Lane;

typedef struct {
    PyObject_HEAD
    PyObject *module;
    State *state;
    PyObject *clock, *zero, *started, *filled;
    bool monotonic; /* whether the clock is time.monotonic_ns, which C reads itself */
    bool zero_plain;
    int64_t zero_value;
    uint64_t limit, chunk, longest;
    Book *book;
} Recorder;

/* A reading of the clock: a plain one, or any object. */
typedef struct {
    int64_t value;
    PyObject *object;
} Reading;

typedef struct {
    PyObject_HEAD
    Recorder *recorder; /* NULL: off */
    PyObject *name;
    PyObject *names, *values; /* tuples; NULL: none */
    PyObject *attributes;     /* a dict in their place, once there are more */
    Reading start;
} Span;

static uint64_t last_book_id;
static THREAD_LOCAL uint64_t cached_book_id;
static THREAD_LOCAL Lane *cached_lane;

/* Room for one more element in an array; false without memory. */
static bool
grow(void *array, size_t *room, size_t count, size_t element)
{
    if (count < *room)
        return true;
    size_t more = *room ? 2 * *room : 8;
    void *grown = realloc(*(void **)array, more * element);
    if (grown == NULL)
        return false;
    *(void **)array = grown;
    *room = more;
    return true;
}

static void
leave_book(Book *book)
{
    if (book == NULL || --book->owners)
        return;
    for (size_t i = 0; i < book->stream_count; i++) {
        Stream *stream = book->streams[i];
        for (size_t j = 0; j < stream->sealed_count; j++)
            free(stream->sealed[j].data);
        free(stream->sealed);
        free(stream->open.data);
        free(stream->holes);
        free(stream);
    }
    Py_XDECREF(book->local);
    Py_XDECREF(book->places);
    free(book->streams);
    free(book->free);
    free(book);
}

static Book *
new_book(State *state)
{
    Book *book = calloc(1, sizeof(Book));
    if (book == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    book->owners = 1;
    book->id = ++last_book_id;
    book->idle = true;
    book->local = PyObject_CallNoArgs(state->local_type);
    book->places = PyDict_New();
    if (book->local == NULL || book->places == NULL) {
        leave_book(book);
        return NULL;
    }
    return book;
}

/* A stream; NULL, without an exception, if there is none of this number. */
static Stream *
find_stream(Book *book, PyObject *number)
{
    PyObject *place = PyDict_GetItemWithError(book->places, number);
    return place ? book->streams[PyLong_AsSize_t(place)] : NULL;
}

static Stream *
add_stream(Book *book, PyObject *number)
{
    Stream *stream = calloc(1, sizeof(Stream));
    PyObject *place = PyLong_FromSize_t(book->stream_count);
    if (stream == NULL || place == NULL || PyDict_SetItem(book->places, number, place) < 0 ||
        !grow(&book->streams, &book->stream_room, book->stream_count, sizeof(Stream *))) {
        Py_XDECREF(place);
        free(stream);
        return PyErr_Occurred() ? NULL : (Stream *)PyErr_NoMemory();
    }
    Py_DECREF(place);
    stream->number = (uint32_t)PyLong_AsUnsignedLong(number);
    return book->streams[book->stream_count++] = stream;
}

/* The lane's own stream, with the lowest number that is free. */
static Stream *
own_stream(Lane *lane)
{
    for (unsigned long number = 1;; number++) {
        PyObject *key = PyLong_FromUnsignedLong(number);
        if (key == NULL)
            return NULL;
        bool taken = find_stream(lane->book, key) != NULL;
        if (!taken && !PyErr_Occurred())
            lane->own = lane->stream = add_stream(lane->book, key);
        Py_DECREF(key);
        if (PyErr_Occurred())
            return NULL;
        if (!taken)
            return lane->own;
    }
}

static void
lose(Book *book, Stream *stream, uint64_t number, int reason)
{
    book->discarded[reason]++;
    Hole *last = stream->hole_count ? &stream->holes[stream->hole_count - 1] : NULL;
    if (last != NULL && last->first + last->count == number)
        last->count++;
    else if (grow(&stream->holes, &stream->hole_room, stream->hole_count, sizeof(Hole)))
        stream->holes[stream->hole_count++] = (Hole){number, 1};
}

/* Close the open piece; false without memory. */
static bool
seal(Stream *stream)
{
    if (!grow(&stream->sealed, &stream->sealed_room, stream->sealed_count, sizeof(Piece)))
        return false;
    stream->sealed[stream->sealed_count++] = stream->open;
    stream->open = (Piece){0};
    return true;
}

/* Where `size` bytes of the event `number` may be written; NULL without memory. */
static char *
place(Stream *stream, size_t size, size_t chunk, uint64_t number)
{
    if (stream->open.size && stream->open.size + size > chunk && !seal(stream))
        return NULL;
    Piece *open = &stream->open;
    if (open->size + size > open->room) {
        size_t room = open->room ? 4 * open->room : 1024;
        if (room > chunk)
            room = chunk;
        if (room < open->size + size)
            room = open->size + size;
        char *data = realloc(open->data, room);
        if (data == NULL)
            return NULL;
        open->data = data;
        open->room = room;
    }
    if (open->size == 0)
        open->first = number;
    open->next = number + 1;
    char *at = open->data + open->size;
    open->size += size;
    return at;
}

/* ---- Lanes ---------------------------------------------------------------------------------- */

static void
lane_dealloc(PyObject *self)
{
    Lane *lane = (Lane *)self;
    PyTypeObject *type = Py_TYPE(self);
    Book *book = lane->book;
    if (cached_lane == lane)
        cached_book_id = 0;
    if (book != NULL && grow(&book->free, &book->free_room, book->free_count, sizeof(Stream *)))
        book->free[book->free_count++] = lane->own;
    leave_book(book);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Lane *
find_lane(Recorder *self)
{
    State *state = self->state;
    Book *book = self->book;
    PyObject *found = PyObject_GetAttr(book->local, state->lane_name);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
        Lane *lane = PyObject_New(Lane, state->lane_type);
        if (lane == NULL)
            return NULL;
        lane->book = book;
        book->owners++;
        lane->own = lane->stream = book->free_count ? book->free[--book->free_count] : NULL;
        found = (PyObject *)lane;
        if (PyObject_SetAttr(book->local, state->lane_name, found) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    Py_DECREF(found); /* the thread keeps it */
    cached_book_id = book->id;
    return cached_lane = (Lane *)found;
}

/* The calling thread's lane, a borrowed reference; NULL with an exception. */
static inline Lane *
lane_of(Recorder *self)
{
    return cached_book_id == self->book->id ? cached_lane : find_lane(self);
}

/* ---- Encoding ------------------------------------------------------------------------------- */

/* Bytes that grow; on the stack until they are many. */
typedef struct {
    char *data;
    size_t size, room;
    char few[512];
} Bytes;

static char *
extend(Bytes *bytes, size_t more)
{
    if (bytes->size + more > bytes->room) {
        size_t room = 2 * (bytes->size + more);
        char *data = realloc(bytes->data == bytes->few ? NULL : bytes->data, room);
        if (data == NULL)
            return (char *)PyErr_NoMemory();
        if (bytes->data == bytes->few)
            memcpy(data, bytes->few, bytes->size);
        bytes->data = data;
        bytes->room = room;
    }
    char *at = bytes->data + bytes->size;
    bytes->size += more;
    return at;
}

static inline char *
put16(char *at, uint32_t value)
{
    at[0] = (char)(value >> 8);
    at[1] = (char)value;
    return at + 2;
}

static inline char *
put32(char *at, uint32_t value)
{
    put16(at, value >> 16);
    return put16(at + 2, value);
}

static inline char *
put64(char *at, uint64_t value)
{
    put32(at, (uint32_t)(value >> 32));
    return put32(at + 4, (uint32_t)value);
}

/* What a function of _wire makes of an object. */
static int
put_made(Bytes *bytes, PyObject *function, PyObject *object)
{
    PyObject *made = PyObject_CallFunctionObjArgs(function, object, NULL);
    if (made == NULL)
        return -1;
    char *data;
    Py_ssize_t size;
    char *at = NULL;
    if (PyBytes_AsStringAndSize(made, &data, &size) == 0 && (at = extend(bytes, (size_t)size)))
        memcpy(at, data, (size_t)size);
    Py_DECREF(made);
    return at == NULL ? -1 : 0;
}

/* A text's UTF-8 as it stands, if its length has 16 bits; else NULL, for _wire to cut and spell. */
static inline const char *
plain_text(PyObject *text, Py_ssize_t *size)
{
    const char *data = PyUnicode_AsUTF8AndSize(text, size);
    if (data == NULL)
        PyErr_Clear();
    return data == NULL || *size > LENGTH_MAX ? NULL : data;
}

static int
put_name(State *state, Bytes *bytes, PyObject *name)
{
    Py_ssize_t size;
    const char *data = PyUnicode_Check(name) ? plain_text(name, &size) : NULL;
    if (data == NULL)
        return put_made(bytes, state->wire_text, name);
    char *at = extend(bytes, 2 + (size_t)size);
    if (at == NULL)
        return -1;
    memcpy(put16(at, (uint32_t)size), data, (size_t)size);
    return 0;
}

static int
put_tagged(Bytes *bytes, char tag, uint64_t value)
{
    char *at = extend(bytes, 9);
    if (at == NULL)
        return -1;
    *at = tag;
    put64(at + 1, value);
    return 0;
}

static int
put_text(Bytes *bytes, const char *data, size_t size)
{
    char *at = extend(bytes, 3 + size);
    if (at == NULL)
        return -1;
    *at = TEXT;
    memcpy(put16(at + 1, (uint32_t)size), data, size);
    return 0;
}

static int
put_value(State *state, Bytes *bytes, PyObject *value)
{
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0)
            return put_tagged(bytes, number < 0 ? I64 : U64, (uint64_t)number);
        if (overflow > 0) {
            unsigned long long large = PyLong_AsUnsignedLongLong(value);
            if (!PyErr_Occurred())
                return put_tagged(bytes, U64, large);
            PyErr_Clear();
        }
    }
    else if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AsDouble(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        return put_tagged(bytes, F64, bits);
    }
    else if (PyUnicode_CheckExact(value)) {
        Py_ssize_t size;
        const char *data = plain_text(value, &size);
        if (data != NULL)
            return put_text(bytes, data, (size_t)size);
    }
    else if (value == Py_True) {
        return put_text(bytes, "true", 4);
    }
    else if (value == Py_False) {
        return put_text(bytes, "false", 5);
    }
    return put_made(bytes, state->wire_value, value);
}

/* A counter's value; of a bool, the number. */
static int
put_count(State *state, Bytes *bytes, PyObject *value)
{
    return PyBool_Check(value) ? put_tagged(bytes, U64, value == Py_True) : put_value(state, bytes, value);
}

/* An event's attributes: a tuple of names, and as many values, in an array or a tuple. */
typedef struct {
    PyObject *first; /* the value of `tailrace.counter`, which comes before the others; or NULL */
    PyObject *names;
    PyObject *const *array;
    PyObject *tuple;
} Attributes;

static int
put_body(State *state, Bytes *bytes, PyObject *name, const Attributes *attributes)
{
    if (put_name(state, bytes, name) < 0)
        return -1;
    if (attributes->first && attributes->first != Py_None &&
        (put_name(state, bytes, state->counter_name) < 0 || put_count(state, bytes, attributes->first) < 0))
        return -1;
    Py_ssize_t count = attributes->names ? PyTuple_Size(attributes->names) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GetItem(attributes->names, i);
        PyObject *value = attributes->array ? attributes->array[i] : PyTuple_GetItem(attributes->tuple, i);
        if (value == Py_None || (attributes->first && PyUnicode_Compare(key, state->counter_name) == 0))
            continue;
        if (put_name(state, bytes, key) < 0 || put_value(state, bytes, value) < 0)
            return -1;
    }
    return 0;
}

/* ---- Times ---------------------------------------------------------------------------------- */

/* A reading from an object, whose reference it takes over. */
static Reading
reading_of(PyObject *object)
{
    if (PyLong_CheckExact(object)) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (!overflow) {
            Py_DECREF(object);
            return (Reading){value, NULL};
        }
    }
    return (Reading){0, object};
}

static int
read_clock(Recorder *self, Reading *reading)
{
#ifdef __linux__
    if (self->monotonic) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        *reading = (Reading){(int64_t)now.tv_sec * 1000000000 + now.tv_nsec, NULL};
        return 0;
    }
#endif
    if (self->clock == NULL) { /* the garbage collector has been here */
        PyErr_SetString(PyExc_RuntimeError, "the recorder is gone");
        return -1;
    }
    PyObject *object = PyObject_CallNoArgs(self->clock);
    if (object == NULL)
        return -1;
    *reading = reading_of(object);
    return 0;
}

/* A number as 64 bits: the nearest there is or, with `wrap`, the lowest ones. */
static int
to_u64(PyObject *number, bool wrap, uint64_t *value)
{
    *value = wrap ? PyLong_AsUnsignedLongLongMask(number) : PyLong_AsUnsignedLongLong(number);
    if (!PyErr_Occurred())
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    PyObject *none = PyLong_FromLong(0);
    int negative = none ? PyObject_RichCompareBool(number, none, Py_LT) : -1;
    Py_XDECREF(none);
    *value = negative ? 0 : UINT64_MAX;
    return negative < 0 ? -1 : 0;
}

/* A reading's distance from zero, at least 0. */
static int
to_ticks(Recorder *self, const Reading *reading, uint64_t *ticks)
{
    if (reading->object == NULL && self->zero_plain) {
        bool after = reading->value > self->zero_value;
        *ticks = after ? (uint64_t)reading->value - (uint64_t)self->zero_value : 0;
        return 0;
    }
    PyObject *number = reading->object ? PyNumber_Long(reading->object) : PyLong_FromLongLong(reading->value);
    PyObject *distance = number ? PyNumber_Subtract(number, self->zero) : NULL;
    int result = distance ? to_u64(distance, false, ticks) : -1;
    Py_XDECREF(distance);
    Py_XDECREF(number);
    return result;
}

static int
read_substream(State *state, uint64_t *substream)
{
    PyObject *object = PyObject_CallNoArgs(state->substream_get);
    PyObject *number = object ? PyNumber_Long(object) : NULL;
    int result = number ? to_u64(number, true, substream) : -1;
    Py_XDECREF(number);
    Py_XDECREF(object);
    return result;
}

/* ---- Recording ------------------------------------------------------------------------------ */

static PyObject *
discarded_of(Book *book)
{
    PyObject *counts = PyDict_New();
    for (int reason = 0; counts && reason < REASON_COUNT; reason++) {
        PyObject *count = PyLong_FromUnsignedLongLong(book->discarded[reason]);
        if (count == NULL || PyDict_SetItemString(counts, REASONS[reason], count) < 0)
            Py_CLEAR(counts);
        Py_XDECREF(count);
    }
    return counts;
}

/* The report of some of a stream's holes. */
static PyObject *
report_part(State *state, Book *book, Stream *stream, size_t from, size_t to)
{
    PyObject *report = NULL;
    PyObject *counts = discarded_of(book);
    PyObject *ranges = PyList_New(0);
    for (size_t i = from; ranges && i < to; i++) {
        Hole hole = stream->holes[i];
        PyObject *range = Py_BuildValue("IKK", stream->number, hole.first, hole.count);
        if (range == NULL || PyList_Append(ranges, range) < 0)
            Py_CLEAR(ranges);
        Py_XDECREF(range);
    }
    if (counts && ranges)
        report = PyObject_CallFunctionObjArgs(state->wire_report, counts, ranges, NULL);
    Py_XDECREF(counts);
    Py_XDECREF(ranges);
    return report;
}

/* What is to be said before the stream's next event. This runs Python, and so perhaps a signal
   handler that emits; `count` is how many holes are told, 0 if they are no longer those. */
static int
put_report(State *state, Book *book, Stream *stream, Bytes *bytes, size_t *count)
{
    size_t told = stream->hole_count;
    uint64_t next = stream->next;
    for (size_t from = 0; from < told; from += RANGES_PER_REPORT) {
        size_t to = from + RANGES_PER_REPORT < told ? from + RANGES_PER_REPORT : told;
        PyObject *report = report_part(state, book, stream, from, to);
        char *at = report ? extend(bytes, (size_t)PyBytes_Size(report)) : NULL;
        if (at != NULL)
            memcpy(at, PyBytes_AsString(report), (size_t)PyBytes_Size(report));
        Py_XDECREF(report);
        if (at == NULL)
            return -1;
        if (stream->next != next) {
            *count = 0;
            return 0;
        }
    }
    *count = told;
    return 0;
}

static inline int
refusal(Recorder *self, size_t size)
{
    Book *book = self->book;
    if (book->closed)
        return CLOSED;
    if (size > self->longest)
        return OVERSIZE;
    return book->used + size > self->limit ? FULL : NONE;
}

/* Call `started` or `filled`, of which nothing reaches the program but what is no Exception. */
static int
tell(PyObject *callback)
{
    PyObject *result = callback ? PyObject_CallNoArgs(callback) : Py_NewRef(Py_None);
    Py_XDECREF(result);
    if (result != NULL)
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* An event whose body is encoded, or cannot be (NULL): number it, and keep (1) or discard it (0). */
static int
number_event(Recorder *self, Lane *lane, const uint64_t fields[3], Bytes *body)
{
    Book *book = lane->book;
    Py_INCREF(lane); /* a report's code may reset the recorder */
    Bytes report = {.data = report.few, .room = sizeof report.few};
    Stream *stream;
    size_t told, size;
    int reason;
    int kept = -1;
    do { /* again, if a report was overtaken */
        report.size = told = 0;
        stream = lane->stream ? lane->stream : own_stream(lane);
        if (stream == NULL)
            goto done;
        size = body ? HEADER_SIZE + body->size : 0;
        reason = body ? refusal(self, size) : ENCODING;
        if (reason == NONE && stream->hole_count) {
            if (put_report(self->state, book, stream, &report, &told) < 0)
                goto done;
            reason = refusal(self, size + report.size);
        }
    } while (reason == NONE && stream->hole_count && told == 0);

    uint64_t number = stream->next++;
    char *at = NULL;
    if (reason == NONE) {
        at = place(stream, report.size + size, self->chunk, number);
        if (at == NULL)
            reason = FULL;
    }
    kept = at != NULL;
    if (!kept) {
        lose(book, stream, number, reason);
    }
    else {
        memcpy(at, report.data, report.size);
        at = put32(at + report.size, EVENT_MAGIC);
        at = put32(at, (uint32_t)size);
        at = put32(at, stream->number);
        at = put32(at, (uint32_t)number);
        for (int i = 0; i < 3; i++)
            at = put64(at, fields[i]);
        memcpy(at, body->data, body->size);
        if (told) {
            stream->hole_count -= told;
            memmove(stream->holes, stream->holes + told, stream->hole_count * sizeof(Hole));
        }
        book->used += report.size + size;
        book->since_filled += report.size + size;
    }
done:
    if (report.data != report.few)
        free(report.data);
    Py_DECREF(lane);
    return kept;
}

/* Record an event, in the calling thread; -1 with an exception that is the program's own. */
static int
record(Recorder *self, PyObject *name, const Reading *start, const Reading *end, const Attributes *attributes)
{
    State *state = self->state;
    Lane *lane = lane_of(self);
    if (lane == NULL)
        return -1;
    Bytes body = {.data = body.few, .room = sizeof body.few};
    uint64_t fields[3];
    Bytes *encoded = &body;
    if (to_ticks(self, start, &fields[1]) < 0 || to_ticks(self, end, &fields[2]) < 0 ||
        read_substream(state, &fields[0]) < 0 || put_body(state, &body, name, attributes) < 0) {
        if (!PyErr_ExceptionMatches(state->encoding_errors)) {
            if (body.data != body.few)
                free(body.data);
            return -1;
        }
        PyErr_Clear();
        encoded = NULL;
    }
    /* What ran meanwhile may have reset the recorder, or closed it. */
    lane = lane_of(self);
    int result = lane ? number_event(self, lane, fields, encoded) : -1;
    if (body.data != body.few)
        free(body.data);
    if (result > 0 && self->book->idle) {
        self->book->idle = false;
        result = tell(self->started) < 0 ? -1 : 1;
    }
    if (result > 0 && self->book->since_filled >= self->chunk) {
        self->book->since_filled = 0;
        result = tell(self->filled);
    }
    return result;
}

/* An event at this time. */
static PyObject *
record_now(Recorder *self, PyObject *name, const Attributes *attributes)
{
    Reading now;
    if (read_clock(self, &now) < 0)
        return NULL;
    int result = record(self, name, &now, &now, attributes);
    Py_XDECREF(now.object);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The attributes that follow `count` positional arguments; false, with an exception, if those are
   not so many. */
static bool
split_arguments(const char *function, PyObject *const *args, Py_ssize_t given, PyObject *names, Py_ssize_t count, Attributes *attributes)
{
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd positional arguments (%zd given)", function, count, given);
        return false;
    }
    *attributes = (Attributes){.names = names, .array = args + count};
    return true;
}

static PyObject *
make_span(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("span", args, given, names, 1, &attributes))
        return NULL;
    Py_INCREF(self); /* before anything else: it may be switched off meanwhile */
    Span *span = PyObject_GC_New(Span, self->state->span_type);
    if (span == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    PyObject *values = NULL;
    if (count) {
        values = PyTuple_New(count);
        for (Py_ssize_t i = 0; values && i < count; i++) {
            Py_INCREF(attributes.array[i]);
            PyTuple_SetItem(values, i, attributes.array[i]);
        }
        Py_INCREF(names);
    }
    Py_INCREF(args[0]);
    span->recorder = self;
    span->name = args[0];
    span->names = count ? names : NULL;
    span->values = values;
    span->attributes = NULL;
    span->start = (Reading){0, NULL};
    PyObject_GC_Track((PyObject *)span);
    if (count && values == NULL)
        Py_CLEAR(span);
    return (PyObject *)span;
}

static PyObject *
emit_event(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("event", args, given, names, 1, &attributes))
        return NULL;
    return record_now(self, args[0], &attributes);
}

static PyObject *
emit_counter(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("counter", args, given, names, 2, &attributes))
        return NULL;
    attributes.first = args[1];
    return record_now(self, args[0], &attributes);
}

static PyObject *
emit_known(Recorder *self, PyObject *name, PyObject *from, PyObject *to, const Attributes *attributes)
{
    Py_INCREF(from);
    Py_INCREF(to);
    Reading start = reading_of(from), end = reading_of(to);
    int result = record(self, name, &start, &end, attributes);
    Py_XDECREF(start.object);
    Py_XDECREF(end.object);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A mapping's attributes, in tuples that the caller has to let go of; -1 with an exception. */
static int
split_mapping(PyObject *mapping, Attributes *attributes)
{
    PyObject *names = PyMapping_Keys(mapping);
    PyObject *values = names ? PyMapping_Values(mapping) : NULL;
    *attributes = (Attributes){
        .names = names ? PySequence_Tuple(names) : NULL,
        .tuple = values ? PySequence_Tuple(values) : NULL,
    };
    Py_XDECREF(names);
    Py_XDECREF(values);
    if (attributes->names && attributes->tuple && PyTuple_Size(attributes->names) == PyTuple_Size(attributes->tuple))
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the mapping has changed");
    Py_CLEAR(attributes->names);
    Py_CLEAR(attributes->tuple);
    return -1;
}

/* ---- Spans ---------------------------------------------------------------------------------- */

PyDoc_STRVAR(span_doc,
"Something that takes time: `with span(\"step\", cell=3) as step:`. It is written when it ends.\n"
"One that an exception ends has the attribute `error`, the exception's type.");

static int
span_traverse(PyObject *object, visitproc visit, void *arg)
{
    Span *self = (Span *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->recorder);
    Py_VISIT(self->name);
    Py_VISIT(self->names);
    Py_VISIT(self->values);
    Py_VISIT(self->attributes);
    Py_VISIT(self->start.object);
    return 0;
}

/* Only what may be part of a cycle through itself; without it the span is as if it had none. */
static int
span_clear(PyObject *object)
{
    Span *self = (Span *)object;
    Py_CLEAR(self->recorder);
    Py_CLEAR(self->name);
    Py_CLEAR(self->names);
    Py_CLEAR(self->values);
    Py_CLEAR(self->attributes);
    Py_CLEAR(self->start.object);
    return 0;
}

static void
span_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    span_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* The attributes as a dict that may be changed, a borrowed reference. */
static PyObject *
span_attributes(Span *self)
{
    if (self->attributes == NULL) {
        PyObject *attributes = PyDict_New();
        Py_ssize_t count = self->names ? PyTuple_Size(self->names) : 0;
        for (Py_ssize_t i = 0; attributes && i < count; i++)
            if (PyDict_SetItem(attributes, PyTuple_GetItem(self->names, i), PyTuple_GetItem(self->values, i)) < 0)
                Py_CLEAR(attributes);
        self->attributes = attributes;
    }
    return self->attributes;
}

static PyObject *
span_set(PyObject *object, PyObject *args, PyObject *more)
{
    Span *self = (Span *)object;
    if (!PyArg_ParseTuple(args, ":set"))
        return NULL;
    if (self->recorder && more) {
        PyObject *attributes = span_attributes(self);
        if (attributes == NULL || PyDict_Update(attributes, more) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
span_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Span *self = (Span *)object;
    if (self->recorder) {
        Py_CLEAR(self->start.object);
        if (read_clock(self->recorder, &self->start) < 0)
            return NULL;
    }
    Py_INCREF(object);
    return object;
}

/* Add the attribute `error`, unless the program has set one. */
static int
span_error(Span *self, PyObject *kind)
{
    State *state = self->recorder->state;
    PyObject *attributes = span_attributes(self);
    if (attributes == NULL)
        return -1;
    int known = PyDict_Contains(attributes, state->error_name);
    if (known)
        return known < 0 ? -1 : 0;
    PyObject *name = PyObject_GetAttr(kind, state->name_name);
    int result = name ? PyDict_SetItem(attributes, state->error_name, name) : -1;
    Py_XDECREF(name);
    return result;
}

static PyObject *
span_exit(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Span *self = (Span *)object;
    Recorder *recorder = self->recorder;
    if (recorder == NULL)
        Py_RETURN_NONE;
    Reading end;
    if (read_clock(recorder, &end) < 0)
        return NULL;
    int result = given && args[0] != Py_None ? span_error(self, args[0]) : 0;
    Attributes attributes = {.names = self->names, .tuple = self->values};
    if (result == 0 && self->attributes)
        result = split_mapping(self->attributes, &attributes);
    if (result == 0)
        result = record(recorder, self->name, &self->start, &end, &attributes);
    if (attributes.names != self->names) {
        Py_XDECREF(attributes.names);
        Py_XDECREF(attributes.tuple);
    }
    Py_XDECREF(end.object);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef span_methods[] = {
    {"set", (PyCFunction)(void (*)(void))span_set, METH_VARARGS | METH_KEYWORDS, "Add attributes known only now."},
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_doc, (void *)span_doc},
    {Py_tp_methods, span_methods},
    {Py_tp_traverse, span_traverse},
    {Py_tp_clear, span_clear},
    {Py_tp_dealloc, span_dealloc},
    {0, NULL},
};

static PyType_Spec span_spec = {
    .name = "tailrace_client._native.Span",
    .basicsize = sizeof(Span),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = span_slots,
};

static PyType_Slot lane_slots[] = {
    {Py_tp_dealloc, lane_dealloc},
    {0, NULL},
};

static PyType_Spec lane_spec = {
    .name = "tailrace_client._native.Lane",
    .basicsize = sizeof(Lane),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lane_slots,
};

/* ---- Recorder ------------------------------------------------------------------------------- */

PyDoc_STRVAR(recorder_doc, "As in `_recorder`, compiled.");

/* The recorder has no use for it any more: neither have its threads for their lanes. */
static void
forget_book(Book *book)
{
    if (book == NULL)
        return;
    PyObject *local = book->local;
    book->local = NULL;
    Py_XDECREF(local);
    leave_book(book);
}

static int
begin(Recorder *self, PyObject *zero)
{
    if (!PyLong_Check(zero)) {
        PyErr_SetString(PyExc_TypeError, "zero is an integer");
        return -1;
    }
    Book *book = new_book(self->state);
    if (book == NULL)
        return -1;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(zero, &overflow);
    self->zero_plain = !overflow;
    self->zero_value = value;
    PyObject *old_zero = self->zero;
    Book *old = self->book;
    Py_INCREF(zero);
    self->zero = zero;
    self->book = book;
    Py_XDECREF(old_zero);
    forget_book(old);
    return 0;
}

static PyObject *
recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"clock", "zero", "limit", "chunk", "started", "filled", "longest", NULL};
    PyObject *clock, *zero, *started = NULL, *filled = NULL;
    unsigned long long limit = 0, chunk = 0, longest = 1ull << 31;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$KKOOK:Recorder", names, &clock, &zero, &limit, &chunk, &started, &filled, &longest))
        return NULL;
    if (!limit || !chunk || !started || !filled) {
        PyErr_SetString(PyExc_TypeError, "Recorder() needs limit, chunk, started and filled");
        return NULL;
    }
    State *state = PyType_GetModuleState(type);
    PyObject *module = PyType_GetModule(type);
    if (state == NULL || module == NULL)
        return NULL;
    Recorder *self = (Recorder *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(module);
    Py_INCREF(clock);
    Py_INCREF(started);
    Py_INCREF(filled);
    self->module = module;
    self->state = state;
    self->clock = clock;
    self->started = started;
    self->filled = filled;
    self->monotonic = clock == state->monotonic_ns;
    self->limit = limit;
    self->chunk = chunk;
    self->longest = longest;
    if (begin(self, zero) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int
recorder_traverse(PyObject *object, visitproc visit, void *arg)
{
    Recorder *self = (Recorder *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->module);
    Py_VISIT(self->clock);
    Py_VISIT(self->started);
    Py_VISIT(self->filled);
    return 0;
}

static int
recorder_clear(PyObject *object)
{
    Recorder *self = (Recorder *)object;
    Py_CLEAR(self->clock);
    Py_CLEAR(self->started);
    Py_CLEAR(self->filled);
    self->monotonic = false;
    return 0;
}

static void
recorder_dealloc(PyObject *object)
{
    Recorder *self = (Recorder *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    recorder_clear(object);
    forget_book(self->book);
    Py_CLEAR(self->zero);
    Py_CLEAR(self->module);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *
recorder_span(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return make_span((Recorder *)self, args, given, names);
}

static PyObject *
recorder_event(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return emit_event((Recorder *)self, args, given, names);
}

static PyObject *
recorder_counter(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return emit_counter((Recorder *)self, args, given, names);
}

static PyObject *
recorder_write(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Recorder *self = (Recorder *)object;
    Attributes attributes;
    if (!split_arguments("write", args, given, NULL, 4, &attributes))
        return NULL;
    if (split_mapping(args[3], &attributes) < 0) {
        if (!PyErr_ExceptionMatches(self->state->encoding_errors))
            return NULL;
        PyErr_Clear();
        /* As an event that cannot be encoded. */
        Lane *lane = lane_of(self);
        if (lane == NULL || number_event(self, lane, NULL, NULL) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *result = emit_known(self, args[0], args[1], args[2], &attributes);
    Py_DECREF(attributes.names);
    Py_DECREF(attributes.tuple);
    return result;
}

static PyObject *
recorder_use_stream(PyObject *object, PyObject *number)
{
    Recorder *self = (Recorder *)object;
    Lane *lane;
    if (number == Py_None) {
        if ((lane = lane_of(self)) == NULL)
            return NULL;
        lane->stream = lane->own;
        Py_RETURN_NONE;
    }
    unsigned long long value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    if (PyErr_Occurred() || value > UINT32_MAX) {
        PyErr_Clear();
        return PyErr_Format(PyExc_ValueError, "%S is not a stream: 0 to %lu", number, 0xFFFFFFFFul);
    }
    if ((lane = lane_of(self)) == NULL)
        return NULL;
    PyObject *key = PyLong_FromUnsignedLongLong(value);
    Stream *stream = key ? find_stream(lane->book, key) : NULL;
    if (key && stream == NULL && !PyErr_Occurred())
        stream = add_stream(lane->book, key);
    Py_XDECREF(key);
    if (stream == NULL)
        return NULL;
    lane->stream = stream;
    Py_RETURN_NONE;
}

/* A piece taken, as a Chunk; its bytes are let go. Made by `tuple.__new__`, in C, so that no signal
   handler's exception can come in between. */
static PyObject *
chunk_of(State *state, uint32_t stream, Piece *piece)
{
    PyObject *fields = Py_BuildValue(
        "y#IKK", piece->data, (Py_ssize_t)piece->size, stream, (unsigned long long)piece->first,
        (unsigned long long)piece->next);
    free(piece->data);
    PyObject *chunk = fields ? PyObject_CallFunctionObjArgs(state->tuple_new, state->chunk_type, fields, NULL) : NULL;
    Py_XDECREF(fields);
    return chunk;
}

static PyObject *
recorder_take(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recorder *self = (Recorder *)object;
    Book *book = self->book;
    PyObject *chunks = PyList_New(0);
    if (chunks == NULL)
        return NULL;
    book->idle = true;
    book->owners++; /* `reset` may come in a signal handler */
    bool complete = true;
    for (size_t i = 0; i < book->stream_count; i++) {
        Stream *stream = book->streams[i];
        if (stream->open.size && !seal(stream))
            complete = false;
        Piece *sealed = stream->sealed;
        size_t count = stream->sealed_count;
        stream->sealed = NULL;
        stream->sealed_count = stream->sealed_room = 0;
        for (size_t j = 0; j < count; j++) {
            PyObject *chunk = chunk_of(self->state, stream->number, &sealed[j]);
            complete = chunk && PyList_Append(chunks, chunk) == 0 && complete;
            Py_XDECREF(chunk);
        }
        free(sealed);
    }
    leave_book(book);
    if (!complete) {
        Py_DECREF(chunks);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return chunks;
}

static PyObject *
recorder_release(PyObject *object, PyObject *number)
{
    Book *book = ((Recorder *)object)->book;
    unsigned long long size = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    book->used -= size < book->used ? size : book->used;
    Py_RETURN_NONE;
}

static PyObject *
recorder_next_numbers(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Book *book = ((Recorder *)object)->book;
    PyObject *numbers = PyDict_New();
    for (size_t i = 0; numbers && i < book->stream_count; i++) {
        Stream *stream = book->streams[i];
        if (stream->next == 0)
            continue;
        PyObject *key = PyLong_FromUnsignedLong(stream->number);
        PyObject *value = PyLong_FromUnsignedLongLong(stream->next);
        if (!key || !value || PyDict_SetItem(numbers, key, value) < 0)
            Py_CLEAR(numbers);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return numbers;
}

static PyObject *
recorder_discard(PyObject *object, PyObject *reason)
{
    Book *book = ((Recorder *)object)->book;
    for (int i = 0; i < REASON_COUNT; i++)
        if (PyUnicode_Check(reason) && PyUnicode_CompareWithASCIIString(reason, REASONS[i]) == 0)
            book->discarded[i]++;
    Py_RETURN_NONE;
}

static PyObject *
recorder_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ((Recorder *)object)->book->closed = true;
    Py_RETURN_NONE;
}

static PyObject *
recorder_reset(PyObject *object, PyObject *zero)
{
    if (begin((Recorder *)object, zero) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
recorder_get_discarded(PyObject *object, void *Py_UNUSED(closure))
{
    return discarded_of(((Recorder *)object)->book);
}

static PyObject *
recorder_get_clock(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *clock = ((Recorder *)object)->clock;
    return Py_NewRef(clock ? clock : Py_None);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef recorder_methods[] = {
    {"span", FAST(recorder_span), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"event", FAST(recorder_event), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"counter", FAST(recorder_counter), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"write", FAST(recorder_write), METH_FASTCALL, NULL},
    {"use_stream", recorder_use_stream, METH_O, NULL},
    {"take", recorder_take, METH_NOARGS, NULL},
    {"release", recorder_release, METH_O, NULL},
    {"next_numbers", recorder_next_numbers, METH_NOARGS, NULL},
    {"discard", recorder_discard, METH_O, NULL},
    {"close", recorder_close, METH_NOARGS, NULL},
    {"reset", recorder_reset, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_attributes[] = {
    {"discarded", recorder_get_discarded, NULL, NULL, NULL},
    {"clock", recorder_get_clock, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, (void *)recorder_doc},
    {Py_tp_new, recorder_new},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_attributes},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear},
    {Py_tp_dealloc, recorder_dealloc},
    {0, NULL},
};

static PyType_Spec recorder_spec = {
    .name = "tailrace_client._native.Recorder",
    .basicsize = sizeof(Recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recorder_slots,
};

/* ---- The module's functions, of the process's one recorder ----------------------------------- */

static PyObject *
module_span(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    State *state = PyModule_GetState(module);
    if (state->current == NULL && given == 1)
        return Py_NewRef(state->off);
    return make_span((Recorder *)state->current, args, given, names);
}

static PyObject *
emit_write(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("write", args, given, names, 3, &attributes))
        return NULL;
    return emit_known(self, args[0], args[1], args[2], &attributes);
}

typedef PyObject *Emit(Recorder *, PyObject *const *, Py_ssize_t, PyObject *);

/* Emit to the one recorder, which may be switched off in the middle of it, or else do nothing with
   `count` arguments. */
static inline PyObject *
emit(PyObject *module, Emit *function, Py_ssize_t count, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    State *state = PyModule_GetState(module);
    PyObject *current = state->current;
    if (current == NULL && given == count)
        Py_RETURN_NONE;
    Py_XINCREF(current);
    PyObject *result = function((Recorder *)current, args, given, names);
    Py_XDECREF(current);
    return result;
}

static PyObject *
module_event(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return emit(module, emit_event, 1, args, given, names);
}

static PyObject *
module_counter(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return emit(module, emit_counter, 2, args, given, names);
}

static PyObject *
module_write(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    return emit(module, emit_write, 3, args, given, names);
}

static PyObject *
module_switch(PyObject *module, PyObject *recorder)
{
    State *state = PyModule_GetState(module);
    if (recorder != Py_None && !PyObject_TypeCheck(recorder, state->recorder_type)) {
        PyErr_SetString(PyExc_TypeError, "switch() takes a compiled Recorder or None");
        return NULL;
    }
    PyObject *before = state->current;
    state->current = recorder == Py_None ? NULL : Py_NewRef(recorder);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"switch", module_switch, METH_O,
     "switch(recorder, /)\n--\n\nWhat the functions here record to from now on; None: they do nothing."},
    {"span", FAST(module_span), METH_FASTCALL | METH_KEYWORDS,
     "span(name, /, **attributes)\n--\n\nA span of the calling thread: `with span(\"step\", cell=3):`. See `Span`."},
    {"event", FAST(module_event), METH_FASTCALL | METH_KEYWORDS,
     "event(name, /, **attributes)\n--\n\nSomething that takes no time: a span of zero length."},
    {"counter", FAST(module_counter), METH_FASTCALL | METH_KEYWORDS,
     "counter(name, value, /, **attributes)\n--\n\n"
     "A value at this time: an event whose first attribute, `tailrace.counter`, is the value."},
    {"write", FAST(module_write), METH_FASTCALL | METH_KEYWORDS,
     "write(name, start, end, /, **attributes)\n--\n\n"
     "A span whose times, readings of the emitter's clock, are known already."},
    {NULL, NULL, 0, NULL},
};

/* An attribute of a module that is imported for it. */
static PyObject *
import_from(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return found;
}

static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && name != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    const struct {
        PyObject **place;
        const char *module, *name;
    } imported[] = {
        {&state->wire_text, "tailrace_client._wire", "text"},
        {&state->wire_value, "tailrace_client._wire", "value"},
        {&state->wire_report, "tailrace_client._wire", "report"},
        {&state->encoding_errors, "tailrace_client._recorder", "ENCODING_ERRORS"},
        {&state->chunk_type, "tailrace_client._chunk", "Chunk"},
        {&state->local_type, "_thread", "_local"},
        {&state->monotonic_ns, "time", "monotonic_ns"},
    };
    for (size_t i = 0; i < sizeof imported / sizeof *imported; i++)
        if (!(*imported[i].place = import_from(imported[i].module, imported[i].name)))
            return -1;
    PyObject *substream = import_from("tailrace_client._substream", "SUBSTREAM");
    state->substream_get = substream ? PyObject_GetAttrString(substream, "get") : NULL;
    Py_XDECREF(substream);
    state->tuple_new = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__");
    state->lane_name = PyUnicode_InternFromString("lane");
    state->counter_name = PyUnicode_InternFromString("tailrace.counter");
    state->error_name = PyUnicode_InternFromString("error");
    state->name_name = PyUnicode_InternFromString("__name__");
    state->recorder_type = add_type(module, &recorder_spec, "Recorder");
    state->span_type = add_type(module, &span_spec, "Span");
    state->lane_type = add_type(module, &lane_spec, NULL);
    if (!state->substream_get || !state->tuple_new || !state->lane_name || !state->counter_name || !state->error_name ||
        !state->name_name || !state->recorder_type || !state->span_type || !state->lane_type)
        return -1;
    Span *off = PyObject_GC_New(Span, state->span_type);
    if (off == NULL)
        return -1;
    memset((char *)off + sizeof(PyObject), 0, sizeof(Span) - sizeof(PyObject));
    state->off = (PyObject *)off;
    return PyModule_AddObjectRef(module, "OFF", state->off);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->recorder_type);
    Py_VISIT(state->span_type);
    Py_VISIT(state->lane_type);
    Py_VISIT(state->wire_text);
    Py_VISIT(state->wire_value);
    Py_VISIT(state->wire_report);
    Py_VISIT(state->encoding_errors);
    Py_VISIT(state->chunk_type);
    Py_VISIT(state->tuple_new);
    Py_VISIT(state->substream_get);
    Py_VISIT(state->local_type);
    Py_VISIT(state->monotonic_ns);
    Py_VISIT(state->off);
    Py_VISIT(state->current);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->current);
    Py_CLEAR(state->off);
    Py_CLEAR(state->recorder_type);
    Py_CLEAR(state->span_type);
    Py_CLEAR(state->lane_type);
    Py_CLEAR(state->wire_text);
    Py_CLEAR(state->wire_value);
    Py_CLEAR(state->wire_report);
    Py_CLEAR(state->encoding_errors);
    Py_CLEAR(state->chunk_type);
    Py_CLEAR(state->tuple_new);
    Py_CLEAR(state->substream_get);
    Py_CLEAR(state->local_type);
    Py_CLEAR(state->monotonic_ns);
    Py_CLEAR(state->lane_name);
    Py_CLEAR(state->counter_name);
    Py_CLEAR(state->error_name);
    Py_CLEAR(state->name_name);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The recorder, compiled.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
