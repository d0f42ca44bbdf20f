/* gpt2 --receipt: writes the receipt of a text, for attn-verify. */
#ifndef GPT2_RECEIPTS_H
#define GPT2_RECEIPTS_H

#include "tools/common/utf8.h"

/* Checks before the model is opened that the kernels give the bits of the contract, and that the texts
 * of the receipt are UTF-8. */
static int check_receipt(run *r)
{
    uint32_t code;
    size_t used;
    r->ctx.isa = (attn_isa_kind)r->o.isa;
    const char *isa = attn_isa(&r->ctx);
    if (isa && strchr(isa, '('))
        return fail(USAGE, "--receipt: %s does not compute a receipt's bits: add --isa portable",
                    isa);
    for (size_t i = 0; i < r->o.stop.n; i++) {
        const char *at = r->o.stop.at[i];
        for (; *at; at += used)
            if ((used = utf8_length((const unsigned char *)at, strlen(at), &code)) == 0)
                return fail(USAGE, "--receipt: a stop string is not UTF-8, which a receipt needs");
    }
    return FINE;
}

/* Writes the receipt. The prompt is the first n_prompt tokens of the text, and r->digests has a digest
 * for each draw. The draw of the end-of-text token has a digest, but that token is not in the text. */
static int write_receipt(run *r)
{
    receipt_generated made = {.f16_cache = r->o.f16_cache,
                              .sampling = sampling_of(&r->o, r->o.seed),
                              .max_tokens = r->o.tokens,
                              .ignore_eos = r->o.ignore_eos,
                              .n_stop = r->o.stop.n,
                              .stop = r->o.stop.at,
                              .prompt = r->text.ids,
                              .n_prompt = r->n_prompt,
                              .ended = r->reason,
                              .ids = r->text.ids + r->n_prompt,
                              .n_ids = r->n_generated,
                              .digests = r->digests};
    return receipt_write_text(&r->ctx, &made, r->model, r->o.model, r->o.receipt) ? failed(&r->ctx)
                                                                                  : FINE;
}

#endif
