"""Allocate memory for kernels, and copy results into bytes objects."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport malloc


cdef inline void *allocated(size_t size) except NULL:
    """Return `size` bytes of new memory, to be freed with `free`. Raise MemoryError if there is none."""
    cdef void *memory = malloc(size)
    if not memory:
        raise MemoryError
    return memory


cdef inline bytes copied(const void *values, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>values, size)
