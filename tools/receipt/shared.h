/* Receipts for the shared library, so that Python and other languages make and verify them. */
#ifndef TOOLS_RECEIPT_SHARED_H
#define TOOLS_RECEIPT_SHARED_H

#include "ask.h"

/* Writes a receipt to the file `path`. ATTN_E_ARGUMENT for more stop strings than a receipt holds, and if
 * the kernels of ctx->isa do not give the bits of a receipt. */
LENS_FN attn_status lens_receipt_of_generated(attn_ctx *ctx, const attn_model *model,
                                              const char *model_path, const receipt_generated *text,
                                              const char *path)
{
    const char *isa = attn_isa(ctx);
    if (!isa || strchr(isa, '('))
        return tool_fail(
            ctx, ATTN_E_ARGUMENT,
            "the kernels %s do not compute a receipt's bits: use those of isa portable",
            isa ? isa : "of this isa");
    if (text->n_stop > RECEIPT_MAX_STOPS)
        return tool_fail(ctx, ATTN_E_ARGUMENT, "%zu stop strings; a receipt has at most %d",
                         text->n_stop, (int)RECEIPT_MAX_STOPS);
    return receipt_write_text(ctx, text, model, model_path, path);
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
