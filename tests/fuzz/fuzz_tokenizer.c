/* The tokenizer. The first byte picks a vocabulary: that of the included model, or merges that the
 * next bytes make; the rest is text. Decoding must give the text back, from whole and from pieces;
 * the ids must be those of a slow, plain program below, which knows GPT-2's rules but only some of
 * Unicode: text beyond that is only taken there and back. */
#include "tools/files.h"
#include "fuzz.h"

enum { MOST_TEXT = 600, MOST_TOKENS = 4096, MOST_MERGES = 2048 };

typedef struct vocabulary {
    attn_tokenizer *tokenizer;
    unsigned char *section;
    uint32_t merges[MOST_MERGES][3];
    size_t n_merges;
    int32_t of_byte[256];
} vocabulary;

static void open_vocabulary(vocabulary *v, const unsigned char *section, size_t size)
{
    const size_t n_tokens = get_u32(section);
    const unsigned char *merges = section + 16 + 4 * n_tokens;
    attn_ctx ctx;
    size_t i, n;
    memset(&ctx, 0, sizeof ctx);
    if (attn_tokenizer_new(&ctx, &v->tokenizer, section, size) != ATTN_OK)
        fprintf(stderr, "%s\n", ctx.message);
    MUST(v->tokenizer);
    v->n_merges = get_u32(section + 4);
    MUST(v->n_merges <= MOST_MERGES);
    for (i = 0; i < 3 * v->n_merges; i++)
        v->merges[i / 3][i % 3] = get_u32(merges + 4 * i);
    for (i = n_tokens; i-- > 0;) {
        const char *bytes = attn_token_bytes(v->tokenizer, (int32_t)i, &n);
        if (bytes && n == 1)
            v->of_byte[(unsigned char)bytes[0]] = (int32_t)i;
    }
}

static const vocabulary *included(void)
{
    static vocabulary v;
    if (!v.tokenizer) {
        FILE *file = fopen(TEST_BUILD "/tiny-stories.attn", "rb");
        unsigned char header[256];
        size_t size;
        if (!file || fread(header, 1, 256, file) != 256) {
            fprintf(stderr, "no tiny-stories.attn: run make first\n");
            exit(2);
        }
        size = get_u32(header + 104);
        v.section = (unsigned char *)malloc(size);
        MUST(v.section && fseek(file, (long)get_u32(header + 96), SEEK_SET) == 0);
        MUST(fread(v.section, 1, size, file) == size);
        fclose(file);
        open_vocabulary(&v, v.section, size);
    }
    return &v;
}

/* Bytes, and merges of two earlier tokens each; a pair that was there or is too long is left out.
 */
static void made(vocabulary *v, input *in)
{
    unsigned char bytes[8192], *p;
    uint32_t start[600], end[600], merges[64][3];
    size_t n_tokens = 256, n_merges = 0, at = 256, i, count = take(in) % 64;
    for (i = 0; i < 256; i++) {
        bytes[i] = (unsigned char)i;
        start[i] = (uint32_t)i;
        end[i] = (uint32_t)i + 1;
    }
    while (count-- > 0) {
        size_t left = take(in), right = take(in), n, token;
        left = left >= 128 ? 256 + left % 128 : left; /* letters, or what was merged before */
        right = right >= 128 ? 256 + right % 128 : right;
        if (left >= n_tokens || right >= n_tokens)
            continue;
        n = end[left] - start[left] + end[right] - start[right];
        for (i = 0; i < n_merges && (merges[i][0] != left || merges[i][1] != right);)
            i++;
        if (i < n_merges || n > 100)
            continue;
        memcpy(bytes + at, bytes + start[left], end[left] - start[left]);
        memcpy(bytes + at + end[left] - start[left], bytes + start[right],
               end[right] - start[right]);
        for (token = 0; token < n_tokens; token++) /* several ways may lead to one token */
            if (end[token] - start[token] == n && memcmp(bytes + start[token], bytes + at, n) == 0)
                break;
        if (token == n_tokens) {
            start[n_tokens] = (uint32_t)at;
            at += n;
            end[n_tokens++] = (uint32_t)at;
        }
        merges[n_merges][0] = (uint32_t)left;
        merges[n_merges][1] = (uint32_t)right;
        merges[n_merges++][2] = (uint32_t)token;
    }
    v->section = p = (unsigned char *)malloc(16 + 4 * n_tokens + 12 * n_merges + at);
    MUST(p);
    put_u32(p, (uint32_t)n_tokens);
    put_u32(p + 4, (uint32_t)n_merges);
    put_u32(p + 8, 0);
    put_u32(p + 12, (uint32_t)at);
    p += 16;
    for (i = 0; i < n_tokens; i++, p += 4)
        put_u32(p, end[i]);
    for (i = 0; i < 3 * n_merges; i++, p += 4)
        put_u32(p, merges[i / 3][i % 3]);
    memcpy(p, bytes, at);
    open_vocabulary(v, v->section, (size_t)(p + at - v->section));
}

/* ---- the plain program ---- */

enum kind { SPACE, LETTER, DIGIT, OTHER, UNKNOWN };

static enum kind kind_of(uint32_t c)
{
    if ((c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || (c >= 0x2000 && c <= 0x200A) ||
        c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000)
        return SPACE;
    if ((c | 32) >= 'a' && (c | 32) <= 'z')
        return LETTER;
    if (c >= '0' && c <= '9')
        return DIGIT;
    if (c < 0x80)
        return OTHER;
    if (c == 0xAA || c == 0xB5 || c == 0xBA ||
        (c >= 0xC0 && c <= 0x24F && c != 0xD7 && c != 0xF7) || (c >= 0x391 && c <= 0x3A1) ||
        (c >= 0x410 && c <= 0x44F) || (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7A3))
        return LETTER;
    if (c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE) ||
        (c >= 0x660 && c <= 0x669) || (c >= 0x2160 && c <= 0x2182))
        return DIGIT;
    if (c <= 0xBF || c == 0xD7 || c == 0xF7 || (c >= 0x300 && c <= 0x36F) ||
        (c >= 0x2010 && c <= 0x2027) || (c >= 0x1F300 && c <= 0x1F5FF))
        return OTHER;
    return UNKNOWN;
}

