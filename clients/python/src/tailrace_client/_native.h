/* The recorder (_recorder.py), compiled: the same interface, the same bytes.

   No Python code runs between the numbering of an event and the storing of its packet. So neither
   another thread nor a signal handler can come between, and no lock is needed. Whatever may run
   code of the program comes before: values that are no plain numbers or texts, a clock of the
   program's own, reports. Such values are encoded by `_wire`, as in Python.

   Stable ABI of Python 3.10. It needs the GIL and is not built for Pythons without one.

     _native_book.c      streams and their packets, lanes of threads
     _native_encode.c    an event's name and attributes as bytes
     _native_record.c    clocks; an event from its values to its place in a stream
     _native_span.c      the type Span
     _native_traced.c    the type Traced
     _native_recorder.c  the type Recorder
     _native.c           the module and its functions */

#ifndef TAILRACE_NATIVE_H
#define TAILRACE_NATIVE_H

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
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

#define FAST(function) (PyCFunction)(void (*)(void))(function)

/* As in _recorder.REASONS. */
enum { FULL, OVERSIZE, NESTED, ENCODING, UNCONNECTED, CLOSED, REFUSED, LOST, GIVEN_UP, UNCOUNTED, LIMIT, REASON_COUNT, NONE = -1 };

typedef struct {
    PyTypeObject *recorder_type, *span_type, *lane_type;
    PyObject *method_type;                          /* types.MethodType */
    PyObject *wire_text, *wire_value, *wire_report; /* functions of _wire */
    PyObject *encoding_errors;                      /* _recorder.ENCODING_ERRORS */
    PyObject *chunk_type, *tuple_new, *substream_get, *local_type, *monotonic_ns;
    PyObject *lane_name, *counter_name, *error_name, *message_name, *name_name; /* texts used as names */
    PyObject *off;     /* the one span of a module that is off */
    PyObject *current; /* the recorder of the module's functions; NULL: they only count */
    uint64_t missed;   /* events that came while there was no recorder, or to a closed one */
} State;

/* Packets of consecutive events of a stream. */
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
    Hole *holes; /* discarded events that no report has named yet */
    size_t hole_count, hole_room;
} Stream;

/* All that is recorded. The recorder and the lanes of its threads own it; `reset` begins a new one. */
typedef struct {
    size_t owners;
    uint64_t id;
    PyObject *local; /* a threading.local with a lane */
    Stream **streams;
    size_t stream_count, stream_room;
    PyObject *places; /* by number, a stream's index in `streams` */
    Stream **free;    /* streams of threads that have ended; NULL for a thread that had none */
    size_t free_count, free_room;
    uint64_t used; /* bytes recorded and not released */
    uint64_t since_filled;
    uint64_t discarded[REASON_COUNT];
    bool idle, closed;
    uint64_t late; /* events after the end */
    uint64_t sampled, sampled_ns; /* events whose recording was timed, and the CPU time that this took */
} Book;

/* A thread's hold on a stream. It ends with the thread. */
typedef struct {
    PyObject_HEAD
    Book *book;
    Stream *own, *stream;
} Lane;

/* The lane that a thread used last. One struct, since each access to a thread-local variable costs 1 ns. */
typedef struct {
    uint64_t book_id;
    Lane *lane;
} Cached;

typedef struct {
    PyObject_HEAD
    PyObject *module;
    State *state;
    PyObject *clock, *zero, *started, *filled;
    bool monotonic; /* whether the clock is time.monotonic_ns, which C reads itself */
    bool zero_plain;
    int64_t zero_value;
    uint64_t limit, chunk, longest;
    uint32_t until_sample; /* events until one is timed */
    Book *book;
} Recorder;

/* A reading of the clock: a plain integer, or any object. */
typedef struct {
    int64_t value;
    PyObject *object;
} Reading;

/* Values that a span holds itself, without a tuple. */
enum { FEW_VALUES = 4 };

typedef struct {
    PyObject_HEAD
    Recorder *recorder; /* NULL: off */
    PyObject *name;
    PyObject *names, *values; /* tuples; NULL: none, or the values are in `few` */
    PyObject *few[FEW_VALUES];
    PyObject *attributes;     /* a dict instead of the tuples, once `set` has added to them */
    Reading start;
} Span;

/* An event's attributes: a tuple of names and the values, in an array or in a tuple. */
typedef struct {
    PyObject *first; /* the value of `tailrace.counter`, which comes before the others; or NULL */
    PyObject *names;
    PyObject *const *array;
    PyObject *tuple;
} Attributes;

/* A buffer that grows. It is on the stack while it is short. */
typedef struct {
    char *data;
    size_t size, room;
    char few[512];
} Bytes;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* _native_book.c */
extern PyType_Spec lane_spec;
extern THREAD_LOCAL Cached cached;
Book *new_book(State *state);
void leave_book(Book *book);
void forget_book(Book *book);
Stream *find_stream(Book *book, PyObject *number);
Stream *add_stream(Book *book, PyObject *number);
Stream *own_stream(Lane *lane);
Lane *find_lane(Recorder *self);
char *place(Stream *stream, size_t size, size_t chunk, uint64_t number);
bool seal(Stream *stream);
void lose(Book *book, Stream *stream, uint64_t number, int reason);
void count_discarded(Book *book, PyObject *reason, uint64_t count);
PyObject *discarded_of(Book *book);

/* _native_encode.c */
char *extend(Bytes *bytes, size_t more);
int put_body(State *state, Bytes *bytes, PyObject *name, const Attributes *attributes);

/* _native_record.c */
int read_clock(Recorder *self, Reading *reading);
int number_event(Recorder *self, Lane *lane, const uint64_t fields[3], Bytes *body);
int record(Recorder *self, PyObject *name, const Reading *start, const Reading *end, const Attributes *attributes);
bool split_arguments(const char *function, PyObject *const *args, Py_ssize_t given, PyObject *names, Py_ssize_t count, Attributes *attributes);
int split_mapping(PyObject *mapping, Attributes *attributes);
PyObject *emit_event(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *emit_counter(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
PyObject *emit_known(Recorder *self, PyObject *name, PyObject *from, PyObject *to, const Attributes *attributes);

/* _native_span.c */
extern PyType_Spec span_spec;
PyObject *make_span(Recorder *self, PyObject *const *args, Py_ssize_t given, PyObject *names);
int add_error(State *state, PyObject *attributes, PyObject *kind, PyObject *error);

/* _native_traced.c */
PyType_Spec *traced_type_spec(void);

/* _native_recorder.c */
extern PyType_Spec recorder_spec;

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

/* Begin without bytes. The buffer on the stack stays unset: to clear the buffer would cost more than to fill it. */
static inline void
begin_bytes(Bytes *bytes)
{
    bytes->data = bytes->few;
    bytes->size = 0;
    bytes->room = sizeof bytes->few;
}

/* Return the calling thread's lane, a borrowed reference; NULL with an exception. */
static inline Lane *
lane_of(Recorder *self)
{
    Cached *found = &cached;
    return found->book_id == self->book->id ? found->lane : find_lane(self);
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

#endif
