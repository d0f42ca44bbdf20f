/* Reads safetensors: eight bytes with the size n of the header, n bytes of JSON, then the data.
 *
 *     {"wte.weight": {"dtype": "F16", "shape": [50257, 768], "data_offsets": [0, 77194752]}, ...}
 *
 * Offsets count from the first byte of the data. The tensors must cover the data without gaps; this check
 * also finds a wrong size of the header. */
#ifndef TOOLS_SAFETENSORS_H
#define TOOLS_SAFETENSORS_H

#include "source.h"

/* Bytes of one element; 0 for an unknown dtype. Only the first four can be converted. */
TOOLS_FN unsigned safetensors_dtype(const json_value *name, source_dtype *dtype)
{
    static const struct {
        const char *name;
        unsigned size;
        source_dtype dtype;
    } known[] = {{"F32", 4, SOURCE_F32},   {"F16", 2, SOURCE_F16},    {"BF16", 2, SOURCE_BF16},
                 {"F64", 8, SOURCE_F64},   {"BOOL", 1, SOURCE_OTHER}, {"U8", 1, SOURCE_OTHER},
                 {"I8", 1, SOURCE_OTHER},  {"I16", 2, SOURCE_OTHER},  {"U16", 2, SOURCE_OTHER},
                 {"I32", 4, SOURCE_OTHER}, {"U32", 4, SOURCE_OTHER},  {"I64", 8, SOURCE_OTHER},
                 {"U64", 8, SOURCE_OTHER}};
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        if (json_is(name, known[i].name)) {
            *dtype = known[i].dtype;
            return known[i].size;
        }
    *dtype = SOURCE_OTHER;
    return 0;
}

/* One entry of the header, v: its key is the name. */
TOOLS_FN attn_status safetensors_entry(attn_ctx *ctx, source *s, source_file *f,
                                       const json_value *v, uint64_t data_start)
{
    const json_value *dtype = json_get(v, "dtype"), *shape = json_get(v, "shape"), *d;
    const json_value *offsets = json_get(v, "data_offsets");
    const uint64_t data_size = f->size - data_start;
    uint64_t begin, end, dims[16];
    source_tensor *t = source_add(ctx, s);
    shown name, dims_shown;
    size_t i;
    if (!t)
        return ctx->status;
    show(name, v->key, v->key_size);
    if (memchr(v->key, 0, v->key_size))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the tensor name \"%s\" holds a zero byte",
                         f->name, name);
    if (!dtype || dtype->kind != JSON_STRING || !shape || shape->kind != JSON_ARRAY ||
        shape->size > 16 || !offsets || offsets->kind != JSON_ARRAY || offsets->size != 2 ||
        !json_u64(offsets + 1, &begin) || !json_u64(offsets + 2, &end))
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "%s: the header's entry for %s has no usable dtype, shape and data_offsets", f->name,
            name);
    for (i = 0, d = shape + 1; i < shape->size; i++, d += d->span)
        if (!json_u64(d, &dims[i]))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the shape of %s is not a list of whole numbers", f->name, name);
    if (begin > end || end > data_size)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: %s should lie at bytes %llu to %llu of the data, but the data has "
                         "%llu bytes; was the file cut short?",
                         f->name, name, TOOLS_LLU(begin), TOOLS_LLU(end), TOOLS_LLU(data_size));
    unsigned element = safetensors_dtype(dtype, &t->dtype);
    uint64_t count = shape_count((int)shape->size, dims);
    if (element && (count > UINT64_MAX / element || count * element != end - begin))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: %s of shape %s does not take the %llu bytes that the header gives it",
                         f->name, name, show_shape(dims_shown, (int)shape->size, dims),
                         TOOLS_LLU(end - begin));
    t->name = arena_text(ctx, &s->memory, v->key, v->key_size);
    t->dtype_name = arena_text(ctx, &s->memory, dtype->text, dtype->size);
    t->file = f;
    t->offset = data_start + begin;
    t->size = end - begin;
    t->ndim = shape->size > SOURCE_MAX_DIMS ? 0 : (int)shape->size;
    memcpy(t->shape, dims, (size_t)t->ndim * sizeof dims[0]);
    return t->name && t->dtype_name ? ATTN_OK : ctx->status;
}

/* Checks that there is no gap between the tensors or after them. */
TOOLS_FN attn_status safetensors_check_cover(attn_ctx *ctx, source *s, source_file *f, size_t first,
                                             uint64_t data_start)
{
    uint64_t at = data_start;
    shown name;
    if (source_check_overlaps(ctx, s, first))
        return ctx->status;
    for (size_t i = first; i < s->n_tensors; at = s->tensors[i].offset + s->tensors[i].size, i++)
        if (s->tensors[i].offset != at)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: %llu bytes in front of %s belong to no tensor; its header does "
                             "not describe this file",
                             f->name, TOOLS_LLU(s->tensors[i].offset - at),
                             show(name, s->tensors[i].name, strlen(s->tensors[i].name)));
    if (at != f->size)
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "%s: %llu bytes at its end belong to no tensor; its header does not describe this file",
            f->name, TOOLS_LLU(f->size - at));
    return ATTN_OK;
}

/* Adds the tensors of one file. */
TOOLS_FN attn_status safetensors_open(attn_ctx *ctx, source *s, const char *path)
{
    source_file *f = source_open(ctx, s, path);
    unsigned char start[8];
    arena header = {NULL}; /* there may be many shards */
    json_value *root = NULL;
    const json_value *v;
    size_t i, first = s->n_tensors;
    if (!f)
        return ctx->status;
    if (f->size < 8)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s has %llu bytes, too few for a safetensors file",
                         f->name, TOOLS_LLU(f->size));
    if (source_bytes(ctx, f, 0, start, 8))
        return ctx->status;
    uint64_t size = get_u64(start);
    if (size > f->size - 8 || size > SOURCE_MAX_HEADER)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s has %llu bytes, but its header alone should have %llu; it is no "
                         "safetensors file, or was cut short",
                         f->name, TOOLS_LLU(f->size), TOOLS_LLU(size));
    char *text = (char *)arena_alloc(ctx, &header, (size_t)size + 1, 1);
    if (!text || source_bytes(ctx, f, 8, text, (size_t)size) ||
        json_parse(ctx, f->name, text, (size_t)size, &root)) {
        arena_free(&header);
        return ctx->status;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): json_parse gives OK only with a root */
    if (root->kind != JSON_OBJECT)
        tool_fail(ctx, ATTN_E_FORMAT, "%s: its header is not a JSON object", f->name);
    for (i = 0, v = root + 1; root->kind == JSON_OBJECT && i < root->size; i++, v += v->span)
        if (!(v->key_size == 12 && memcmp(v->key, "__metadata__", 12) == 0) &&
            safetensors_entry(ctx, s, f, v, size + 8))
            break;
    free(root);
    arena_free(&header);
    return ctx->status ? ctx->status : safetensors_check_cover(ctx, s, f, first, size + 8);
}

#endif
