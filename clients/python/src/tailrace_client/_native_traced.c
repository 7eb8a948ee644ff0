/* The type Traced: a function whose calls are spans. */

#include "_native.h"

/* A call through `Traced` takes no frame of Python, and so nothing of the recursion limit. For that the interpreter has to
   call C without a check of its own, which the protocol of vectorcall (PEP 590) does. The stable ABI has the protocol from
   Python 3.12 on. Python 3.11 exports the same functions, and its types have the same flag. Python 3.10 does not export
   PyObject_Vectorcall: there the address is NULL, and the module has no `Traced`. */
typedef PyObject *Call(PyObject *, PyObject *const *, size_t, PyObject *);
extern Call PyObject_Vectorcall __attribute__((weak));
extern Call *PyVectorcall_Function(PyObject *) __attribute__((weak));
extern PyObject *PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
enum { HAS_VECTORCALL = 1 << 11 };

typedef struct {
    PyObject_HEAD
    Call *call;
    State *state;
    PyObject *function, *name;
    PyObject *names, *values; /* of the attributes, tuples */
    PyObject *face;           /* a wrapper in Python that does the same, for all that asks what this function is */
    PyObject *weak_references;
} Traced;

/* A span that has begun: not on the stack, since each level of a recursion has one there. */
typedef struct {
    Traced *traced;
    Recorder *recorder;
    Call *call;
    Reading start;
} Pending;

/* Record a span that an exception ends. */
static int
record_failure(Traced *self, Recorder *recorder, const Reading *start, const Reading *end, PyObject *kind, PyObject *error)
{
    Attributes attributes;
    PyObject *all = PyDict_New();
    int result = all ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_Size(self->names); i++)
        result = PyDict_SetItem(all, PyTuple_GetItem(self->names, i), PyTuple_GetItem(self->values, i));
    if (result == 0)
        result = add_error(self->state, all, kind, error);
    if (result == 0)
        result = split_mapping(all, &attributes);
    Py_XDECREF(all);
    if (result < 0)
        return -1;
    result = record(recorder, self->name, start, end, &attributes);
    Py_DECREF(attributes.names);
    Py_DECREF(attributes.tuple);
    return result;
}

/* Begin a span. Return NULL with an exception of the clock's. */
static Pending * __attribute__((noinline))
begin_call(Traced *traced, Recorder *recorder, Call *call)
{
    Pending *pending = PyMem_Malloc(sizeof(Pending));
    if (pending == NULL)
        return (Pending *)PyErr_NoMemory();
    pending->traced = (Traced *)Py_NewRef((PyObject *)traced);
    pending->recorder = (Recorder *)Py_NewRef((PyObject *)recorder); /* the clock or the function may switch it off */
    pending->call = call;
    if (read_clock(recorder, &pending->start) < 0) {
        Py_DECREF(recorder);
        Py_DECREF(traced);
        PyMem_Free(pending);
        return NULL;
    }
    return pending;
}

/* Record the span of a call that has returned, or raised. Return the result; NULL with the function's exception, or with
   one of recording: a signal handler's, or the clock's. Meanwhile the function's exception is the one that is handled, as in
   `__exit__`, so that the interpreter makes it the context of the others. */
static PyObject * __attribute__((noinline))
end_call(Pending *pending, PyObject *result)
{
    Traced *traced = pending->traced;
    PyObject *kind = NULL, *error = NULL, *traceback = NULL;
    PyObject *kind_before, *error_before, *traceback_before;
    if (result == NULL) {
        PyErr_Fetch(&kind, &error, &traceback);
        PyErr_NormalizeException(&kind, &error, &traceback);
        if (traceback)
            PyException_SetTraceback(error, traceback);
        PyErr_GetExcInfo(&kind_before, &error_before, &traceback_before);
        PyErr_SetExcInfo(Py_XNewRef(kind), Py_XNewRef(error), Py_XNewRef(traceback));
    }
    Reading end;
    int kept = read_clock(pending->recorder, &end);
    if (kept == 0) {
        Attributes attributes = {.names = traced->names, .tuple = traced->values};
        kept = error ? record_failure(traced, pending->recorder, &pending->start, &end, kind, error)
                     : record(pending->recorder, traced->name, &pending->start, &end, &attributes);
        Py_XDECREF(end.object);
    }
    if (error)
        PyErr_SetExcInfo(kind_before, error_before, traceback_before);
    if (kept < 0) {
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        Py_CLEAR(result);
    }
    else if (error) {
        PyErr_Restore(kind, error, traceback);
    }
    Py_XDECREF(pending->start.object);
    Py_DECREF(pending->recorder);
    Py_DECREF(traced);
    PyMem_Free(pending);
    return result;
}

