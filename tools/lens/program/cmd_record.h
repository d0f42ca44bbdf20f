/* lens record: activations into a .safetensors or .npz file. */
#ifndef LENS_CMD_RECORD_H
#define LENS_CMD_RECORD_H

#include "cmd_shards.h"
#include "tools/lens/save.h"

static void json_record(lens *l, const attn_record *record)
{
    const size_t n = attn_record_n_activations(record);
    size_t i;
    int d;
    printf("{");
    for (i = 0; i < n; i++) {
        const char *name = attn_record_name(record, i);
        attn_tensor value = {0};
        attn_record_get(&l->ctx, &value, record, name);
        printf("%s\n \"%s\": [", i ? "," : "", name);
        for (d = 0; d < value.ndim; d++)
            printf("%s%zu", d ? ", " : "", value.shape[d]);
        printf("]");
    }
    printf("\n}\n");
}

static int run_record(lens *l)
{
    const size_t piece = 64; /* tokens of a call */
    attn_record_desc desc = {0};
    attn_record *record = NULL;
    size_t bytes = 0, t, n;
    void *memory;
    int code;
    if (l->o.lines) {
        if ((code = run_corpus(l)) == FINE && l->o.shuffle == not_given)
            tell_written(l, "shards of activations, and their index");
        return code;
    }
    desc.names = l->names;
    desc.n_names = l->n_names;
    desc.n_positions = l->text.n;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_record_size(&l->ctx, &bytes, l->model, &desc))
        return failed(&l->ctx);
    memory = malloc(bytes ? bytes : 1);
    if (!memory)
        return fail(FAILED, "no memory for %.0f MiB of activations; name fewer of them",
                    (double)bytes / 1048576);
    desc.memory = memory;
    desc.memory_size = bytes;
    if (attn_record_new(&l->ctx, &record, l->session, &desc))
        code = failed(&l->ctx);
    for (t = 0; t < l->text.n && code == FINE; t += n) {
        n = l->text.n - t < piece ? l->text.n - t : piece;
        if (attn_feed(&l->ctx, l->session, l->text.ids + t, n))
            code = failed(&l->ctx);
    }
    if (code == FINE && lens_save_record(&l->ctx, l->o.output, record))
        code = failed(&l->ctx);
    if (code == FINE)
        tell_written(l, keep(l, "%zu activations of %zu tokens", attn_record_n_activations(record),
                             l->text.n));
    if (code == FINE && l->o.json)
        json_record(l, record);
    attn_record_free(record);
    free(memory);
    return code;
}

#endif
