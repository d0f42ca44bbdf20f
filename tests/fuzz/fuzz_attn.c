/* The reader of .attn files. The input is a file, opened as it is and then with its sizes and
 * checksums made right, for no fuzzer guesses those. What opens is used: fed, listed, tokenized
 * with. */
#include "tools/common/files.h"
#include "fuzz.h"

static void seal_part(unsigned char *file, size_t size, size_t where, size_t sum)
{
    const uint64_t offset = get_u64(file + where), n = get_u64(file + where + 8);
    if (offset <= size && n <= size - offset)
        put_u64(file + sum, model_checksum(0, file + offset, (size_t)n));
}

/* Makes the checksum of the strings right, which follow the tokenizer or the table. */
static void seal_strings(unsigned char *file, size_t size)
{
    const uint64_t text = get_u64(file + 96);
    uint64_t at = text ? text + get_u64(file + 104) : 256 + get_u64(file + 80);
    at = (at + 63) / 64 * 64;
    if (get_u32(file + 8) < 4 || at > size || size - at < 16)
        return;
    uint64_t n = get_u64(file + at + 8);
    if (n >= 16 && n <= size - at)
        put_u64(file + at, model_checksum(0, file + at + 8, (size_t)n - 8));
}

static void seal(unsigned char *file, size_t size)
{
    if (size < 256)
        return;
    for (size_t record = 256; record + 128 <= size && record < 256 + 128 * (size_t)file[64];
         record += 128)
        seal_part(file, size, record + 96, record + 112);
    put_u64(file + 16, size);
    seal_part(file, size, 72, 88);
    seal_part(file, size, 96, 112);
    seal_strings(file, size);
    put_u64(file + 248, model_checksum(0, file, 248));
}

static void use(attn_ctx *ctx, const attn_model *model)
{
    static const int32_t tokens[] = {0, 1, 0};
    static const char text[] = "ab bb'll \xE9 12\n <|end|>";
    const attn_config *c = attn_model_config(model);
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    attn_session_desc small = {.n_ctx = 3, .n_batch = 2};
    attn_session *session = NULL;
    model_tensor info;
    attn_tensor weight;
    int32_t ids[64];
    char back[64];
    const char *key = NULL;
    size_t n = 0, n_back = 0, bytes;
    if (c->n_ctx < small.n_ctx)
        small.n_ctx = c->n_ctx;
    while ((key = model_next_key(model, key)) != NULL) {
        const char *const value = attn_model_meta(model, key);
        MUST(value && *value && value == key + strlen(key) + 1);
    }
    MUST(!attn_model_meta(model, "no such key\n"));
    MUST(attn_config_is_eos(c, c->eos) == (c->eos >= 0));
    for (size_t i = 0; i < c->n_more_eos; i++)
        MUST(attn_config_is_eos(c, c->more_eos[i]));
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        info = model_tensor_at(model, i);
        memset(&weight, 0, sizeof weight);
        MUST(attn_model_tensor(ctx, &weight, model, info.name) == ATTN_OK);
        attn_tensor_free(ctx, &weight);
    }
    MUST(attn_session_size(ctx, &bytes, model, &small) == ATTN_OK);
    if (attn_session_new(ctx, &session, model, &small) == ATTN_OK) {
        n = c->n_vocab > 1 ? small.n_ctx : 1;
        MUST(attn_feed(ctx, session, tokens, n) == ATTN_OK && attn_session_logits(session));
        MUST(attn_feed(ctx, session, tokens, 4) == ATTN_E_CONTEXT);
    } else {
        MUST(ctx->status != ATTN_E_MEMORY);
    }
    attn_session_free(session);
    if (!tokenizer)
        return;
    n = 64;
    MUST(attn_encode(ctx, ids, &n, tokenizer, text, sizeof text - 1) == ATTN_OK);
    n_back = 64;
    MUST(attn_decode(ctx, back, &n_back, tokenizer, ids, n) == ATTN_OK);
    const size_t blank = attn_tokenizer_adds_blank(tokenizer) ? 1 : 0;
    MUST(n_back == sizeof text - 1 + blank && memcmp(back + blank, text, sizeof text - 1) == 0);
    n = 64;
    MUST(attn_encode_special(ctx, ids, &n, tokenizer, text, sizeof text - 1) == ATTN_OK);
}

int fuzz_attn(const unsigned char *data, size_t size)
{
    unsigned char *block = (unsigned char *)malloc(size + 64);
    attn_model *model = NULL;
    attn_model_desc desc;
    attn_ctx ctx;
    if (!block)
        return 0;
    unsigned char *file = block + (64 - (uintptr_t)block % 64) % 64;
    memcpy(file, data, size);
    for (int pass = 0; pass < 2; pass++) { /* as it is, then with the right sums */
        memset(&ctx, 0, sizeof ctx);
        ctx.n_threads = 1;
        memset(&desc, 0, sizeof desc);
        desc.skip_checksums = size % 2 != 0;
        if (attn_model_open_memory(&ctx, &model, file, size, &desc) == ATTN_OK) {
            use(&ctx, model);
            attn_model_close(model);
        } else {
            /* the file is small: what asks for more memory than there is asks for too much */
            MUST(!model && ctx.status && ctx.status != ATTN_E_MEMORY && ctx.message[0]);
        }
        attn_ctx_free(&ctx);
        seal(file, size);
    }
    free(block);
    return 0;
}
