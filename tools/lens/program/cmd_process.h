/* lens process: writes the model that TransformerLens's from_pretrained makes. */
#ifndef LENS_CMD_PROCESS_H
#define LENS_CMD_PROCESS_H

#include "tools/lens/process_weights.h"
#include "tools/lens/refactor.h"
#include "findings.h"

static int run_process(lens *l, void *finding)
{
    const lens_options *o = &l->o;
    const unsigned flags =
        (o->no_fold_ln ? 0 : LENS_PROCESS_FOLD_LN) |
        (o->no_center_writing_weights ? 0 : LENS_PROCESS_CENTER_WRITING_WEIGHTS) |
        (o->no_center_unembed ? 0 : LENS_PROCESS_CENTER_UNEMBED) |
        (o->no_fold_value_biases ? 0 : LENS_PROCESS_FOLD_VALUE_BIASES);
    attn_model *made = NULL;
    (void)finding;
    if (flags == 0 && !o->refactor)
        return fail(USAGE, "nothing is left to do: leave out one of the --no- options");
    if (flags && lens_process_weights(&l->ctx, &made, l->model, flags) != ATTN_OK)
        return failed(&l->ctx);
    if (!o->refactor)
        lens_model_save(&l->ctx, o->output, made);
    else
        lens_refactor_attention(&l->ctx, o->output, made ? made : l->model);
    attn_model_close(made);
    l->shown.print = print_nothing;
    if (!l->ctx.status)
        facts(l, "file:s", o->output);
    return outcome(&l->ctx);
}

#endif
