/* Writes tensors to files: .safetensors, which PyTorch (safetensors.torch.load_file) and others open, or
 * .npz, which numpy.load opens. Uses attn.h's public API only.
 *
 *     const char *const names[] = {"scores", "entropy"};
 *     const attn_tensor values[] = {scores, entropy};
 *     if (lens_save(&ctx, "heads.safetensors", names, values, 2) != ATTN_OK)
 *         fprintf(stderr, "%s\n", ctx.message);
 *
 * Formats: safetensors; numpy.lib.format version 1.0, in a zip file without compression (PKWARE's
 * APPNOTE.TXT). */
#ifndef LENS_SAVE_H
#define LENS_SAVE_H

#include "../write/new_file.h"
#include "result.h"
#include <stdarg.h>
#include <stdlib.h>

LENS_FN int lens_is_big_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 0;
}

/* ---- a stream ---- */

/* Counts the bytes that are written. Without a file it only counts them, and computes their checksum if
 * there is a table for it. */
typedef struct lens_out {
    FILE *file;
    uint64_t n;
    uint32_t crc;
    const uint32_t *crc_table; /* [256], or NULL */
} lens_out;

LENS_FN void lens_out_bytes(lens_out *out, const void *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    uint32_t crc = ~out->crc;
    out->n += size;
    if (out->file)
        fwrite(bytes, 1, size, out->file); /* lens_new_file_end reports a failure */
    for (size_t i = 0; !out->file && out->crc_table && i < size; i++)
        crc = out->crc_table[(crc ^ p[i]) & 255] ^ crc >> 8;
    out->crc = ~crc;
}