/* One character of good UTF-8; 0 bytes if there is none. */
static size_t character(const unsigned char *p, size_t size, uint32_t *c)
{
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t i;
    *c = n == 1 ? p[0] : n == 2 ? p[0] & 31 : n == 3 ? p[0] & 15 : p[0] & 7;
    if (n == 0 || n > size || p[0] > 0xF4)
        return 0;
    for (i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        *c = *c << 6 | (p[i] & 63);
    }
    return *c < least[n] || *c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF) ? 0 : n;
}

typedef struct letter {
    uint32_t c;
    enum kind kind;
    size_t at; /* in the text */
} letter;

/* Where the piece that begins at letter i ends, by the alternatives of GPT-2's pattern in order:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t piece_end(const letter *l, size_t n, size_t i)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    size_t k, j, first = l[i].c == ' ' && i + 1 < n && l[i + 1].kind != SPACE ? i + 1 : i;
    for (k = 0; l[i].c == '\'' && k < 7; k++) {
        for (j = 0; endings[k][j] && i + 1 + j < n && l[i + 1 + j].c == (uint32_t)endings[k][j];)
            j++;
        if (!endings[k][j])
            return i + 1 + j;
    }
    for (j = first; j < n && l[j].kind == l[first].kind;)
        j++;
    if (l[first].kind != SPACE || j == n || j == i + 1)
        return j;
    return j - 1;
}

/* Merges the best pair everywhere, from left to right, until there is none. */
static size_t merge(const vocabulary *v, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = v->n_merges, i, k, to = 0;
        for (i = 0; i + 1 < n; i++)
            for (k = 0; k < best; k++)
                if (v->merges[k][0] == (uint32_t)ids[i] && v->merges[k][1] == (uint32_t)ids[i + 1])
                    best = k;
        if (best == v->n_merges)
            return n;
        for (i = 0; i < n; to++) {
            const int joined = i + 1 < n && v->merges[best][0] == (uint32_t)ids[i] &&
                               v->merges[best][1] == (uint32_t)ids[i + 1];
            ids[to] = joined ? (int32_t)v->merges[best][2] : ids[i];
            i += joined ? 2 : 1;
        }
        n = to;
    }
}

/* The number of ids; -1 for text that this program does not know enough about. */
static long plain(const vocabulary *v, const unsigned char *text, size_t size, int32_t *ids)
{
    letter l[MOST_TEXT + 1];
    size_t n = 0, at, i, last, used, n_ids = 0;
    for (at = 0; at < size; at += used, n++) {
        used = character(text + at, size - at, &l[n].c);
        l[n].kind = used ? kind_of(l[n].c) : UNKNOWN;
        l[n].at = at;
        if (l[n].kind == UNKNOWN)
            return -1;
    }
    l[n].at = size;
    for (i = 0; i < n; i = last) {
        size_t count = 0;
        last = piece_end(l, n, i);
        for (at = l[i].at; at < l[last].at; at++)
            ids[n_ids + count++] = v->of_byte[text[at]];
        n_ids += merge(v, ids + n_ids, count);
    }
    return (long)n_ids;
}

/* What attn_utf8_push makes of the text, in pieces of n bytes. */
static size_t push(const char *text, size_t size, size_t n, char *out)
{
    attn_utf8 state;
    size_t at, written = 0;
    memset(&state, 0, sizeof state);
    for (at = 0; at < size; at += n)
        written += attn_utf8_push(&state, text + at, size - at < n ? size - at : n, out + written);
    return written + attn_utf8_push(&state, NULL, 0, out + written);
}

int fuzz_tokenizer(const unsigned char *data, size_t size)
{
    static char back[MOST_TEXT], whole[4 * MOST_TEXT + 64], pieces[4 * MOST_TEXT + 64];
    static int32_t ids[MOST_TEXT], want[MOST_TEXT];
    static vocabulary own;
    const vocabulary *v = &own;
    attn_ctx ctx;
    input in;
    size_t n = 0, n_back = 0;
    long n_want;
    const unsigned kind = size ? data[0] : 0;
    in.data = data;
    in.size = size;
    take(&in);
    memset(&ctx, 0, sizeof ctx);
    memset(&own, 0, sizeof own);
    if (kind % 2 == 0)
        v = included();
    else
        made(&own, &in);
    if (in.size > MOST_TEXT)
        in.size = MOST_TEXT;
    MUST(attn_encode(&ctx, v->tokenizer, (const char *)in.data, in.size, 0, ids, MOST_TEXT, &n) ==
         ATTN_OK);
    MUST(attn_decode(&ctx, v->tokenizer, ids, n, back, sizeof back, &n_back) == ATTN_OK);
    MUST(n_back == in.size && memcmp(back, in.data, n_back) == 0);
    n_want = plain(v, in.data, in.size, want);
    if (n_want >= 0)
        MUST((size_t)n_want == n && memcmp(ids, want, n * sizeof *ids) == 0);
    n = push(back, n_back, n_back ? n_back : 1, whole);
    MUST(push(back, n_back, 1 + kind / 2 % 5, pieces) == n && memcmp(whole, pieces, n) == 0);
    if (n_want >= 0)
        MUST(n == n_back && memcmp(whole, back, n) == 0);
    attn_tokenizer_free(own.tokenizer);
    free(own.section);
    return 0;
}
