/* Receipts for the shared library, so that Python and other languages make and verify them. */
#ifndef TOOLS_RECEIPT_SHARED_H
#define TOOLS_RECEIPT_SHARED_H

#include "ask.h"

/* A generated text. */
typedef struct receipt_generated {
    attn_sampler_desc sampling;
    size_t max_tokens;
    int ignore_eos, f16_cache;
    const char *const *stop; /* [n_stop], at most RECEIPT_MAX_STOPS */
    size_t n_stop;
    attn_token *prompt, *ids; /* [n_prompt], [n_ids] */
    size_t n_prompt, n_ids;
    attn_stop_reason ended;
    const unsigned char
        *digests; /* [n_ids, 32]: SHA-256 of the logits of each draw, as f32 bits; one
                                   * more if an end-of-text token ended the text */
} receipt_generated;

/* Writes a receipt to the file `path`. ATTN_E_ARGUMENT for more stop strings than a receipt holds, and if
 * the kernels of ctx->isa do not give the bits of a receipt. */
LENS_FN attn_status lens_receipt_of_generated(attn_ctx *ctx, const attn_model *model,
                                              const char *model_path, const receipt_generated *text,
                                              const char *path)
{
    const char *isa = attn_isa(ctx);
    receipt made;
    if (!isa || strchr(isa, '('))
        return tool_fail(
            ctx, ATTN_E_ARGUMENT,
            "the kernels %s do not compute a receipt's bits: use those of isa portable",
            isa ? isa : "of this isa");
    if (text->n_stop > RECEIPT_MAX_STOPS)
        return tool_fail(ctx, ATTN_E_ARGUMENT, "%zu stop strings; a receipt has at most %d",
                         text->n_stop, (int)RECEIPT_MAX_STOPS);
    memset(&made, 0, sizeof made);
    made.sampling = text->sampling;
    made.max_tokens = text->max_tokens;
    made.ignore_eos = text->ignore_eos;
    made.cache = text->f16_cache ? ATTN_F16 : ATTN_F32;
    made.stop = text->stop;
    made.n_stop = text->n_stop;
    made.prompt = text->prompt;
    made.n_prompt = text->n_prompt;
    made.ids = text->ids;
    made.n_ids = text->n_ids;
    made.ended = text->ended;
    return receipt_write_text(ctx, &made, model, model_path, text->digests, path);
}

/* Verifies the receipt in the file `path`. *holds: whether it holds; if not, `found` is the first difference
 * as a sentence, and if so, what a receipt of this version does not cover, or nothing. A status only if the receipt could not be checked. */
LENS_FN attn_status lens_receipt_check(attn_ctx *ctx, int *holds, receipt_findings *found,
                                       const attn_model *model, const char *model_path,
                                       const char *path)
{
    receipt_identity identity;
    receipt_verdict verdict = RECEIPT_FAILED;
    const receipt_how how = {NULL, NULL, 0, NULL};
    arena memory = {NULL};
    receipt told;
    const char *isa = attn_isa(ctx);
    if (!isa || strchr(isa, '('))
        ctx->isa = ATTN_ISA_PORTABLE;
    memset(found, 0, sizeof *found);
    if (!receipt_model_digest(ctx, &identity, model, model_path))
        verdict = receipt_check_file(ctx, found, &told, &memory, model, &identity, path, &how);
    arena_free(&memory);
    *holds = verdict == RECEIPT_HOLDS;
    return verdict == RECEIPT_FAILED ? ctx->status : ATTN_OK;
}

#endif
