"""Tables of texts that repeat, for kernels: raw bytes to small integers, in the order in which they came.

A table has a fixed size. Its owner empties it when there is no room (`has_room`) for another word.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

cdef struct WordTable:
    uint32_t *slots  # code + 1 of the word whose hash leads here, 0 for none
    uint32_t *hashes  # of each code
    uint32_t *ends  # word `code` is arena[ends[code]:ends[code + 1]]
    uint8_t *arena
    uint32_t words, words_max, mask
    uint32_t arena_max
    uint64_t seed


cdef inline int make_table(
    WordTable *table, uint32_t words_max, uint32_t arena_max, uint64_t seed
) except -1:
    """Make an empty table; `words_max` is a power of two. A seed that producers do not know keeps them from choosing
    words that collide."""
    table.words, table.words_max, table.arena_max = 0, words_max, arena_max
    table.mask, table.seed = 2 * words_max - 1, seed
    table.slots = <uint32_t *>calloc(2 * words_max, sizeof(uint32_t))
    table.hashes = <uint32_t *>malloc(words_max * sizeof(uint32_t))
    table.ends = <uint32_t *>calloc(words_max + 1, sizeof(uint32_t))
    table.arena = <uint8_t *>malloc(arena_max)
    if not (table.slots and table.hashes and table.ends and table.arena):
        raise MemoryError
    return 0


cdef inline void free_table(WordTable *table) noexcept:
    free(table.slots)
    free(table.hashes)
    free(table.ends)
    free(table.arena)


cdef inline void empty_table(WordTable *table) noexcept nogil:
    memset(table.slots, 0, (<size_t>table.mask + 1) * sizeof(uint32_t))
    table.words = 0


cdef inline uint32_t hash_word(const WordTable *table, const uint8_t *word, uint32_t size) noexcept nogil:
    cdef uint64_t hash = table.seed ^ size, part
    while size >= 8:
        memcpy(&part, word, 8)
        hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL
        hash ^= hash >> 32
        word += 8
        size -= 8
    if size:
        part = 0
        memcpy(&part, word, size)
        hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL
        hash ^= hash >> 32
    hash *= 0xD6E8FEB86659FD93ULL
    return <uint32_t>(hash >> 32)


cdef inline int find_word(
    const WordTable *table, const uint8_t *word, uint32_t size, uint32_t hash
) noexcept nogil:
    """Return a word's code, or -1."""
    cdef uint32_t slot = hash & table.mask, code, begin
    while table.slots[slot]:
        code = table.slots[slot] - 1
        if table.hashes[code] == hash:
            begin = table.ends[code]
            if table.ends[code + 1] - begin == size and not memcmp(table.arena + begin, word, size):
                return code
        slot = (slot + 1) & table.mask
    return -1


cdef inline bint has_room(const WordTable *table, uint32_t size) noexcept nogil:
    """Return whether a word of `size` bytes can be added."""
    return table.words < table.words_max and size <= table.arena_max - table.ends[table.words]


cdef inline int add_word(
    WordTable *table, const uint8_t *word, uint32_t size, uint32_t hash
) noexcept nogil:
    """Add a word that is not in the table, which has room; return its code."""
    cdef uint32_t slot = hash & table.mask, code = table.words, begin = table.ends[code]
    memcpy(table.arena + begin, word, size)
    table.ends[code + 1] = begin + size
    table.hashes[code] = hash
    while table.slots[slot]:
        slot = (slot + 1) & table.mask
    table.slots[slot] = code + 1
    table.words += 1
    return code
