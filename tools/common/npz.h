/* NumPy's files: .npy, one array, and .npz, a zip file of them, not compressed. numpy.load opens both.
 *
 *     const char *const names[] = {"scores", "entropy"};
 *     const attn_tensor values[] = {scores, entropy};
 *     if (npz_save(&ctx, "heads.npz", names, values, 2) != ATTN_OK)
 *         fprintf(stderr, "%s\n", ctx.message);
 *
 * (For .safetensors there is lens_save of tools/lens/save.h.) Formats: numpy.lib.format, version 1.0; APPNOTE.TXT of PKWARE
 * for zip. */
#ifndef TOOLS_NPZ_H
#define TOOLS_NPZ_H

#include "files.h"

/* The first 128 bytes of a .npy file; its elements follow, little-endian, in row-major order. For
 * arrays that are too large to be in memory at once. 1, or 0 if the shape has no dimension or its
 * sizes have too many digits for 128 bytes.
 *
 * A magic, the length of the text, and the text, a Python dictionary. It is padded so that the
 * elements start at a multiple of 64. */
TOOLS_FN int npy_header(unsigned char header[128], attn_dtype dtype, attn_shape shape)
{
    char text[119];
    int i, n;
    memset(header, 0, 128);
    if (shape.ndim < 1 || shape.ndim > 4)
        return 0;
    n = snprintf(text, sizeof text, "{'descr': '<%s', 'fortran_order': False, 'shape': (",
                 dtype == ATTN_F32   ? "f4"
                 : dtype == ATTN_F16 ? "f2"
                                     : "i4");
    for (i = 0; i < shape.ndim && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%llu", i ? ", " : "",
                      TOOLS_LLU(shape.dim[i]));
    if (n > 112)
        return 0;
    n += snprintf(text + n, sizeof text - (size_t)n, "%s), }", shape.ndim == 1 ? "," : "");
    memset(text + n, ' ', sizeof text - (size_t)n);
    text[117] = '\n';
    memcpy(header, "\x93NUMPY\x01\0\x76", 10); /* version 1.0, then 118, the length of the text */
    memcpy(header + 10, text, 118);
    return 1;
}

/* A stream of bytes to a file, counted. Without a file the bytes are counted and their checksum is
 * computed, but they go nowhere. */
typedef struct npz_out {
    FILE *file;
    uint64_t n;
    uint32_t crc, table[256];
} npz_out;

/* CRC-32 as zip has it: polynomial EDB88320h, bits reversed, a table for a byte at a time. */
TOOLS_FN void npz_begin(npz_out *out, FILE *file)
{
    uint32_t i, crc;
    int bit;
    memset(out, 0, sizeof *out);
    out->file = file;
    for (i = 0; i < 256; i++) {
        for (crc = i, bit = 0; bit < 8; bit++)
            crc = crc & 1 ? 0xEDB88320u ^ crc >> 1 : crc >> 1;
        out->table[i] = crc;
    }
}

TOOLS_FN void npz_bytes(npz_out *out, const void *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    uint32_t crc = ~out->crc;
    size_t i;
    out->n += size;
    if (out->file) {
        fwrite(p, 1, size, out->file); /* attn_new_file_end sees whether it failed */
        return;
    }
    for (i = 0; i < size; i++)
        crc = out->table[(crc ^ p[i]) & 255] ^ crc >> 8;
    out->crc = ~crc;
}

/* A little-endian number of so many bytes. */
TOOLS_FN void npz_number(npz_out *out, uint64_t value, int size)
{
    unsigned char bytes[8];
    int i;
    for (i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i & 255);
    npz_bytes(out, bytes, (size_t)size);
}

