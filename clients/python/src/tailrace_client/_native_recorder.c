/* The type Recorder. */

#include "_native.h"

PyDoc_STRVAR(recorder_doc, "The recorder of `_recorder`, compiled.");

/* The first of a session's events that is timed comes behind some others, which warm up the caches. */
enum { SAMPLE_FIRST = 64 };

/* Begin an empty book, with the clock's reading at tick 0. */
static int
begin(Recorder *self, PyObject *zero)
{
    if (!PyLong_Check(zero)) {
        PyErr_SetString(PyExc_TypeError, "zero must be an integer");
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
    self->until_sample = SAMPLE_FIRST;
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

/* Return a piece as a Chunk, and free its bytes. `tuple.__new__` makes the Chunk in C, so that no
   exception of a signal handler can come between. */
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
recorder_discard(PyObject *object, PyObject *args)
{
    PyObject *reason;
    unsigned long long count = 1;
    if (!PyArg_ParseTuple(args, "O|K:discard", &reason, &count))
        return NULL;
    count_discarded(((Recorder *)object)->book, reason, count);
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
recorder_get_late(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((Recorder *)object)->book->late);
}

static PyObject *
recorder_get_sampled(PyObject *object, void *Py_UNUSED(closure))
{
    Book *book = ((Recorder *)object)->book;
    return Py_BuildValue("KK", (unsigned long long)book->sampled, (unsigned long long)book->sampled_ns);
}

static PyObject *
recorder_get_clock(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *clock = ((Recorder *)object)->clock;
    return Py_NewRef(clock ? clock : Py_None);
}

static PyMethodDef recorder_methods[] = {
    {"span", FAST(recorder_span), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"event", FAST(recorder_event), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"counter", FAST(recorder_counter), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"write", FAST(recorder_write), METH_FASTCALL, NULL},
    {"use_stream", recorder_use_stream, METH_O, NULL},
    {"take", recorder_take, METH_NOARGS, NULL},
    {"release", recorder_release, METH_O, NULL},
    {"next_numbers", recorder_next_numbers, METH_NOARGS, NULL},
    {"discard", recorder_discard, METH_VARARGS, NULL},
    {"close", recorder_close, METH_NOARGS, NULL},
    {"reset", recorder_reset, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_attributes[] = {
    {"discarded", recorder_get_discarded, NULL, NULL, NULL},
    {"late", recorder_get_late, NULL, NULL, NULL},
    {"sampled", recorder_get_sampled, NULL, NULL, NULL},
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

PyType_Spec recorder_spec = {
    .name = "tailrace_client._native.Recorder",
    .basicsize = sizeof(Recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recorder_slots,
};
