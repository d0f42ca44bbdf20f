/* Receipts on every platform: verifies those that another build made of the same models, and makes
 * each of them again, which must give the same bytes. Then every build of the matrix can verify what
 * any other made. */
#ifndef PLATFORMS_RECEIPTS_H
#define PLATFORMS_RECEIPTS_H

#include "tools/receipt/verify.h"

typedef struct receipt_maker {
    unsigned char digests[MAX_TOKENS * SHA256_SIZE];
    size_t n, n_vocab;
} receipt_maker;

/* An attn_logits_fn. */
static int keep_digest(float *logits, const attn_session *session, void *user)
{
    receipt_maker *m = (receipt_maker *)user;
    (void)session;
    if (m->n == MAX_TOKENS)
        return 1;
    sha256_floats(m->digests + m->n++ * SHA256_SIZE, logits, m->n_vocab);
    return 0;
}

/* The text of a receipt with the settings of `told`, generated here. */
static void make_again(attn_ctx *ctx, json_out *text, const attn_model *model, const receipt *told)
{
    static receipt_maker m;
    static int32_t ids[MAX_TOKENS];
    static unsigned char links[MAX_TOKENS * RECEIPT_LINK];
    attn_session *session = NULL;
    attn_generate_desc how;
    attn_generation made;
    receipt r = *told;
    char seal[SHA256_HEX];
    memset(&how, 0, sizeof how);
    memset(&made, 0, sizeof made);
    m.n = 0;
    m.n_vocab = attn_model_config(model)->n_vocab;
    how.sampling = told->text.sampling;
    how.max_tokens = told->text.max_tokens;
    how.ignore_eos = told->text.ignore_eos;
    how.prompt_tokens = told->text.prompt;
    how.n_prompt_tokens = told->text.n_prompt;
    how.logits_fn = keep_digest;
    how.logits_user = &m;
    made.tokens = ids;
    made.room = MAX_TOKENS;
    if (told->text.max_tokens > MAX_TOKENS ||
        !good(ctx, attn_session_new(ctx, &session, model, NULL), "receipt") ||
        !good(ctx, attn_generate(ctx, &made, session, NULL, &how), "receipt"))
        return;
    memset(r.chain, 0, sizeof r.chain);
    r.text.ids = ids;
    r.text.n_ids = made.n_tokens;
    r.text.ended = made.reason;
    r.links = links;
    r.n_links = 0;
    for (size_t i = 0; i < m.n; i++)
        receipt_add(&r, m.digests + i * SHA256_SIZE, (uint32_t)(i < r.text.n_ids ? ids[i] : r.eos));
    receipt_out(text, seal, &r);
    attn_session_free(session);
}

/* Returns 1 if a receipt does not hold here or comes out otherwise. */
static int check_receipt(attn_ctx *ctx, const attn_model *model, const char *path,
                         const char *model_path)
{
    arena memory = {NULL};
    json_out again = {NULL, 0, 0, 0, 0};
    receipt_findings found;
    receipt_text text = {NULL, 0};
    receipt r;
    receipt_identity identity;
    char *copy = NULL;
    int is_whole = 0, wrong = 1;
    found.text[0] = 0;
    if (good(ctx, read_file(ctx, &memory, path, RECEIPT_MAX_SIZE, &text.bytes, &text.size), path) &&
        (copy = arena_text(ctx, &memory, text.bytes, text.size)) != NULL &&
        good(ctx, receipt_parse(ctx, &r, &is_whole, &memory, path, text), path) &&
        good(ctx, receipt_model_digest(ctx, &identity, model, model_path), path)) {
        make_again(ctx, &again, model, &r);
        wrong = receipt_verify(ctx, &found, model, &r, &identity) != RECEIPT_HOLDS || !is_whole ||
                again.size + 1 != text.size || memcmp(again.text, copy, again.size) != 0;
    }
    if (wrong)
        printf("  receipt %s: %s\n", path, found.text[0] ? found.text : "another one is made here");
    out_free(&again);
    arena_free(&memory);
    return wrong;
}

/* All receipts of a directory; returns how many are wrong. */
static int check_receipts(const char *directory)
{
    static const char *const models[] = {"plain", "odd", "narrow", "long", "tiny-stories"};
    static const char *const dtypes[] = {"f32", "f16", "q8", "q4"};
    int n = 0, wrong = 0;
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    if (strchr(attn_isa(&ctx), '(')) /* no fused multiply-add */
        ctx.isa = ATTN_ISA_PORTABLE;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes; j++) {
            char path[512], receipt_path[520];
            attn_model *model = NULL;
            sprintf(path, "%.400s/%s-%s.attn", directory, models[i], dtypes[j]);
            sprintf(receipt_path, "%.400s/%s-%s.json", directory, models[i], dtypes[j]);
            if (!good(&ctx, attn_model_open(&ctx, &model, path, NULL), path))
                continue;
            wrong += check_receipt(&ctx, model, receipt_path, path);
            n++;
            attn_model_close(model);
        }
    printf("  receipts, %s: %d of %d\n", attn_isa(&ctx), n - wrong, n);
    return wrong;
}

#endif
