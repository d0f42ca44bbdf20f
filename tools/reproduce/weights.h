/* Checks that files are those of GPT-2 small, by their SHA-256. Small files are in the hub's git, which
 * has only git's name for their content: the SHA-1 (FIPS 180-4) of "blob SIZE\0" and the bytes. */
#ifndef REPRODUCE_WEIGHTS_H
#define REPRODUCE_WEIGHTS_H

#include "tools/common/program.h"
#include "tools/common/sha256.h"

enum { SHA1_SIZE = 20 };

/* Goes on with the next 64 bytes. */
static void sha1_block(uint32_t state[5], const unsigned char *bytes)
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    uint32_t w[80], f, next;
    size_t i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 |
               (uint32_t)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    for (; i < 80; i++) {
        next = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
        w[i] = next << 1 | next >> 31;
    }
    for (i = 0; i < 80; i++) {
        f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
            : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
            : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                     : (b ^ c ^ d) + 0xca62c1d6u;
        next = (a << 5 | a >> 27) + f + e + w[i];
        e = d;
        d = c;
        c = b << 30 | b >> 2;
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Git's name for the content of a small file. */
static attn_status git_digest(attn_ctx *ctx, arena *memory, unsigned char digest[SHA1_SIZE],
                              FILE *file, const char *path, size_t *size)
{
    uint32_t state[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    unsigned char *padded;
    char *bytes, header[48];
    if (read_all(ctx, memory, file, path, SIZE_MAX - 1, &bytes, size))
        return ctx->status;
    size_t begin = (size_t)snprintf(header, sizeof header, "blob %zu", *size) + 1;
    size_t end = (begin + *size + 9 + 63) / 64 * 64;
    if (!(padded = (unsigned char *)arena_alloc(ctx, memory, end, 1)))
        return ctx->status;
    memcpy(padded, header, begin);
    memcpy(padded + begin, bytes, *size);
    padded[begin + *size] = 0x80;
    for (int i = 0; i < 8; i++)
        padded[end - 1 - (size_t)i] = (unsigned char)((uint64_t)(begin + *size) * 8 >> 8 * i);
    for (size_t at = 0; at < end; at += 64)
        sha1_block(state, padded + at);
    for (int i = 0; i < SHA1_SIZE; i++)
        digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
    return ATTN_OK;
}

/* ---- GPT-2 small's files ---- */

#define WEIGHTS_SOURCE "huggingface.co/openai-community/gpt2@607a30d7"

typedef struct weights_file {
    const char *name, *digest;
    uint64_t size;
    int in_git; /* the digest is git's name, not a SHA-256 */
} weights_file;

static const weights_file weights_files[] = {
    {"model.safetensors", "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
     548105171, 0},
    {"config.json", "10c66461e4c109db5a2196bff4bb59be30396ed8", 665, 1},
    {"vocab.json", "1f1d9aaca301414e7f6c9396df506798ff4eb9a6", 1042301, 1},
    {"merges.txt", "226b0752cac7789c48f0cb3ec53eda48b7be36cc", 456318, 1},
};
enum { N_WEIGHTS_FILES = sizeof weights_files / sizeof weights_files[0] };

/* hex: the digest of a file, of the same kind as that of `expected`. *size: its size in bytes. */
static attn_status digest_of_file(attn_ctx *ctx, arena *memory, char hex[SHA256_HEX], size_t *size,
                                  const char *path, const weights_file *expected)
{
    enum { PIECE = 1 << 16 };
    unsigned char digest[SHA256_SIZE] = {0};
    FILE *const file = open_input(ctx, path);
    unsigned char *const piece = file ? (unsigned char *)arena_alloc(ctx, memory, PIECE, 1) : NULL;
    sha256 whole;
    size_t n;
    *size = 0;
    if (piece && expected->in_git) {
        git_digest(ctx, memory, digest, file, path, size);
    } else if (piece) {
        sha256_begin(&whole);
        for (; (n = fread(piece, 1, PIECE, file)) > 0; *size += n)
            sha256_add(&whole, piece, n);
        sha256_end(&whole, digest);
        if (ferror(file))
            tool_fail_io(ctx, "cannot read", path);
    }
    if (file)
        fclose(file);
    if (!ctx->status)
        sha256_hex(hex, digest, expected->in_git ? SHA1_SIZE : SHA256_SIZE);
    return ctx->status;
}

#endif
