/* One tensor out of a small safetensors file of f32 and i64, such as the tests' reference values.
 *
 * The file is eight bytes with the size of a JSON header, the header, and the numbers:
 *
 *     {"hook_embed":{"dtype":"F32","shape":[24,64],"data_offsets":[192,6336]}, ...}
 *
 * This reads what tests/golden/make_golden.py writes and believes it; the real reader, which
 * believes nothing, is tools/convert/safetensors.h. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "notebook.h"

/* Token ids become I32. No tensor if the file or the name is not there. */
static inline attn_tensor reference(attn_ctx *ctx, const char *path, const char *name)
{
    static char header[65536];
    char key[128];
    unsigned char size[8];
    FILE *file = fopen(path, "rb");
    attn_tensor x = none;
    attn_shape shape = {0, {1, 1, 1, 1}};
    int is_i64;

    if (!file || fread(size, 1, 8, file) != 8) {
        if (file)
            fclose(file);
        return none;
    }
    size_t n_header = size[0] + 256u * size[1];
    snprintf(key, sizeof key, "\"%s\":", name);
    header[fread(header, 1, n_header, file)] = 0;
    const char *entry = strstr(header, key);
    const char *shape_text = entry ? strstr(entry, "\"shape\":[") : NULL;
    const char *offsets = entry ? strstr(entry, "\"data_offsets\":[") : NULL;
    if (shape_text && offsets) {
        const long first = strtol(offsets + strlen("\"data_offsets\":["), NULL, 10);
        char *at = header + (shape_text - header) + strlen("\"shape\":");
        is_i64 = strncmp(entry + strlen(key), "{\"dtype\":\"I64\"", 14) == 0;
        while (*at != ']' && shape.ndim < 4)
            shape.dim[shape.ndim++] = strtoul(at + 1, &at, 10);
        if (fseek(file, 8 + (long)n_header + first, SEEK_SET) == 0)
            attn_zeros(ctx, &x, is_i64 ? ATTN_I32 : ATTN_F32, shape);
        for (size_t i = 0; i < attn_count(x); i++) { /* of an i64, the low half comes first */
            char high[4];
            if (fread((float *)x.data + i, 4, 1, file) != 1 ||
                (is_i64 && fread(high, 4, 1, file) != 1))
                attn_tensor_free(ctx, &x);
        }
    }
    fclose(file);
    return x;
}

#endif
