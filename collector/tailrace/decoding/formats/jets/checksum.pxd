"""Compute the checksum of an id that is a string: BLAKE2b with 8 bytes and without a key (RFC 7693)."""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static const uint64_t INITIAL[8] = {
        0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
        0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
    };

    #define MIX(a, b, c, d, x, y) \\
        a += b + x; d ^= a; d = d >> 32 | d << 32; c += d; b ^= c; b = b >> 24 | b << 40; \\
        a += b + y; d ^= a; d = d >> 16 | d << 48; c += d; b ^= c; b = b >> 63 | b << 1;

    #define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) \\
        MIX(v[0], v[4], v[8], v[12], m[a], m[b]) MIX(v[1], v[5], v[9], v[13], m[c], m[d]) \\
        MIX(v[2], v[6], v[10], v[14], m[e], m[f]) MIX(v[3], v[7], v[11], v[15], m[g], m[h]) \\
        MIX(v[0], v[5], v[10], v[15], m[i], m[j]) MIX(v[1], v[6], v[11], v[12], m[k], m[l]) \\
        MIX(v[2], v[7], v[8], v[13], m[n], m[o]) MIX(v[3], v[4], v[9], v[14], m[p], m[q])

    static void mix_block(uint64_t *h, const uint8_t *block, size_t size, uint64_t count, int last) {
        uint64_t v[16], m[16] = {0};
        int i;
        memcpy(v, h, 64);
        memcpy(v + 8, INITIAL, 64);
        memcpy(m, block, size);
        v[12] ^= count;
        if (last) v[14] = ~v[14];
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
        ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
        ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
        ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
        ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
        ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
        ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
        ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        for (i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
    }

    static uint64_t checksum(const uint8_t *text, size_t size) {
        uint64_t h[8], count = 0;
        memcpy(h, INITIAL, 64);
        h[0] ^= 0x01010008; /* 8 bytes, no key */
        for (; size - count > 128; count += 128) mix_block(h, text + count, 128, count + 128, 0);
        mix_block(h, text + count, size - count, size, 1);
        return __builtin_bswap64(h[0]);
    }
    """
    uint64_t checksum(const uint8_t *text, size_t size) nogil
    # Return the digest as a number. The first byte of the digest is the highest byte.