LENS_FN void lens_out_format(lens_out *out, const char *format, ...) LENS_PRINTF(2, 3);
LENS_FN void lens_out_format(lens_out *out, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lens_out_bytes(out, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* A little-endian number of `size` bytes. */
LENS_FN void lens_out_number(lens_out *out, uint64_t value, int size)
{
    unsigned char bytes[8] = {0};
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i & 255);
    lens_out_bytes(out, bytes, (size_t)size);
}

/* The elements in row-major order, little-endian. */
LENS_FN void lens_out_elements(lens_out *out, attn_tensor x)
{
    const size_t size = x.dtype == ATTN_F16 ? 2 : 4, n = x.shape[x.ndim - 1];
    const int whole_rows = x.stride[x.ndim - 1] == 1 && !lens_is_big_endian();
    const size_t n_rows = n > 0 ? attn_count(x) / n : 0;
    size_t rest;
    int d;
    for (size_t row = 0; row < n_rows; row++) {
        const unsigned char *from = (const unsigned char *)x.data;
        for (d = x.ndim - 2, rest = row; d >= 0; d--) {
            from += (ptrdiff_t)(rest % x.shape[d]) * x.stride[d] * (ptrdiff_t)size;
            rest /= x.shape[d];
        }
        if (whole_rows) {
            lens_out_bytes(out, from, n * size);
            continue;
        }
        for (size_t i = 0; i < n; i++, from += x.stride[x.ndim - 1] * (ptrdiff_t)size) {
            uint32_t bits = 0;
            uint16_t half = 0;
            memcpy(size == 2 ? (void *)&half : (void *)&bits, from, size);
            lens_out_number(out, size == 2 ? half : bits, (int)size);
        }
    }
}

/* "4, 7, 7" */
LENS_FN void lens_out_shape(lens_out *out, attn_tensor x)
{
    for (int i = 0; i < x.ndim; i++)
        lens_out_format(out, "%s%llu", i ? ", " : "", LENS_LLU(x.shape[i]));
}

/* ---- .safetensors ---- */

LENS_FN uint64_t lens_tensor_bytes(attn_tensor x)
{
    return (uint64_t)attn_count(x) * (x.dtype == ATTN_F16 ? 2 : 4);
}

/* {"name":{"dtype":"F32","shape":[2, 3],"data_offsets":[0,24]},..}, padded to a multiple of 8 */
LENS_FN void lens_out_safetensors_header(lens_out *out, const char *const *names,
                                         const attn_tensor *values, size_t n)
{
    uint64_t at = 0;
    lens_out_format(out, "{");
    for (size_t i = 0; i < n; i++) {
        const uint64_t end = at + lens_tensor_bytes(values[i]);
        lens_out_format(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", names[i],
                        values[i].dtype == ATTN_F32   ? "F32"
                        : values[i].dtype == ATTN_F16 ? "F16"
                                                      : "I32");
        lens_out_shape(out, values[i]);
        lens_out_format(out, "],\"data_offsets\":[%llu,%llu]}", LENS_LLU(at), LENS_LLU(end));
        at = end;
    }
    lens_out_format(out, "}");
    while (out->n % 8 != 0)
        lens_out_format(out, " ");
}

LENS_FN void lens_write_safetensors(lens_out *out, const char *const *names,
                                    const attn_tensor *values, size_t n)
{
    lens_out count = ATTN_ZERO;
    lens_out_safetensors_header(&count, names, values, n);
    lens_out_number(out, count.n, 8);
    lens_out_safetensors_header(out, names, values, n);
    for (size_t i = 0; i < n; i++)
        lens_out_elements(out, values[i]);
}

/* ---- .npz ---- */

/* The first 128 bytes of a .npy file, which its elements follow, little-endian, in row-major order: magic,
 * the length of a text, and the text, a Python dictionary. It is padded so that the elements begin at a
 * multiple of 64. Useful for arrays that are too large for memory. 0: the shape has no dimension, or its
 * sizes have too many digits. */
LENS_FN int lens_npy_header(unsigned char header[128], attn_dtype dtype, attn_shape shape)
{
    char text[119];
    memset(header, 0, 128);
    if (shape.ndim < 1 || shape.ndim > 4)
        return 0;
    int n = snprintf(text, sizeof text, "{'descr': '<%s', 'fortran_order': False, 'shape': (",
                     dtype == ATTN_F32   ? "f4"
                     : dtype == ATTN_F16 ? "f2"
                                         : "i4");
    for (int i = 0; i < shape.ndim && n < (int)sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%llu", i ? ", " : "",
                      LENS_LLU(shape.dim[i]));
    if (n > 112)
        return 0;
    n += snprintf(text + n, sizeof text - (size_t)n, "%s), }", shape.ndim == 1 ? "," : "");
    memset(text + n, ' ', sizeof text - (size_t)n);
    text[117] = '\n';
    memcpy(header, "\x93NUMPY\x01\0\x76", 10); /* version 1.0, then 118, the length of the text */
    memcpy(header + 10, text, 118);
    return 1;
}

LENS_FN void lens_out_npy(lens_out *out, attn_tensor x)
{
    unsigned char header[128];
    attn_shape shape;
    shape.ndim = x.ndim;
    memcpy(shape.dim, x.shape, sizeof shape.dim);
    lens_npy_header(header, x.dtype, shape); /* it fits: lens_check_save limits the sizes */
    lens_out_bytes(out, header, sizeof header);
    lens_out_elements(out, x);
}

/* An array in a zip file. */
typedef struct lens_zip_entry {
    uint32_t crc, size, offset;
} lens_zip_entry;

/* A zip file describes each entry twice: before its bytes, and in the directory at the end. */
LENS_FN void lens_out_zip_entry(lens_out *out, const char *name, lens_zip_entry entry,
                                int directory)
{
    lens_out_number(out, directory ? 0x02014b50 : 0x04034b50, 4);
    if (directory)
        lens_out_number(out, 20, 2);     /* made by version 2.0 */
    lens_out_number(out, 20, 2);         /* version needed */
    lens_out_number(out, 0, 4);          /* no flags, stored */
    lens_out_number(out, 0x00210000, 4); /* 1980-01-01 */
    lens_out_number(out, entry.crc, 4);
    lens_out_number(out, entry.size, 4);
    lens_out_number(out, entry.size, 4);
    lens_out_number(out, strlen(name) + 4, 2);
    lens_out_number(out, 0, 2); /* no extra field */
    if (directory) {
        lens_out_number(out, 0, 8); /* no comment, disk 0, no attributes ... */
        lens_out_number(out, 0, 2); /* ... of the two kinds */
        lens_out_number(out, entry.offset, 4);
    }
    lens_out_bytes(out, name, strlen(name));
    lens_out_bytes(out, ".npy", 4);
}

/* CRC-32 as zip uses it: polynomial EDB88320h, bits reversed, a table for one byte at a time. */
LENS_FN void lens_crc_table(uint32_t table[256])
{
    uint32_t crc;
    int bit;
    for (uint32_t i = 0; i < 256; i++) {
        for (crc = i, bit = 0; bit < 8; bit++)
            crc = crc & 1 ? 0xEDB88320u ^ crc >> 1 : crc >> 1;
        table[i] = crc;
    }
}

/* The directory of n entries, and the end of the file. */
LENS_FN void lens_out_zip_end(lens_out *out, const lens_zip_entry *entries,
                              const char *const *names, size_t n)
{
    const uint64_t directory = out->n;
    for (size_t i = 0; i < n; i++)
        lens_out_zip_entry(out, names[i], entries[i], 1);
    uint64_t size = out->n - directory;
    lens_out_number(out, 0x06054b50, 4);
    lens_out_number(out, 0, 4); /* disk 0 */
    lens_out_number(out, n, 2);
    lens_out_number(out, n, 2);
    lens_out_number(out, size, 4);
    lens_out_number(out, directory, 4);
    lens_out_number(out, 0, 2); /* no comment */
}

/* The checksum of an entry precedes its bytes, so the bytes of each entry are made twice. entries [n]. */
LENS_FN void lens_write_npz(lens_out *out, lens_zip_entry *entries, const char *const *names,
                            const attn_tensor *values, size_t n)
{
    uint32_t table[256];
    lens_crc_table(table);
    for (size_t i = 0; i < n; i++) {
        lens_out count = ATTN_ZERO;
        count.crc_table = table;
        lens_out_npy(&count, values[i]);
        entries[i].crc = count.crc;
        entries[i].size = (uint32_t)count.n;
        entries[i].offset = (uint32_t)out->n;
        lens_out_zip_entry(out, names[i], entries[i], 0);
        lens_out_npy(out, values[i]);
    }
    lens_out_zip_end(out, entries, names, n);
}

/* ---- all of it ---- */

LENS_FN int lens_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that no two names are equal. */
LENS_FN attn_status lens_need_distinct(attn_ctx *ctx, const char *const *names, size_t n)
{
    const char **sorted = (const char **)attn_alloc(ctx, n, sizeof *sorted, "a list of names");
    attn_status status = sorted ? ATTN_OK : ATTN_E_MEMORY;
    for (size_t i = 0; i < n && sorted; i++)
        sorted[i] = names[i];
    if (sorted)
        qsort((void *)sorted, n, sizeof *sorted, lens_compare_names);
    for (size_t i = 1; i < n && status == ATTN_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = attn_fail(ctx, ATTN_E_NAME, "lens_save: two tensors are called %s", sorted[i]);
    attn_free((void *)sorted);
    return status;
}

/* Checks names, which become part of JSON or names of files; tensors; and the size of the file. In a .npz,
 * sizes and offsets have 32 bits, and the number of entries 16, of which 65535 has a special meaning. */
LENS_FN attn_status lens_check_save(attn_ctx *ctx, const char *const *names,
                                    const attn_tensor *values, size_t n, int is_npz)
{
    double total = 0;
    size_t k;
    if (n > 0 && (!names || !values))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_save: no %s given",
                         names ? "tensors" : "names");
    if (is_npz && n > 65534)
        return attn_fail(ctx, ATTN_E_SPACE,
                         "lens_save: %llu tensors are more than the 65534 that a .npz holds (a "
                         ".safetensors holds more)",
                         LENS_LLU(n));
    for (size_t i = 0; i < n; i++) {
        const char *name = names[i];
        for (k = 0; name && name[k]; k++)
            if (name[k] <= ' ' || name[k] > '~' || strchr("\"\\/:", name[k]))
                break;
        if (!name || k == 0 || name[k] || k > 100)
            return attn_fail(
                ctx, ATTN_E_NAME,
                "lens_save: name %llu cannot be the name of a tensor in a file: expected "
                "1 to 100 printable characters, without space \" \\ / and :",
                LENS_LLU(i));
        if (values[i].ndim == 0)
            return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_save: %s is no tensor%s%s", name,
                             values[i].error ? ": " : "", values[i].error ? values[i].error : "");
        if (values[i].ndim < 1 || values[i].ndim > 4 || (unsigned)values[i].dtype > ATTN_I32)
            return attn_fail(
                ctx, ATTN_E_ARGUMENT,
                "lens_save: %s has %d dimensions and data type %d; expected 1 to 4, and "
                "f32, f16 or i32",
                name, values[i].ndim, (int)values[i].dtype);
        for (k = 0; k < 4; k++)
            if ((double)values[i].shape[k] > 1099511627776.0) /* 2^40 */
                return attn_fail(ctx, ATTN_E_SHAPE, "lens_save: %s is too large", name);
        total += 4096 + 4.0 * (double)values[i].shape[0] * (double)values[i].shape[1] *
                            (double)values[i].shape[2] * (double)values[i].shape[3];
    }
    if (total > (is_npz ? 4294967295.0 : 4.6e18))
        return attn_fail(ctx, ATTN_E_SPACE, "lens_save: %.0f MiB are more than %s holds",
                         total / 1048576,
                         is_npz ? "a .npz of 4 GiB (a .safetensors does)" : "any file");
    return lens_need_distinct(ctx, names, n);
}

