/* lens process: writes the model that TransformerLens's from_pretrained makes. */
#ifndef LENS_PROCESS_H
#define LENS_PROCESS_H

#include "tools/lens/refactor.h"
#include "run.h"

/* Reads the tokenizer section of the model's file, which attn_model_open has checked. *size is 0 if there is
 * none. */
static attn_status read_section(lens *l, unsigned char **section, size_t *size)
{
    unsigned char header[256];
    FILE *file = system_open(l->model_path, "rb");
    int whole = file && fread(header, 1, sizeof header, file) == sizeof header;
    *section = NULL;
    *size = 0;
    if (whole && get_u64(header + 96) > 0) {
        *size = (size_t)get_u64(header + 104);
        *section = (unsigned char *)allocate(l, *size, 1);
        whole = *section && system_seek(file, get_u64(header + 96)) == 0 &&
                fread(*section, 1, *size, file) == *size;
    }
    if (!whole && l->ctx.status == ATTN_OK)
        tool_fail_io(&l->ctx, "cannot read", l->model_path);
    if (file)
        fclose(file);
    return l->ctx.status;
}

static int run_process(lens *l)
{
    const options *o = &l->o;
    const unsigned flags =
        (o->no_fold_ln ? 0 : ATTN_PROCESS_FOLD_LN) |
        (o->no_center_writing_weights ? 0 : ATTN_PROCESS_CENTER_WRITING_WEIGHTS) |
        (o->no_center_unembed ? 0 : ATTN_PROCESS_CENTER_UNEMBED) |
        (o->no_fold_value_biases ? 0 : ATTN_PROCESS_FOLD_VALUE_BIASES);
    attn_model *made = NULL;
    unsigned char *section;
    size_t size;
    if (flags == 0 && !o->refactor)
        return fail(USAGE, "nothing is left to do: leave out one of the --no- options");
    if (flags && attn_process_weights(&l->ctx, &made, l->model, flags) != ATTN_OK)
        return failed(&l->ctx);
    if (!o->refactor)
        attn_model_save(&l->ctx, o->output, made);
    else if (read_section(l, &section, &size) == ATTN_OK)
        lens_refactor_attention(&l->ctx, o->output, made ? made : l->model, section, size);
    attn_model_close(made);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

#endif
