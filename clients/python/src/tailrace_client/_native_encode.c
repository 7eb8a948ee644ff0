/* An event's name and attributes as bytes (see _wire.py). */

#include "_native.h"

enum { U64 = 1, I64 = 2, F64 = 3, TEXT = 4 };
enum { LENGTH_MAX = 0xFFFF };

/* Return where `more` bytes may be appended; NULL with MemoryError. */
char *
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

/* Append what a function of _wire makes of an object. */
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

/* Return a text's UTF-8 if its length fits 16 bits; else NULL, for _wire to cut and spell it. */
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

/* Append a counter's value; a bool as a number. */
static int
put_count(State *state, Bytes *bytes, PyObject *value)
{
    return PyBool_Check(value) ? put_tagged(bytes, U64, value == Py_True) : put_value(state, bytes, value);
}

/* Append an event's name and its attributes, without those that are None. */
int
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
