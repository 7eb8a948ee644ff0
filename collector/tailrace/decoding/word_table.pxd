"""Hash tables of words for the kernels. A word is a text that repeats; the table maps its bytes to a code.

Codes are 0, 1, 2, … in the order of the first occurrence. A full table must be emptied."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

cdef struct WordTable:
    uint32_t *slots  # open addressing by hash: code + 1 of a word, 0 for a free slot
    uint32_t *hashes  # the hash of each word, by code
    uint32_t *ends  # word `code` is arena[ends[code]:ends[code + 1]]
    uint8_t *arena
    uint32_t words, words_max, mask
    uint32_t arena_max
    uint64_t seed


cdef inline int make_table(
    WordTable *table, uint32_t words_max, uint32_t arena_max, uint64_t seed
) except -1:
    """Create an empty table. `words_max` is a power of two. Raise MemoryError if there is no memory.

    `seed` must be unknown to producers, who could otherwise choose words that collide."""
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
    """Return the code of a word, or -1 if the word is not in the table."""
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
    return table.words < table.words_max and size <= table.arena_max - table.ends[table.words]


cdef inline int add_word(
    WordTable *table, const uint8_t *word, uint32_t size, uint32_t hash
) noexcept nogil:
    """Add a new word, for which there must be room, and return its code."""
    cdef uint32_t slot = hash & table.mask, code = table.words, begin = table.ends[code]
    memcpy(table.arena + begin, word, size)
    table.ends[code + 1] = begin + size
    table.hashes[code] = hash
    while table.slots[slot]:
        slot = (slot + 1) & table.mask
    table.slots[slot] = code + 1
    table.words += 1
    return code
