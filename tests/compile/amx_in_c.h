/* AMX's tile registers in C: a processor without them runs the kernels written for them, and every
 * shape that the processor would refuse ends the program. For tests/platforms/portability.sh. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static __thread struct {
    unsigned char config[64], tile[8][16][64];
} amx_in_c;

static inline size_t amx_width(int t)
{
    return amx_in_c.config[16 + 2 * t];
}

static inline size_t amx_height(int t)
{
    if (amx_in_c.config[0] != 1 || amx_in_c.config[48 + t] == 0)
        abort();
    return amx_in_c.config[48 + t];
}

static inline void amx_load(int t, const void *from, size_t stride)
{
    for (size_t i = 0; i < amx_height(t); i++)
        memcpy(amx_in_c.tile[t][i], (const unsigned char *)from + i * stride, amx_width(t));
}

static inline void amx_store(int t, void *to, size_t stride)
{
    for (size_t i = 0; i < amx_height(t); i++)
        memcpy((unsigned char *)to + i * stride, amx_in_c.tile[t][i], amx_width(t));
}

static inline void amx_dot(int sum, int a, int b)
{
    if (amx_height(sum) != amx_height(a) || amx_width(sum) != amx_width(b) ||
        amx_width(a) != amx_height(b) * 4 || sum == a || sum == b || a == b)
        abort();
    for (size_t i = 0; i < amx_height(sum); i++)
        for (size_t j = 0; j < amx_width(sum) / 4; j++) {
            int32_t s;
            memcpy(&s, amx_in_c.tile[sum][i] + 4 * j, 4);
            for (size_t k = 0; k < amx_width(a); k++)
                s += (signed char)amx_in_c.tile[a][i][k] *
                     (signed char)amx_in_c.tile[b][k / 4][4 * j + k % 4];
            memcpy(amx_in_c.tile[sum][i] + 4 * j, &s, 4);
        }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#define _tile_loadconfig(from)     memcpy(amx_in_c.config, from, 64)
#define _tile_release()            memset(&amx_in_c, 0, sizeof amx_in_c)
#define _tile_loadd(t, p, stride)  amx_load(t, p, stride)
#define _tile_stored(t, p, stride) amx_store(t, p, stride)
#define _tile_zero(t)              memset(amx_in_c.tile[t], 0, 1024)
#define _tile_dpbssd(sum, a, b)    amx_dot(sum, a, b)