/* The elements in row-major order, little-endian, a row at a time if they lie so in memory. */
TOOLS_FN void npz_elements(npz_out *out, attn_tensor x)
{
    const uint16_t one = 1;
    const int little = *(const unsigned char *)&one == 1;
    const size_t size = x.dtype == ATTN_F16 ? 2 : 4, n = x.shape[x.ndim - 1];
    const size_t n_rows = n > 0 ? attn_count(x) / n : 0;
    size_t row, rest, i;
    int d;
    for (row = 0; row < n_rows; row++) {
        const unsigned char *at = (const unsigned char *)x.data;
        for (d = x.ndim - 2, rest = row; d >= 0; rest /= x.shape[d--])
            at += (ptrdiff_t)(rest % x.shape[d]) * x.stride[d] * (ptrdiff_t)size;
        if (little && x.stride[x.ndim - 1] == 1) {
            npz_bytes(out, at, n * size);
            continue;
        }
        for (i = 0; i < n; i++, at += x.stride[x.ndim - 1] * (ptrdiff_t)size) {
            uint32_t bits = 0;
            uint16_t half = 0;
            memcpy(size == 2 ? (void *)&half : (void *)&bits, at, size);
            npz_number(out, size == 2 ? half : bits, (int)size);
        }
    }
}

TOOLS_FN void npz_array(npz_out *out, attn_tensor x)
{
    unsigned char header[128];
    attn_shape shape;
    shape.ndim = x.ndim;
    memcpy(shape.dim, x.shape, sizeof shape.dim);
    npy_header(header, x.dtype, shape); /* npz_check knows that it fits */
    npz_bytes(out, header, sizeof header);
    npz_elements(out, x);
}

typedef struct npz_entry {
    uint32_t crc, size, offset;
} npz_entry;

/* A zip file describes each entry twice: before its bytes, and in the directory at the end. */
TOOLS_FN void npz_describe(npz_out *out, const char *name, npz_entry entry, int directory)
{
    npz_number(out, directory ? 0x02014b50 : 0x04034b50, 4);
    if (directory)
        npz_number(out, 20, 2);     /* made by version 2.0 */
    npz_number(out, 20, 2);         /* version needed */
    npz_number(out, 0, 4);          /* no flags, stored */
    npz_number(out, 0x00210000, 4); /* 1980-01-01 */
    npz_number(out, entry.crc, 4);
    npz_number(out, entry.size, 4);
    npz_number(out, entry.size, 4);
    npz_number(out, strlen(name) + 4, 2);
    npz_number(out, 0, 2); /* no extra field */
    if (directory) {
        npz_number(out, 0, 8); /* no comment, disk 0, no attributes ... */
        npz_number(out, 0, 2); /* ... of the two kinds */
        npz_number(out, entry.offset, 4);
    }
    npz_bytes(out, name, strlen(name));
    npz_bytes(out, ".npy", 4);
}

/* The checksum of an entry stands before its bytes, so each entry is generated twice. */
TOOLS_FN void npz_write(npz_out *out, npz_entry *entries, const char *const *names,
                        const attn_tensor *values, size_t n)
{
    uint64_t directory, size;
    size_t i;
    for (i = 0; i < n; i++) {
        npz_out count;
        npz_begin(&count, NULL);
        npz_array(&count, values[i]);
        entries[i].crc = count.crc;
        entries[i].size = (uint32_t)count.n;
        entries[i].offset = (uint32_t)out->n;
        npz_describe(out, names[i], entries[i], 0);
        npz_array(out, values[i]);
    }
    directory = out->n;
    for (i = 0; i < n; i++)
        npz_describe(out, names[i], entries[i], 1);
    size = out->n - directory;
    npz_number(out, 0x06054b50, 4);
    npz_number(out, 0, 4); /* disk 0 */
    npz_number(out, n, 2);
    npz_number(out, n, 2);
    npz_number(out, size, 4);
    npz_number(out, directory, 4);
    npz_number(out, 0, 2); /* no comment */
}

