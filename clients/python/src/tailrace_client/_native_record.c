/* Clocks, and an event's way from its values to its place in a stream. */

#include "_native.h"

#define EVENT_MAGIC 0xC1FC1FB7u
enum { HEADER_SIZE = 40 };
enum { RANGES_PER_REPORT = 16 };

/* Make a reading of an object, and take over the object's reference. */
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

int
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

/* Convert a reading to ticks since `zero`. Return -1 with an OverflowError for a time below 0 or beyond 64 bits. */
static int
to_ticks(Recorder *self, const Reading *reading, uint64_t *ticks)
{
    if (reading->object == NULL && self->zero_plain && reading->value >= self->zero_value) {
        *ticks = (uint64_t)reading->value - (uint64_t)self->zero_value;
        return 0;
    }
    PyObject *number = reading->object ? PyNumber_Long(reading->object) : PyLong_FromLongLong(reading->value);
    PyObject *distance = number ? PyNumber_Subtract(number, self->zero) : NULL;
    *ticks = distance ? PyLong_AsUnsignedLongLong(distance) : 0;
    Py_XDECREF(distance);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int
read_substream(State *state, uint64_t *substream)
{
    PyObject *object = PyObject_CallNoArgs(state->substream_get);
    PyObject *number = object ? PyNumber_Long(object) : NULL;
    *substream = number ? PyLong_AsUnsignedLongLongMask(number) : 0;
    Py_XDECREF(number);
    Py_XDECREF(object);
    return PyErr_Occurred() ? -1 : 0;
}

/* Return the report of the holes `from` to below `to`. */
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

/* Append the reports that come before the stream's next event; `count` is how many holes they name.
   This runs Python, and so perhaps a signal handler that emits to this stream: `count` is 0 then. */
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

/* Return why a packet of this size is discarded, or NONE. */
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

/* Call `started` or `filled`. Suppress an Exception; return -1 with any other BaseException. */
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

/* Number an event, and keep it (1) or discard it (0). The body is NULL if it could not be encoded. */
int
number_event(Recorder *self, Lane *lane, const uint64_t fields[3], Bytes *body)
{
    Book *book = lane->book;
    Py_INCREF(lane); /* a report's code may reset the recorder */
    Bytes report;
    begin_bytes(&report);
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
        reason = body || book->closed ? refusal(self, size) : ENCODING;
        if (reason == NONE && stream->hole_count) {
            if (put_report(self->state, book, stream, &report, &told) < 0)
                goto done;
            reason = refusal(self, size + report.size);
        }
    } while (reason == NONE && stream->hole_count && told == 0);

    if (reason == CLOSED) { /* no goodbye states it, so it takes no number */
        self->state->missed++;
        book->late++;
        kept = 0;
        goto done;
    }
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

static int
record_event(Recorder *self, PyObject *name, const Reading *start, const Reading *end, const Attributes *attributes)
{
    State *state = self->state;
    Lane *lane = lane_of(self);
    if (lane == NULL)
        return -1;
    Bytes body;
    begin_bytes(&body);
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
    /* Code that ran meanwhile may have reset the recorder, or closed it. */
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

/* One of this many events is timed. */
enum { SAMPLE_EVERY = 1024 };

/* A thread that takes longer (ns) for an event was probably interrupted by another one. */
enum { INTERRUPTED = 1000000 };

static uint64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Record an event in the calling thread. Return -1 with an exception of the program's own.

   The thread's CPU clock cannot time an event: its reading is a system call, which takes longer than an event, and
   slows the event. */
int
record(Recorder *self, PyObject *name, const Reading *start, const Reading *end, const Attributes *attributes)
{
    if (--self->until_sample)
        return record_event(self, name, start, end, attributes);
    self->until_sample = SAMPLE_EVERY;
    uint64_t began = now_ns();
    int result = record_event(self, name, start, end, attributes);
    uint64_t ended = now_ns(), clock = now_ns() - ended, taken = ended - began;
    if (taken < INTERRUPTED) {
        Book *book = self->book;
        book->sampled++;
        book->sampled_ns += taken > clock ? taken - clock : 0;
    }
    return result;
}

/* Record an event that begins and ends now. */
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

/* Find the attributes behind `count` positional arguments. Return false, with an exception, if
   another number of positional arguments was given. */
bool
split_arguments(const char *function, PyObject *const *args, Py_ssize_t given, PyObject *names, Py_ssize_t count, Attributes *attributes)
{
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd positional arguments (%zd given)", function, count, given);
        return false;
    }
    *attributes = (Attributes){.names = names, .array = args + count};
    return true;
}

PyObject *
emit_event(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("event", args, given, names, 1, &attributes))
        return NULL;
    return record_now(self, args[0], &attributes);
}

PyObject *
emit_counter(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Attributes attributes;
    if (!split_arguments("counter", args, given, names, 2, &attributes))
        return NULL;
    attributes.first = args[1];
    return record_now(self, args[0], &attributes);
}

PyObject *
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

/* Split a mapping into tuples that the caller has to release. Return -1 with an exception. */
int
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
        PyErr_SetString(PyExc_ValueError, "the mapping changed while it was read");
    Py_CLEAR(attributes->names);
    Py_CLEAR(attributes->tuple);
    return -1;
}
