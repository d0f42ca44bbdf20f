/* lens record: activations into a .safetensors or .npz file. */
#ifndef LENS_CMD_RECORD_H
#define LENS_CMD_RECORD_H

#include "cmd_shards.h"
#include "tools/lens/save.h"

/* The names of the axes of an activation or its gradient. */
static const char *const *axes_of(const char *name)
{
    static const char *const names[][3] = {
        {"position", "width"}, {"position", "head", "width"}, {"head", "query", "key"}};
    return names[lens_axes_named(name)];
}

/* "activations": names and shapes. A caller also gets a dense table of each, of which rows are made only where somebody
 * asks for them. */
static int show_record(lens *l, const attn_record *record)
{
    const size_t n = attn_record_n_activations(record);
    answer_table *const t = add_rows(l, "activations", n, "name:s | shape:j");
    for (size_t i = 0; i < n && !l->ctx.status; i++) {
        attn_tensor x = {0};
        const char *const name = keep(l, "%s", attn_record_name(record, i)), *shape = "[";
        attn_record_get(&l->ctx, &x, record, name);
        for (int d = 0; d < x.ndim; d++)
            shape = keep(l, "%s%s%zu", shape, d ? ", " : "", x.shape[d]);
        answer_put(&l->answer, t, i, name, keep(l, "%s]", shape));
        if (keeps_tensors(l))
            answer_dense(&l->answer, name, axes_of(name), "value", x);
    }
    return outcome(&l->ctx);
}

static int run_record(lens *l, void *finding)
{
    const size_t piece = 64; /* tokens of a call */
    attn_record_desc *const desc = (attn_record_desc *)finding;
    attn_record *record = NULL;
    size_t bytes = 0, n;
    void *memory;
    int code;
    l->shown.print = print_nothing;
    if (l->o.lines) {
        if ((code = run_corpus(l)) == FINE && l->o.shuffle == not_given)
            tell_written(l, "shards of activations, and their index");
        return code;
    }
    desc->names = l->o.names.at;
    desc->n_names = l->o.names.n;
    desc->n_positions = l->text.n;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_record_size(&l->ctx, &bytes, l->model, desc))
        return failed(&l->ctx);
    if (!(memory = arena_alloc(&l->ctx, &l->memory, bytes ? bytes : 1, 1)))
        return fail(FAILED, "no memory for %.0f MiB of activations; name fewer of them",
                    (double)bytes / 1048576);
    desc->memory = memory;
    desc->memory_size = bytes;
    if (attn_record_new(&l->ctx, &record, l->session, desc))
        code = failed(&l->ctx);
    for (size_t t = 0; t < l->text.n && code == FINE; t += n) {
        n = l->text.n - t < piece ? l->text.n - t : piece;
        if (attn_feed(&l->ctx, l->session, l->text.ids + t, n))
            code = failed(&l->ctx);
        else if (so_far((double)(t + n) / (double)l->text.n, l))
            code = INTERRUPTED;
    }
    if (code == FINE && l->o.output && lens_save_record(&l->ctx, l->o.output, record))
        code = failed(&l->ctx);
    if (code == FINE && l->o.output)
        tell_written(l, keep(l, "%zu activations of %zu tokens", attn_record_n_activations(record),
                             l->text.n));
    if (code == FINE)
        code = show_record(l, record);
    l->record = record; /* its memory is the answer's */
    return code;
}

#endif
