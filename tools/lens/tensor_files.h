/* Reads tensors from files of other programs, for the headers of this folder: safetensors, what torch.save wrote (no code
 * of it runs), or GGUF whose architecture is not a model. A hostile file gives a message. */
#ifndef LENS_TENSOR_FILES_H
#define LENS_TENSOR_FILES_H

#include "tools/convert/checkpoint.h"
#include "tools/convert/gguf.h"
#include "tools/convert/safetensors.h"
#include "result.h"

LENS_FN void lens_close_file(source *from)
{
    if (from)
        source_close(from);
    free(from);
}

LENS_FN int lens_is_gguf(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

/* An empty source; NULL after a message. */
LENS_FN source *lens_new_source(attn_ctx *ctx, const char *path)
{
    source *const from = (source *)calloc(1, sizeof *from); /* too large for the stack */
    ctx->status = ATTN_OK; /* the readers check it, so an earlier failure must not be there */
    if (!from)
        attn_fail(ctx, ATTN_E_MEMORY, "no memory to read %s", path);
    return from;
}

/* Is it a file of torch.save? */
LENS_FN int lens_is_pickle(const char *path)
{
    unsigned char start[8] = {0};
    FILE *const file = system_not_a_file(path) ? NULL : system_open(path, "rb");
    const size_t n = file ? fread(start, 1, sizeof start, file) : 0;
    if (file)
        fclose(file);
    return n == sizeof start && pickle_begins(start);
}

/* Adds the tensors of a file of torch.save. *cfg, if it is not NULL, becomes the configuration of an autoencoder that was
 * saved with them, if there is one. */
LENS_FN attn_status lens_add_pickle(attn_ctx *ctx, source *from, const char *path, json_value **cfg)
{
    static const char *const keys[] = {"d_sae", NULL};
    pickle_file f;
    json_out o = {NULL, 0, 0, 0, 0};
    if (pickle_open(ctx, from, &f, path) || checkpoint_add_all(ctx, from, &f))
        return ctx->status;
    const pickle_value *const fields = cfg ? checkpoint_config(ctx, &f, f.root, keys, 3) : NULL;
    out_open(&o, NULL, '{');
    if (fields)
        *cfg = checkpoint_parse(ctx, from, &f, &o, fields, NULL, 0);
    out_free(&o);
    return ctx->status;
}

/* Opens a file of safetensors or of torch.save. Returns NULL after a message; lens_close_file closes it. */
LENS_FN source *lens_open_tensors(attn_ctx *ctx, const char *path, json_value **cfg)
{
    source *const from = lens_new_source(ctx, path);
    if (from && lens_is_gguf(path))
        attn_fail(ctx, ATTN_E_FORMAT, "%s: a safetensors file is expected", path);
    else if (from &&
             (lens_is_pickle(path) ? lens_add_pickle(ctx, from, path, cfg)
                                   : safetensors_open(ctx, from, path)) == ATTN_OK &&
             source_index(ctx, from) == ATTN_OK)
        return from;
    lens_close_file(from);
    return NULL;
}

/* The same for a file that may be GGUF of this architecture, if its name ends in .gguf. */
LENS_FN source *lens_open_file(attn_ctx *ctx, const char *path, const char *architecture)
{
    if (!lens_is_gguf(path))
        return lens_open_tensors(ctx, path, NULL);
    source *from = lens_new_source(ctx, path);
    if (from && gguf_open_tensors(ctx, from, path, architecture) == ATTN_OK)
        return from;
    lens_close_file(from);
    return NULL;
}

/* The file's name, for messages. */
LENS_FN const char *lens_file_name(const source *from)
{
    return from->files ? from->files->name : "";
}

/* *out: a tensor of the file as f32. It must have this shape. `reason` follows the expected shape in the
 * message: ", as cfg.json says". */
LENS_FN attn_status lens_read_tensor(attn_ctx *ctx, attn_tensor *out, source *from,
                                     const source_tensor *t, attn_shape shape, const char *reason)
{
    attn_tensor expected = ATTN_ZERO;
    uint64_t count = 1;
    shown found, name;
    int fits = t->dtype <= SOURCE_F64 && t->ndim == shape.ndim;
    expected.ndim = shape.ndim;
    for (int i = 0; i < shape.ndim; i++) {
        expected.shape[i] = shape.dim[i];
        fits = fits && t->shape[i] == shape.dim[i];
        count *= fits ? t->shape[i] : 1; /* no overflow: the file holds that many numbers */
    }
    if (!fits)
        return attn_fail(ctx, ATTN_E_FORMAT, "%s: %s is %s of %s; expected floats of %s%s",
                         lens_file_name(from), show(name, t->name, strlen(t->name)),
                         show_shape(found, t->ndim, t->shape), t->dtype_name,
                         lens_show(expected).text, reason);
    if (attn_zeros(ctx, out, ATTN_F32, shape) != ATTN_OK)
        return lens_failure(ctx);
    return source_run(ctx, from, t, 0, count, FLT_MAX, (float *)out->data);
}

/* The same for the tensor of this name. */
LENS_FN attn_status lens_read_named(attn_ctx *ctx, attn_tensor *out, source *from, const char *name,
                                    attn_shape shape, const char *reason)
{
    const source_tensor *t = source_find(from, name);
    if (!t)
        return attn_fail(ctx, ATTN_E_FORMAT, "%s has no tensor %s", lens_file_name(from), name);
    return lens_read_tensor(ctx, out, from, t, shape, reason);
}

#endif
