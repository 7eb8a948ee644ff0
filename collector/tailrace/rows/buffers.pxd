"""Memory of kernels, and the bytes that they hand out."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport malloc


cdef inline void *allocated(size_t size) except NULL:
    """Return memory of this size, to be freed by `free`. Raise MemoryError if there is none."""
    cdef void *memory = malloc(size)
    if not memory:
        raise MemoryError
    return memory


cdef inline bytes copied(const void *values, Py_ssize_t size):
    """Return a copy of `size` bytes."""
    return PyBytes_FromStringAndSize(<const char *>values, size)
