/* Streams and the packets in them; lanes, by which threads hold on to streams. */

#include "_native.h"

static const char *const REASONS[] = {"full",   "oversize", "nested", "encoding", "unconnected",
                                      "closed", "refused",  "lost",   "given_up", "uncounted", "limit"};

static uint64_t last_book_id;
THREAD_LOCAL Cached cached;

/* Make room for one more element in an array. Return false without memory. */
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

void
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

Book *
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

/* Return the stream of this number; NULL, without an exception, if there is none. */
Stream *
find_stream(Book *book, PyObject *number)
{
    PyObject *place = PyDict_GetItemWithError(book->places, number);
    return place ? book->streams[PyLong_AsSize_t(place)] : NULL;
}

Stream *
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

/* Give the lane a stream of its own, with the lowest free number. */
Stream *
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

/* Count an event as discarded, and add its number to the holes. */
void
lose(Book *book, Stream *stream, uint64_t number, int reason)
{
    book->discarded[reason]++;
    Hole *last = stream->hole_count ? &stream->holes[stream->hole_count - 1] : NULL;
    if (last != NULL && last->first + last->count == number)
        last->count++;
    else if (grow(&stream->holes, &stream->hole_room, stream->hole_count, sizeof(Hole)))
        stream->holes[stream->hole_count++] = (Hole){number, 1};
}

/* Close the open piece. Return false without memory. */
bool
seal(Stream *stream)
{
    if (!grow(&stream->sealed, &stream->sealed_room, stream->sealed_count, sizeof(Piece)))
        return false;
    stream->sealed[stream->sealed_count++] = stream->open;
    stream->open = (Piece){0};
    return true;
}

/* Return where `size` bytes of the event `number` may be written; NULL without memory. */
char *
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

static void
lane_dealloc(PyObject *self)
{
    Lane *lane = (Lane *)self;
    PyTypeObject *type = Py_TYPE(self);
    Book *book = lane->book;
    if (cached.lane == lane)
        cached.book_id = 0;
    if (book != NULL && grow(&book->free, &book->free_room, book->free_count, sizeof(Stream *)))
        book->free[book->free_count++] = lane->own;
    leave_book(book);
    PyObject_Free(self);
    Py_DECREF(type);
}

Lane *
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
    cached = (Cached){book->id, (Lane *)found};
    return cached.lane;
}

static PyType_Slot lane_slots[] = {
    {Py_tp_dealloc, lane_dealloc},
    {0, NULL},
};

PyType_Spec lane_spec = {
    .name = "tailrace_client._native.Lane",
    .basicsize = sizeof(Lane),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lane_slots,
};

/* Let go of a recorder's book, and of the lanes of its threads. */
void
forget_book(Book *book)
{
    if (book == NULL)
        return;
    PyObject *local = book->local;
    book->local = NULL;
    Py_XDECREF(local);
    leave_book(book);
}

PyObject *
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

void
count_discarded(Book *book, PyObject *reason, uint64_t count)
{
    for (int i = 0; i < REASON_COUNT; i++)
        if (PyUnicode_Check(reason) && PyUnicode_CompareWithASCIIString(reason, REASONS[i]) == 0)
            book->discarded[i] += count;
}