/* Writes n f32, f16 or I32 tensors, with any strides, to `path`, which ends in .safetensors or .npz. Names
 * are 1 to 100 printable ASCII characters without space, quotes, colon and slashes, no two alike. A .npz
 * holds at most 65534 tensors and 4 GiB. The file gets its name only when it is complete: see
 * lens_new_file. */
LENS_FN attn_status lens_save(attn_ctx *ctx, const char *path, const char *const *names,
                              const attn_tensor *values, size_t n)
{
    const int is_npz = path && lens_ends_in(path, ".npz");
    lens_zip_entry *entries = NULL;
    lens_new_file *file;
    lens_out out = ATTN_ZERO;
    if (!path || (!is_npz && !lens_ends_in(path, ".safetensors")))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_save: %s: expected a path that ends in .safetensors or .npz",
                         path ? path : "(none)");
    if (lens_check_save(ctx, names, values, n, is_npz))
        return lens_failure(ctx);
    if (is_npz &&
        !(entries = (lens_zip_entry *)attn_alloc(ctx, n, sizeof *entries, "a list of tensors")))
        return lens_failure(ctx);
    attn_status status = lens_new_file_begin(ctx, &file, path);
    if (status == ATTN_OK) {
        out.file = (FILE *)lens_new_file_stream(file);
        if (is_npz)
            lens_write_npz(&out, entries, names, values, n);
        else
            lens_write_safetensors(&out, names, values, n);
        status = lens_new_file_end(ctx, file, ATTN_OK);
    }
    attn_free(entries);
    return status;
}

/* Writes every activation of a record under its name, as lens_save does. */
LENS_FN attn_status lens_save_record(attn_ctx *ctx, const char *path, const attn_record *record)
{
    const size_t n = attn_record_n_activations(record);
    const char **names = NULL;
    attn_tensor *values = NULL;
    attn_status status = ATTN_OK;
    if (!record)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_save_record: no record given");
    names = (const char **)attn_alloc(ctx, n, sizeof *names, "a list of names");
    values = (attn_tensor *)attn_alloc(ctx, n, sizeof *values, "a list of tensors");
    if (!names || !values)
        status = ATTN_E_MEMORY;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        names[i] = attn_record_name(record, i);
        status = attn_record_get(ctx, &values[i], record, names[i]);
    }
    if (status == ATTN_OK)
        status = lens_save(ctx, path, names, values, n);
    attn_free(names);
    attn_free(values);
    return status;
}

#endif
