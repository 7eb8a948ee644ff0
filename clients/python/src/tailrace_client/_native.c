/* The module, and its functions, which record to the process's one recorder. */

#include "_native.h"

static PyObject *
module_span(PyObject *module, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    State *state = PyModule_GetState(module);
    if (state->current == NULL && given == 1) {
        state->missed++;
        return Py_NewRef(state->off);
    }
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

/* Emit to the process's recorder, which may be switched off meanwhile. While the module is off, count an event with
   `count` arguments. */
static inline PyObject *
emit(PyObject *module, Emit *function, Py_ssize_t count, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    State *state = PyModule_GetState(module);
    PyObject *current = state->current;
    if (current == NULL && given == count) {
        state->missed++;
        Py_RETURN_NONE;
    }
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

static PyObject *
module_miss(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    State *state = PyModule_GetState(module);
    return PyLong_FromUnsignedLongLong(state->missed++);
}

static PyMethodDef module_methods[] = {
    {"switch", module_switch, METH_O,
     "switch(recorder, /)\n--\n\nLet the functions of this module record to `recorder` from now on. With None they only count."},
    {"miss", module_miss, METH_NOARGS,
     "miss()\n--\n\nCount an event that no session states so far. Return how many came before it."},
    {"span", FAST(module_span), METH_FASTCALL | METH_KEYWORDS,
     "span(name, /, **attributes)\n--\n\nReturn a span of the calling thread: `with span(\"step\", cell=3):`. See `Span`."},
    {"event", FAST(module_event), METH_FASTCALL | METH_KEYWORDS,
     "event(name, /, **attributes)\n--\n\nRecord something that takes no time: a span of zero length."},
    {"counter", FAST(module_counter), METH_FASTCALL | METH_KEYWORDS,
     "counter(name, value, /, **attributes)\n--\n\n"
     "Record a value at this time: an event whose first attribute, `tailrace.counter`, is the value."},
    {"write", FAST(module_write), METH_FASTCALL | METH_KEYWORDS,
     "write(name, start, end, /, **attributes)\n--\n\n"
     "Record a span whose times are known already, as readings of the emitter's clock."},
    {NULL, NULL, 0, NULL},
};

/* Import a module, and return one of its attributes. */
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
        {&state->method_type, "types", "MethodType"},
    };
    for (size_t i = 0; i < sizeof imported / sizeof *imported; i++)
        if (!(*imported[i].place = import_from(imported[i].module, imported[i].name)))
            return -1;
    PyObject *substream = import_from("tailrace_client._tasks", "SUBSTREAM");
    state->substream_get = substream ? PyObject_GetAttrString(substream, "get") : NULL;
    Py_XDECREF(substream);
    state->tuple_new = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__");
    state->lane_name = PyUnicode_InternFromString("lane");
    state->counter_name = PyUnicode_InternFromString("tailrace.counter");
    state->error_name = PyUnicode_InternFromString("error");
    state->message_name = PyUnicode_InternFromString("error_message");
    state->name_name = PyUnicode_InternFromString("__name__");
    state->recorder_type = add_type(module, &recorder_spec, "Recorder");
    state->span_type = add_type(module, &span_spec, "Span");
    state->lane_type = add_type(module, &lane_spec, NULL);
    if (!state->substream_get || !state->tuple_new || !state->lane_name || !state->counter_name || !state->error_name ||
        !state->message_name || !state->name_name || !state->recorder_type || !state->span_type || !state->lane_type)
        return -1;
    PyType_Spec *traced_spec = traced_type_spec();
    PyTypeObject *traced_type = traced_spec ? add_type(module, traced_spec, "Traced") : NULL;
    if (traced_spec && traced_type == NULL)
        return -1;
    Py_XDECREF(traced_type); /* the module has it */
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
    Py_VISIT(state->method_type);
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
    Py_CLEAR(state->method_type);
    Py_CLEAR(state->lane_name);
    Py_CLEAR(state->counter_name);
    Py_CLEAR(state->error_name);
    Py_CLEAR(state->message_name);
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
