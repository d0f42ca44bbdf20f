/* A digest of bytes: FNV-1a of 64 bits (Fowler, Noll and Vo). It detects accidental changes, but not bytes
 * that somebody chose to have the same digest. */
#ifndef TOOLS_DIGEST_H
#define TOOLS_DIGEST_H

#include "files.h"
#include "tools/write/model_file.h"

#define DIGEST_START 0xcbf29ce484222325u

TOOLS_FN uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (; size > 0; size--)
        digest = (digest ^ *at++) * 0x100000001b3u;
    return digest;
}

/* Adds one text of several. Its size separates it from the next one. */
TOOLS_FN uint64_t digest_text(uint64_t digest, const char *text, size_t size)
{
    unsigned char number[8];
    put_u64(number, size);
    return digest_bytes(digest_bytes(digest, number, sizeof number), text, size);
}

/* The digest of a model: of the checksums of its weights and of the bytes of its tokens. */
TOOLS_FN uint64_t digest_model(const attn_model *model)
{
    const attn_tokenizer *const tokenizer = attn_model_tokenizer(model);
    uint64_t digest = DIGEST_START;
    unsigned char number[8];
    const char *bytes;
    size_t size;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        put_u64(number, model_tensor_at(model, i).checksum);
        digest = digest_bytes(digest, number, sizeof number);
    }
    for (size_t i = 0; i < attn_tokenizer_n_tokens(tokenizer); i++) {
        bytes = attn_token_bytes(&size, tokenizer, (int32_t)i);
        digest = digest_text(digest, bytes, size);
    }
    return digest;
}

typedef char digest_shown[17];
TOOLS_FN const char *show_digest(digest_shown out, uint64_t digest)
{
    snprintf(out, sizeof(digest_shown), "%08lx%08lx", (unsigned long)(digest >> 32),
             (unsigned long)(digest & 0xffffffff));
    return out;
}

#endif