TOOLS_FN int npz_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Are all names different? */
TOOLS_FN attn_status npz_check_twins(attn_ctx *ctx, const char *const *names, size_t n)
{
    const char **const sorted = (const char **)malloc((n + !n) * sizeof *sorted);
    attn_status status = ATTN_OK;
    size_t i;
    if (!sorted)
        return tool_fail(ctx, ATTN_E_MEMORY, "npz_save: no memory for %llu names", TOOLS_LLU(n));
    for (i = 0; i < n; i++)
        sorted[i] = names[i];
    qsort((void *)sorted, n, sizeof *sorted, npz_compare);
    for (i = 1; i < n && status == ATTN_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = tool_fail(ctx, ATTN_E_NAME, "npz_save: two tensors are called %s", sorted[i]);
    free((void *)sorted);
    return status;
}

/* Names become names of files, sizes and offsets 32 bits, and 16 bits count the entries. */
TOOLS_FN attn_status npz_check(attn_ctx *ctx, const char *const *names, const attn_tensor *values,
                               size_t n)
{
    double total = 0;
    size_t i, k;
    if (n > 0 && (!names || !values))
        return tool_fail(ctx, ATTN_E_ARGUMENT, "npz_save: no %s given (NULL)",
                         names ? "tensors" : "names");
    if (n > 65534)
        return tool_fail(ctx, ATTN_E_SPACE,
                         "npz_save: %llu tensors are more than the 65534 that a .npz holds (a "
                         ".safetensors holds more)",
                         TOOLS_LLU(n));
    for (i = 0; i < n; i++) {
        const char *name = names[i];
        for (k = 0; name && name[k]; k++)
            if (name[k] <= ' ' || name[k] > '~' || strchr("\"\\/:", name[k]))
                break;
        if (!name || k == 0 || name[k] || k > 100)
            return tool_fail(ctx, ATTN_E_NAME,
                             "npz_save: name %llu is no name for a file: expected 1 to 100 "
                             "printable characters, without space \" \\ / and :",
                             TOOLS_LLU(i));
        if (values[i].ndim < 1 || values[i].ndim > 4 || (unsigned)values[i].dtype > ATTN_I32)
            return tool_fail(ctx, ATTN_E_ARGUMENT,
                             "npz_save: %s has %d dimensions and data type %d; a tensor has 1 to 4 "
                             "and holds ATTN_F32, ATTN_F16 or ATTN_I32%s%s",
                             name, values[i].ndim, (int)values[i].dtype,
                             values[i].error ? ": " : "", values[i].error ? values[i].error : "");
        total += 4096 + 4.0 * (double)values[i].shape[0] * (double)values[i].shape[1] *
                            (double)values[i].shape[2] * (double)values[i].shape[3];
    }
    if (total > 4294967295.0)
        return tool_fail(ctx, ATTN_E_SPACE,
                         "npz_save: %.0f MiB are more than a .npz of 4 GiB (a .safetensors does) "
                         "holds",
                         total / 1048576);
    return npz_check_twins(ctx, names, n);
}

/* Writes n tensors of f32, f16 or I32 into a .npz of at most 4 GiB. Names are as for lens_save:
 * printable ASCII without space, quotes, colon and slashes; so is the way in which the file takes its
 * name when it is whole. */
TOOLS_FN attn_status npz_save(attn_ctx *ctx, const char *path, const char *const *names,
                              const attn_tensor *values, size_t n)
{
    attn_new_file *file;
    attn_status status;
    npz_entry *entries;
    npz_out out;
    if (npz_check(ctx, names, values, n) != ATTN_OK)
        return ctx->status;
    entries = (npz_entry *)malloc((n + 1) * sizeof *entries);
    if (!entries)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for a list of tensors");
    status = attn_new_file_begin(ctx, &file, path);
    if (status == ATTN_OK) {
        npz_begin(&out, (FILE *)attn_new_file_stream(file));
        npz_write(&out, entries, names, values, n);
        status = attn_new_file_end(ctx, file, ATTN_OK);
    }
    free(entries);
    return status;
}

#endif
