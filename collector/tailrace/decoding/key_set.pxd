"""Find repeated keys among the members of one JSON object for the kernels.

A set of up to `FEW` keys is searched key by key, a larger set by hash. No search compares more than `PROBES_MAX` keys,
whatever keys a producer chooses."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memset

cdef enum:
    KEYS_MAX = 256
    FEW = 8
    SLOTS = 1024  # a power of two
    PROBES_MAX = 16


cdef struct KeySet:
    int count
    const uint8_t *key[KEYS_MAX]
    uint32_t size[KEYS_MAX]
    uint16_t slot[SLOTS]  # the index of a key plus 1, or 0; valid if there are more than `FEW` keys


cdef inline bint _is_key(const KeySet *keys, int i, const uint8_t *key, uint32_t size) noexcept nogil:
    return keys.size[i] == size and not memcmp(keys.key[i], key, size)


cdef inline bint _place(KeySet *keys, int new) noexcept nogil:
    """Give a slot to the key `new`. Return False if an equal key has one, or if no slot nearby is free."""
    cdef uint32_t hash = 2166136261U, i
    cdef uint16_t *slot
    for i in range(keys.size[new]):
        hash = (hash ^ keys.key[new][i]) * 16777619U
    hash ^= hash >> 15
    for i in range(PROBES_MAX):
        slot = &keys.slot[(hash + i) & (SLOTS - 1)]
        if not slot[0]:
            slot[0] = <uint16_t>(new + 1)
            return True
        if _is_key(keys, slot[0] - 1, keys.key[new], keys.size[new]):
            return False
    return False


cdef inline bint add_key(KeySet *keys, const uint8_t *key, Py_ssize_t size) noexcept nogil:
    """Add a key, whose bytes must outlive the set. Return False if the key is repeated or there is no room for it."""
    cdef int new = keys.count, i
    if new == KEYS_MAX:
        return False
    keys.key[new], keys.size[new] = key, <uint32_t>size
    keys.count += 1
    if new < FEW:
        for i in range(new):
            if _is_key(keys, i, key, <uint32_t>size):
                return False
        return True
    if new == FEW:
        memset(keys.slot, 0, sizeof(keys.slot))
        for i in range(FEW):
            _place(keys, i)
    return _place(keys, new)
