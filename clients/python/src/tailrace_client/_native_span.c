/* The type Span. */

#include "_native.h"

PyObject *
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
    memset(span->few, 0, sizeof span->few);
    if (count > FEW_VALUES)
        values = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = attributes.array[i];
        if (count <= FEW_VALUES)
            span->few[i] = Py_NewRef(value);
        else if (values)
            PyTuple_SetItem(values, i, Py_NewRef(value));
    }
    if (count)
        Py_INCREF(names);
    Py_INCREF(args[0]);
    span->recorder = self;
    span->name = args[0];
    span->names = count ? names : NULL;
    span->values = values;
    span->attributes = NULL;
    span->start = (Reading){0, NULL};
    PyObject_GC_Track((PyObject *)span);
    if (count > FEW_VALUES && values == NULL)
        Py_CLEAR(span);
    return (PyObject *)span;
}

PyDoc_STRVAR(span_doc,
"Something that takes time: `with span(\"step\", cell=3) as step:`. It is recorded when it ends.\n"
"A span that an exception ends has the attributes `error`, the exception's type, and `error_message`.");

static int
span_traverse(PyObject *object, visitproc visit, void *arg)
{
    Span *self = (Span *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->recorder);
    Py_VISIT(self->name);
    Py_VISIT(self->names);
    Py_VISIT(self->values);
    for (int i = 0; i < FEW_VALUES; i++)
        Py_VISIT(self->few[i]);
    Py_VISIT(self->attributes);
    Py_VISIT(self->start.object);
    return 0;
}

/* Drop all references. The span is off afterwards. */
static int
span_clear(PyObject *object)
{
    Span *self = (Span *)object;
    Py_CLEAR(self->recorder);
    Py_CLEAR(self->name);
    Py_CLEAR(self->names);
    Py_CLEAR(self->values);
    for (int i = 0; i < FEW_VALUES; i++)
        Py_CLEAR(self->few[i]);
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

/* Return the attributes as a dict that may be changed, a borrowed reference. */
static PyObject *
span_attributes(Span *self)
{
    if (self->attributes == NULL) {
        PyObject *attributes = PyDict_New();
        Py_ssize_t count = self->names ? PyTuple_Size(self->names) : 0;
        for (Py_ssize_t i = 0; attributes && i < count; i++) {
            PyObject *value = self->values ? PyTuple_GetItem(self->values, i) : self->few[i];
            if (PyDict_SetItem(attributes, PyTuple_GetItem(self->names, i), value) < 0)
                Py_CLEAR(attributes);
        }
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

/* Add the message of an exception; none if there is none, or if the exception's own `__str__` fails. */
static int
add_message(State *state, PyObject *attributes, PyObject *error)
{
    PyObject *message = PyObject_Str(error);
    if (message == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyErr_Clear();
        return 0;
    }
    int result = PyUnicode_GetLength(message) ? PyDict_Contains(attributes, state->message_name) : 1;
    if (result == 0)
        result = PyDict_SetItem(attributes, state->message_name, message);
    Py_DECREF(message);
    return result < 0 ? -1 : 0;
}

/* Add the exception's type and message, unless the program has set `error`. */
int
add_error(State *state, PyObject *attributes, PyObject *kind, PyObject *error)
{
    int known = PyDict_Contains(attributes, state->error_name);
    if (known)
        return known < 0 ? -1 : 0;
    PyObject *name = PyObject_GetAttr(kind, state->name_name);
    int result = name ? PyDict_SetItem(attributes, state->error_name, name) : -1;
    Py_XDECREF(name);
    return result < 0 || error == Py_None ? result : add_message(state, attributes, error);
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
    int result = 0;
    if (given && args[0] != Py_None) {
        PyObject *changed = span_attributes(self);
        result = changed ? add_error(recorder->state, changed, args[0], given > 1 ? args[1] : Py_None) : -1;
    }
    Attributes attributes = {.names = self->names, .tuple = self->values};
    if (self->values == NULL)
        attributes.array = self->few;
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

PyType_Spec span_spec = {
    .name = "tailrace_client._native.Span",
    .basicsize = sizeof(Span),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = span_slots,
};
