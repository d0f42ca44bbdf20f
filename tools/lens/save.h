/* Tensors in .safetensors files, which PyTorch (safetensors.torch.load_file) and others open. (A .npz
 * for NumPy: tools/common/npz.h.)
 *
 *     const char *const names[] = {"scores", "entropy"};
 *     const attn_tensor values[] = {scores, entropy};
 *     if (lens_save(&ctx, "heads.safetensors", names, values, 2) != ATTN_OK)
 *         fprintf(stderr, "%s\n", ctx.message);
 */
#ifndef LENS_SAVE_H
#define LENS_SAVE_H

#include "result.h"

LENS_FN int lens_is_big_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 0;
}

/* ---- files of tensors ---- */

/* A stream of bytes to a file, counted. Without a file they are only counted. */
typedef struct lens_out {
    FILE *file;
    uint64_t n;
} lens_out;

LENS_FN void lens_out_bytes(lens_out *out, const void *bytes, size_t size)
{
    if (out->file)
        fwrite(bytes, 1, size, out->file); /* attn_new_file_end sees whether it failed */
    out->n += size;
}

LENS_FN void lens_out_format(lens_out *out, const char *format, ...) LENS_PRINTF(2, 3);
LENS_FN void lens_out_format(lens_out *out, const char *format, ...)
{
    char text[256];
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lens_out_bytes(out, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* A little-endian number of `size` bytes. */
LENS_FN void lens_out_number(lens_out *out, uint64_t value, int size)
{
    unsigned char bytes[8];
    int i;
    for (i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i & 255);
    lens_out_bytes(out, bytes, (size_t)size);
}

/* The elements in row-major order, little-endian. */
LENS_FN void lens_out_elements(lens_out *out, attn_tensor x)
{
    const size_t size = x.dtype == ATTN_F16 ? 2 : 4, n = x.shape[x.ndim - 1];
    const int whole_rows = x.stride[x.ndim - 1] == 1 && !lens_is_big_endian();
    const size_t n_rows = n > 0 ? attn_count(x) / n : 0;
    size_t row, rest, i;
    int d;
    for (row = 0; row < n_rows; row++) {
        const unsigned char *from = (const unsigned char *)x.data;
        for (d = x.ndim - 2, rest = row; d >= 0; d--) {
            from += (ptrdiff_t)(rest % x.shape[d]) * x.stride[d] * (ptrdiff_t)size;
            rest /= x.shape[d];
        }
        if (whole_rows) {
            lens_out_bytes(out, from, n * size);
            continue;
        }
        for (i = 0; i < n; i++, from += x.stride[x.ndim - 1] * (ptrdiff_t)size) {
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
    int i;
    for (i = 0; i < x.ndim; i++)
        lens_out_format(out, "%s%llu", i ? ", " : "", LENS_LLU(x.shape[i]));
}

LENS_FN uint64_t lens_tensor_bytes(attn_tensor x)
{
    return (uint64_t)attn_count(x) * (x.dtype == ATTN_F16 ? 2 : 4);
}

/* {"name":{"dtype":"F32","shape":[2, 3],"data_offsets":[0,24]},..}, padded to a multiple of 8 */
LENS_FN void lens_out_safetensors_header(lens_out *out, const char *const *names,
                                         const attn_tensor *values, size_t n)
{
    uint64_t at = 0;
    size_t i;
    lens_out_format(out, "{");
    for (i = 0; i < n; i++) {
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
    size_t i;
    lens_out_safetensors_header(&count, names, values, n);
    lens_out_number(out, count.n, 8);
    lens_out_safetensors_header(out, names, values, n);
    for (i = 0; i < n; i++)
        lens_out_elements(out, values[i]);
}

/* Names go into JSON as they are, and into the names of files that others make; sizes into 64 bits. */
LENS_FN attn_status lens_check_save(attn_ctx *ctx, const char *const *names,
                                    const attn_tensor *values, size_t n)
{
    double total = 0;
    size_t i, j, k;
    if (n > 0 && (!names || !values))
        return lens_fail(ctx, ATTN_E_ARGUMENT, "lens_save: no %s given",
                         names ? "tensors" : "names");
    for (i = 0; i < n; i++) {
        const char *name = names[i];
        for (k = 0; name && name[k]; k++)
            if (name[k] <= ' ' || name[k] > '~' || strchr("\"\\/:", name[k]))
                break;
        if (!name || k == 0 || name[k] || k > 100)
            return lens_fail(ctx, ATTN_E_NAME,
                             "lens_save: name %llu is no name for a file: expected 1 to 100 "
                             "printable characters, without space \" \\ / and :",
                             LENS_LLU(i));
        for (j = 0; j < i; j++)
            if (strcmp(name, names[j]) == 0)
                return lens_fail(ctx, ATTN_E_NAME, "lens_save: two tensors are called %s", name);
        if (values[i].ndim == 0)
            return lens_fail(ctx, ATTN_E_ARGUMENT, "lens_save: %s is no tensor%s%s", name,
                             values[i].error ? ": " : "", values[i].error ? values[i].error : "");
        if (values[i].ndim < 1 || values[i].ndim > 4 || (unsigned)values[i].dtype > ATTN_I32)
            return lens_fail(
                ctx, ATTN_E_ARGUMENT,
                "lens_save: %s has %d dimensions and data type %d; expected 1 to 4, and "
                "f32, f16 or i32",
                name, values[i].ndim, (int)values[i].dtype);
        total += 4096;
        for (k = 0; k < 4; k++)
            if ((double)values[i].shape[k] > 1099511627776.0) /* 2^40 */
                return lens_fail(ctx, ATTN_E_SHAPE, "lens_save: %s is too large", name);
        total += 4.0 * (double)values[i].shape[0] * (double)values[i].shape[1] *
                 (double)values[i].shape[2] * (double)values[i].shape[3];
    }
    if (total > 4.6e18)
        return lens_fail(ctx, ATTN_E_SPACE, "lens_save: %.0f MiB are more than any file holds",
                         total / 1048576);
    return ATTN_OK;
}

/* Writes n f32, f16 or I32 tensors, with any strides, into `path`, which ends in .safetensors. Names are
 * 1 to 100 printable ASCII characters without space, quotes, colon and slashes, no two alike. The file
 * takes its name only when it is whole: see attn_new_file. */
LENS_FN attn_status lens_save(attn_ctx *ctx, const char *path, const char *const *names,
                              const attn_tensor *values, size_t n)
{
    attn_new_file *file;
    lens_out out = ATTN_ZERO;
    if (!path || strlen(path) < 12 || strcmp(path + strlen(path) - 12, ".safetensors") != 0)
        return lens_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_save: %s: expected a path that ends in .safetensors",
                         path ? path : "(none)");
    if (lens_check_save(ctx, names, values, n) || attn_new_file_begin(ctx, &file, path))
        return ctx->status;
    out.file = (FILE *)attn_new_file_stream(file);
    lens_write_safetensors(&out, names, values, n);
    return attn_new_file_end(ctx, file, ATTN_OK);
}

/* Writes every activation of the record, under its name. */
LENS_FN attn_status lens_save_record(attn_ctx *ctx, const char *path, const attn_record *record)
{
    const size_t n = attn_record_n_activations(record);
    const char **names = NULL;
    attn_tensor *values = NULL;
    attn_status status = ATTN_OK;
    size_t i;
    if (!record)
        return lens_fail(ctx, ATTN_E_ARGUMENT, "lens_save_record: no record given");
    names = (const char **)attn_alloc(ctx, n, sizeof *names, "a list of names");
    values = (attn_tensor *)attn_alloc(ctx, n, sizeof *values, "a list of tensors");
    if (!names || !values)
        status = ATTN_E_MEMORY;
    for (i = 0; i < n && status == ATTN_OK; i++) {
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
