/* Checks that files are those of GPT-2 small, by their SHA-256. Small files are in the hub's git, which
 * has only git's name for their content: the SHA-1 (FIPS 180-4) of "blob SIZE\0" and the bytes. */
#ifndef REPRODUCE_WEIGHTS_H
#define REPRODUCE_WEIGHTS_H

#include "tools/common/program.h"
#include "tools/common/sha256.h"

enum { SHA1_SIZE = 20 };

typedef struct sha1 {
    uint32_t state[5];
    uint64_t size;
    unsigned char block[64];
} sha1;

static void sha1_block(sha1 *h)
{
    uint32_t a = h->state[0], b = h->state[1], c = h->state[2], d = h->state[3], e = h->state[4];
    uint32_t w[80], f, next;
    size_t i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)h->block[4 * i] << 24 | (uint32_t)h->block[4 * i + 1] << 16 |
               (uint32_t)h->block[4 * i + 2] << 8 | h->block[4 * i + 3];
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
    h->state[0] += a;
    h->state[1] += b;
    h->state[2] += c;
    h->state[3] += d;
    h->state[4] += e;
}

static void sha1_begin(sha1 *h)
{
    static const uint32_t first[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u,
                                      0xc3d2e1f0u};
    memcpy(h->state, first, sizeof first);
    h->size = 0;
}

static void sha1_add(sha1 *h, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t i;
    for (i = 0; i < size; i++) {
        h->block[h->size++ % 64] = at[i];
        if (h->size % 64 == 0)
            sha1_block(h);
    }
}

static void sha1_end(sha1 *h, unsigned char digest[SHA1_SIZE])
{
    static const unsigned char one = 0x80, zero = 0;
    const uint64_t bits = h->size * 8;
    unsigned char length[8];
    int i;
    for (i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(h, &one, 1);
    while (h->size % 64 != 56)
        sha1_add(h, &zero, 1);
    sha1_add(h, length, 8);
    for (i = 0; i < SHA1_SIZE; i++)
        digest[i] = (unsigned char)(h->state[i / 4] >> (24 - 8 * (i % 4)));
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
static attn_status digest_of_file(attn_ctx *ctx, char hex[SHA256_HEX], uint64_t *size,
                                  const char *path, const weights_file *expected)
{
    enum { PIECE = 1 << 16 };
    unsigned char *piece = (unsigned char *)malloc(PIECE), digest[SHA256_SIZE];
    FILE *file = piece ? open_input(ctx, path) : NULL;
    char header[48];
    sha1 git;
    sha256 whole;
    size_t n;
    long end;
    *size = 0;
    if (!piece)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to read %s", path);
    if (!file) {
        free(piece);
        return ctx->status;
    }
    sha1_begin(&git);
    sha256_begin(&whole);
    if (expected->in_git && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        snprintf(header, sizeof header, "blob %ld", end);
        sha1_add(&git, header, strlen(header) + 1);
    }
    while ((n = fread(piece, 1, PIECE, file)) > 0) {
        if (expected->in_git)
            sha1_add(&git, piece, n);
        else
            sha256_add(&whole, piece, n);
        *size += n;
    }
    if (ferror(file))
        tool_fail_io(ctx, "cannot read", path);
    fclose(file);
    free(piece);
    if (expected->in_git)
        sha1_end(&git, digest);
    else
        sha256_end(&whole, digest);
    sha256_hex(hex, digest, expected->in_git ? SHA1_SIZE : SHA256_SIZE);
    return ctx->status;
}

#endif