/* This frame stays on the stack during the call. It holds one address, and takes 16 bytes. */
static PyObject * __attribute__((noinline))
call_pending(Pending *pending, PyObject *const *args, size_t given, PyObject *names)
{
    PyObject *result = pending->call(pending->traced->function, args, given, names);
    return end_call(pending, result);
}

/* Call the function. The last calls here leave no frame on the stack where the compiler optimizes them. */
static PyObject *
traced_call(PyObject *object, PyObject *const *args, size_t given, PyObject *names)
{
    Traced *self = (Traced *)object;
    Call *call = PyVectorcall_Function(self->function); /* without PyObject_Vectorcall there is one frame of C less */
    if (call == NULL)
        call = PyObject_Vectorcall;
    Recorder *recorder = (Recorder *)self->state->current;
    if (recorder == NULL) {
        self->state->missed++;
        return call(self->function, args, given, names);
    }
    Pending *pending = begin_call(self, recorder, call);
    return pending ? call_pending(pending, args, given, names) : NULL;
}

static PyObject *
traced_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *face, *function, *name, *mapping;
    Attributes attributes;
    if (kwargs || !PyArg_ParseTuple(args, "OOOO!:Traced", &face, &function, &name, &PyDict_Type, &mapping))
        return kwargs ? PyErr_Format(PyExc_TypeError, "Traced() takes no keyword arguments") : NULL;
    if (split_mapping(mapping, &attributes) < 0)
        return NULL;
    Traced *self = (Traced *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        Py_DECREF(attributes.names);
        Py_DECREF(attributes.tuple);
        return NULL;
    }
    self->call = traced_call;
    self->state = PyType_GetModuleState(type);
    self->function = Py_NewRef(function);
    self->face = Py_NewRef(face);
    self->name = Py_NewRef(name);
    self->names = attributes.names;
    self->values = attributes.tuple;
    return (PyObject *)self;
}

/* There is no tp_clear: each reference cycle goes through a function or through an attribute's value, which break it. */
static int
traced_traverse(PyObject *object, visitproc visit, void *arg)
{
    Traced *self = (Traced *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->face);
    Py_VISIT(self->values);
    return 0;
}

static void
traced_dealloc(PyObject *object)
{
    Traced *self = (Traced *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weak_references)
        PyObject_ClearWeakRefs(object);
    Py_CLEAR(self->function);
    Py_CLEAR(self->face);
    Py_CLEAR(self->name);
    Py_CLEAR(self->names);
    Py_CLEAR(self->values);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* Bind the function to an instance, as a function of Python does. */
static PyObject *
traced_bind(PyObject *object, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (instance == NULL || instance == Py_None)
        return Py_NewRef(object);
    return PyObject_CallFunctionObjArgs(((Traced *)object)->state->method_type, object, instance, NULL);
}

/* Whatever this type does not have itself is the wrapper's, under which name others may find, read and set it. The type
   has a `__module__` of its own, a text. */
static PyObject *
traced_get(PyObject *object, PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "__module__") == 0)
        return PyObject_GetAttr(((Traced *)object)->face, name);
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Traced *)object)->face, name);
}

static int
traced_set(PyObject *object, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((Traced *)object)->face, name, value);
}

static PyObject *
traced_repr(PyObject *object)
{
    return PyObject_Repr(((Traced *)object)->face);
}

/* Return an attribute of the wrapper that every type has. */
static PyObject *
traced_face(PyObject *object, void *name)
{
    return PyObject_GetAttrString(((Traced *)object)->face, name);
}

/* Return the name by which `pickle` and `copy` find the function. */
static PyObject *
traced_reduce(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return traced_face(object, "__qualname__");
}

static PyMethodDef traced_methods[] = {
    {"__reduce__", traced_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef traced_attributes[] = {
    {"__class__", traced_face, NULL, NULL, "__class__"}, /* `isinstance` finds a function, as before it was decorated */
    {"__doc__", traced_face, NULL, NULL, "__doc__"},
    {"__dict__", traced_face, NULL, NULL, "__dict__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef traced_offsets[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Traced, call), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Traced, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot traced_slots[] = {
    {Py_tp_new, traced_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traced_traverse},
    {Py_tp_dealloc, traced_dealloc},
    {Py_tp_descr_get, traced_bind},
    {Py_tp_getattro, traced_get},
    {Py_tp_setattro, traced_set},
    {Py_tp_repr, traced_repr},
    {Py_tp_methods, traced_methods},
    {Py_tp_getset, traced_attributes},
    {Py_tp_members, traced_offsets},
    {0, NULL},
};

static PyType_Spec traced_spec = {
    .name = "tailrace_client._native.Traced",
    .basicsize = sizeof(Traced),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR | HAS_VECTORCALL,
    .slots = traced_slots,
};

PyType_Spec *
traced_type_spec(void)
{
    return PyObject_Vectorcall ? &traced_spec : NULL;
}
